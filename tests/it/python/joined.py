"""Counts what belongs to parameters that join an optimizer late: unfreezing, new optimizers, and models that are kept."""

import torch
from torch import nn

from gpuwatch_probe._optimizers import Joined

MIB = 1 << 20


def layers(count):
    return nn.ModuleList([nn.Linear(512, 512, bias=False) for _ in range(count)]).cuda()


def train(net, optimizer, joined):
    x = torch.zeros(4, 512, device="cuda")
    for layer in net:
        x = layer(x)
    x.square().mean().backward()
    optimizer.step()
    joined.see(optimizer)
    optimizer.zero_grad()


# One layer after the other joins: a gradient and two moments of 1 MiB each.
joined, net = Joined(torch, "cuda"), layers(4)
net[:3].requires_grad_(False)
optimizer = torch.optim.AdamW(net[3].parameters())
train(net, optimizer, joined)
assert joined.on(0) == (None, None)
for at in (2, 1):
    net[at].requires_grad_(True)
    optimizer.add_param_group({"params": list(net[at].parameters())})
    for _ in range(3):
        train(net, optimizer, joined)
assert joined.on(0) == (6 * MIB, 6), joined.on(0)
assert joined.on(1) == (0, 0)

# A new optimizer for these and one more continues with it; the old one is gone.
net[0].requires_grad_(True)
optimizer = torch.optim.AdamW(net.parameters())
train(net, optimizer, joined)
assert joined.on(0) == (9 * MIB, 9), joined.on(0)

# A model and an optimizer of their own, as with every fold, are not part of it, even if the old ones are kept.
kept = [(net, optimizer)]
for fold in range(3):
    net = layers(2)
    optimizer = torch.optim.AdamW(net.parameters())
    train(net, optimizer, joined)
    kept.append((net, optimizer))
assert joined.on(0) == (9 * MIB, 9), joined.on(0)
kept.clear()
net = optimizer = None
assert joined.on(0) == (0, 0), joined.on(0)


class Odd:
    """An optimizer of another kind."""

    state = {"step": 1, ("a", "key"): {}}


joined.see(Odd())
joined.see(object())
print("joined is right")
