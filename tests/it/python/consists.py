"""Trains until its input ends, as a training of `moments.py` or `changing.py` that its argument names. Prints, at each
line of input: `parts`, what a script counts itself at the end of a step; `peak`, which line allocated what is live at
the highest moment of a step, by PyTorch's own history; `change`, the parts after the training has changed."""

import json
import os
import select
import sys
import time

import torch
from torch import nn

from changing import CHANGING
from moments import TRAININGS

HERE = os.path.dirname(os.path.abspath(__file__))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        hidden = self.up(x)
        hidden = torch.relu(hidden)
        return x + self.down(hidden)


class Net(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.layers = nn.ModuleList([Block(width) for _ in range(4)])
        self.head = nn.Linear(width, 1024, bias=False)
        self.register_buffer("mask", torch.ones(512, 512))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def plain():
    net = Net().cuda()
    optimizer = torch.optim.AdamW(net.parameters())

    def step():
        x = torch.ones(256, 128, device="cuda")
        logits = net(x)
        loss = logits.square().mean()
        del x, logits
        loss.backward()
        optimizer.step()

    return [net], [optimizer], step


torch.manual_seed(0)
name = sys.argv[1] if sys.argv[1:] else None
modules, optimizers, train, *changes = CHANGING[name]() if name in CHANGING else TRAININGS[name]() if name else plain()
cache = [torch.empty(1 << 20, dtype=torch.uint8, device="cuda")]


def step():
    for it in () if changes else optimizers:
        it.zero_grad()
    train()


def parameters():
    return [it for module in modules for it in module.parameters()]


def flat(it):
    if isinstance(it, torch.Tensor):
        yield it
    elif isinstance(it, (dict, list, tuple)):
        for one in it.values() if isinstance(it, dict) else it:
            yield from flat(one)


def bytes_of(tensors):
    tensors = [one for it in tensors for one in ((it._indices(), it._values()) if it.is_sparse else (it,))]
    sizes = {it.untyped_storage().data_ptr(): it.untyped_storage().nbytes() for it in tensors if it.is_cuda}
    return sum(-(-it // 512) * 512 for it in sizes.values())


def parts():
    found = {
        "weights": bytes_of(parameters()),
        "gradients": bytes_of(it.grad for it in parameters() if it.grad is not None),
        "optimizer": bytes_of(flat([one.state for one in optimizers])),
    }
    found["retained"] = torch.cuda.memory_allocated() - sum(found.values())
    return found


WORKSPACE = 8_519_680


def peak():
    history = torch.cuda.memory._record_memory_history
    history(max_entries=100_000, context="alloc", stacks="python")
    step()
    held = torch.cuda.memory._snapshot()
    history(None)
    live, now, highest, at_highest = {}, 0, 0, {}
    for event in held["device_traces"][0]:
        if event["action"] == "alloc":
            live[event["addr"]] = event
            now += event["size"]
        elif event["action"] == "free_completed":
            gone = live.pop(event["addr"], None)
            now -= event["size"]
        if now > highest:
            highest, at_highest = now, dict(live)
    lines = {}
    # A workspace of cuBLAS is no tensor.
    for it in (one for one in at_highest.values() if one["size"] != WORKSPACE):
        own = [one for one in it["frames"] if os.path.dirname(one["filename"]) == HERE]
        if own:
            line = "%s:%d" % (os.path.basename(own[0]["filename"]), own[0]["line"])
            lines[line] = lines.get(line, 0) + -(-it["size"] // 512) * 512
    return {"lines": lines}


def change():
    """Changes the training."""
    changes[0]()
    for _ in range(3):
        step()
    return parts()


def fails():
    """A step that does not fit."""
    try:
        modules[0](torch.ones(1 << 26, 128, device="cuda"))
    except torch.OutOfMemoryError:
        return {"failed": True}


for _ in range(8):
    step()
print(json.dumps({"pid": os.getpid(), "parts": parts()}), flush=True)
while True:
    step()
    # Another thread gets its turn.
    time.sleep(0.005)
    if select.select([sys.stdin], [], [], 0)[0]:
        word = sys.stdin.readline().strip()
        action = {"parts": parts, "peak": peak, "change": change, "fails": fails}.get(word)
        if action is None:
            break
        print(json.dumps(action()), flush=True)
