# Steps of 1,000 allocations, with the trace switched on and off: what an allocation costs, and the longest one.
import json
import random
import statistics
import sys
import time

import torch

import gpuwatch_probe
from gpuwatch_probe._trace import RING, Trace
from gpuwatch_probe._trace_window import RING as WINDOW

rounds, steps = int(sys.argv[1]), int(sys.argv[2])
gpuwatch_probe.stop()
torch.cuda.init()
random.seed(1)
sizes = [random.randrange(1, 1 << 20) for _ in range(1000)]
allocate, delete = torch._C._cuda_cudaCachingAllocator_raw_alloc, torch._C._cuda_cudaCachingAllocator_raw_delete


def step():
    """Seconds of the allocations of a step of 10 ms, and the longest of them."""
    longest, begun, held = 0.0, time.perf_counter(), []
    before = begun
    for size in sizes:
        held.append(allocate(size, 0))
        if len(held) > 30:
            delete(held.pop(0))
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    for it in held:
        delete(it)
    took = time.perf_counter() - begun
    # The rest of the step is the device's.
    time.sleep(max(0.0, 0.01 - took))
    return took, longest


def measured():
    all_steps = [step() for _ in range(steps)]
    return statistics.median(it[0] for it in all_steps), max(it[1] for it in all_steps)


measured()
off, on, longest, quiet = [], [], [], []
for number in range(rounds):
    took, most = measured()
    off.append(took)
    quiet.append(most)
    trace = Trace(torch, print, WINDOW if "window" in sys.argv else RING)
    trace.begin(sys.argv[3], 1 << 30)
    took, most = measured()
    on.append(took)
    longest.append(most)
    trace.end("exit")
figures = {
    "step_us": 1e6 * (statistics.median(on) - statistics.median(off)),
    "off_us": 1e6 * statistics.median(off),
    "longest_ms": 1e3 * statistics.median(longest),
    "longest_off_ms": 1e3 * statistics.median(quiet),
}
print(json.dumps(figures))
