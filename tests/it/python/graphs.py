"""Trains with CUDA graphs, selected by its argument, and prints PyTorch's own figures at each step."""

import json
import sys

import torch

net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).cuda()
optimizer = torch.optim.Adam(net.parameters(), capturable=True)
batch = torch.randn(256, 64, device="cuda")
side = torch.cuda.Stream()
kept = []


def figures():
    now = torch.cuda.memory_stats()
    # Not every release counts these.
    pools = torch._C._cuda_memoryStats(0).get("reserved_bytes_by_private_pools")
    names = {"allocated": "allocated_bytes", "active": "active_bytes", "reserved": "reserved_bytes"}
    printed = {ours: now[theirs + ".all.current"] for ours, theirs in names.items()}
    return {**printed, "private_pools": pools if pools is None else sum(it["all"]["current"] for it in pools.values())}


def is_recorded():
    # The other backend has no history.
    return torch.cuda.get_allocator_backend() == "native" and torch._C._cuda_isHistoryEnabled()


def backward():
    net(batch).sum().backward()


def warm_up():
    """Outside of a graph, as PyTorch's documentation has it: it makes the workspaces and the optimizer's state."""
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.current_stream().wait_stream(side)


def captured(work):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    return graph


def again():
    """Each step captures its own graph, replays it, and lets go of it with the next one."""
    for _ in range(20):
        kept[:] = [captured(backward)]
        optimizer.step()
        print(json.dumps(figures()), flush=True)


def keeps():
    """A graph for each of so many shapes, and shapes do not end."""
    for step in range(200):
        if step % 4 == 0:
            kept.append(captured(lambda: (net(batch) * 2).relu()))
        kept[-1].replay()
        backward()
        optimizer.step()
        optimizer.zero_grad()


def within():
    """Steps that are captured whole, the optimizer in them; after five of them, one outside after each."""
    for step in range(30):
        kept[:] = [captured(lambda: (backward(), optimizer.step()))]
        if step == 5:
            print(json.dumps({"enabled": is_recorded()}), flush=True)
        if step >= 5:
            optimizer.step()
        optimizer.zero_grad()
    print(json.dumps({"enabled": is_recorded()}), flush=True)


warm_up()
if sys.argv[1] == "within":
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
globals()[sys.argv[1]]()
print(json.dumps({"end": True, "counts_pools": figures()["private_pools"] is not None}), flush=True)
sys.stdin.readline()
