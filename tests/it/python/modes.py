"""Leaks in the ways of running that see memory otherwise; a line of standard input names one and a number of steps."""

import json
import sys
import threading

import torch

net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
compiled = torch.compile(net, backend="aot_eager")
pool = torch.cuda.MemPool()
outputs, pooled, gradients, both = [], [], [], {}


def batch():
    return torch.randn(256, 64, device="cuda")


def train(output):
    output.sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def in_compiled_code():
    output = compiled(batch())
    train(output)
    outputs.append(output.detach())


def in_a_pool():
    with torch.cuda.use_mem_pool(pool):
        pooled.append(torch.empty(4096, device="cuda"))
    train(net(batch()))


def in_backward():
    x = batch().requires_grad_()
    x.register_hook(lambda gradient: gradients.append(gradient))
    train(net(x))


def in_two_threads():
    def keep(name):
        both.setdefault(name, []).append(batch())

    threads = [threading.Thread(target=keep, args=(name,)) for name in ("one", "two")]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    train(net(batch()))


# Compiled beforehand, which is not a step.
train(compiled(batch()))
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    words = line.split()
    if len(words) != 2:
        break
    for _ in range(int(words[1])):
        globals()[words[0]]()
    print(json.dumps({"done": words[0]}), flush=True)
