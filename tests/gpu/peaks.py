"""Runs a script with its arguments, or STEPS of its optimizer steps, then prints what its allocator had at most and
reserves now, and waits."""

import json
import os
import runpy
import sys

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

left = int(os.environ.get("STEPS", "0"))


def count(*_):
    global left
    left -= 1
    if left == 0:
        raise SystemExit


if left:
    register_optimizer_step_post_hook(count)
del sys.argv[0]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit:
    pass
torch.cuda.synchronize()
peaks = {"peak_reserved": torch.cuda.max_memory_reserved(), "reserved": torch.cuda.memory_reserved()}
peaks["peak_allocated"] = torch.cuda.max_memory_allocated()
print(json.dumps({"peaks": True, **peaks}), flush=True)
sys.stdin.readline()
