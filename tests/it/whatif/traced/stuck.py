# A loop of varying lengths with blocks that outlive their steps: they pin segments that no later request fits. At the end
# it asks for as many MiB as its second argument, if any. With a third one, it then steps until the file `enough` is there.
import json
import os
import random
import sys
import time

import torch

steps, last = int(sys.argv[1]), int(sys.argv[2])
random.seed(3)
weight = torch.nn.Parameter(torch.zeros(8, device="cuda"))
weight.grad = torch.zeros_like(weight)
optimizer = torch.optim.SGD([weight], lr=0.0)
kept = []
for _ in range(steps):
    length = random.randrange(200, 900)
    outputs = []
    for layer in range(6):
        outputs.append(torch.empty(24 * length * 256 + layer, device="cuda"))
        kept.append(torch.empty(random.randrange(300_000, 400_000), device="cuda"))
    while len(kept) > 48:
        kept.pop(random.randrange(len(kept)))
    del outputs
    optimizer.step()
if last:
    large = torch.empty(last << 20, dtype=torch.uint8, device="cuda")
# Nothing is allocated any more: how long the job waits changes no figure.
while len(sys.argv) > 3 and not os.path.exists("enough"):
    time.sleep(0.02)
    optimizer.step()
stats = torch.cuda.memory_stats()
names = {
    "peak_allocated": "allocated_bytes.all.peak",
    "peak_reserved": "reserved_bytes.all.peak",
    "cuda_mallocs": "num_device_alloc",
    "retries": "num_alloc_retries",
}
print(json.dumps({name: stats[key] for name, key in names.items()}))
