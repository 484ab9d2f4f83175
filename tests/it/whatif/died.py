# A loop that keeps what it allocates until the device is full.
import sys

import torch

torch.cuda.memory._record_memory_history("all", max_entries=1 << 16)
kept = []
try:
    while True:
        kept.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError:
    torch.cuda.memory._dump_snapshot(sys.argv[1])
