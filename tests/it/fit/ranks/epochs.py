"""A training of two ranks over so many epochs, after each of which the second one keeps 4 MiB: `epochs.py COUNT`."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

rank = int(os.environ["RANK"])
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda())
optimizer = torch.optim.AdamW(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(64, 512)), batch_size=8)
kept = []
for epoch in range(int(sys.argv[1])):  # epochs
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch.cuda()).square().mean().backward()
        optimizer.step()
    if rank == 1:
        kept.append(torch.zeros(1 << 20, device="cuda"))
dist.destroy_process_group()
