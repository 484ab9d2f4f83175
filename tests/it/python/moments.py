"""Trainings whose highest moments differ: each function returns the modules, the optimizers, and a step."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def pictures():
    """Convolutions, normalised by batch."""
    stages = [nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU()) for a, b in ((3, 16), (16, 32), (32, 64))]
    net = nn.Sequential(*stages, nn.Flatten(), nn.Linear(64 * 16, 10)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step():
        x = torch.ones(32, 3, 32, 32, device="cuda")
        loss = F.cross_entropy(net(x), torch.zeros(32, dtype=torch.long, device="cuda"))
        loss.backward()
        optimizer.step()

    return [net], [optimizer], step


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.all, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (it.view(batch, length, self.heads, -1).transpose(1, 2) for it in self.all(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Language(nn.Module):
    def __init__(self, recompute=False):
        super().__init__()
        self.words, self.recompute = nn.Embedding(500, 64), recompute
        self.layers = nn.ModuleList([Attention(64, 4) for _ in range(3)])

    def forward(self, tokens):
        x = self.words(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        return x @ self.words.weight.t()


def language(recompute=False):
    """A small language model with tied weights."""
    net = Language(recompute).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    tokens = torch.zeros(8, 64, dtype=torch.long, device="cuda")

    def step():
        logits = net(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()

    return [net], [optimizer], step


def recomputed():
    """The same, whose layers are computed again in backward."""
    return language(recompute=True)


def recurrent():
    """A recurrent network, its gradients clipped."""
    net = nn.ModuleDict({"cells": nn.LSTM(32, 64, 2, batch_first=True), "head": nn.Linear(64, 5)}).cuda()
    optimizer = torch.optim.RMSprop(net.parameters())

    def step():
        out, _ = net["cells"](torch.ones(16, 20, 32, device="cuda"))
        loss = net["head"](out[:, -1]).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

    return [net], [optimizer], step


def mixed():
    """Mixed precision with a scaler."""
    net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 8)).cuda()
    optimizer, scaler = torch.optim.Adam(net.parameters()), torch.amp.GradScaler("cuda")

    def step():
        with torch.autocast("cuda", dtype=torch.float16):
            loss = net(torch.ones(128, 64, device="cuda")).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return [net], [optimizer], step


def accumulated():
    """Gradients of four batches."""
    net = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 16)).cuda()
    optimizer = torch.optim.AdamW(net.parameters())

    def step():
        for size in (64, 96, 128, 32):
            loss = net(torch.ones(size, 128, device="cuda")).square().mean() / 4
            loss.backward()
        optimizer.step()

    return [net], [optimizer], step


def adversaries():
    """Two networks against one another, each with an optimizer."""
    maker = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 256)).cuda()
    judge = nn.Sequential(nn.Linear(256, 128), nn.LeakyReLU(), nn.Linear(128, 1)).cuda()
    optimizers = [torch.optim.Adam(it.parameters()) for it in (judge, maker)]

    def step():
        made = maker(torch.ones(64, 16, device="cuda"))
        loss = judge(made.detach()).mean() - judge(torch.ones(64, 256, device="cuda")).mean()
        loss.backward()
        optimizers[0].step()
        loss = -judge(made).mean()
        loss.backward()
        optimizers[1].step()

    return [maker, judge], optimizers, step


def averaged():
    """An average of the weights follows each step."""
    net, average = (nn.Sequential(nn.Linear(64, 256), nn.SiLU(), nn.Linear(256, 32)).cuda() for _ in range(2))
    average.requires_grad_(False)
    optimizer = torch.optim.NAdam(net.parameters())

    def step():
        x = torch.ones(96, 64, device="cuda")
        loss = (net(x) - average(x)).square().mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(average.parameters(), net.parameters()):
                old.lerp_(new, 0.1)

    return [net], [optimizer], step


def frozen():
    """A frozen base with small branches."""
    base, down, up = nn.Linear(256, 256), nn.Linear(256, 8, bias=False), nn.Linear(8, 256, bias=False)
    net = nn.ModuleList([base, down, up]).cuda()
    base.requires_grad_(False)
    optimizer = torch.optim.AdamW([*down.parameters(), *up.parameters()])

    def step():
        x = torch.ones(128, 256, device="cuda")
        loss = (net[0](x) + net[2](net[1](x))).square().mean()
        loss.backward()
        optimizer.step()

    return [net], [optimizer], step


def rewarded():
    """Outputs without gradients first, then a step on them."""
    net = nn.Sequential(nn.Linear(8, 128), nn.Tanh(), nn.Linear(128, 4)).cuda()
    optimizer = torch.optim.Adam(net.parameters())

    def step():
        seen = []
        with torch.no_grad():
            for _ in range(6):
                x = torch.ones(32, 8, device="cuda")
                seen.append((x, net(x).softmax(-1)))
        states = torch.cat([it[0] for it in seen])
        loss = -(net(states).log_softmax(-1) * torch.cat([it[1] for it in seen])).sum(-1).mean()
        loss.backward()
        optimizer.step()

    return [net], [optimizer], step


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        hidden = self.norm(x)
        hidden = F.gelu(self.up(hidden))
        return x + self.down(hidden)


def deep():
    """Many layers: pauses reach their limit before the step ends, and after its highest moment."""
    net = nn.Sequential(*[Residual(32) for _ in range(120)], nn.Linear(32, 2000)).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    targets = torch.zeros(512, dtype=torch.long, device="cuda")

    def step():
        loss = F.cross_entropy(net(torch.ones(512, 32, device="cuda")), targets)
        loss.backward()
        optimizer.step()

    return [net], [optimizer], step


TRAININGS = {
    it.__name__: it
    for it in (pictures, language, recomputed, recurrent, mixed, accumulated, adversaries, averaged, frozen, rewarded, deep)
}
