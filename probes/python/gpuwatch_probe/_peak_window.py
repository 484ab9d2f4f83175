"""Traces some steps with call stacks, and what the blocks of weights, gradients and optimizer state are, so that a
viewer can tell what the step's highest moment consists of.

PyTorch writes stacks down with the GIL held: some 2 µs for each live block, and 3 µs for each event. So the window begins
with a step, the ring is small, live blocks are written once, and the window ends when all pauses together reach a limit;
what was traced until then is still of use, and is all there is to know if nothing was ever higher.
"""

import _thread
import os
import time
import zlib

from ._captures import CompilerHidden, Resting, events, has_events_apart
from ._oom import is_ours
from ._parts import GRADIENTS, OPTIMIZER, WEIGHTS, addresses, gradients
from ._references import namespace
from ._trace_window import LONG_PAUSES, Window

# Events in the ring, which PyTorch writes down in five milliseconds; where each piece has all live blocks; and where
# pauses may be long.
RING, SMALL_RING, LONG_RING = 1500, 600, 6000

# Seconds of all pauses together after which no piece follows, where they may not be long: with the last piece and a
# look at the blocks, whose seconds come next, these are 50 ms. Looks before the window begins are shorter.
_PAUSES, _LOOK, _EARLY_LOOK = 0.034, 0.008, 0.004

# Seconds between two looks at the number of events.
_PACE = 0.004

# Seconds that the thread that trains waits at most for the window to begin, which with half an early look are 10 ms, and
# between two looks at whether it still should.
_BEGINS, _LOOK_PACE = 0.008, 0.1

# Looks at the blocks before the window begins, ends of steps that are written down, and modules whose paths are.
_LOOKS, _BOUNDARIES, _MOST_MODULES = 6, 4, 20_000

_KINDS = {"weights": WEIGHTS, "gradients": GRADIENTS, "optimizer": OPTIMIZER}


class PeakWindow(Window):
    """The trace of some whole steps with their stacks."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._is_long = bool(self._request & LONG_PAUSES)
        self._can_be_lean = has_events_apart(self._torch)
        self._ring, self._pace = LONG_RING if self._is_long else RING if self._can_be_lean else SMALL_RING, _PACE
        self._enough = self._ring * (3 if self._skips else 2) // 5
        self._take = self._with_stacks
        # Seconds of all pauses, and of the longest one.
        self._paused = self._longest = 0.0
        # Whether pieces can, and whether the latest piece does, leave out the blocks; and the events before it.
        self._is_lean, self._known = False, 0
        # The ends of steps as (µs since 1970, number), and addresses by device and kind.
        self._boundaries, self._blocks, self._modules = [], {}, []
        # The most bytes that were allocated before, by device, as far back as the job has not reset that.
        self._highest = {}
        # Whether the latest step is not traced to its end.
        self._is_cut = False
        # Whether the next end of a step begins the window, what that end releases, and what it waits for.
        self._is_waiting = False
        self._step_ended, self._has_begun = _thread.allocate_lock(), _thread.allocate_lock()
        # Ends of steps so far, and the one with which the first whole step begins.
        self._ends, self._first_end = 0, 1
        # What is still to be read of what does not change from step to step, parameters that no optimizer has, and how
        # often it was read.
        self._unread, self._others, self._looks = None, [], 0

    @property
    def watches_steps(self):
        return not self._is_over and (self._is_waiting or self.is_on)

    def boundary(self, number, parts):
        """Looks at the blocks of the optimizers at the end of a step; on the thread that trains."""
        before = self._paused
        try:
            self._boundary(number, parts)
        finally:
            self._longest = max(self._longest, self._paused - before)

    def _boundary(self, number, parts):
        if self._is_waiting:
            took = self._look(parts)
            if took > _EARLY_LOOK / 2 and self._looks < _LOOKS:
                # The window begins with another step, which has a pause of its own.
                return
            self._begin_with_the_next_step()
        if not self.is_on:
            return
        self._ends += 1
        if self._ends == 1 and len(parts.optimizers()) > 1:
            # What the steps of several optimizers share is made before the first of them.
            self._first_end = 2
        if len(self._boundaries) < _BOUNDARIES:
            if self._ends >= self._first_end and not self._is_cut:
                self._boundaries.append((time.time_ns() // 1000, number))
            self._look(parts)

    def _begin_with_the_next_step(self):
        begun, paused = time.monotonic(), self._paused
        self._is_waiting = False
        try:
            self._step_ended.release()
        except RuntimeError:
            # A step of another thread ended at this moment.
            return
        self._has_begun.acquire(True, _BEGINS)
        # The first piece is part of it.
        self._paused = max(self._paused, paused + time.monotonic() - begun)

    def _look(self, parts):
        """Reads addresses, and returns the seconds that took."""
        begun = time.thread_time()
        until = begun + (_LOOK if self._ends else _EARLY_LOOK)
        self._looks += 1
        try:
            with Resting(), parts.without_overrides():
                if self._unread is None:
                    self._unread = addresses(parts, self._torch, self._others)
                    own = os.path.dirname(self._torch.__file__) + os.sep
                    self._modules = forward_functions(parts.models(), own, begun + _EARLY_LOOK / 2)
                if self._ends:
                    # Gradients are other blocks at each step.
                    self._read(gradients(parts, self._torch, self._others), until)
                self._read(self._unread, until)
        except Exception as error:
            if not is_ours(error):
                raise
            self._note("the blocks of the optimizers are unknown: %r" % (error,))
        took = time.thread_time() - begun
        self._paused += took
        return took

    def _read(self, found, until):
        for some in found:
            for device, kind, address in some:
                self._blocks.setdefault(device, {}).setdefault(kind, set()).add(address)
            if time.thread_time() > until:
                break

    def _switch_on(self):
        if self._first:
            # What the step before allocates until its end is of no use.
            self._step_ended.acquire()
            self._has_begun.acquire()
            self._is_waiting = True
            self._now_ready()
            while not self._step_ended.acquire(True, _LOOK_PACE):
                if self._is_over or self._is_cancelled() or super()._end() is not None:
                    self._is_waiting = False
                    return
            try:
                self._highest = self._peaks()
                super()._switch_on()
                # Blocks that are live in the first piece are those from before the step.
                with self._written:
                    if not self._is_over:
                        self._next_piece()
            finally:
                self._let_begin()
        else:
            super()._switch_on()

    def _let_begin(self):
        """Lets the thread that trains go on, which waits for the window to begin."""
        try:
            self._has_begun.release()
        except RuntimeError:
            pass  # It goes on.

    def _count_from_here(self):
        """Does nothing: the ends of steps are counted here."""

    def _peaks(self):
        stats = self._torch._C._cuda_memoryStats
        return {it: stats(it)["allocated_bytes"]["all"]["peak"] for it in self._devices()}

    def _history(self):
        return {"context": "alloc", "stacks": "python"}

    def _with_stacks(self, use):
        from pickle import dumps

        held = self._paused_by(self._snapshot)
        self._let_begin()
        held = self._paused_by(lambda: dumps(held, 4))
        return use(held)

    def _paused_by(self, work):
        """Does what lets no other thread run, and counts its seconds; another thread may run before it."""
        # Its own time: that of other processes is no pause by this one.
        time.sleep(0)
        begun = time.thread_time()
        try:
            with Resting(), CompilerHidden(self._torch):
                return work()
        finally:
            took = time.thread_time() - begun
            self._paused, self._longest = self._paused + took, max(self._longest, took)

    def _piece(self):
        self._known = self._last
        super()._piece()

    def _about_piece(self):
        return {"lean": True} if self._is_lean else {}

    def _snapshot(self):
        if self._can_be_lean and self._pieces:
            held = events(self._torch)
            self._is_lean = self._events() - self._known <= self._enough * 4 // 3
            if self._is_lean:
                return held
        # Where events were lost, the trace begins again with the blocks.
        self._is_lean = False
        return self._torch.cuda.memory._snapshot()

    def _steps(self):
        # What comes before the first end is not whole, nor is a step that was not traced to its end.
        return 0 if self._is_cut else max(0, self._ends - self._first_end)

    def _is_spent(self):
        return self._paused >= _PAUSES and not self._is_long

    def _is_due(self):
        if self._first and self._is_spent() and not self._is_cancelled() and self._end() is None:
            # The step's end is still to show which blocks are gradients.
            self._is_cut = True
            return False
        return super()._is_due()

    def _end(self):
        is_over = self._ends > self._first_end if self._is_cut else self._is_spent() and not self._first
        return super()._end() or ("complete" if is_over else None)

    def _finish(self, why, with_piece=True):
        super()._finish(why, with_piece and not self._is_cut)

    def _before_the_end(self):
        self._unread = None
        kept = {
            "boundaries": self._boundaries,
            "modules": self._modules,
            "paused_us": int(1e6 * self._paused),
            "longest_us": int(1e6 * self._longest),
            "cut": self._is_cut,
            "highest": self._highest,
            "blocks": {
                device: {name: sorted(of.get(kind, ())) for name, kind in _KINDS.items()}
                for device, of in self._blocks.items()
            },
        }
        from json import dumps

        data = zlib.compress(dumps(kept).encode(), 1)
        self._write({"kept": len(data)}, data)


def forward_functions(roots, own, until):
    """Returns `[file, first line, function, path]` of the forward functions of modules, without those of PyTorch's own
    folder; `*` where modules of one class differ in a number, and no path for those that are not alike."""
    paths = {}
    for root in roots:
        stack, count = [("", root)], 0
        while stack and count < _MOST_MODULES and time.thread_time() < until:
            path, module = stack.pop()
            count += 1
            code = _forward(type(module))
            if code is not None and not code.co_filename.startswith(own):
                key = code.co_filename, code.co_firstlineno, code.co_name
                paths[key] = path if key not in paths else common(paths[key], path)
            stack += [(path + "." + name if path else name, it) for name, it in within(module, "_modules")]
    return [[*key, path] for key, path in paths.items()]


def within(module, place):
    """Returns what a module has in `_modules`, `_parameters` or `_buffers`, as (name, object)."""
    held = dict.get(namespace(module) or {}, place)
    held = dict.items(held) if issubclass(type(held), dict) else ()
    return [(name, it) for name, it in held if it is not None and type(name) is str]


def _forward(kind):
    for space in kind.__mro__:
        function = space.__dict__.get("forward")
        if function is not None:
            return getattr(function, "__code__", None)
    return None


def common(one, other):
    """Returns the path of both, with `*` where they differ; empty if they are not alike."""
    first, second = one.split("."), other.split(".")
    if len(first) != len(second):
        return ""
    return ".".join(a if a == b else "*" for a, b in zip(first, second))
