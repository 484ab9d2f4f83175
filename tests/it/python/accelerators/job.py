"""A job on a stand-in for PyTorch (`torch`); does what it reads, and prints what its allocator counts then."""

import json
import os
import sys

import torch

MIB = 1 << 20
modules = set(sys.modules)
number, kept, optimizer = int(sys.argv[1]), [], None


def build():
    global optimizer
    weights = [torch.Parameter(it * MIB, number) for it in (64, 32, 4)]
    optimizer = torch.optim.AdamW(weights)


def steps(count, leak=0):
    for _ in range(int(count)):
        activations = torch.Tensor(16 * MIB + 100, number)
        for it in optimizer.param_groups[0]["params"]:
            it.grad = torch.Tensor(it.nbytes, number)
        if leak:
            kept.append(torch.Tensor(int(leak), number))
        del activations
        optimizer.step()


def hold(other, mib):
    kept.append(torch.Tensor(int(mib) * MIB, int(other)))


def too_much():
    try:
        torch.Tensor(torch.devices[number].capacity - 100 * MIB, number)
    except torch.OutOfMemoryError as error:
        return str(error)


def said(**more):
    it = torch.devices[number]
    print(json.dumps({"figures": it.figures, "peaks": it.peaks, "touched": torch.touched, **more}), flush=True)


import torch.optim  # noqa: E402, F401

said(pid=os.getpid())
for line in sys.stdin:
    does, *arguments = line.split()
    said(answer={"build": build, "steps": steps, "hold": hold, "oom": too_much}[does](*arguments))
