"""A training loop that keeps each step's output; it prints the line that keeps it, and ends after STEPS steps."""

import inspect
import json
import sys
import time

import torch

steps = int(sys.argv[1])
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
kept = []


def train(batch):
    output = model(batch)
    output.pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    kept.append(output.detach())


source, first = inspect.getsourcelines(train)
line = first + next(at for at, text in enumerate(source) if "kept.append" in text)
print(json.dumps({"file": __file__, "line": line, "bytes_per_step": 1024 * 512 * 4}), flush=True)
for _ in range(steps):
    train(torch.randn(1024, 512, device="cuda"))
    # Takes as long as a real step; the probe captures call stacks between two of them.
    torch.cuda.synchronize()
    time.sleep(0.01)
