"""Runs a script with its arguments, then prints what its allocator reserved at most and has now, and waits."""

import json
import runpy
import sys

import torch

del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
torch.cuda.synchronize()
peaks = {"peak_reserved": torch.cuda.max_memory_reserved(), "reserved": torch.cuda.memory_reserved()}
print(json.dumps({"peaks": True, **peaks}), flush=True)
sys.stdin.readline()
