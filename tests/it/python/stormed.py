"""Trains until its standard input ends, or for as many steps as its argument says, and prints what it did.

Something grows and something fragments, so that every question has an answer. A line is printed every ten steps, and
one when it ends; each is the same for the same step, whoever asks the job meanwhile.
"""

import gc
import hashlib
import json
import os
import random
import select
import sys
import threading

import torch

last = int(sys.argv[1]) if len(sys.argv) > 1 else None
random.seed(7)
torch.manual_seed(7)
net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.Adam(net.parameters())
seen = hashlib.sha256()
kept, others = [], []
steps = 0


def step():
    """One step: its kept output grows, the other blocks have any length."""
    global steps
    others.append(torch.empty(random.randrange(1 << 18, 1 << 22), dtype=torch.uint8, device="cuda"))
    if len(others) > 12:
        others.pop(random.randrange(len(others)))
    y = net(torch.ones(8, 64, device="cuda"))
    kept.append(y.detach())
    y.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    steps += 1
    counted = torch.cuda.memory_stats()
    seen.update(repr((random.random(), torch.rand(1).item(), sorted(counted.items()))).encode())


def say(what):
    print(json.dumps({"what": what, "steps": steps, "seen": seen.hexdigest(), "kept": len(kept)}), flush=True)


def is_over():
    if last is not None:
        return steps == last
    # The lock is free for a moment, as in a job that loads data.
    return bool(select.select([sys.stdin], [], [], 0.001)[0])


step()
print(json.dumps({"what": "ready", "pid": os.getpid(), "threads": threading.active_count()}), flush=True)
while not is_over():
    step()
    if steps % 10 == 0:
        say("goes on")
say("end")
left = torch._C._cuda_isHistoryEnabled(), gc.isenabled(), threading.active_count(), sys.gettrace(), sys.getprofile()
print(json.dumps({"what": "left", "left": repr(left)}), flush=True)
