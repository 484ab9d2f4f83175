"""Trains with the leak that the argument names."""

import copy
import sys

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(128, 512)
        self.down = nn.Linear(512, 64)
        self.heads = nn.ModuleList()
        self.register_buffer("bank", torch.zeros(0, 64))

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


losses, failures, averages, norms, steps = [], [], [], [], iter(range(1, 1 << 30))
net, monitor = Net().cuda(), Monitor(nn.GRUCell(128, 256).cuda())
optimizer = torch.optim.Adam(net.parameters())
leak = globals().get(sys.argv[1], lambda out: None)
for step in range(100_000_000):
    out = net(torch.randn(256, 128, device="cuda"))
    optimizer.zero_grad()
    out.square().mean().backward()
    leak(out)
    optimizer.step()
