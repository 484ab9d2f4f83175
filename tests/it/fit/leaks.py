"""Trains with the leak that the argument names."""

import asyncio
import atexit
import collections
import contextvars
import copy
import functools
import sys
import threading
import types
import weakref

import numpy
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(128, 512)
        self.down = nn.Linear(512, 64)
        self.heads = nn.ModuleList()
        self.register_buffer("bank", torch.zeros(0, 64))
        self.seen = []

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Monitor:
    def __init__(self, cell):
        self.cell, self.state = cell, None

    def look(self, x):
        self.state = self.cell(x, self.state)  # made: carried
        return self.state.argmax(-1)


def history(out):
    losses.append(out.detach())  # kept: history


def carried(out):
    monitor.look(torch.randn(64, 128, device="cuda"))


def refused(out):
    local = out * 2
    raise ValueError(len(local))


def errors(out):
    if len(out) and next(steps) % 2:
        try:
            refused(out)
        except ValueError as error:
            failures.append(error)  # kept: errors


def bank(out):
    net.bank = torch.cat([net.bank, out.detach()])  # made: bank


def heads(out):
    net.heads.append(nn.Linear(64, 64).cuda())
    optimizer.add_param_group({"params": net.heads[-1].parameters()})
    net.heads[-1](out.detach()).sum().backward()


def copies(out):
    averages.append(copy.deepcopy(net))  # kept: copies


def slots(out):
    net.register_buffer("slot_%d" % next(steps), out.detach())


def penalty(out):
    x = torch.randn(256, 128, device="cuda", requires_grad=True)
    (grad,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    norms.append(grad.norm())  # kept: penalty


def summed(out):
    global total
    latest[:] = [net(torch.randn(64, 128, device="cuda")).square().mean() for _ in range(3)]
    total += latest[0]  # kept: summed


class Node:
    def __init__(self, state, before):
        self.state, self.before = state, before  # kept: chain


def chain(out):
    global node
    node = Node(out.detach(), node)


def stack(out):
    if not hasattr(of_thread, "stack"):
        of_thread.stack = []
    of_thread.stack.append(out.detach())


def shadow(out):
    for name, weight in net.up.named_parameters():
        shadows[name] = 0.9 * shadows.get(name, 0) + 0.1 * weight.square().sqrt()  # kept: shadow


def registry(out):
    weakref.finalize(net, print, out.detach())


def later(out):
    delayed.append(functools.partial(print, "out", out.detach()))  # kept: later


def views(out):
    samples.append((out * 2).detach()[0, :4])  # kept: views


def masks(out):
    by_step[next(steps)] = torch.ones_like(out)  # kept: masks


def evaluation(out):
    results.append(net(torch.randn(64, 128, device="cuda")))  # kept: evaluation


def crops(out):
    padded = nn.functional.pad(out.detach(), (1, 1))
    yield padded[:, :4]
    yield padded[:, 4:]


def views_of_crops(out):
    opened.append(crops(out))  # kept: views_of_crops
    next(opened[-1])


def objects(out):
    boxes[next(steps)] = out.detach()  # kept: objects


def joined(out):
    global parts
    box = numpy.empty(1, dtype=object)
    box[0] = out.detach()
    parts = numpy.concatenate([parts, box])


def trail(out):
    trace.set(trace.get() + (out.detach(),))


def in_state(out):
    if optimizer.state:
        optimizer.state[net.up.weight].setdefault("history", []).append(out.detach())  # kept: in_state


def in_groups(out):
    optimizer.param_groups[0].setdefault("seen", []).append(out.detach())  # kept: in_groups


def wrapped(out):
    space.metrics.append(out.detach())


async def upload(tensor):
    await asyncio.sleep(1e9)
    return tensor.cpu()


def uploads(out):
    tasks.append(loop.create_task(upload(out.detach())))  # kept: uploads
    loop.run_until_complete(asyncio.sleep(0))


def seen_list(out, seen=[]):
    seen.append(out.detach())  # kept: seen_list


def seen_dict(out, *, cache={}):
    cache[next(steps)] = out.detach()  # kept: seen_dict


def at_exit(out):
    last = out.detach()

    @atexit.register  # kept: at_exit
    def report():
        print(last.shape)


class Key:
    pass


def weak_keys(out):
    keys.append(Key())
    by_key[keys[-1]] = out.detach()  # kept: weak_keys


def by_method(out):
    add = moved.append
    for it in out.detach().split(128):
        add(it)  # kept: by_method


def by_name(out):
    into = net.seen
    if len(into) < 1 << 20:
        into.append(out.detach())  # kept: by_name


boxes, parts = numpy.empty(100_000, dtype=object), numpy.empty(0, dtype=object)
trace, space = contextvars.ContextVar("trace", default=()), types.SimpleNamespace(metrics=collections.UserList())
loop, tasks = asyncio.new_event_loop(), []
losses, failures, averages, norms, steps = [], [], [], [], iter(range(1, 1 << 30))
delayed, samples, results, opened, by_step, shadows = [], [], [], [], {}, {}
keys, by_key, moved, latest, total = [], weakref.WeakKeyDictionary(), [], [], 0.0
of_thread, node = threading.local(), None
net, monitor = Net().cuda(), Monitor(nn.GRUCell(128, 256).cuda())
optimizer = torch.optim.Adam(net.parameters())
leak = globals().get(sys.argv[1], lambda out: None)
for step in range(100_000_000):
    out = net(torch.randn(256, 128, device="cuda"))
    optimizer.zero_grad()
    out.square().mean().backward()
    leak(out)
    optimizer.step()
