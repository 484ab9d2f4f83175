# Allocates on two devices in turn, each with requests of its own; SNAPSHOT names the file for the trace.
import json
import os
import random

import torch

snapshot = os.environ.get("SNAPSHOT")
if snapshot:
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=1 << 20)
random.seed(5)
kept = []
for step in range(400):
    device = step % 2
    most = 3_000_000 if device else 40_000_000
    kept.append(torch.empty(random.randrange(512, most), dtype=torch.uint8, device=f"cuda:{device}"))
    if len(kept) > 24:
        kept.pop(random.randrange(len(kept)))
if snapshot:
    torch.cuda.memory._dump_snapshot(snapshot)
names = {"peak_reserved": "reserved_bytes.all.peak", "cuda_mallocs": "num_device_alloc"}
of = [torch.cuda.memory_stats(device) for device in range(2)]
print(json.dumps([{name: stats[key] for name, key in names.items()} for stats in of]))
