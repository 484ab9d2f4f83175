"""Random allocations, some of them captured in graphs: NVML's figure for this process, and the driver's, equal torch's
reserved plus the context."""

import ctypes
import os
import random

import torch

import nvml

CONTEXT = 512 << 20
# How many of the turns are about a graph.
GRAPHS = float(os.environ.get("GRAPHS", "0"))
random.seed(int(os.environ.get("SEED", "0")))
torch.cuda.init()
torch.empty(1, device="cuda")
live, checked, ooms, replays = [], 0, 0, 0
graphs = []


def uncounted():
    """Bytes that the device keeps for stream-ordered allocations in graphs, which older releases leave out."""
    if torch.cuda.get_allocator_backend() == "native" or tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15):
        return 0
    bytes_reserved = ctypes.c_ulonglong()
    runtime = ctypes.CDLL("libcudart.so.%s" % torch.version.cuda.split(".")[0])
    assert runtime.cudaDeviceGetGraphMemAttribute(0, 2, ctypes.byref(bytes_reserved)) == 0
    return bytes_reserved.value


def captured(pool):
    """A graph with memory of its own: some of it comes and goes inside, some is kept as its result."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        for _ in range(3):
            torch.empty(int(10 ** random.uniform(2, 8)), dtype=torch.uint8, device="cuda").zero_()
        kept = torch.empty(int(10 ** random.uniform(2, 8)), dtype=torch.uint8, device="cuda").zero_()
    return graph, kept if random.random() < 0.5 else None


for turn in range(1500):
    try:
        if random.random() < GRAPHS:
            chance = random.random()
            if chance < 0.4 or not graphs:
                shared = random.choice(graphs)[0].pool() if graphs and random.random() < 0.5 else None
                graphs.append(captured(shared))
            elif chance < 0.8:
                random.choice(graphs)[0].replay()
                replays += 1
            else:
                graphs.pop(random.randrange(len(graphs)))[0].reset()
        elif random.random() < 0.55 or not live:
            live.append(torch.empty(int(10 ** random.uniform(2, 9.6)), dtype=torch.uint8, device="cuda"))
        else:
            live.pop(random.randrange(len(live)))
    except torch.OutOfMemoryError:
        ooms += 1
        live = live[: len(live) // 2]
    if random.random() < 0.02:
        torch.cuda.empty_cache()
    if turn % 10 == 0:
        reserved = torch.cuda.memory_reserved() + uncounted()
        used = nvml.processes()[1][os.getpid()]
        free, total = torch.cuda.mem_get_info()
        board = nvml.memory()[1]
        assert used == reserved + CONTEXT, (turn, used, reserved)
        assert total - free == used, (turn, total - free, used)
        assert board.used == used and board.used + board.free + board.reserved == board.total, turn
        assert total == board.total - board.reserved
        checked += 1
print(checked, ooms > 0, replays > 0)
