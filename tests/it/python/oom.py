"""Runs out of memory in the way that the first argument names, and says what was raised and what it took."""

import json
import sys
import time
import traceback

import torch

MIB = 1 << 20


def say(**facts):
    print(json.dumps(facts), flush=True)


def ask(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def failed(size):
    """What a request of a size raises, and the time of this thread that it takes."""
    begun = time.thread_time()
    try:
        ask(size)
    except torch.cuda.OutOfMemoryError as error:
        took = time.thread_time() - begun
        linked = [error.__cause__, error.__context__, getattr(error, "__notes__", None)]
        kinds = [it.__qualname__ for it in type(error).__mro__]
        return {"kinds": kinds, "linked": linked, "words": str(error), "trace": traceback.format_exc()}, took
    raise SystemExit("it fitted")


how = sys.argv[1]
model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(64, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
say(ready=True)
if "wait" in sys.argv:
    sys.stdin.readline()

size, kept = 2048 * MIB, []
if how == "limit":
    torch.cuda.set_per_process_memory_fraction(0.1)
    size = 1024 * MIB
elif how == "holes":
    # Four blocks a segment, of which one stays.
    kept = [ask(5 * MIB) for _ in range(600)]
    kept = kept[::4]
elif how == "many":
    kept = [ask(512) for _ in range(90_000)]
first, took = failed(size)
again = 0.0
for _ in range(1000 if how == "retries" else 0):
    other, more = failed(size)
    again += more
    if other["words"] != first["words"]:
        raise SystemExit(other["words"])
print(json.dumps({"took": took, "again": again}), file=sys.stderr)
say(**first)
