"""The memory of one test at a time: what `_fit.py` measures of a job, without leading it anywhere."""

import gc
import os
import sys
import time

from ._fit import Fit

# Steps after which the holder of what grows is searched for, and the last rises that have to show it.
_STEPS, _RISES = 6, 3
_EVENTS = 1_000_000


class _Whole:
    """A test has no phases."""

    def __init__(self, torch):
        self._torch = torch

    def peak(self, device):
        stats = self._torch._C._cuda_memoryStats(device)
        return stats["allocated_bytes"]["all"]["peak"], stats["reserved_bytes"]["all"]["peak"]

    def backward(self):
        pass

    def list(self):
        return []


class TestMemory(Fit):
    """What a session measures; `begin` and `end` enclose a test."""

    __test__ = False

    def __init__(self, torch, folder, is_simulated):
        super().__init__(torch, folder)
        self.is_traced = True
        self._is_simulated = is_simulated
        self._phases = _Whole(torch)
        # What was there before the test and is not the test's, as `blocks()` has it.
        self._left = {}
        self._counts = lambda: None
        # Fixtures of a wider scope: the name, and the blocks that each made.
        self._held = {}
        self._is_measuring = False
        self._tests = 0

    def wait_for_cuda(self):
        """Begins with CUDA, whichever test initialises it."""
        if not self._is_on:
            self._makers.install()
            cuda = self._torch.cuda
            self._on_cuda() if cuda.is_initialized() else cuda._lazy_call(self._on_cuda)

    def _on_cuda(self):
        if self._is_on:
            return
        self._is_on = True
        if self._is_simulated:
            self._unknowns.watch()
        self._hook()
        self._record()

    def _record(self):
        record = self._torch.cuda.memory._record_memory_history
        # Blocks keep their stacks; only what happened is forgotten.
        record(enabled=None)
        record(enabled="all", context="all", stacks="python", max_entries=_EVENTS)

    def _devices(self):
        has = self._torch._C._cuda_hasPrimaryContext
        return [it for it in range(self._torch.cuda.device_count()) if has(it)] if self._is_on else []

    def blocks(self):
        """Returns the live blocks by device, each with its address and its bytes."""
        found = {it: set() for it in self._devices()}
        for segment in self._torch.cuda.memory_snapshot() if found else ():
            address = segment["address"]
            for it in segment["blocks"]:
                if it["state"] == "active_allocated":
                    found.setdefault(segment["device"], set()).add((address, it["size"]))
                address += it["size"]
        return found

    def before(self, device):
        """Returns the bytes on a device that were there before the test and are not the test's."""
        return sum(bytes_of for _, bytes_of in self._left.get(device, ()))

    def begin(self, fixtures):
        """A test begins, before its fixtures of these names are set up."""
        self._backward, self._ends, self._peaks = [], [], {}
        self._kept.clear()
        self._number, self._grows, self._alive = 0, None, []
        self._growth.clear()
        # The optimizers of another test count their own steps.
        self._counter = self._counts()
        self._tests += 1
        self._file = os.path.join(self._folder, "%d-%d.json" % (os.getpid(), self._tests))
        self._unknowns.forget()
        self._is_measuring = True
        if not self._is_on:
            self._left = {}
            return
        gc.collect()
        self._torch.cuda.empty_cache()
        for device in self._devices():
            self._torch.cuda.reset_peak_memory_stats(device)
        self._record()
        # What earlier tests left is not this test's; what fixtures of a wider scope made is.
        own = [it for name, it in self._held.values() if name in fixtures]
        self._left = {at: now.difference(*(it.get(at, ()) for it in own)) for at, now in self.blocks().items()}

    def fixture(self, key, name, before):
        """A fixture of a wider scope has been set up."""
        self._held[key] = name, {at: now.difference(before.get(at, ())) for at, now in self.blocks().items()}

    def forget_fixture(self, key):
        """A fixture has been torn down."""
        self._held.pop(key, None)

    def reads(self):
        """Returns whether values were read that the simulated device did not compute."""
        return self._is_simulated and self._unknowns.has_read()

    def _measure(self):
        rises = super()._measure()
        for device, peaks in self._peaks.items():
            allocated, reserved = peaks[-1]
            peaks[-1] = max(0, allocated - self.before(device)), reserved
        return rises

    def step(self, number, frame):
        """An optimizer step, or what the test declares to be one, has ended."""
        if self._is_measuring and self._is_on:
            self._number += 1
            self._unknowns.values.step()
            if len(self._ends) < 1000:
                self._ends.append(time.time_ns() // 1000)
            self._measure()
            if self._number == 1:
                self._keep()
            stats = self._torch._C._cuda_memoryStats
            now = sum(stats(it)["allocated_bytes"]["all"]["current"] for it in self._devices())
            self._growth.step(self._number, now, self._now("requested_bytes"), self._number > 1)
            if self._number >= _STEPS and self._grows is None and self._is_growing():
                # The variables of the test are gone when it has ended.
                self._search()

    def declare(self):
        """Ends a step of a test without an optimizer."""
        self.step(self._number + 1, sys._getframe(1))

    def _is_growing(self):
        latest = self._growth.levels[-_RISES - 1 :]
        return len(latest) > _RISES and all(a < b for a, b in zip(latest, latest[1:]))

    def end(self):
        """Writes the report of the test so far; returns its file."""
        kept = snapshot = None
        if self._is_on:
            self._measure()
            self._keep()
            kept = self._kept.report()
            snapshot = self._file[:-5] + ".pickle"
            self._torch.cuda.memory._dump_snapshot(snapshot)
        left = {device: [address for address, _ in it] for device, it in self._left.items()}
        self._write(None, kept=kept, snapshot=snapshot, left=left, before=sum(map(self.before, left)))
        return self._file

    def over(self):
        """The test is over; removes its files."""
        self._is_measuring = False
        for it in (self._file, self._file[:-5] + ".pickle"):
            if os.path.exists(it):
                os.unlink(it)
