"""Trains the number of steps in each line of its standard input, until a line is not a number."""

import json
import sys
import time

import torch

parameter = torch.zeros(1, device="cuda", requires_grad=True)
parameter.grad = torch.zeros(1, device="cuda")
optimizer = torch.optim.SGD([parameter], lr=1e-3, foreach=False)
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    if not line.strip().isdigit():
        break
    took = []
    for _ in range(int(line)):
        before = time.perf_counter()
        optimizer.step()
        took.append(time.perf_counter() - before)
    print(json.dumps({"longest_us": 1e6 * max(took), "median_us": 1e6 * sorted(took)[len(took) // 2]}), flush=True)
torch.cuda.synchronize()
