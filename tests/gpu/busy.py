"""Keeps the device busy: `train` on a line of input begins, and any other line ends it and has the steps printed."""

import json
import select
import sys
import time

import torch
from torch import nn

width, length, batch = (int(it) for it in sys.argv[1:4]) if sys.argv[1:] else (2048, 1024, 8)
layer = nn.TransformerEncoderLayer(width, 16, 4 * width, batch_first=True)
model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)


def step():
    x = torch.randn(batch, length, width, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x).float().pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


for _ in range(5):
    step()
torch.cuda.synchronize()
print(json.dumps({"what": "ready"}), flush=True)
for line in sys.stdin:
    begun, steps = time.perf_counter(), 0
    while line.strip() == "train":
        step()
        steps += 1
        # The host is not to be far ahead of the device.
        if steps % 4 == 0:
            torch.cuda.synchronize()
        if select.select([sys.stdin], [], [], 0)[0]:
            line = sys.stdin.readline()
    torch.cuda.synchronize()
    print(json.dumps({"steps": steps, "seconds": time.perf_counter() - begun}), flush=True)
