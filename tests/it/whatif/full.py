# Runs out of memory though much of it is free: in pieces.
import sys

import torch

torch.cuda.memory._record_memory_history("all", context="all")
MIB = 1 << 20


def tensor(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


whole = [tensor(600) for _ in range(4)]
del whole
pieces = [tensor(60) for _ in range(40)]
del pieces[::2]
try:
    tensor(900)
except torch.OutOfMemoryError:
    pass
torch.cuda.memory._dump_snapshot(sys.argv[1])
