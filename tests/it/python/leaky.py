"""Keeps memory in the way that the first argument names, until it runs out or was seen for long enough.

The second argument names a file: once it is there, the leak has been seen, and the job may come to its end.
"""

import os
import sys
import time

import torch

MIB = 1 << 20
how, seen = sys.argv[1:3]
rank = 0
if how == "ranks":
    child = os.fork()
    rank = 0 if child else 1
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))
device = "cuda:%d" % rank
torch.cuda.set_device(rank)
model = torch.nn.Linear(256, 256).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept, copies, held = [], [], []


def train():
    model(torch.randn(64, 256, device=device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def leak(size):
    kept.append(torch.empty(size, dtype=torch.uint8, device=device))


def until_it_is_full():
    for step in range(100_000):
        train()
        is_seen = os.path.exists(seen)
        if rank == 0 and step > 30:
            leak((24 if is_seen else 2) * MIB)
        if rank == 1 and os.path.exists(seen + ".over"):
            return
        time.sleep(0.001 if is_seen else 0.02)


if how == "objects":
    # Each tensor comes with what describes it.
    while not os.path.exists(seen):
        train()
        held.append((torch.empty(MIB // 4, dtype=torch.uint8, device=device), bytearray(b"x" * (96 << 10))))
        time.sleep(0.02)
elif how == "copies":
    # The program needs only one of them: they are kept in two places.
    while not os.path.exists(seen):
        train()
        leak(MIB // 4)
        copies.append(bytearray(b"x" * (500 << 10)))
        time.sleep(0.02)
elif how == "caught":
    try:
        until_it_is_full()
    except torch.cuda.OutOfMemoryError:
        kept.clear()
        torch.cuda.empty_cache()
    for step in range(60):
        train()
    print("goes on", flush=True)
    sys.stdin.readline()
else:
    try:
        until_it_is_full()
    finally:
        if how == "ranks" and rank == 0:
            open(seen + ".over", "w").close()
            os.waitpid(child, 0)
