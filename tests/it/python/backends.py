"""A job of one kind, which reports PyTorch's own figures and waits until it may end."""

import json
import os
import sys
import time

import torch

MIB = 1 << 20


def tensor(mib, device=0):
    return torch.empty(mib * MIB, dtype=torch.uint8, device=torch.device("cuda", device))


def train(devices, steps=5):
    """Steps of one optimizer over parameters on every device."""
    parameters = [torch.ones(MIB, device=torch.device("cuda", it), requires_grad=True) for it in devices]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        for parameter in parameters:
            parameter.sum().backward()
        optimizer.step()
    return parameters


def plain():
    return train([0])


def devices():
    return train([0, 1]), tensor(64, 1)


def several_optimizers():
    """A step is one turn of both."""
    pair = [torch.ones(MIB, device="cuda", requires_grad=True) for _ in range(2)]
    optimizers = [torch.optim.SGD([it], lr=0.1) for it in pair]
    for _ in range(8):
        for parameter, optimizer in zip(pair, optimizers):
            parameter.sum().backward()
            optimizer.step()
        time.sleep(0.02)
    return pair


def inference():
    """No optimizer, so that nothing steps."""
    weights = tensor(100)
    with torch.inference_mode():
        for _ in range(20):
            tensor(10).zero_()
    return weights


def private_pool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = tensor(40)
    return pool, inside, train([0])


def graphs():
    """A graph with its result, and one whose memory is all free, both of them in use."""
    net = torch.nn.Linear(1024, 1024, device="cuda")
    batch = torch.ones(2048, 1024, device="cuda")
    train([0])
    # A library's first call may not be captured.
    net(net(batch)).relu()
    made = []
    for keeps in (True, False):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = net(net(batch)).relu()
        graph.replay()
        made.append((graph, result if keeps else None))
        del result
    return made, train([0], 3)


held = globals()[sys.argv[1]]()
stats = [torch.cuda.memory_stats(it) for it in range(torch.cuda.device_count())]
names = {
    "requested": "requested_bytes.all.current",
    "allocated": "allocated_bytes.all.current",
    "active": "active_bytes.all.current",
    "inactive_split": "inactive_split_bytes.all.current",
    "reserved": "reserved_bytes.all.current",
}
counters = [{ours: it.get(theirs) for ours, theirs in names.items()} for it in stats]
for device, it in enumerate(counters):
    # Not every release counts these.
    pools = torch._C._cuda_memoryStats(device).get("reserved_bytes_by_private_pools")
    it["private_pools"] = pools if pools is None else sum(it["all"]["current"] for it in pools.values())
print(json.dumps({"pid": os.getpid(), "devices": counters}), flush=True)
sys.stdin.readline()
