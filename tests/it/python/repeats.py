"""What a loop keeps now and then, in branches or as an epoch ends, by the name of a function: it adds up. The passes of the
loop, or its epochs, are the second argument. Prints the highest allocated bytes."""

import collections
import sys

import torch
from torch import nn

CASE, PASSES = sys.argv[1], int(sys.argv[2])
model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 128)).cuda()
optimizer = torch.optim.Adam(model.parameters())
rows = torch.ones(512, 128).cuda()
kept = []


def step():
    y = model(rows)
    optimizer.zero_grad()
    loss = y.square().mean()
    loss.backward()
    optimizer.step()
    return y, loss


def outputs():
    for at in range(PASSES):
        y, _ = step()
        if at % 50 == 49:
            kept.append(y.detach())  # kept


def rounds():
    for _ in range(4):
        for at in range(PASSES // 4):
            y, _ = step()
            if (at + 1) % 25 == 0:
                kept.append(y.detach())


def evaluations():
    def evaluate():
        with torch.no_grad():
            kept.append(model(rows))

    for at in range(PASSES):
        step()
        if at and at % 100 == 0:
            evaluate()


def guarded():
    for at in range(PASSES):
        y, _ = step()
        if at % 100:
            continue
        kept.append(y.detach())


class Log:
    calls = 0

    def add(self, y):
        self.calls += 1
        if self.calls % 100 == 0:
            kept.append(y.detach())


def methods():
    log = Log()
    for _ in range(PASSES):
        log.add(step()[0])


def newest():
    last = collections.deque(maxlen=3)
    for at in range(PASSES):
        y, _ = step()
        if at % 50 == 49:
            last.append(y.detach())


def losses():
    for at in range(PASSES):
        _, loss = step()
        if at % 50 == 49:
            kept.append(loss.detach())


def epochs():
    for batch in epoch_by_epoch():
        kept.append(batch.cuda().repeat(64, 1))  # kept by epochs


def epoch_by_epoch():
    loader = torch.utils.data.DataLoader(torch.ones(160, 128), 16)
    for _ in range(PASSES):
        for batch in loader:
            step()
        yield batch


def best_epochs():
    loader, best = torch.utils.data.DataLoader(torch.ones(160, 128), 16), None
    for _ in range(PASSES):
        for batch in loader:
            step()
        best = batch.cuda().repeat(64, 1)
    return best


def loops():
    loader = torch.utils.data.DataLoader(torch.ones(160, 128), 16)
    for epoch in range(PASSES):
        for batch in loader:
            step()
        if epoch % 3 == 1:
            kept.append(batch.cuda().repeat(64, 1))
        kept.append(batch.cuda().repeat(32, 1))


globals()[CASE]()
print(torch.cuda.max_memory_allocated())
