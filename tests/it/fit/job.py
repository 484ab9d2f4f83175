"""A training loop as users write it: `job.py BATCH [STEPS]`."""

import sys

import torch

batch, steps = int(sys.argv[1]), int((sys.argv + [100])[2])
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 64, 3),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(64 * 30 * 30, 100),
).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(steps):
    x = torch.randn(batch, 3, 32, 32, device="cuda")
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()  # backward
    optimizer.step()
    if loss > 3:  # branch
        print("large")
print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
