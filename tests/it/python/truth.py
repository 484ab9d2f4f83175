"""A small GPT that prints PyTorch's own figures at each step, and then NVML's figure for this process."""

import ctypes
import json
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn

# Names of PyTorch's by names of ours.
KEYS = json.loads(sys.argv[2])


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        shaped = [it.view(batch, length, self.heads, -1).transpose(1, 2) for it in self.qkv(self.first(x)).chunk(3, -1)]
        scores = shaped[0] @ shaped[1].transpose(-1, -2) / (width // self.heads) ** 0.5
        mixed = (scores.softmax(-1) @ shaped[2]).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.feed(self.second(x))


class Gpt(nn.Module):
    def __init__(self, words=512, width=128, depth=2, length=64):
        super().__init__()
        self.word, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, 4) for _ in range(depth)])
        self.head = nn.Linear(width, words)

    def forward(self, words):
        x = self.word(words) + self.place(torch.arange(words.shape[1], device=words.device))
        return self.head(self.blocks(x))


def report(**facts):
    print(json.dumps(facts), flush=True)


def figures():
    now = torch.cuda.memory_stats(0)
    # Not every release counts these.
    pools = torch._C._cuda_memoryStats(0).get("reserved_bytes_by_private_pools")
    pools = pools if pools is None else sum(it["all"]["current"] for it in pools.values())
    return {"private_pools": pools, **{name: now[key] for name, key in KEYS.items()}}


def nvml():
    """Bytes that the driver charges this process with."""

    class Process(ctypes.Structure):
        _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]

    lib = ctypes.CDLL("libnvidia-ml.so.1")
    handle, count, found = ctypes.c_void_p(), ctypes.c_uint(64), (Process * 64)()
    assert lib.nvmlInit_v2() == 0
    assert lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
    assert lib.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), found) == 0
    return next(it.used for it in found[: count.value] if it.pid == os.getpid())


steps = int(sys.argv[1])
torch.manual_seed(0)
model = Gpt().cuda()
report(context=nvml() - torch.cuda.memory_reserved())
optimizer = torch.optim.AdamW(model.parameters())
kept = []
for step in range(1, steps + 1):
    words = torch.zeros(4, 16 + step % 48, dtype=torch.long, device="cuda")
    loss = F.cross_entropy(model(words).flatten(0, 1), words.flatten())
    loss.backward()
    if step % 10 == 0:
        kept.append(torch.empty(1 << 20, device="cuda"))
    optimizer.step()
    report(step=step, **figures())
    optimizer.zero_grad()
    if step % 15 == 0:
        # As some trainers do; the peaks from here on are those since now.
        torch.cuda.reset_peak_memory_stats()

# A block that is freed here while another stream has still to come to its end.
parameter = torch.zeros(1, device="cuda", requires_grad=True)
parameter.grad = torch.zeros(1, device="cuda")
# It allocates nothing. No loop has it in common with the one before: each of its calls is a step, the first of which is
# counted only with the second.
plain = torch.optim.SGD([parameter], lr=0.1, foreach=False)
plain.step()
side = torch.cuda.Stream()
block = torch.empty(4 << 20, dtype=torch.uint8, device="cuda")
with torch.cuda.stream(side):
    torch.cuda._sleep(10**9)
    block.fill_(1)
block.record_stream(side)
del block, optimizer, loss
plain.step()
report(step=steps + 2, pending=True, **figures())
waits = sys.argv[3:] == ["wait"]
if waits:
    sys.stdin.readline()
torch.cuda.synchronize()
report(context=nvml() - torch.cuda.memory_reserved())
try:
    torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError as error:
    report(oom=str(error).split(".")[0])
report(end=True, **figures())
if waits:
    sys.stdin.readline()
torch.cuda.synchronize()
