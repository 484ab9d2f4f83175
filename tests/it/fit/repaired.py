"""Does what all leaks of `leaks.py` do, with the remedies that their answers name."""

import asyncio
import atexit
import collections
import contextvars
import copy
import functools
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
        self.head = nn.Linear(64, 64)
        self.slot = None

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class Node:
    def __init__(self, state, before):
        self.state, self.before = state, before


def refused(out):
    local = out * 2
    raise ValueError(len(local))


def crops(out):
    padded = nn.functional.pad(out.detach(), (1, 1))
    yield padded[:, :4]
    yield padded[:, 4:]


def graphs(out):
    global state
    losses.append(out.mean().item())
    cell(torch.randn(64, 128, device="cuda"), state)
    state = cell(torch.randn(64, 128, device="cuda"), state).detach()
    x = torch.randn(256, 128, device="cuda", requires_grad=True)
    (grad,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    norms.append(grad.norm().item())
    for name, weight in net.up.named_parameters():
        shadows[name] = (0.9 * shadows.get(name, 0) + 0.1 * weight.square().sqrt()).detach()
    results.append(net(torch.randn(64, 128, device="cuda")).detach().cpu())


def objects(out):
    global node
    try:
        refused(out)
    except ValueError as error:
        failures.append(str(error))
    bank[step % len(bank)] = out.detach()
    net.head(out.detach()).sum().backward()
    net.slot = out.detach()
    averages.append(copy.deepcopy(net).cpu())
    del averages[:-2]
    node = Node(out.detach(), node)
    if node.before is not None:
        node.before.before = None
    if not hasattr(of_thread, "stack"):
        of_thread.stack = []
    of_thread.stack.append(out.detach().cpu())


def functions(out):
    weakref.finalize(net, print, out.detach()).detach()
    delayed.append(functools.partial(print, "out", out.detach().cpu()))
    samples.append((out * 2).detach()[0, :4].cpu())
    by_step[step] = torch.ones_like(out)
    if len(by_step) > 4:
        by_step.pop(next(iter(by_step)))
    opened.append(crops(out))
    next(opened[-1])
    opened[-1].close()


async def upload(tensor):
    await asyncio.sleep(0)
    return tensor.cpu()


def containers(out):
    global parts
    boxes[step % 4] = out.detach()
    box = numpy.empty(1, dtype=object)
    box[0] = out.detach()
    parts = numpy.concatenate([parts, box])[-4:]
    trace.set((trace.get() + (out.detach(),))[-4:])
    for kept in (optimizer.state[net.up.weight], optimizer.param_groups[0]):
        kept.setdefault("history", []).append(out.detach().cpu())
    space.metrics.append(out.detach().cpu())
    loop.run_until_complete(loop.create_task(upload(out.detach())))


def seen_in(out, seen=None):
    seen = [] if seen is None else seen
    seen.append(out.detach())


def report():
    print(last.shape)


class Key:
    pass


def without_a_name(out):
    global last
    seen_in(out)
    last = out.detach()
    if step == 0:
        atexit.register(report)
    keys.append(Key())
    by_key[keys[-1]] = out.detach()
    del keys[:-2]
    add = moved.append
    for it in out.detach().split(128):
        add(it.cpu())


boxes, parts = numpy.empty(100_000, dtype=object), numpy.empty(0, dtype=object)
trace, space = contextvars.ContextVar("trace", default=()), types.SimpleNamespace(metrics=collections.UserList())
loop = asyncio.new_event_loop()
losses, norms, failures, averages, results = [], [], [], [], []
delayed, samples, opened, by_step, shadows = [], [], [], {}, {}
keys, by_key, moved = [], weakref.WeakKeyDictionary(), []
of_thread, node, state = threading.local(), None, None
net, cell = Net().cuda(), nn.GRUCell(128, 256).cuda()
bank = torch.zeros(4, 256, 64, device="cuda")
optimizer = torch.optim.Adam(net.parameters())
for step in range(100_000_000):
    out = net(torch.randn(256, 128, device="cuda"))
    optimizer.zero_grad()
    out.square().mean().backward()
    graphs(out)
    objects(out)
    functions(out)
    optimizer.step()
    containers(out)
    without_a_name(out)
