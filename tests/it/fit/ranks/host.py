"""A small training that takes memory of the host, of a kind: `host.py KIND`."""

import sys

import torch

MIB = 1 << 20
(kind,) = sys.argv[1:]
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
kept = []


class Samples(torch.utils.data.Dataset):
    """Objects that each worker writes to as it counts references."""

    def __init__(self):
        self.samples = [bytes(1000) for _ in range(100_000)]

    def __len__(self):
        return 8

    def __getitem__(self, index):
        length = 0
        for it in self.samples:
            length += len(it)
        return torch.full((64,), float(length))


if kind == "pinned":
    # PyTorch rounds these up to 128 MiB each; nothing is written there.
    kept = [torch.empty(80 * MIB, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
elif kind == "written":
    kept = [torch.zeros(128 * MIB, dtype=torch.uint8).pin_memory() for _ in range(2)]
elif kind == "copied":
    kept = [torch.zeros(128 * MIB, dtype=torch.uint8, device="cuda").cpu() for _ in range(2)]
elif kind == "freed":
    # The cache of PyTorch gives one place to each of them.
    for _ in range(4):
        torch.empty(128 * MIB, dtype=torch.uint8, pin_memory=True)

workers = 2 if kind == "workers" else 0
samples = Samples() if kind == "workers" else [torch.zeros(64)] * 8
for batch in torch.utils.data.DataLoader(samples, 2, num_workers=workers):
    model(batch.cuda()).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
