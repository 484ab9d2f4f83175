"""Captures the live blocks at the ends of steps, and compares the captures to find the blocks that grew.

Comparing costs microseconds per block. The collector is off meanwhile: the objects of a comparison would make it run
over the job's whole heap, and free what the job itself would have freed later.
"""

import ctypes
import gc
import sys
from collections import Counter

# Growth that lasts: the part of all rises of a group, between successive captures, that is left at the end.
_KEPT = 0.6

# If only sizes grow, chance would reach the first part too often.
_KEPT_BYTES = 0.8
_RISES, _RISES_BYTES = 2, 4

# The stack of blocks without a recorded stack.
NOWHERE = ()


class Resting:
    """Stops the collector inside of a `with` block."""

    # The blocks that stopped it and have not ended.
    _all = set()

    def __enter__(self):
        if gc.isenabled():
            self._all.add(self)
        gc.disable()

    def __exit__(self, *_):
        if self in self._all:
            self._all.discard(self)
            gc.enable()

    @classmethod
    def end(cls):
        """Starts the collector again in a forked child, whose parent's threads would otherwise have done so."""
        if cls._all:
            cls._all.clear()
            gc.enable()


def segments(torch, is_ours=False):
    """Returns the allocator's segments without its history; `None` if they would include the job's own history."""
    takes = _snapshot_takes(torch)
    if "include_traces" in takes:
        return _of_pool(torch, 0, False)["segments"]
    if not is_ours and is_recorded(torch):
        return None
    with CompilerHidden(torch):
        return torch._C._cuda_memorySnapshot(*(None,) if "mempool_id" in takes else ())["segments"]


# A pool of memory that no allocator has.
_NO_POOL = 1 << 40


def has_events_apart(torch):
    """Returns whether `events` can be called: releases without pools in snapshots have no such snapshots."""
    if not {"mempool_id", "include_traces"} & set(_snapshot_takes(torch)):
        return False
    try:
        _of_pool(torch, _NO_POOL, False)
    except (RuntimeError, TypeError, ValueError):
        return False
    return True


def events(torch):
    """Returns a snapshot of the allocator's history without its segments. Only where `has_events_apart`."""
    return _of_pool(torch, _NO_POOL, True)


class _Number(int):
    """A number that nothing else refers to, as may be the case with those of Python's own."""


def _of_pool(torch, pool, with_events):
    """Returns a snapshot of a pool; 0 is that of all memory.

    PyTorch 2.8 to 2.14 drop a reference to each number of a pool that they are given. So it is a number of its own, with
    references to spare, and gets back those that were dropped.
    """
    number = _Number(pool)
    spare = [number] * 16
    before = sys.getrefcount(number)
    # PyTorch reads as many elements as its release has, without a look at how many there are.
    more = (with_events,) if "include_traces" in _snapshot_takes(torch) else ()
    try:
        with CompilerHidden(torch):
            return torch._C._cuda_memorySnapshot((number, number, *more))
    finally:
        for _ in range(before - sys.getrefcount(number)):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(number))
        del spare


def _snapshot_takes(torch):
    """Returns the names of what a snapshot can be asked for in this release."""
    return torch.cuda.memory_snapshot.__code__.co_varnames


class CompilerHidden:
    """Hides PyTorch's compiler inside of a `with` block: to extend stacks, a snapshot would import it, which takes
    seconds."""

    def __init__(self, torch):
        self._space = torch.__dict__

    def __enter__(self):
        self._is_hidden = "_inductor" not in self._space
        if self._is_hidden:
            self._space["_inductor"] = None

    def __exit__(self, *_):
        if self._is_hidden and self._space["_inductor"] is None:
            del self._space["_inductor"]


def is_recorded(torch):
    """Returns whether the allocator keeps a history, the job's or the probe's; PyTorch 2.2 and newer report it."""
    return getattr(torch._C, "_cuda_isHistoryEnabled", bool)()


class Capture:
    """The live blocks of one instant, counted by size and by the stack that allocated them."""

    def __init__(self, segments):
        # Maps (device, stack) to counts by size.
        self.groups, self.history = {}, 0
        # The addresses of all blocks (no two devices share one), and the groups of those with a stack.
        self.addresses, self.made = set(), {}
        names, places = {}, {}
        for segment in segments:
            device = segment["device"]
            live = [it for it in segment["blocks"] if it["state"] != "inactive"]
            # Nearly all blocks are older than the history; count them without a step of the interpreter for each.
            bare = [it for it in live if not it["frames"]]
            self.addresses.update([it["address"] for it in live])
            if bare:
                self.groups.setdefault((device, NOWHERE), Counter()).update([it["size"] for it in bare])
            for block in [it for it in live if it["frames"]]:
                size, frames = block["size"], block["frames"]
                group = self.made[block["address"]] = _group(frames, device, places, names)
                counts = self.groups.setdefault(group, {})
                counts[size] = counts.get(size, 0) + 1
                self.history += 64 + 24 * len(frames)


def stack_of(frames, names):
    """Returns a stack as `(file, line, function)`; `names` has the frames of the same snapshot that are known already."""
    stack = []
    for frame in frames:
        named = names.get(id(frame))
        if named is None:
            named = names[id(frame)] = (frame["filename"], frame["line"], frame["name"])
        stack.append(named)
    return tuple(stack)


def blocks_of(segments, wanted, before=frozenset()):
    """Returns the blocks of these groups as (address, size), and the stream and pool of the first one in each group.

    `wanted` has, by group, the sizes of the blocks to return, or `None` for all.

    Leaves out blocks without a stack whose address is in `before`, the addresses of the first capture.
    """
    found, where = {it: [] for it in wanted}, {}
    places, names = {}, {}
    for segment in segments:
        device = segment["device"]
        live = [it for it in segment["blocks"] if it["state"] != "inactive"]
        pairs = [(_group(it["frames"], device, places, names), it) for it in live if it["frames"]]
        if (device, NOWHERE) in found:
            bare = [it for it in live if not it["frames"] and it["address"] not in before]
            pairs += [((device, NOWHERE), it) for it in bare]
        for group, block in pairs:
            if group in found and (wanted[group] is None or block["size"] in wanted[group]):
                found[group].append((block["address"], block["size"]))
                where.setdefault(group, (segment["stream"], tuple(segment.get("segment_pool_id", (0, 0)))))
    return found, where


def _group(frames, device, places, names):
    """Returns the group of a stack. A snapshot shares its frames, so comparing their addresses is faster than comparing
    their texts."""
    key = (device, *map(id, frames))
    group = places.get(key)
    if group is None:
        group = places[key] = (device, stack_of(frames, names))
    return group


def grown(captures):
    """Returns the growth from the first capture to the last, as {(device, stack): (bytes, blocks)}, the largest first.

    Blocks that are older than the recording have no stack. If such a block goes and one of its size comes with a stack,
    the job has replaced it, and nothing grew. Where blocks of several stacks may have, and more came than went, that is
    open (`replacing`).
    """
    first, last = captures[0], captures[-1]
    found, lasting = {}, [it for it in last.groups if _lasts(captures, it)]
    is_open = replacing(captures, lasting)
    for group in lasting:
        now, then = last.groups[group], first.groups.get(group, {})
        gone = _gone(first, last, group[0])
        bytes_, blocks = 0, 0
        for size in set(now) | set(then):
            more = now.get(size, 0) - then.get(size, 0)
            if more > 0 and (group[0], size) not in is_open:
                more = max(0, more - gone.get(size, 0))
            bytes_, blocks = bytes_ + more * size, blocks + more
        if group[1] and len(now) > 1:
            # Blocks of any size: each of them may have replaced any block that went.
            blocks = max(0, blocks - sum(gone.get(size, 0) for size in gone if size not in now))
            if not blocks and _count(now) != _count(then):
                continue
        if bytes_ > 0:
            found[group] = bytes_, max(0, blocks)
    return dict(sorted(found.items(), key=lambda it: -it[1][0]))


def replacing(captures, groups):
    """Returns, by device and size, how many blocks without a stack went of which it is open what replaced them, and of which
    groups more came: {(device, size): (blocks, {group: blocks})}."""
    first, last = captures[0], captures[-1]
    came = {}
    for group in groups:
        then = first.groups.get(group, {})
        for size, count in last.groups[group].items():
            if group[1] and count > then.get(size, 0):
                came.setdefault((group[0], size), {})[group] = count - then.get(size, 0)
    gone = {device: _gone(first, last, device) for device, _ in came}
    of = {(device, size): gone[device].get(size, 0) for device, size in came}
    return {it: (of[it], came[it]) for it in came if len(came[it]) > 1 and 0 < of[it] < sum(came[it].values())}


def risen(captures, group):
    """Returns the sizes of which a group has more blocks at the last capture than at the first."""
    then, now = captures[0].groups.get(group, {}), captures[-1].groups[group]
    return {size for size, count in now.items() if count > then.get(size, 0)}


def before_rise(captures, group, sizes):
    """Returns the last capture before the latest rise of a group's blocks of these sizes."""
    counts = [sum(it.groups.get(group, {}).get(size, 0) for size in sizes) for it in captures]
    rises = [at for at in range(1, len(counts)) if counts[at] > counts[at - 1]]
    return captures[rises[-1] - 1 if rises else -2]


def was_there(block, group, capture):
    """Returns whether a block `(address, size)` of a group was live at an earlier capture."""
    if group[1] == NOWHERE:
        return block[0] in capture.addresses and block[0] not in capture.made
    return capture.made.get(block[0]) == group


def _gone(first, last, device):
    """Returns the number of blocks without a stack that went, by size."""
    then, now = first.groups.get((device, NOWHERE), {}), last.groups.get((device, NOWHERE), {})
    return {size: count - now.get(size, 0) for size, count in then.items() if count > now.get(size, 0)}


def _count(sizes):
    return sum(sizes.values())


def _bytes(sizes):
    return sum(size * count for size, count in sizes.items())


def _lasts(captures, group):
    """Returns whether a group rises repeatedly and keeps most of its rises."""
    counts = [_count(it.groups.get(group, {})) for it in captures]
    if _rises(counts, min(_RISES, len(captures) - 1), _KEPT):
        return True
    steady = max(counts) == min(counts)
    sizes = [_bytes(it.groups.get(group, {})) for it in captures]
    return steady and _rises(sizes, min(_RISES_BYTES, len(captures) - 1), _KEPT_BYTES)


def _rises(values, at_least, kept):
    moves = [after - before for before, after in zip(values, values[1:])]
    rises = [it for it in moves if it > 0]
    return len(rises) >= at_least and values[-1] - values[0] >= kept * sum(rises) > 0
