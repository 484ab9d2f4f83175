"""Ranks over gloo: with `hangs`, the last rank never joins a barrier; with `slow`, its steps take longer."""

import os
import sys
import time

import torch
import torch.distributed as dist

mode = sys.argv[1]
dist.init_process_group("gloo")
rank, is_last = dist.get_rank(), dist.get_rank() == dist.get_world_size() - 1
torch.cuda.set_device(rank)
model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1_000_000):
    if mode == "hangs" and step == 60:
        while is_last:
            time.sleep(1)
    model(torch.ones(64, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if mode == "hangs":
        dist.barrier()
    else:
        time.sleep(0.17 if mode == "slow" and is_last else 0.1)
