"""Describes the live blocks when an allocation fails: by size, by stack, and what holds the largest groups.

Blocks with a recorded stack are grouped by it, the others by their size. The search for holders ends after
`_SEARCH_S`, finished or not: the job waits for its error.
"""

import ctypes
import time

from ._captures import NOWHERE, Resting, segments, stack_of
from ._holders import BETWEEN_STEPS, Search
from ._sites_report import site
from ._source import Sources

# Groups of equal blocks in `Blocks`, those with most bytes first.
GROUPS = 32

# A snapshot takes microseconds per block; with more blocks it would delay the job's error.
_MOST_BLOCKS = 100_000

_SEARCH_S = 0.3

# Steps of a path that any number of tensors may share.
_ANY = ("traceback", "graph", "cycle", "generator")

# Groups to report, groups whose holders are searched, the part of all live bytes from which a group is worth that, and
# blocks of each that are searched.
_REPORTED, _SEARCHED, _SHARE, _SAMPLES = 16, 6, 0.02, 16


class Blocks(ctypes.Structure):
    """`struct gpuwatch_blocks` (gpuwatch_probe.h)."""

    _fields_ = [(it, ctypes.c_uint64) for it in ("largest_free", "other_blocks", "other_bytes", "groups")] + [
        ("group", ctypes.c_uint64 * 2 * GROUPS)
    ]


def snapshot(torch, device, is_ours=False):
    """Returns the allocator's segments; `None` if that would cost too much, or be mixed with the job's own history."""
    stats = torch._C._cuda_memoryStats(device)
    if stats["allocation"]["all"]["current"] + stats["inactive_split"]["all"]["current"] > _MOST_BLOCKS:
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
    found = Blocks(largest_free, sum(n for _, n in others), sum(size * n for size, n in others))
    found.groups = min(len(by_bytes), GROUPS)
    for at, pair in enumerate(by_bytes[:GROUPS]):
        found.group[at][:] = pair
    return found


def groups(segments, device):
    """Returns `{(stack, size or None): [(address, size), …]}` of one device, the largest group first."""
    found, names = {}, {}
    for segment in segments:
        if segment["device"] != device:
            continue
        for block in segment["blocks"]:
            if block["state"] != "inactive":
                frames, size = block["frames"], block["size"]
                key = (stack_of(frames, names), None) if frames else (NOWHERE, size)
                found.setdefault(key, []).append((block["address"], size))
    return dict(sorted(found.items(), key=lambda it: -bytes_of(it[1])))


def bytes_of(blocks):
    """Returns the total bytes of `(address, size)`."""
    return sum(it[1] for it in blocks)


def sites(torch, stacks, live, device, since, terms=BETWEEN_STEPS):
    """Returns the sites of the largest groups, with their holders where the search found some, and its duration."""
    begun = time.monotonic()
    most = list(live.items())[:_REPORTED]
    all_bytes = sum(map(bytes_of, live.values()))
    wanted = [of for _, of in most if bytes_of(of) >= _SHARE * all_bytes][:_SEARCHED]
    search = Search(torch, [_sample(of) for of in wanted], stacks.rank, None, terms)
    while not search.slice() and time.monotonic() - begun < _SEARCH_S * terms.patience:
        pass
    held = search.result()
    sources, found = Sources(since), []
    for at, ((stack, _), of) in enumerate(most):
        counts = {}
        for _, size in of:
            counts[size] = counts.get(size, 0) + 1
        answer = held[at] if at < len(held) else None
        if answer and not _can_hold(answer["holders"], len(of)):
            answer = dict(answer, holders=[])
        one = site(stacks, sources, (device, stack), (bytes_of(of), len(of)), counts, answer)
        # Which of several statements ran, one moment does not show.
        if one.pop("kept_or", None):
            one.pop("kept", None)
        found.append(one)
    return found, int(1e6 * (time.monotonic() - begun))


def _can_hold(holders, blocks):
    """Returns whether a path leads to at least half of so many blocks, and not only to the one that was searched."""
    room = 1
    for it in holders:
        # A traceback, a graph and a network (`encoder.0.weight`) hold any number.
        if it["by"] in _ANY or (it["by"] == "attribute" and "." in (it["name"] or ".")):
            return True
        room *= max(1, it["items"] or 1)
    return 2 * room >= blocks


def _sample(blocks):
    stride = max(1, len(blocks) // _SAMPLES)
    return blocks[::stride][:_SAMPLES]
