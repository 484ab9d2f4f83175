"""Looks at the live blocks: taken at a step's end, compared with one another, and what grew between them.

A look costs microseconds a block. The collector rests meanwhile: the objects of a look would make it run, over the
job's whole heap, and free what the job's own course would have freed later.
"""

import gc
import time

# Growth that lasts: of all that a group rose between two looks, so much is left at the end.
_KEPT = 0.6

# Where only sizes grow, chance would do that too often.
_KEPT_BYTES = 0.8
_RISES, _RISES_BYTES = 2, 4

# The stack of blocks that have none.
NOWHERE = ()


class Resting:
    """The collector rests inside of this."""

    def __enter__(self):
        self._on = gc.isenabled()
        gc.disable()

    def __exit__(self, *_):
        if self._on:
            gc.enable()


def segments(torch, is_ours=False):
    """What the allocator holds, without the history of what it did; `None` where the job's own would come along."""
    snapshot = torch._C._cuda_memorySnapshot
    takes = torch.cuda.memory_snapshot.__code__.co_varnames
    if "include_traces" in takes:
        return snapshot((0, 0, False))["segments"]
    if not is_ours and is_recorded(torch):
        return None
    return (snapshot(None) if "mempool_id" in takes else snapshot())["segments"]


def is_recorded(torch):
    """Whether the allocator keeps a history, whoever switched that on; PyTorch 2.2 and newer tell."""
    return getattr(torch._C, "_cuda_isHistoryEnabled", bool)()


class Look:
    """The live blocks of one instant: how many of which size come from which stack."""

    def __init__(self, segments):
        begun = time.perf_counter()
        # Frames are shared within a look, so that their addresses tell stacks apart faster than their texts.
        self.groups, self.sizes, self.history = {}, {}, 0
        names, places = {}, {}
        for segment in segments:
            device = segment["device"]
            sizes = self.sizes.setdefault(device, {})
            for block in segment["blocks"]:
                if block["state"] == "inactive":
                    continue
                size, frames = block["size"], block["frames"]
                sizes[size] = sizes.get(size, 0) + 1
                key = (device, *map(id, frames))
                group = places.get(key)
                if group is None:
                    named = (device, _stack(frames, names))
                    group = places[key] = self.groups.setdefault(named, {})
                group[size] = group.get(size, 0) + 1
                if frames:
                    self.history += 64 + 24 * len(frames)
        self.us = int(1e6 * (time.perf_counter() - begun))


def _stack(frames, names):
    stack = []
    for frame in frames:
        named = names.get(id(frame))
        if named is None:
            named = names[id(frame)] = (frame["filename"], frame["line"], frame["name"])
        stack.append(named)
    return tuple(stack)


def blocks_of(segments, wanted):
    """The blocks of these groups as (address, size), and the stream and pool of the first of each."""
    found, places, names = {it: [] for it in wanted}, {}, {}
    where = {}
    for segment in segments:
        device = segment["device"]
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                continue
            frames = block["frames"]
            key = (device, *map(id, frames))
            if key not in places:
                places[key] = (device, _stack(frames, names))
            group = places[key]
            if group in found:
                found[group].append((block["address"], block["size"]))
                where.setdefault(group, (segment["stream"], tuple(segment.get("segment_pool_id", (0, 0)))))
    return found, where


def grown(looks):
    """What grew from the first of these looks to the last: {(device, stack): (bytes, blocks)}, what grew most first.

    Blocks from before stacks were recorded have none. Where such a block goes and one of its size comes with a
    stack, something was replaced, and nothing grew.
    """
    first, last = looks[0], looks[-1]
    found = {}
    for group in last.groups:
        if not _lasts(looks, group):
            continue
        now, then = last.groups[group], first.groups.get(group, {})
        gone = _gone(first, last, group[0])
        bytes_, blocks = 0, 0
        for size in set(now) | set(then):
            more = now.get(size, 0) - then.get(size, 0)
            if more > 0:
                more = max(0, more - gone.get(size, 0))
            bytes_, blocks = bytes_ + more * size, blocks + more
        if group[1] and len(now) > 1:
            # Blocks of any size: whatever went may have been replaced by any of them.
            blocks = max(0, blocks - sum(gone.get(size, 0) for size in gone if size not in now))
            if not blocks and _count(now) != _count(then):
                continue
        if bytes_ > 0:
            found[group] = bytes_, max(0, blocks)
    return dict(sorted(found.items(), key=lambda it: -it[1][0]))


def _gone(first, last, device):
    """Blocks without a stack that went, by size."""
    then, now = first.groups.get((device, NOWHERE), {}), last.groups.get((device, NOWHERE), {})
    return {size: count - now.get(size, 0) for size, count in then.items() if count > now.get(size, 0)}


def _count(sizes):
    return sum(sizes.values())


def _bytes(sizes):
    return sum(size * count for size, count in sizes.items())


def _lasts(looks, group):
    """Whether a group rises again and again, and keeps most of it."""
    counts = [_count(it.groups.get(group, {})) for it in looks]
    if _rises(counts, min(_RISES, len(looks) - 1), _KEPT):
        return True
    steady = max(counts) == min(counts)
    sizes = [_bytes(it.groups.get(group, {})) for it in looks]
    return steady and _rises(sizes, min(_RISES_BYTES, len(looks) - 1), _KEPT_BYTES)


def _rises(values, at_least, kept):
    moves = [after - before for before, after in zip(values, values[1:])]
    rises = [it for it in moves if it > 0]
    return len(rises) >= at_least and values[-1] - values[0] >= kept * sum(rises) > 0
