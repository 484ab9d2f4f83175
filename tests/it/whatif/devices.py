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
aside = torch.cuda.Stream(device=1)
for step in range(400):
    device = step % 2
    most = 3_000_000 if device else 40_000_000
    size = random.randrange(512, most)
    # Some requests on the second device are of a stream of their own.
    with torch.cuda.stream(aside if step % 10 == 1 else torch.cuda.default_stream(device)):
        kept.append(torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}"))
    if len(kept) > 24:
        kept.pop(random.randrange(len(kept)))
if snapshot:
    torch.cuda.memory._dump_snapshot(snapshot)
names = {
    "peak_allocated": "allocated_bytes.all.peak",
    "peak_reserved": "reserved_bytes.all.peak",
    "cuda_mallocs": "num_device_alloc",
    "retries": "num_alloc_retries",
}
of = [torch.cuda.memory_stats(device) for device in range(2)]
print(json.dumps([{name: stats[key] for name, key in names.items()} for stats in of]))
