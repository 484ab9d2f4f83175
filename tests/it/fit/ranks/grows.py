"""A training of several ranks that keep more after each step: `grows.py all|one|apart|none`."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

case, rank = sys.argv[1], int(os.environ["RANK"])
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda())
optimizer = torch.optim.AdamW(model.parameters())
outputs, samples = [], []
for step in range(100_000):
    batch = torch.randn(512, 256, device="cuda")
    output = model(batch)
    loss = (output - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if case == "all" or (case in ("one", "apart") and rank == 1):
        outputs.append(output.detach())  # outputs
    if case == "apart" and rank == 0:
        samples.append(torch.randn(512, 512, device="cuda"))  # samples
