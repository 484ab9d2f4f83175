# Fragments the memory, writes a snapshot, and prints what PyTorch counts and how it serves requests of several sizes.
import json

import torch

MIB = 1 << 20


def tensor(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


torch.cuda.memory._record_memory_history(enabled="all")
keep = [tensor(size * MIB + 100) for size in (1, 3, 5, 7, 9, 12, 20, 40, 100)]
keep += [tensor(700 * size) for size in range(1, 300)]
peak = [tensor(6 * MIB) for _ in range(8)]
del peak, keep[1:9:2], keep[20:200:3]
# So that no segment of the snapshot is free as a whole, and each request finds the same ones.
torch.cuda.empty_cache()
torch.cuda.memory._dump_snapshot("snapshot.pickle")
stats = torch.cuda.memory_stats()

requests = []
for size in (1000, MIB, MIB + 1, 4 * MIB, 11 * MIB, 13 * MIB, 30 * MIB, 39 * MIB, 60 * MIB, 130 * MIB):
    before = torch.cuda.memory_reserved()
    served = tensor(size)
    requests.append({"bytes": size, "grown": torch.cuda.memory_reserved() - before})
    del served
    if requests[-1]["grown"]:
        torch.cuda.empty_cache()

print(
    json.dumps(
        {
            "reserved": stats["reserved_bytes.all.current"],
            "allocated": stats["allocated_bytes.all.current"],
            "stuck": stats["inactive_split_bytes.all.current"],
            "peak": stats["requested_bytes.all.peak"],
            "requests": requests,
        }
    )
)
