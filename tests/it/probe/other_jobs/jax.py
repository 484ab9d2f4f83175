"""A stand-in for JAX on one GPU: what its probe calls, with the results that are documented for them.

`Device.memory_stats()`: https://github.com/jax-ml/jax/issues/1491 shows the names; `pool_bytes` and `peak_pool_bytes`
are those of the header of the PJRT C API, and are there where the allocator has a pool.
"""

import os

import gpu

__version__ = "0.9.0"

SEGMENT = 256 << 20


class Device:
    platform, device_kind, local_hardware_id = "gpu", "NVIDIA H200", 0

    def __init__(self):
        self.device, self.in_use, self.peak, self.pool, self.count = gpu.Device(0), 0, 0, 0, 0

    def take(self, size):
        self.count += 1
        self.in_use += size
        self.peak = max(self.peak, self.in_use)
        while self.pool < self.in_use:
            self.device.take(SEGMENT)
            self.pool += SEGMENT

    def give(self, size):
        self.in_use -= size

    def memory_stats(self):
        stats = {
            "bytes_in_use": self.in_use,
            "bytes_limit": 33014415360,
            "bytes_reservable_limit": 33014415360,
            "bytes_reserved": 0,
            "largest_alloc_size": 40960,
            "largest_free_block_bytes": 0,
            "num_allocs": self.count,
            "peak_bytes_in_use": self.peak,
            "peak_bytes_reserved": 0,
        }
        if "WITHOUT_POOL" not in os.environ:
            stats.update(pool_bytes=self.pool, peak_pool_bytes=self.pool)
        return stats


class Cpu:
    platform = "cpu"


DEVICE = Device()


def local_devices():
    return [Cpu(), DEVICE]


def process_index():
    return 0


def process_count():
    return 1
