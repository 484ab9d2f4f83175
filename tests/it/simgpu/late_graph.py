"""A replay takes the time of all of its kernels, on the stream it was launched on; a capture takes none."""

import time

import torch

x = torch.ones(1000, device="cuda")
graph = torch.cuda.CUDAGraph()
torch.cuda.synchronize()
begin = time.monotonic()
stream = torch.cuda.Stream()
with torch.cuda.graph(graph, stream=stream):
    for _ in range(4):
        x.add_(1)
assert stream.query() and time.monotonic() - begin < 1
a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
torch.cuda.synchronize()
begin = time.monotonic()
a.record()
graph.replay()
b.record()
assert not b.query() and time.monotonic() - begin < 1
torch.cuda.synchronize()
assert time.monotonic() - begin >= 2 and 1999 < a.elapsed_time(b) < 2001, a.elapsed_time(b)
print("ok")
