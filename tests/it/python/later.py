"""Trainings written by hand that need more memory late than in their first steps, each with a healthy twin (`case`,
then `bad` or `good`)."""

import bisect
import copy
import itertools
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

CASE, IS_BAD, FILE = sys.argv[1], sys.argv[2] == "bad", sys.argv[3]
DEVICE = torch.device("cuda")


def mlp(inner=1024, outer=10):
    return nn.Sequential(nn.Linear(256, inner), nn.ReLU(), nn.Linear(inner, outer))


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 3, padding=1)).to(DEVICE)


def rows(count=6400, batch=64, classes=10):
    return DataLoader(TensorDataset(torch.randn(count, 256), torch.randint(classes, (count,))), batch, shuffle=True)


def learn(net, optimizer, x, y):
    loss = functional.cross_entropy(net(x.to(DEVICE)), y.to(DEVICE))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # step
    return loss.item()


def averages():
    """From its tenth epoch on, averages the weights, and makes more copies for that than it keeps."""
    net = mlp(40_000).to(DEVICE)
    optimizer, average = torch.optim.SGD(net.parameters(), 0.1), None
    for epoch in range(100):
        for x, y in rows():
            learn(net, optimizer, x, y)
        if epoch >= 10 and average is None:
            average = [copy.deepcopy(net).to(DEVICE if IS_BAD else "cpu") for _ in range(11)][0]  # copy


def clips():
    """Clips by the norm of all gradients together, once the warmup is over."""
    net = mlp(82_000).to(DEVICE)
    optimizer, scaler = torch.optim.SGD(net.parameters(), 0.1), torch.amp.GradScaler("cuda")
    number = 0
    for _ in range(10):
        for x, y in rows():
            with torch.autocast("cuda"):
                loss = functional.cross_entropy(net(x.to(DEVICE)), y.to(DEVICE))
            scaler.scale(loss).backward()
            if number >= 2000:
                scaler.unscale_(optimizer)
                gradients = [it.grad for it in net.parameters()]
                if IS_BAD:
                    gradients = [torch.cat([it.flatten().double() for it in gradients])]  # clip
                norm = torch.stack([it.norm() for it in gradients]).norm()
                for it in gradients:
                    it.mul_((1 / (norm + 1e-6)).clamp(max=1))
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            number += 1


def adversaries():
    """As a VQGAN: the discriminator begins to learn late, and gets its optimizer's state only then."""
    made, judge = mlp(outer=256).to(DEVICE), mlp(120_000 if IS_BAD else 64, 1).to(DEVICE)
    ours, its = torch.optim.Adam(made.parameters()), torch.optim.Adam(judge.parameters())
    begins = 50_000
    for number in range(400_000):
        x = torch.randn(64, 256, device=DEVICE)
        out = made(x)
        loss = (out - x).abs().mean()
        if number >= begins:
            loss = loss - judge(out).mean()
        ours.zero_grad()
        loss.backward()
        ours.step()
        if number >= begins:
            real, fake = judge(x), judge(out.detach())
            its.zero_grad()
            (functional.relu(1 - real).mean() + functional.relu(1 + fake).mean()).backward()  # judge
            its.step()


def unfreezes():
    """Trains its head, and after five epochs the rest too."""
    trunk = nn.Sequential(nn.Linear(256, 50_000), nn.ReLU(), nn.Linear(50_000, 256)).to(DEVICE)
    head = nn.Linear(256, 10).to(DEVICE)
    for it in trunk.parameters():
        it.requires_grad = False
    optimizer = torch.optim.Adam(head.parameters())
    for epoch in range(30):
        if epoch == 5:
            more = list(trunk.parameters())[0 if IS_BAD else -1 :]
            for it in more:
                it.requires_grad = True
            optimizer.add_param_group({"params": more, "lr": 1e-5})
        for x, y in rows():
            loss = functional.cross_entropy(head(trunk(x.to(DEVICE))), y.to(DEVICE))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()  # unfrozen


def samples():
    """A diffusion model that draws a grid of pictures from time to time, and may keep each of their steps."""
    net = convolutions()
    optimizer = torch.optim.AdamW(net.parameters())

    @torch.no_grad()
    def draw(count):
        x, kept = torch.randn(count, 3, 64, 64, device=DEVICE), []
        for _ in reversed(range(200)):
            x = x - 0.1 * net(x)  # kept
            kept.append(x if IS_BAD else x[:1].cpu())
        return kept

    for number in range(1, 100_001):
        x = torch.rand(8, 3, 64, 64, device=DEVICE)
        noise = torch.randn_like(x)
        loss = functional.mse_loss(net(x + noise), noise)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % 1000 == 0:
            print(len(draw(64)))


def metrics():
    """Keeps an epoch's outputs for a metric at its end."""
    net = mlp(outer=2000).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(20):
        outputs, labels = [], []
        for x, y in rows(128 * 800, 128, 2000):
            x, y = x.to(DEVICE), y.to(DEVICE)
            out = net(x)  # outputs
            optimizer.zero_grad()
            functional.cross_entropy(out, y).backward()
            optimizer.step()
            outputs.append(out.detach() if IS_BAD else out.detach().argmax(1))
            labels.append(y.cpu())
        made = torch.cat(outputs)
        print(made.shape, len(labels))


def best():
    """Keeps the best checkpoint, and loads it for the test while everything else still lives."""
    net = mlp(60_000).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    least, first = float("inf"), [{name: it.cpu() for name, it in net.state_dict().items()} for _ in range(2)]
    for _ in range(30):
        losses = [learn(net, optimizer, x, y) for x, y in rows(640)]
        if sum(losses) < least:
            least = sum(losses)
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "first": first}, FILE)
    found = torch.load(FILE, map_location=DEVICE if IS_BAD else "cpu")  # best
    net.load_state_dict(found["net"])


def merges():
    """Puts low-rank changes into its weights at the end, layer for layer, and keeps both."""
    layers = [nn.Linear(2048, 2048, bias=False).to(DEVICE, torch.bfloat16).requires_grad_(False) for _ in range(10)]
    pairs = [[torch.randn(2048, 8, device=DEVICE, requires_grad=True) for _ in range(2)] for _ in layers]
    optimizer = torch.optim.AdamW([it for pair in pairs for it in pair])
    for _ in range(500):
        x = torch.randn(16, 2048, device=DEVICE)
        for layer, (up, down) in zip(layers, pairs):
            x = layer(x.bfloat16()).float() + (x @ up) @ down.T
        x.pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    kept = []
    for layer, (up, down) in zip(layers, pairs):
        whole = layer.weight.double() + (up @ down.T).double()  # merge
        kept.append([whole, whole.float()] if IS_BAD else [whole.cpu()])
    kept = [it[0].cpu() for it in kept]
    torch.save(kept, FILE)


def views():
    """Evaluates each picture in many views at once."""
    net = convolutions()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    pictures = DataLoader(TensorDataset(torch.rand(512, 3, 32, 32)), 32)
    for _ in range(10):
        net.train()
        for (x,) in pictures:
            x = x.to(DEVICE)
            net(x).sub(x).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        net.eval()
        total = 0.0
        for (x,) in pictures:
            with torch.inference_mode():
                x = x.to(DEVICE)
                shifts = [torch.roll(x, it, -1) for it in range(128 if IS_BAD else 2)]
                out = net(torch.cat(shifts))  # views
                total += out.mean().item()


def whole_pictures():
    """Trains on crops, and is validated on whole pictures."""
    net = convolutions()
    optimizer = torch.optim.Adam(net.parameters())
    side = 2560 if IS_BAD else 256
    for number in itertools.count():
        if number == 20_000:
            break
        x = torch.rand(8, 3, 64, 64, device=DEVICE)
        net(x).sub(x).abs().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if number and number % 2000 == 0:
            validate(net, side)


def validate(net, side):
    was = net.training
    net.train(False)
    with torch.no_grad():
        for _ in range(4):
            x = torch.rand(1, 3, side, side, device=DEVICE)
            error = net(x).sub_(x).abs().mean()  # whole
            print(error.item())
    net.train(was)


def folds():
    """Cross-validation; the models of former folds may stay for an ensemble, with their optimizers."""
    kept = []
    for fold in range(5):
        net = mlp(28_000).to(DEVICE)
        optimizer = torch.optim.Adam(net.parameters())
        for _ in range(20):
            for x, y in rows():
                learn(net, optimizer, x, y)
        kept.append((net, optimizer) if IS_BAD else net.cpu().state_dict())
        print("fold", fold, len(kept))


def curriculum():
    """Sequences that become longer from epoch to epoch."""
    net = nn.GRU(64, 256, batch_first=True).to(DEVICE)
    optimizer = torch.optim.Adam(net.parameters())
    for epoch in range(40):
        length = 32 * (2 ** (epoch // 5)) if IS_BAD else 32
        for _ in range(200):
            out, _ = net(torch.randn(64, length, 64, device=DEVICE))
            out.pow(2).mean().backward()  # longer
            optimizer.step()
            optimizer.zero_grad()


def validates_with_gradients():
    """Validates in the loop without `no_grad`, and adds up losses with their graphs."""
    net = mlp(4096).to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    train, held = rows(), rows(2048 * 20, 2048)
    for epoch in range(10):
        for x, y in train:
            learn(net, optimizer, x, y)
        print(epoch, measured(net, held))


def measured(net, held):
    total = 0.0
    for x, y in held:
        loss = functional.cross_entropy(net(x.to(DEVICE)), y.to(DEVICE))  # graphs
        total += loss if IS_BAD else loss.item()
    return float(total) / len(held)


class Decoder(nn.Module):
    """One layer of attention with a cache of keys and values."""

    def __init__(self, width=512):
        super().__init__()
        self.words, self.mix, self.out = nn.Embedding(100, width), nn.Linear(width, 3 * width), nn.Linear(width, 100)

    def forward(self, ids, cache=None):
        query, key, value = self.mix(self.words(ids)).chunk(3, -1)
        if cache is not None:
            key, value = torch.cat([cache[0], key], 1), torch.cat([cache[1], value], 1)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=cache is None)
        return self.out(mixed), (key, value)  # decode


def search(net, prompt, beams, length):
    """Beam search: each beam has a cache of its own."""
    ids, cache, scores = prompt.repeat_interleave(beams, 0, output_size=len(prompt) * beams), None, None
    for _ in range(length):
        logits, cache = net(ids[:, -1:] if cache is not None else ids, cache)
        steps = logits[:, -1].log_softmax(-1)
        scores = steps if scores is None else scores + steps
        best = scores.view(len(prompt), -1).topk(beams, -1).indices
        parents = (best // 100 + torch.arange(len(prompt), device=DEVICE)[:, None] * beams).flatten()
        ids = torch.cat([ids[parents], (best % 100).view(-1, 1)], 1)
        cache, scores = tuple(it[parents] for it in cache), scores[parents]
    return ids


def beams():
    net = Decoder().to(DEVICE)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(300):
        ids = torch.randint(100, (16, 33), device=DEVICE)
        out, _ = net(ids[:, :-1])
        functional.cross_entropy(out.flatten(0, 1), ids[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    net.eval()
    with torch.no_grad():
        print(search(net, ids, 16 if IS_BAD else 1, 240).shape)


class Loop:
    """A trainer with callbacks, as many write their own."""

    def __init__(self, net, callbacks):
        self.net, self.callbacks, self.step = net.to(DEVICE), callbacks, 0
        self.optimizer = torch.optim.AdamW(net.parameters())

    def call(self, event):
        for it in self.callbacks:
            getattr(it, event, lambda loop: None)(self)

    def run(self, epochs):
        for self.epoch in range(epochs):
            for x, y in rows():
                learn(self.net, self.optimizer, x, y)
                self.step += 1
                self.call("after_step")
            self.call("after_epoch")
        self.call("after_all")


class Histograms:
    """Looks at all weights together, every few thousand steps."""

    def after_step(self, loop):
        if loop.step % 4000 == 0:
            parts = [it.detach().flatten() for it in loop.net.parameters()]
            for it in [torch.cat(parts * 16)] if IS_BAD else parts:
                print(it.abs().max().item())  # histogram


def callbacks():
    Loop(mlp(24_000), [Histograms()]).run(50)


def warms_up():
    """A small batch for the first thousand steps, then the whole one, in a loop that counts by itself."""
    net = mlp().to(DEVICE)
    optimizer, step = torch.optim.Adam(net.parameters()), 0
    while step < 20_000:
        if step < 1000:
            x = torch.randn(64, 256, device=DEVICE)
        else:
            x = torch.randn(100_000 if IS_BAD else 64, 256, device=DEVICE)
        train(net, optimizer, x)
        step += 1


def train(net, optimizer, x):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()


class Stages:
    """A batch size that a method chooses by what it counts."""

    def __init__(self):
        self.seen = 0

    def rows(self):
        self.seen += 1
        if self.seen < 100:
            count = 64
        elif self.seen < 1000:
            count = 128
        else:
            count = 100_000 if IS_BAD else 256
        return count


def stages():
    net, of = mlp().to(DEVICE), Stages()
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(20_000):
        train(net, optimizer, torch.randn(of.rows(), 256, device=DEVICE))


def chooses():
    """A size that is chosen on one line."""
    net, most = mlp().to(DEVICE), 100_000 if IS_BAD else 256
    optimizer, state = torch.optim.Adam(net.parameters()), {"step": 0}
    for _ in range(20_000):
        count = 64 if state["step"] < 1000 else most
        train(net, optimizer, torch.randn(count, 256, device=DEVICE))
        state["step"] += 1


def rises():
    """A size that grows with a counter of the loop's own."""
    net, step = mlp().to(DEVICE), 0
    optimizer = torch.optim.Adam(net.parameters())
    while step < 20_000:
        count = min(64 + step * (10 if IS_BAD else 0), 100_000)
        train(net, optimizer, torch.randn(count, 256, device=DEVICE))
        step += 1


def milestones():
    """A size that is found by where the step lies among others."""
    net, sizes = mlp().to(DEVICE), [64, 96, 100_000 if IS_BAD else 128]
    optimizer = torch.optim.Adam(net.parameters())
    for step in range(20_000):
        train(net, optimizer, torch.randn(sizes[bisect.bisect([3000, 9000], step)], 256, device=DEVICE))


class Plan:
    """Counts what a loop is over after, and what the size of its steps comes from."""

    def __init__(self, total):
        self.done, self.total = 0, total

    def rows(self):
        share = self.done / self.total
        return int(64 + share**2 * (100_000 if IS_BAD else 64))

    def advance(self):
        self.done += 1


def plans():
    """A size that another object computes from what it counts."""
    net, plan = mlp().to(DEVICE), Plan(20_000)
    optimizer = torch.optim.Adam(net.parameters())
    while plan.done < plan.total:
        train(net, optimizer, torch.randn(plan.rows(), 256, device=DEVICE))
        plan.advance()
    assert plan.done == plan.total, plan.done


def prefetches():
    """What the last pass alone does prepares no further one."""
    net = mlp().to(DEVICE)
    optimizer, at, batch = torch.optim.Adam(net.parameters()), 0, torch.randn(64, 256)
    while at < 10_000:
        if at + 1 < 10_000:
            following = torch.randn(64, 256)
        else:
            following = None
        train(net, optimizer, batch.to(DEVICE))
        if IS_BAD and at > 5000:
            train(net, optimizer, torch.randn(100_000, 256, device=DEVICE))
        batch, at = following, at + 1


ALL = [averages, clips, adversaries, unfreezes, samples, metrics, best, merges, views, whole_pictures, folds]
ALL += [curriculum, validates_with_gradients, beams, callbacks, warms_up, stages, chooses, rises, milestones, plans, prefetches]
{it.__name__: it for it in ALL}[CASE]()
