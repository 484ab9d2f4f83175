"""Small trainings with pictures of the kinds that people run, from start to end."""

import itertools
import math
import random
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"


def vae():
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(784, 400), nn.ReLU(), nn.Linear(400, 40)).to(device)
    decoder = nn.Sequential(nn.Linear(20, 400), nn.ReLU(), nn.Linear(400, 784)).to(device)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-3)
    loader = DataLoader(TensorDataset(torch.rand(1280, 1, 28, 28)), 128, shuffle=True)
    prior = torch.distributions.Normal(torch.zeros(20, device=device), torch.ones(20, device=device))
    for epoch in range(10):
        total = 0.0
        for (x,) in loader:
            x = x.to(device)
            mean, spread = encoder(x).chunk(2, -1)
            posterior = torch.distributions.Normal(mean, functional.softplus(spread) + 1e-6)
            out = torch.distributions.Bernoulli(logits=decoder(posterior.rsample()))
            loss = -out.log_prob((x.flatten(1) > 0.5).float()).sum(-1).mean()
            loss = loss + torch.distributions.kl_divergence(posterior, prior).sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
        print(f"epoch {epoch}: {total / len(loader.dataset):.4f}")
        with torch.no_grad():
            print(decoder(prior.sample((64,))).sigmoid().view(-1, 1, 28, 28).cpu().mean())


def gan():
    made = nn.Sequential(
        nn.ConvTranspose2d(64, 64, 4, 1, 0), nn.BatchNorm2d(64), nn.ReLU(),
        nn.ConvTranspose2d(64, 32, 4, 4), nn.BatchNorm2d(32), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh(),
    ).to(device)  # fmt: skip
    judge = nn.Sequential(
        nn.Conv2d(3, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 1, 8)
    ).to(device)
    ours, its = torch.optim.Adam(made.parameters(), 2e-4), torch.optim.Adam(judge.parameters(), 2e-4)
    fixed, pictures = torch.randn(16, 64, 1, 1, device=device), []
    loader = DataLoader(TensorDataset(torch.rand(640, 3, 32, 32)), 64, drop_last=True)
    for _ in range(20):
        for at, (real,) in enumerate(loader):
            judge.zero_grad()
            real = real.to(device)
            ones = torch.full((len(real),), 1.0, device=device)
            loss = functional.binary_cross_entropy_with_logits(judge(real).view(-1), ones)
            loss.backward()
            fake = made(torch.randn(len(real), 64, 1, 1, device=device))
            functional.binary_cross_entropy_with_logits(judge(fake.detach()).view(-1), ones.fill_(0)).backward()
            its.step()
            made.zero_grad()
            functional.binary_cross_entropy_with_logits(judge(fake).view(-1), ones.fill_(1)).backward()
            ours.step()
            if at % 5 == 0:
                with torch.no_grad():
                    pictures.append(made(fixed).detach().cpu())
    print(len(pictures))


class Pool:
    """Pictures made before, of which some are given back."""

    def __init__(self, most=50):
        self.most, self.kept = most, []

    def ask(self, pictures):
        given = []
        for it in pictures.detach():
            it = it.unsqueeze(0)
            if len(self.kept) < self.most:
                self.kept.append(it)
            elif random.random() > 0.5:
                at = random.randrange(self.most)
                it, self.kept[at] = self.kept[at].clone(), it
            given.append(it)
        return torch.cat(given)


def cycles():
    """Two generators, two judges, and the cycle between them."""

    def generator():
        return nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), nn.InstanceNorm2d(16), nn.ReLU(), nn.Conv2d(16, 3, 3, 1, 1))

    def discriminator():
        return nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 1, 4, 2, 1))

    forth, back = generator().to(device), generator().to(device)
    first, second = discriminator().to(device), discriminator().to(device)
    makes = torch.optim.Adam(itertools.chain(forth.parameters(), back.parameters()), 2e-4)
    judges = torch.optim.Adam(itertools.chain(first.parameters(), second.parameters()), 2e-4)
    schedule = torch.optim.lr_scheduler.LambdaLR(makes, lambda it: 1 - max(0, it - 10) / 11)
    pools = Pool(), Pool()

    def judged(net, x, goal):
        out = net(x)
        return functional.mse_loss(out, torch.full_like(out, goal))

    for _ in range(20):
        for _ in range(25):
            a, b = torch.rand(2, 1, 3, 64, 64, device=device)
            fake_b, fake_a = forth(a), back(b)
            loss = judged(second, fake_b, 1.0) + judged(first, fake_a, 1.0)
            loss = loss + 10 * (functional.l1_loss(back(fake_b), a) + functional.l1_loss(forth(fake_a), b))
            makes.zero_grad()
            loss.backward()
            makes.step()
            judges.zero_grad()
            for net, real, fake, pool in ((first, a, fake_a, pools[0]), (second, b, fake_b, pools[1])):
                (judged(net, real, 1.0) + judged(net, pool.ask(fake), 0.0)).mul(0.5).backward()
            judges.step()
        schedule.step()


class UNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        sizes = 3, 16, 32, 64
        self.down = nn.ModuleList(self.double(a, b) for a, b in itertools.pairwise(sizes))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in ((32, 64), (16, 32)))
        self.join = nn.ModuleList(self.double(2 * it, it) for it in (32, 16))
        self.head = nn.Conv2d(16, classes, 1)

    @staticmethod
    def double(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True))

    def forward(self, x):
        kept = []
        for it in self.down:
            x = it(functional.max_pool2d(x, 2) if kept else x)
            kept.append(x)
        for up, join, beside in zip(self.up, self.join, kept[-2::-1]):
            x = join(torch.cat([up(x), beside], 1))
        return self.head(x)


def segmentation():
    """A U-Net with a mask of pixels that do not count, and the overlap of each class after each epoch."""
    net = UNet().to(device)
    optimizer = torch.optim.RMSprop(net.parameters(), 1e-4, momentum=0.9)
    scaler = torch.amp.GradScaler(device)
    pictures = TensorDataset(torch.rand(64, 3, 64, 64), torch.randint(0, 4, (64, 64, 64)))
    train, held = torch.utils.data.random_split(pictures, [48, 16])
    for _ in range(8):
        net.train()
        for x, y in DataLoader(train, 8, shuffle=True):
            x, y = x.to(device), y.to(device)
            with torch.autocast(device, torch.float16):
                out = net(x)
                loss = functional.cross_entropy(out, y.where(y < 3, -100), ignore_index=-100)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        net.eval()
        counts = torch.zeros(3, 2, device=device)
        with torch.no_grad():
            for x, y in DataLoader(held, 8):
                out, y = net(x.to(device)).argmax(1), y.to(device)
                valid = y < 3
                for it in range(3):
                    one, other = out[valid] == it, y[valid] == it
                    counts[it] += torch.stack([(one & other).sum(), (one | other).sum()])
        overlaps = counts[:, 0] / counts[:, 1].clamp(min=1)
        print([round(it, 3) for it in overlaps.tolist()])


def boxes():
    """Detection with torchvision, and its evaluation."""
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large
    from torchvision.ops import box_iou

    class Pictures(Dataset):
        def __len__(self):
            return 24

        def __getitem__(self, place):
            count = 1 + place % 3
            corners = torch.rand(count, 2) * 100
            target = {"boxes": torch.cat([corners, corners + 60], 1), "labels": torch.randint(1, 4, (count,))}
            return torch.rand(3, 200, 240), target

    net = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.002, momentum=0.9)
    loader = DataLoader(Pictures(), 4, shuffle=True, collate_fn=lambda it: tuple(zip(*it)))
    for _ in range(3):
        net.train()
        for pictures, targets in loader:
            pictures = [it.to(device) for it in pictures]
            targets = [{name: it.to(device) for name, it in one.items()} for one in targets]
            losses = net(pictures, targets)
            loss = sum(losses.values())
            if not math.isfinite(loss.item()):
                sys.exit("the loss is not finite")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.inference_mode():
            for pictures, targets in loader:
                for out, target in zip(net([it.to(device) for it in pictures]), targets):
                    kept = out["boxes"][out["scores"] > 0.5]
                    if len(kept):
                        print(box_iou(kept, target["boxes"].to(device)).max(1).values.mean().item())


def distillation():
    """A small vision transformer learns from a larger one."""
    from torchvision.models import VisionTransformer

    def vit(width, layers):
        net = VisionTransformer(64, 16, layers, 4, width, 2 * width, num_classes=10)
        return net.to(device)

    teacher, student = vit(256, 4).eval().requires_grad_(False), vit(64, 2)
    optimizer = torch.optim.AdamW(student.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=200)
    loader = DataLoader(TensorDataset(torch.rand(320, 3, 64, 64), torch.randint(10, (320,))), 32)
    for _ in range(20):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            with torch.no_grad():
                soft = teacher(x)
            out = student(x)
            loss = functional.kl_div((out / 2).log_softmax(-1), (soft / 2).softmax(-1), reduction="batchmean") * 4
            loss = 0.5 * loss + 0.5 * functional.cross_entropy(out, y, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        student.eval()
        with torch.no_grad():
            right = sum((student(x.to(device)).argmax(1) == y.to(device)).sum().item() for x, y in loader)
        student.train()
        print(right / 320)
    torch.save(student.state_dict(), "student.pt")


def pairs():
    """Pictures and their texts, as CLIP: each knows its own among all of a batch."""

    class Clip(nn.Module):
        def __init__(self):
            super().__init__()
            self.see = nn.Sequential(nn.Conv2d(3, 32, 8, 8), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
            self.words = nn.Embedding(500, 64)
            layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
            self.read = nn.TransformerEncoder(layer, 2)
            self.one, self.other = nn.Linear(32, 64), nn.Linear(64, 64)
            self.scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

        def forward(self, pictures, ids):
            mask = ids == 0
            read = self.read(self.words(ids), src_key_padding_mask=mask)
            read = read[torch.arange(len(ids), device=ids.device), (~mask).sum(1) - 1]
            one = functional.normalize(self.one(self.see(pictures)), dim=-1)
            return self.scale.exp() * one @ functional.normalize(self.other(read), dim=-1).T

    net = Clip().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), 5e-4, weight_decay=0.2)
    for number in range(300):
        ids = torch.randint(1, 500, (32, 16))
        ids[torch.arange(16)[None] >= torch.randint(4, 17, (32,))[:, None]] = 0
        logits = net(torch.rand(32, 3, 64, 64, device=device), ids.to(device))
        labels = torch.arange(len(logits), device=device)
        loss = (functional.cross_entropy(logits, labels) + functional.cross_entropy(logits.T, labels)) / 2
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            net.scale.clamp_(0, math.log(100))
        if number % 100 == 0:
            print(number, loss.item(), (logits.argmax(1) == labels).float().mean().item())


def field():
    """A radiance field: rays, samples where there is something, and a picture drawn in parts."""
    net = nn.Sequential(nn.Linear(39, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4)).to(device)
    optimizer = torch.optim.Adam(net.parameters(), 5e-4)
    bands = 2.0 ** torch.arange(6, device=device)

    def raw(points):
        angles = (points[..., None] * bands).flatten(-2)
        return net(torch.cat([points, angles.sin(), angles.cos()], -1))

    def colours(origins, directions, depths):
        out = raw(origins[:, None] + directions[:, None] * depths[..., None])
        gaps = torch.cat([depths.diff(dim=-1), torch.full_like(depths[:, :1], 1e10)], -1)
        opacity = 1 - torch.exp(-out[..., 3].relu() * gaps)
        passed = torch.cumprod(torch.cat([torch.ones_like(opacity[:, :1]), 1 - opacity + 1e-10], -1), -1)[:, :-1]
        weights = opacity * passed
        return (weights[..., None] * out[..., :3].sigmoid()).sum(1), weights

    def drawn(origins, directions):
        depths = torch.linspace(2, 6, 32, device=device).expand(len(origins), -1).contiguous()
        coarse, weights = colours(origins, directions, depths)
        chances = (weights.detach()[:, 1:-1] + 1e-5).cumsum(-1)
        chances = chances / chances[:, -1:]
        at = torch.searchsorted(chances, torch.rand(len(origins), 32, device=device)).clamp(max=29)
        fine, _ = torch.sort(torch.cat([depths, depths.gather(1, at + 1)], -1), -1)
        return coarse, colours(origins, directions, fine)[0]

    for number in range(1, 1001):
        origins, directions = torch.rand(2, 256, 3, device=device)
        goal = torch.rand(256, 3, device=device)
        coarse, fine = drawn(origins, directions)
        loss = functional.mse_loss(coarse, goal) + functional.mse_loss(fine, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = 5e-4 * 0.1 ** (number / 1000)
        if number % 500 == 0:
            with torch.no_grad():
                rays = torch.rand(2, 64 * 64, 3, device=device)
                parts = [drawn(*rays[:, it : it + 1024])[1].cpu() for it in range(0, 64 * 64, 1024)]
            print(torch.cat(parts).view(64, 64, 3).mean().item())


def super_resolution():
    body = [nn.Conv2d(3, 32, 3, padding=1)] + [nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()] * 2
    net = nn.Sequential(*body, nn.Conv2d(32, 48, 3, padding=1), nn.PixelShuffle(4))
    net = net.to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(net.parameters(), 1e-4)
    best = 0.0
    for epoch in range(10):
        for _ in range(20):
            large = torch.rand(8, 3, 96, 96, device=device)
            small = functional.interpolate(large, scale_factor=0.25, mode="bicubic", antialias=True)
            loss = functional.l1_loss(net(small), large)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            large = torch.rand(1, 3, 256, 256, device=device)
            out = net(functional.interpolate(large, scale_factor=0.25, mode="bicubic")).clamp(0, 1)
            ratio = 10 * torch.log10(1 / functional.mse_loss(out, large))
        if ratio > best:
            best = ratio.item()
            torch.save(net, "sr.pt")
        print(epoch, best)


def contrast():
    """Two views of each picture, as SimCLR, then a linear probe of what was learnt."""
    from torchvision.models import resnet18
    from torchvision.transforms import v2

    net = resnet18(num_classes=64).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    views = v2.Compose([v2.RandomResizedCrop(32), v2.RandomHorizontalFlip(), v2.GaussianBlur(3)])
    loader = DataLoader(TensorDataset(torch.rand(256, 3, 32, 32), torch.randint(10, (256,))), 64)
    for _ in range(10):
        for x, _ in loader:
            x = torch.cat([views(x), views(x)]).to(device)
            out = functional.normalize(net(x), dim=-1)
            alike = out @ out.T / 0.5
            alike.masked_fill_(torch.eye(len(x), dtype=torch.bool, device=device), -1e9)
            loss = functional.cross_entropy(alike, torch.arange(len(x), device=device).roll(len(x) // 2))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    net.eval().requires_grad_(False)
    probe = nn.Linear(64, 10).to(device)
    learns = torch.optim.Adam(probe.parameters())
    for x, y in loader:
        loss = functional.cross_entropy(probe(net(x.to(device))), y.to(device))
        learns.zero_grad()
        loss.backward()
        learns.step()


def style():
    """Changes a picture itself, with L-BFGS and a closure."""
    from torchvision.models import vgg11

    layers = vgg11(weights=None).features[:12].to(device).eval().requires_grad_(False)

    def features(x):
        kept = []
        for it in layers:
            x = it(x)
            if isinstance(it, nn.Conv2d):
                kept.append(x)
        return kept

    def gram(x):
        flat = x.flatten(2)
        return flat @ flat.transpose(1, 2) / flat[0].numel()

    content, wanted = torch.rand(1, 3, 128, 128, device=device), torch.rand(1, 3, 128, 128, device=device)
    goals = [gram(it).detach() for it in features(wanted)]
    goal = features(content)[-1].detach()
    picture = content.clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS([picture])
    for _ in range(30):

        def closure():
            with torch.no_grad():
                picture.clamp_(0, 1)
            optimizer.zero_grad()
            found = features(picture)
            loss = functional.mse_loss(found[-1], goal)
            loss = loss + 1e6 * sum(functional.mse_loss(gram(a), b) for a, b in zip(found, goals))
            loss.backward()
            return loss

        optimizer.step(closure)
    with torch.no_grad():
        picture.clamp_(0, 1)
    print(picture.mean().item())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
