"""Allocates until the device is full, and prints PyTorch's message."""

import json

import torch

kept = []
try:
    while True:
        kept.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError as error:
    print(json.dumps({"tried": 1 << 30, "allocated": torch.cuda.memory_allocated(), "message": str(error)}), flush=True)
