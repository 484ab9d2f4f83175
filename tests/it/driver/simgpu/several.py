"""Random allocations on several devices: on each, NVML's figure and the driver's equal torch's reserved plus the
context, and nothing is charged before the first allocation."""

import ctypes
import os
import random

import torch

import nvml

CONTEXT = 512 << 20
random.seed(0)
boards = []
for index in range(torch.cuda.device_count()):
    boards.append(ctypes.c_void_p())
    assert nvml.lib.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(boards[-1])) == 0
live = [[] for _ in boards]
begun, ooms = set(), set()


def check(turn):
    for index, board in enumerate(boards):
        nvml.device = board
        used = nvml.processes()[1].get(os.getpid())
        if index not in begun:
            assert used is None, (turn, index, used)
            continue
        assert used == torch.cuda.memory_reserved(index) + CONTEXT, (turn, index, used)
        free, total = torch.cuda.mem_get_info(index)
        assert total - free == used == nvml.memory()[1].used, (turn, index, used)


for turn in range(900):
    # The last device comes late.
    index = random.randrange(len(boards) - (turn < 300))
    held = live[index]
    try:
        if random.random() < 0.6 or not held:
            held.append(torch.empty(int(10 ** random.uniform(2, 9.6)), dtype=torch.uint8, device=f"cuda:{index}"))
        else:
            held.pop(random.randrange(len(held)))
    except torch.OutOfMemoryError:
        ooms.add(index)
        live[index] = held[: len(held) // 2]
    begun.add(index)
    if random.random() < 0.02:
        torch.cuda.empty_cache()
    if turn % 10 == 0:
        check(turn)
print(len(begun), sorted(ooms))
