"""A stand-in for CuPy on one GPU: what its probe calls, with the results that are documented for them.

https://docs.cupy.dev/en/stable/reference/generated/cupy.cuda.MemoryPool.html; the figures are the current device's.
"""

from types import SimpleNamespace

import gpu

__version__ = "14.0.0"


class MemoryPool:
    """Keeps every segment that it ever took."""

    def __init__(self):
        self.used, self.total, self.device = 0, 0, gpu.Device(0)

    def take(self, size):
        self.used += size
        if self.used > self.total:
            self.device.take(self.used - self.total)
            self.total = self.used

    def give(self, size):
        self.used -= size

    def used_bytes(self):
        return self.used

    def free_bytes(self):
        return self.total - self.used

    def total_bytes(self):
        return self.total

    def n_free_blocks(self):
        return 1


POOL = MemoryPool()
cuda = SimpleNamespace(runtime=SimpleNamespace(getDevice=lambda: 0))


def get_default_memory_pool():
    return POOL
