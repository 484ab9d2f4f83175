"""Trains with many live blocks and many Python objects, and measures each step; a line of its standard input is a
number of steps."""

import gc
import json
import resource
import sys
import time

import torch

blocks, objects = int(sys.argv[1]), int(sys.argv[2])
parameter = torch.zeros(64, device="cuda", requires_grad=True)
parameter.grad = torch.zeros(64, device="cuda")
optimizer = torch.optim.SGD([parameter], lr=1e-3, foreach=False)
optimizer.step()
weights = [torch.empty(64, device="cuda") for _ in range(blocks)]
heap = [{"at": [at]} for at in range(objects // 2)]
outputs = []
gc.collect()
print(json.dumps({"ready": len(gc.get_objects())}), flush=True)
for line in sys.stdin:
    if not line.strip().isdigit():
        break
    took = []
    for _ in range(int(line)):
        outputs.append(torch.empty(1024, device="cuda"))
        before = time.perf_counter()
        optimizer.step()
        took.append(time.perf_counter() - before)
    took.sort()
    reported = {"median_us": 1e6 * took[len(took) // 2], "longest_us": 1e6 * took[-1], "next_us": 1e6 * took[-2]}
    with open("/proc/self/statm") as file:
        reported["rss"] = int(file.read().split()[1]) * resource.getpagesize()
    reported["enabled"] = torch._C._cuda_isHistoryEnabled()
    print(json.dumps(reported), flush=True)
