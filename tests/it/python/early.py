"""Runs out of memory as soon as CUDA is initialised, and ends each child in the way of its name."""

import json
import os
import signal
import sys
import threading
import time

import torch

GIB = 1 << 30


def too_much():
    return torch.empty(64 * GIB, dtype=torch.uint8, device="cuda")


def caught(end):
    try:
        too_much()
    except torch.cuda.OutOfMemoryError:
        end()


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def in_thread():
    thread = threading.Thread(target=caught, args=(lambda: os._exit(3),))
    thread.start()
    thread.join()


def later(seconds):
    torch.cuda.init()
    time.sleep(seconds)
    caught(kill)


def healthy(end):
    kept = torch.ones(1 << 20, device="cuda")
    parameter = torch.nn.Parameter(torch.zeros(4, device="cuda"))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for _ in range(5):
        (parameter * kept[:4]).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    end()


WAYS = {
    "uncaught": too_much,
    "exit": lambda: caught(lambda: sys.exit(3)),
    "os._exit": lambda: caught(lambda: os._exit(3)),
    "killed": lambda: caught(kill),
    "thread": in_thread,
    "killed after 0.05 s": lambda: later(0.05),
    "killed after 0.2 s": lambda: later(0.2),
    "killed after 1 s": lambda: later(1.0),
    "healthy": lambda: healthy(lambda: sys.exit(0)),
}

if "alone" in sys.argv:
    # A rank of its launcher: this process itself runs out of memory.
    too_much()

children = {}
for way, act in WAYS.items():
    child = os.fork()
    if child == 0:
        sys.stderr = open(os.devnull, "w")
        act()
        sys.exit(0)
    os.waitpid(child, 0)
    children[way] = child
print(json.dumps(children), flush=True)
