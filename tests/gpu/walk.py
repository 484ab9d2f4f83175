"""Counts the parts of a model with 1,200 parameters while it trains; prints what that costs, in microseconds."""

import json
import time

import torch
from torch import nn

from gpuwatch_probe._parts import Parts

net = nn.Sequential(*[nn.Linear(256, 256) for _ in range(600)]).cuda()
optimizer = torch.optim.AdamW(net.parameters())
parts, x = Parts(torch), torch.ones(64, 256, device="cuda")
walks, turns, begun = 0, [], None
for number in range(400):
    if number == 20:
        torch.cuda.synchronize()
        begun = time.perf_counter()
    net(x).sum().backward()
    optimizer.step()
    parts.see(optimizer)
    before = time.perf_counter()
    found = parts.turn(number, number % 100 == 0, lambda: [number])
    turns.append(time.perf_counter() - before)
    walks += found is not None
    optimizer.zero_grad()
torch.cuda.synchronize()
step = (time.perf_counter() - begun) / 380
cost = {"walks": walks, "slices": parts.slices, "longest": parts.longest * 1e6, "all": sum(turns) * 1e6}
print(json.dumps({**cost, "longest_turn": max(turns) * 1e6, "step": step * 1e6}))
