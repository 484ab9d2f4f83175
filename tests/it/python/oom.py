"""Runs out of memory in the way that the first argument names, and reports the error and how long it took."""

import json
import sys
import threading
import time
import traceback

import torch

MIB = 1 << 20


def report(**facts):
    print(json.dumps(facts), flush=True)


def ask(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def failed(request):
    """Returns the error of a request, and its CPU time in this thread."""
    begun = time.thread_time()
    try:
        request()
    except torch.cuda.OutOfMemoryError as error:
        took = time.thread_time() - begun
        linked = [error.__cause__, error.__context__, getattr(error, "__notes__", None)]
        kinds = [it.__qualname__ for it in type(error).__mro__]
        ours = [sorted(vars(type(error))), type(error).__init__ is RuntimeError.__init__, vars(error)]
        hooks = [sys.excepthook is sys.__excepthook__, sys.gettrace(), sys.getprofile()]
        facts = {"kinds": kinds, "linked": linked, "class": ours, "hooks": hooks, "words": str(error)}
        return {**facts, "trace": traceback.format_exc()}, took
    raise SystemExit("it fitted")


def in_thread():
    """The same request in a thread, caught there."""
    out = []
    thread = threading.Thread(target=lambda: out.append(failed(lambda: ask(size))))
    thread.start()
    thread.join()
    return out[0]


class Asks(torch.autograd.Function):
    """Asks for what is not there while gradients are computed."""

    @staticmethod
    def forward(ctx, it):
        return it * 2

    @staticmethod
    def backward(ctx, it):
        ask(size)


def loss(through):
    """Fills the device so that only the gradients have no room; through Python, or only in PyTorch's own threads."""
    if through == "python":
        return Asks.apply(torch.ones(4, device="cuda", requires_grad=True)).sum()
    out = torch.ones(64 * MIB // 4, device="cuda", requires_grad=True).exp().sum()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(torch.cuda.memory_reserved() / total)
    return out


how = sys.argv[1]
model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(64, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
report(ready=True)
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
if how == "thread":
    first, took = in_thread()
elif how in ("python", "backward"):
    first, took = failed(loss(how).backward)
elif how == "uncaught":
    thread = threading.Thread(target=ask, args=(size,))
    thread.start()
    thread.join()
    ask(size)
else:
    first, took = failed(lambda: ask(size))
again = 0.0
for _ in range(1000 if how == "retries" else 0):
    other, more = failed(lambda: ask(size))
    again += more
    if other["words"] != first["words"]:
        raise SystemExit(other["words"])
print(json.dumps({"took": took, "again": again}), file=sys.stderr)
report(**first)
if "linger" in sys.argv:
    sys.stdin.readline()
