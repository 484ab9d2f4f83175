"""Trains with batches of any length, which fragment the cache, until its standard input ends; each line of it is
answered with what a window might have changed."""

import gc
import json
import os
import random
import select
import sys
import time

import torch

MIB = 1 << 20
random.seed(7)
net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
kept = []
history = torch.cuda.memory._record_memory_history
made = 0


def block(mib):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")


def lengths():
    length = random.uniform(0.1, 1)
    layers = [block(40 * length) for _ in range(12)]
    del layers[::2]
    kept[:] = [block(3 * length)] + kept[:6]


def stuck():
    """Blocks that outlive their steps pin segments that no later request fits."""
    length = random.randrange(200, 900)
    outputs = []
    for _ in range(6):
        outputs.append(block(24 * length * 1024 / MIB))
        kept.append(block(random.randrange(1_200_000, 1_600_000) / MIB))
    while len(kept) > 48:
        kept.pop(random.randrange(len(kept)))


def late(**named):
    """Switches the history on after some steps, as on a machine where its thread gets no turn before."""
    begun = made
    while named["enabled"] and made < begun + 8:
        time.sleep(0.001)
    history(**named)


def step():
    global made
    stuck() if "stuck" in sys.argv else lengths()
    net(torch.ones(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    made += 1
    # Another thread gets its turn.
    time.sleep(0.002)


def state():
    # Without one, a snapshot has no events; with one, it would leave an event of its own.
    enabled = torch._C._cuda_isHistoryEnabled()
    events = None if enabled else sum(map(len, torch.cuda.memory._snapshot()["device_traces"]))
    return {
        "enabled": enabled,
        "events": events,
        "switches": [str(getattr(torch._C, it)) for it in dir(torch._C) if "record_memory_history" in it],
        "collector": gc.isenabled(),
        "threads": len(os.listdir("/proc/self/task")),
        "files": sorted(it for it in os.listdir(os.environ["GPUWATCH_SOCKET_DIR"]) if not it.endswith(".log")),
    }


def own():
    """What a history of the job's own has, which must not depend on a window before it."""
    history(max_entries=1000)
    del [block(1)][:]
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    found = {"actions": sorted({it["action"] for it in events}), "stacks": all(it["frames"] for it in events)}
    history(None)
    return found


if "late" in sys.argv:
    torch.cuda.memory._record_memory_history = late
for _ in range(30):
    step()
print(json.dumps({"pid": os.getpid()}), flush=True)
while True:
    step()
    if select.select([sys.stdin], [], [], 0)[0]:
        word = sys.stdin.readline().strip()
        if word == "state":
            print(json.dumps(state()), flush=True)
        elif word == "own":
            print(json.dumps(own()), flush=True)
        elif word == "record":
            history(max_entries=1000)
            print(json.dumps({}), flush=True)
        else:
            break
