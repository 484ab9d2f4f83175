"""A training smoke test as a CI job has it: a small model, a few hundred steps; `leak` keeps every output."""

import sys

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
outputs = []
for step in range(200):
    out = model(torch.randn(1024, 128, device="cuda"))
    loss = torch.nn.functional.mse_loss(out, torch.zeros_like(out))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if "leak" in sys.argv:
        outputs.append(out.detach())
