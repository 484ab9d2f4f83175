"""Trainings in plain PyTorch, each as a user would write it, and with edits by hand.

`train.py MODEL [EDIT…]`: edits are the names of techniques. What `gpuwatch fit --advise` injects into the training without
edits must have the peaks of the one with the edit. `SIZES` in the environment makes it larger.
"""

import contextlib
import math
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset

MODEL, EDITS = sys.argv[1], set(sys.argv[2:])
SIZES = os.environ.get("SIZES", "4000,128,128,4,16")
WORDS, LENGTH, WIDTH, HEADS, BATCH = map(int, SIZES.split(","))


def blocks(layers, x, *more):
    for at, block in enumerate(layers):
        if "checkpoint" in EDITS or ("checkpoint:2" in EDITS and at % 2 == 0):
            x = checkpoint(block, x, *more, use_reentrant=False)
        else:
            x = block(x, *more)
    return x


class FusedHeads(nn.Module):
    """Attention by PyTorch's kernel."""

    def __init__(self):
        super().__init__()
        self.all, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def heads(self, x):
        b, t, _ = x.shape
        return self.all(x).view(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)

    def joined(self, y):
        return self.out(y.transpose(1, 2).reshape(y.shape[0], -1, WIDTH))

    def forward(self, x):
        q, k, v = self.heads(x)
        return self.joined(F.scaled_dot_product_attention(q, k, v, is_causal=True))


class CausalHeads(FusedHeads):
    """Written out, with a triangle and dropout."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.1)
        self.register_buffer("triangle", torch.tril(torch.ones(LENGTH, LENGTH)).view(1, 1, LENGTH, LENGTH))

    def forward(self, x):
        t = x.shape[1]
        q, k, v = self.heads(x)
        if "sdpa" in EDITS:
            return self.joined(F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.triangle[:, :, :t, :t] == 0, float("-inf"))
        weights = F.softmax(scores, dim=-1)
        weights = self.drop(weights)
        return self.joined(weights @ v)


class PlainHeads(FusedHeads):
    """Written out, in two statements."""

    def forward(self, x):
        q, k, v = self.heads(x)
        if "sdpa" in EDITS:
            return self.joined(F.scaled_dot_product_attention(q, k, v))
        similar = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(WIDTH // HEADS)
        return self.joined(torch.matmul(similar.softmax(dim=-1), v))


class EinsumHeads(FusedHeads):
    """Written out with `einsum`, and a scaled query."""

    def forward(self, x):
        q, k, v = self.heads(x)
        q = q * (WIDTH // HEADS) ** -0.5
        if "sdpa" in EDITS:
            return self.joined(F.scaled_dot_product_attention(q, k, v, scale=1.0))
        similar = torch.einsum("b h i d, b h j d -> b h i j", q, k)
        attention = similar.softmax(dim=-1)
        return self.joined(torch.einsum("b h i j, b h j d -> b h i d", attention, v))


class WatchedHeads(FusedHeads):
    """Written out, and its weights are used elsewhere: nothing may replace it."""

    def forward(self, x):
        q, k, v = self.heads(x)
        similar = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(WIDTH // HEADS)
        weights = similar.softmax(dim=-1)
        out = torch.matmul(weights, v)
        self.entropy = weights.square().mean()
        return self.joined(out)


class ModuleHeads(nn.Module):
    """PyTorch's own module, whose weights nobody uses."""

    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x):
        out, _ = self.inner(x, x, x, need_weights="sdpa" not in EDITS)
        return out


class Block(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention, self.first, self.second = attention(), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Gpt(nn.Module):
    def __init__(self, attention=FusedHeads):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(Block(attention) for _ in range(4))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.head(blocks(self.layers, x))


class Encoder(nn.Module):
    """PyTorch's own encoder."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids):
        x = self.words(ids)
        if EDITS & {"checkpoint", "checkpoint:2"}:
            return self.head(blocks(self.encoder.layers, x))
        return self.head(self.encoder(x))


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, 8)
        self.layers = nn.Sequential(*(Block(FusedHeads) for _ in range(4)))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = blocks(self.layers, x) if EDITS & {"checkpoint", "checkpoint:2"} else self.layers(x)
        return self.head(x.mean(1))


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a, self.b = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.n, self.m = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

    def forward(self, x):
        return F.relu(x + self.m(self.b(F.relu(self.n(self.a(x))))))


class Cnn(nn.Module):
    """Two stages of residual blocks."""

    def __init__(self):
        super().__init__()
        self.stem, self.down = nn.Conv2d(3, 32, 3, 2, 1), nn.Conv2d(32, 64, 3, 2, 1)
        self.one = nn.Sequential(*(Residual(32) for _ in range(3)))
        self.two = nn.Sequential(*(Residual(64) for _ in range(3)))
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        x = blocks(self.one, self.stem(x)) if "checkpoint" in EDITS else self.one(self.stem(x))
        x = self.down(x)
        x = blocks(self.two, x) if "checkpoint" in EDITS else self.two(x)
        return self.head(x.mean((2, 3)))


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.down = nn.ModuleList(Residual(32) for _ in range(2))
        self.up = nn.ModuleList(Residual(32) for _ in range(2))
        self.head = nn.Conv2d(32, 3, 1)

    def forward(self, x):
        x, kept = self.stem(x), []
        for block in self.down:
            x = checkpoint(block, x, use_reentrant=False) if "checkpoint" in EDITS else block(x)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        for block in self.up:
            x = F.interpolate(x, scale_factor=2.0) + kept.pop()
            x = checkpoint(block, x, use_reentrant=False) if "checkpoint" in EDITS else block(x)
        return self.head(x)


class Lstm(nn.Module):
    """Without repeated blocks."""

    def __init__(self):
        super().__init__()
        self.words, self.inner = nn.Embedding(WORDS, WIDTH), nn.LSTM(WIDTH, WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids):
        return self.head(self.inner(self.words(ids))[0])


class Graph(nn.Module):
    """A graph network: two layers of one class, each with modules."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.others = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x, edges):
            sums = torch.zeros_like(x).index_add(1, edges[1], self.others(x[:, edges[0]]))
            return F.relu(self.own(x) + sums)

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(3, WIDTH), nn.Linear(WIDTH, 10)
        self.layers = nn.ModuleList(self.Layer() for _ in range(3))
        self.register_buffer("edges", torch.stack([torch.arange(4096) % 1024, torch.arange(4096) * 7 % 1024]))

    def forward(self, x):
        x = self.first(x.flatten(2).transpose(1, 2))
        return self.head(blocks(self.layers, x, self.edges).mean(1))


class ActorCritic(nn.Module):
    """Two heads, as PPO has; no blocks."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh())
        self.actor, self.critic = nn.Linear(512, 10), nn.Linear(512, 1)

    def forward(self, x):
        x = self.body(x)
        return self.actor(x) + self.critic(x)


class Text(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, at):
        row = torch.arange(at, at + LENGTH + 1) % WORDS
        return row[:-1], row[1:]


class Pictures(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, at):
        return torch.zeros(3, 32, 32), at % 10


TEXT = {
    "gpt": Gpt,
    "causal": lambda: Gpt(CausalHeads),
    "plain": lambda: Gpt(PlainHeads),
    "einsum": lambda: Gpt(EinsumHeads),
    "watched": lambda: Gpt(WatchedHeads),
    "module": lambda: Gpt(ModuleHeads),
    "encoder": Encoder,
    "lstm": Lstm,
}
OTHERS = {"vit": Vit, "cnn": Cnn, "unet": Unet, "graph": Graph, "ppo": ActorCritic}
net = {**TEXT, **OTHERS}[MODEL]().cuda()
if "weights-bf16" in EDITS:
    net.to(torch.bfloat16)
named = {"foreach": False} if "foreach" in EDITS else {"fused": True} if "fused" in EDITS else {}
kind = {"sgd": torch.optim.SGD, "adafactor": torch.optim.Adafactor}
kind = next((kind[it] for it in EDITS if it in kind), torch.optim.AdamW)
if "channels-last" in EDITS:
    net.to(memory_format=torch.channels_last)


def move(optimizer, place):
    for state in optimizer.state.values():
        for name, it in state.items():
            if it.dim():
                state[name] = it.to(place) if place == "cuda" else it.to(place).pin_memory()


class Each:
    """One optimizer for each parameter."""

    def __init__(self):
        self.all = {it: kind([it], lr=1e-3, **named) for it in net.parameters()}
        for it, own in self.all.items():
            if "optimizer-on-host" in EDITS:
                own.register_step_pre_hook(lambda own, *_: move(own, "cuda"))
                own.register_step_post_hook(lambda own, *_: move(own, "cpu"))
            if "optimizer-in-backward" in EDITS:
                it.register_post_accumulate_grad_hook(self.arrived)

    def arrived(self, it):
        self.all[it].step()
        it.grad = None

    def step(self):
        for it in self.all.values():
            it.step()

    def zero_grad(self):
        net.zero_grad()


def passed(it):
    """What the model gets: the batch stays as it is."""
    if "weights-bf16" in EDITS and it.is_floating_point():
        return it.to(torch.bfloat16)
    return it.to(memory_format=torch.channels_last) if "channels-last" in EDITS else it


in_backward = "optimizer-in-backward" in EDITS
one_by_one = in_backward or "optimizer-on-host" in EDITS
optimizer = Each() if one_by_one else kind(net.parameters(), lr=1e-3, **named)
halves = "accumulate" in EDITS
loader = DataLoader(Text() if MODEL in TEXT else Pictures(), batch_size=BATCH // 2 if halves else BATCH)
for at, (inputs, targets) in enumerate(loader):
    inputs, targets = inputs.cuda(), targets.cuda()
    autocast = torch.autocast("cuda", dtype=torch.bfloat16) if "bf16" in EDITS else contextlib.nullcontext()
    saved = torch.autograd.graph.save_on_cpu(pin_memory=True) if "save-on-cpu" in EDITS else contextlib.nullcontext()
    with autocast, saved:
        out = net(passed(inputs))
        if MODEL == "unet":
            loss = F.mse_loss(out, inputs)
        elif MODEL in TEXT:
            loss = F.cross_entropy(out.view(-1, WORDS), targets.view(-1))
        else:
            loss = F.cross_entropy(out, targets)
    if not halves:
        loss.backward()
    else:
        (loss / 2).backward()
        if at % 2 == 0:
            continue
    if not in_backward:
        optimizer.step()
        optimizer.zero_grad()
