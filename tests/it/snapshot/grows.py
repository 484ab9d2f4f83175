"""Keeps blocks in one function, and writes a snapshot before and after it kept more."""

import torch

MIB = 1 << 20
kept = []


def keep(count):
    for _ in range(count):
        kept.append(torch.empty(3 * MIB, dtype=torch.uint8, device="cuda"))


def work():
    return torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")


torch.cuda.memory._record_memory_history(stacks="python")
for count, name in ((2, "before"), (7, "after")):
    work()
    keep(count)
    torch.cuda.memory._dump_snapshot(f"{name}.pickle")
