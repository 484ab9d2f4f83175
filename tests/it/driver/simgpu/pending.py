"""A block that another stream still uses when it is freed: active, no longer allocated, until that stream is done."""

import time

import torch

side = torch.cuda.Stream()
x = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
y = torch.empty_like(x)
torch.cuda.synchronize()


def gap():
    stats = torch.cuda.memory_stats()
    return stats["active_bytes.all.current"] - stats["allocated_bytes.all.current"]


assert gap() == 0
begin = time.monotonic()
with torch.cuda.stream(side):
    x.add_(1)
x.record_stream(side)
del x
assert gap() == 1 << 20, gap()
requested = torch.cuda.memory_stats()["requested_bytes.all.current"]
assert requested > torch.cuda.memory_allocated(), "a pending block is still requested"
a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
with torch.cuda.stream(side):
    a.record()
    y.add_(1)
    b.record()
assert not b.query() or time.monotonic() - begin > 2
torch.cuda.synchronize()
assert time.monotonic() - begin >= 2, "two kernels of a second each were waited for"
assert b.query() and 999 < a.elapsed_time(b) < 1001, a.elapsed_time(b)
z = torch.empty(1, device="cuda")
assert gap() == 0, "the next allocation looks at the events"
print("ok")
