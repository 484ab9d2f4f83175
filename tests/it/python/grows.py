"""Trains with a leak, names phases, runs out of memory once, survives it, continues; waits for input in between."""

import json
import sys

import torch

import gpuwatch_probe

print(json.dumps({"ready": True}), flush=True)
sys.stdin.readline()
parameter = torch.zeros(1 << 16, device="cuda", requires_grad=True)
optimizer = torch.optim.Adam([parameter], lr=1e-3)
kept = []
for epoch in range(3):
    gpuwatch_probe.mark("epoch", epoch)
    for _ in range(60):
        loss = (parameter * 2).sum()
        loss.backward()
        kept.append(loss)
        kept.append(torch.empty(1 << 18, device="cuda"))
        optimizer.step()
        optimizer.zero_grad()
    try:
        torch.empty(1 << 42, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        printed = str(error)
torch.cuda.synchronize()
print(json.dumps({"error": printed}), flush=True)
