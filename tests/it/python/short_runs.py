"""Short trainings whose highest peak no line announces: it comes in their own order, in a later pass."""

import collections
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

case, rounds = sys.argv[1], int(sys.argv[2])
ranks, device = int(os.environ.get("WORLD_SIZE", 1)), "cuda"
if ranks > 1:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")


def train(net, optimizer, inputs):
    optimizer.zero_grad()
    net(inputs).square().mean().backward()
    if ranks > 1:
        for it in net.parameters():
            dist.all_reduce(it.grad)
    optimizer.step()


def stages():
    """Settings that are handed on, with an evaluation now and then that keeps what it returns."""
    net = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 8)).to(device)
    optimizer = torch.optim.AdamW(net.parameters())

    def stage(label, rows, passes, often):
        outputs = []
        for at in range(1, passes + 1):
            for _ in range(4 * rounds):
                train(net, optimizer, torch.randn(rows, 64, device=device))
            if at % often == 0:
                with torch.no_grad():
                    outputs.append(torch.cat([net(torch.randn(rows, 64, device=device)) for _ in range(6)]))
        return outputs

    return [stage(*it) for it in (("short", 128, 4, 2), ("longer", 1024, 3, 3), ("full", 8192, 2, 1))]


def thawed():
    """Layers that a table trains from some pass on."""
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(6)), nn.Linear(256, 4)).to(device)
    for layer in layers[:-1]:
        layer.requires_grad_(False)
    optimizer, table = torch.optim.Adam(layers.parameters()), {3: (5, 4), 6: (3, 2), 8: (1, 0)}
    for at in range(10):
        for place in table.get(at, ()):
            layers[place].requires_grad_(True)
        for _ in range(3 * rounds):
            train(layers, optimizer, torch.randn(2048, 256, device=device))


def window():
    """Outputs of which the latest ones are kept."""
    net = nn.Linear(128, 128).to(device)
    optimizer, latest = torch.optim.SGD(net.parameters(), 1e-3), collections.deque(maxlen=500 * rounds)
    for _ in range(700 * rounds):
        inputs = torch.randn(512, 128, device=device)
        train(net, optimizer, inputs)
        latest.append(net(inputs[:64]).detach())


class Lengths(IterableDataset):
    def __iter__(self):
        length = 16
        while length < 2000:
            for _ in range(5 * rounds):
                yield torch.randn(length, 96)
            length += length // 3


def lengths():
    """A stream whose examples become longer."""
    net = nn.GRU(96, 192, batch_first=True).to(device)
    optimizer = torch.optim.Adam(net.parameters())
    for batch in DataLoader(Lengths(), batch_size=5):
        optimizer.zero_grad()
        net(batch.to(device))[0].square().mean().backward()
        optimizer.step()


def late(most=None):
    """Outputs that are kept once the training has settled."""
    net, kept = nn.Linear(128, 128).to(device), collections.deque(maxlen=most)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    for at in range(1000 * rounds):
        inputs = torch.randn(512, 128, device=device)
        train(net, optimizer, inputs)
        if at > 400:
            kept.append(net(inputs).detach())


def late_bounded():
    late(most=200)


{it.__name__: it for it in (stages, thawed, window, lengths, late, late_bounded)}[case]()
print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
