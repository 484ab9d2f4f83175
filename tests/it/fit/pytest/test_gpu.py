import pytest
import torch
from torch import nn

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(512, 4096)
        self.down = nn.Linear(4096, 512)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def train(steps=3, keep=None):
    net = Net().cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(steps):
        out = net(torch.randn(256, 512, device="cuda"))
        if keep is not None:
            keep.append(out.detach())
        out.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.gpu_memory(limit="2 GiB", growth="0", against="baseline")
def test_fits():
    train(7)


@pytest.mark.gpu_memory(limit="64 MiB")
def test_is_over_its_limit():
    train()


@pytest.mark.gpu_memory(growth="0")
def test_leaks():
    kept = []
    train(8, kept)


@pytest.mark.gpu_memory(growth="0")
def test_is_too_short(gpu_memory):
    train(3)
    assert gpu_memory.growth is None


def test_looks_itself(gpu_memory):
    train(7)
    assert gpu_memory.peak > 64 << 20
    assert gpu_memory.parts["weights"] == 2 * 512 * 4096 * 4 + (4096 + 512) * 4
    assert gpu_memory.lines[0]["line"].startswith("test_gpu.py:")
    assert gpu_memory.growth == 0


@needs_gpu
def test_computes_on_the_gpu():
    assert torch.ones(3, device="cuda").sum().item() == 3.5


def test_of_the_cpu():
    assert torch.ones(3).sum().item() == 3
