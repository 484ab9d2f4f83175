"""A rank of a DistributedDataParallel model over gloo, which waits for a file before it ends."""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.ones(8, 64, device="cuda")).sum().backward()
    optimizer.step()
torch.cuda.synchronize()
dist.barrier()
if dist.get_rank() == 0:
    print("{}", flush=True)
while not os.path.exists("go-on"):
    time.sleep(0.02)
dist.destroy_process_group()
