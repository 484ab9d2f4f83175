"""A replay takes the time of all of its kernels, on the stream it was launched on."""

import time

import torch

x = torch.ones(1000, device="cuda")


def captured(kernels):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(kernels):
            x.add_(1)
    return graph


def replayed(graph):
    """Milliseconds of a replay."""
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin = time.monotonic()
    a.record()
    graph.replay()
    b.record()
    # Unless the machine was too busy to get here earlier, nothing waited.
    assert not b.query() or time.monotonic() - begin > 1
    torch.cuda.synchronize()
    assert (time.monotonic() - begin) * 1e3 >= a.elapsed_time(b) - 1
    return a.elapsed_time(b)


# Both include the work that a release adds to each replay (the generator's state).
short, long = captured(2), captured(6)
assert 1999 < replayed(long) - replayed(short) < 2001
print("ok")
