# A loop that fragments, on two streams, with an emptied cache in the middle and a request near the device's limit.
# SNAPSHOT names the file for the trace, if any; CONTEXT determines whether stacks are recorded. A third argument makes it
# end at once: now and then a thread of PyTorch's own outlives the interpreter, and aborts it.
import json
import os
import random
import sys

import torch

snapshot = os.environ.get("SNAPSHOT")
if snapshot:
    torch.cuda.memory._record_memory_history("all", context=os.environ.get("CONTEXT") or None, max_entries=1 << 22)

steps, top = int(sys.argv[1]), int(sys.argv[2])
random.seed(3)
width = 256
layers = torch.nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True).cuda()
optimizer = torch.optim.Adam(layers.parameters())
other = torch.cuda.Stream()
kept = []
for step in range(steps):
    length = random.randrange(32, 900)
    batch = torch.empty(24, length, width, device="cuda")
    with torch.cuda.stream(other):
        ahead = torch.empty(96, random.randrange(32, 900), width, device="cuda")
        mask = torch.empty(random.randrange(1, 3_000_000), device="cuda")
    ahead.record_stream(torch.cuda.current_stream())
    layers(batch).sum().backward()
    del ahead
    optimizer.step()
    optimizer.zero_grad()
    if step % 7 == 0:
        kept.append(torch.empty(random.randrange(1 << 20), device="cuda"))
    if len(kept) > 4:
        kept.pop(0)
    if step == steps // 2:
        torch.cuda.empty_cache()
del batch, mask
# More than is left beside the cache, and less than is left without it.
large = torch.empty(top << 20, dtype=torch.uint8, device="cuda")
del large
if snapshot:
    torch.cuda.memory._dump_snapshot(snapshot)
stats = torch.cuda.memory_stats()
names = {
    "peak_allocated": "allocated_bytes.all.peak",
    "peak_reserved": "reserved_bytes.all.peak",
    "cuda_mallocs": "num_device_alloc",
    "retries": "num_alloc_retries",
    "synchronisations": "num_sync_all_streams",
}
print(json.dumps({name: stats[key] for name, key in names.items()}))
if sys.argv[3:]:
    sys.stdout.flush()
    os._exit(0)
