"""Trains until the command to end; its standard input has a command a line, which it looks for between two steps.

`look`   prints its own counters after a step of its own, and waits for the next command
`wait`   prints a line, and waits for the next command in a system call
`grow`   keeps something of every step from now on
`import` imports from another thread, again and again, until the next command
`end`    prints how it ends

With the argument `workers`, two processes load its data.
"""

import json
import os
import select
import sys
import threading
import types

import torch

model = torch.nn.Linear(256, 256).to("cuda")
optimizer = torch.optim.Adam(model.parameters())
keep = []
steps = 0
grows = False


class Rows(torch.utils.data.Dataset):
    """Rows of ones."""

    def __len__(self):
        return 1 << 16

    def __getitem__(self, place):
        return torch.ones(256)


def batches_of(loader):
    while True:
        yield from loader


if "workers" in sys.argv:
    batches = batches_of(torch.utils.data.DataLoader(Rows(), batch_size=64, num_workers=2))
else:
    batches = batches_of([torch.ones(64, 256)])


def train():
    """One step; returns PyTorch's counters as they were when the optimizer had stepped."""
    global steps
    y = model(next(batches).to("cuda"))
    y.sum().backward()
    optimizer.step()
    stats = torch.cuda.memory_stats()
    optimizer.zero_grad()
    steps += 1
    if grows:
        keep.append(y.detach())
    return stats


def report(what, **more):
    print(json.dumps(dict(more, what=what, steps=steps)), flush=True)


def line():
    """The next line of standard input, and nothing after it."""
    read = b""
    while not read.endswith(b"\n"):
        read += os.read(0, 1) or b"\n"
    return read.decode().strip()


def native_threads():
    return len(os.listdir("/proc/self/task"))


def importing():
    """As a job that imports does, with more modules and more often, so that a moment of it is always met."""
    is_over = threading.Event()

    def make():
        while not is_over.is_set():
            for at in range(50_000):
                sys.modules["made_%d" % at] = types.ModuleType("made")
            for at in range(50_000):
                del sys.modules["made_%d" % at]

    thread = threading.Thread(target=make)
    thread.start()
    report("import")
    while not select.select([0], [], [], 0.001)[0]:
        train()
    is_over.set()
    thread.join()
    line()
    report("imported")


train()
active = threading.active_count()
before = sorted(sys.modules), list(sys.path), sorted(globals())
report("ready", pid=os.getpid(), threads=native_threads(), descriptors=len(os.listdir("/proc/self/fd")))
while True:
    train()
    if not select.select([0], [], [], 0.001)[0]:
        continue
    command = line()
    if command == "look":
        stats = train()
        names = "allocated_bytes.all.current", "reserved_bytes.all.current", "allocated_bytes.all.peak"
        threads, descriptors = native_threads(), len(os.listdir("/proc/self/fd"))
        report("look", stats=[stats[it] for it in names], threads=threads, descriptors=descriptors)
        line()
    elif command == "wait":
        report("wait")
        line()
    elif command == "grow":
        grows = True
    elif command == "import":
        importing()
    else:
        break
own = {"before", "command", "stats", "names", "threads", "descriptors", "added", "own"}
named = sorted(set(globals()) - set(before[2]) - own)
# Up to 3.10, `sysconfig` loads a file of its own to find paths.
added = ("gpuwatch_probe", "_sysconfigdata")
modules = [it for it in set(sys.modules) - set(before[0]) if not it.startswith(added)]
report("end", named=named, modules=modules, same_path=sys.path == before[1], alive=threading.active_count() - active + 1)
