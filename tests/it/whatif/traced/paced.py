# Waits for its trace after every 700 allocations, so that no event is lost, however slow the machine is.
import glob
import os
import sys
import time

import gpuwatch_probe
import torch

if sys.argv[1] == "in-python":
    # A PyTorch whose native function has another name.
    import gpuwatch_probe._trace as trace

    trace.NATIVE_DUMP = "no_such_function"

folder = os.environ["GPUWATCH_TRACE"].partition(":")[2]
made, kept = 0, []


def written():
    """Allocations that the pieces in the file count."""
    lines = [line for it in glob.glob(folder + "/*.trace") for line in open(it, "rb").read().split(b"\n")]
    counts = [line.split(b'"allocations": ')[1].split(b",")[0] for line in lines if b'"allocations": ' in line]
    return max(map(int, counts), default=0)


for step in range(40):
    # Fewer than a ring holds.
    for at in range(700):
        kept = kept[-(at % 40) :] + [torch.empty((1 + at * step % 11) << 18, dtype=torch.uint8, device="cuda")]
        made += 1
    gpuwatch_probe._probe._trace.write_now()
    while written() < made:
        time.sleep(0.002)
if sys.argv[1] == "own":
    # From here on the history is the job's, with stacks.
    torch.cuda.memory._record_memory_history()
    kept = [torch.empty(1 << 20, device="cuda") for _ in range(10)]
    own = torch.cuda.memory._snapshot()
    assert any(it["frames"] for it in own["device_traces"][0])
    torch.cuda.memory._record_memory_history(None)
kept.clear()
stats = torch.cuda.memory_stats()
print(stats["reserved_bytes.all.peak"], stats["num_device_alloc"])
