"""Trains, and prints the probe's figures, with PyTorch's own, whenever a line asks for them."""

import json
import sys

import gpuwatch_probe
import torch


def report(**facts):
    print(json.dumps(facts), flush=True)


class Forbidden:
    """PyTorch's calls into CUDA while the figures are read."""

    NAMES = ("_cuda_memoryStats", "_cuda_hostMemoryStats", "_cuda_hasPrimaryContext", "_cuda_getDeviceCount")

    def __enter__(self):
        self.calls = []
        self.real = {name: getattr(torch._C, name) for name in self.NAMES if hasattr(torch._C, name)}
        for name in self.real:
            setattr(torch._C, name, lambda *_, name=name: self.calls.append(name))
        return self

    def __exit__(self, *_):
        for name, real in self.real.items():
            setattr(torch._C, name, real)
        assert not self.calls, self.calls


# The document's own function.
page = {}
exec(open(sys.argv[1]).read().split("```python\n")[1].split("```")[0], page)

before = gpuwatch_probe.figures()
model = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.AdamW(model.parameters())
kept = []
report(before=before, other=gpuwatch_probe.figures(7))
for line in sys.stdin:
    if line == "go on\n":
        break
    for _ in range(int(line)):
        optimizer.zero_grad()
        model(torch.ones(8, 512, device="cuda")).sum().backward()
        kept.append(torch.empty(1 << 20, device="cuda"))
        optimizer.step()
    with Forbidden():
        figures = gpuwatch_probe.figures()
    own = torch.cuda.memory_stats()
    report(
        figures=figures,
        logged=page["figures"](),
        allocated=own["allocated_bytes.all.current"],
        reserved=own["reserved_bytes.all.current"],
        peak=own["allocated_bytes.all.peak"],
        other=gpuwatch_probe.figures(7),
    )
gpuwatch_probe.stop()
report(after=gpuwatch_probe.figures())
