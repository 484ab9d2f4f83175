"""Counts what the allocator holds when an allocation fails: live blocks by size, and the largest free block."""

import ctypes

from ._captures import Resting, segments

GROUPS = 32

# A snapshot takes microseconds per block; with more blocks it would delay the job's error.
_MOST = 100_000


class Blocks(ctypes.Structure):
    """`struct gpuwatch_blocks` (gpuwatch_probe.h)."""

    _fields_ = [(it, ctypes.c_uint64) for it in ("largest_free", "other_blocks", "other_bytes", "groups")] + [
        ("group", ctypes.c_uint64 * 2 * GROUPS)
    ]


def snapshot(torch, device, is_ours=False):
    """Returns the allocator's segments; `None` if that would cost too much, or be mixed with the job's own history."""
    stats = torch._C._cuda_memoryStats(device)
    if stats["allocation"]["all"]["current"] + stats["inactive_split"]["all"]["current"] > _MOST:
        return None
    with Resting():
        return segments(torch, is_ours)


def grouped(segments, device):
    """Groups live blocks of one device by size, the sizes with most bytes first."""
    counts, largest_free = {}, 0
    for segment in segments:
        if segment["device"] != device:
            continue
        for block in segment["blocks"]:
            size = block["size"]
            if block["state"] == "inactive":
                largest_free = max(largest_free, size)
            else:
                counts[size] = counts.get(size, 0) + 1
    by_bytes = sorted(counts.items(), key=lambda it: (-it[0] * it[1], -it[0]))
    others = by_bytes[GROUPS:]
    account = Blocks(largest_free, sum(n for _, n in others), sum(size * n for size, n in others))
    account.groups = min(len(by_bytes), GROUPS)
    for at, pair in enumerate(by_bytes[:GROUPS]):
        account.group[at][:] = pair
    return account
