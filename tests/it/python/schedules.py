"""Trainings whose sizes a schedule sets, by the name of a function; the largest one comes late. Each prints, when it is
over, the most bytes that were allocated."""

import itertools
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

STEPS, LONGEST = 120, 700
STAGES = {0: 64, 40: 256, 80: LONGEST}
net = nn.Sequential(nn.Embedding(1000, 128), nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 1000)).cuda()
optimizer = torch.optim.AdamW(net.parameters())


def learn(length, count=8):
    x = torch.ones(count, length, dtype=torch.long, device="cuda")
    functional.cross_entropy(net(x).flatten(0, 1), x.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()


def rows(count=40):
    return DataLoader(TensorDataset(torch.ones(count, LONGEST, dtype=torch.long)), batch_size=8)


def stages():
    length = 32
    for step in range(STEPS):
        if step in STAGES:
            length = STAGES[step]
        learn(length)


class Curriculum:
    """Counts its own calls."""

    def __init__(self):
        self.calls = 0

    def length(self):
        self.calls += 1
        return min(LONGEST, 64 + 6 * self.calls)


def called():
    curriculum = Curriculum()
    for _ in range(24):
        for _ in rows():
            learn(curriculum.length())


def tokens():
    seen = 0
    for _ in range(24):
        for (x,) in rows():
            x = x[:, : int(64 + 640 * min(1.0, seen / 200_000))]
            learn(x.shape[1])
            seen += x.numel()


def batches():
    count = 1
    for step in range(STEPS):
        if step and step % 30 == 0:
            count = min(3 * count, 27)
        learn(200, count)


def epochs():
    """An epoch has a thousand batches, of which each has the same size."""
    for epoch in range(3):
        length = 64 + 318 * epoch
        for _ in rows(8000 if epoch < 2 else 80):
            learn(length)


class Callback:
    def __init__(self):
        self.step, self.length = 0, 64

    def after(self):
        self.step += 1
        if self.step in (30, 60):
            self.length *= 3


def calls_back():
    callback = Callback()
    for _ in range(24):
        for _ in rows():
            learn(callback.length)
            callback.after()


def chained():
    for length in itertools.chain([64] * 60, [LONGEST] * 60):
        learn(length)


def streamed():
    def lengths():
        for at in range(20_000):
            yield 64 + at // 10

    for length in itertools.islice(lengths(), 8000):
        learn(length)


def steady():
    for length in itertools.islice(itertools.repeat(64), 8000):
        learn(length)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print(torch.cuda.max_memory_allocated(), flush=True)
