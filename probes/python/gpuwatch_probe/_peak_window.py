"""Traces some steps with call stacks, and what the blocks of weights, gradients and optimizer state are, so that a
viewer can tell what the step's highest moment consists of.

PyTorch writes stacks down with the GIL held, at about a millisecond for 70 events. So the ring is small, and the window
ends when all pauses together reach a limit; what was traced until then is still of use.
"""

import os
import time
import zlib

from ._captures import Resting, CompilerHidden
from ._oom import is_ours
from ._parts import GRADIENTS, OPTIMIZER, WEIGHTS, addresses
from ._references import namespace
from ._trace_window import LONG_PAUSES, Window

# Events in the ring: fewer than PyTorch writes down in ten milliseconds; and where pauses may be long.
RING, LONG_RING = 600, 6000

# Seconds of all pauses together, where they may not be long, and of one look at the blocks.
_PAUSES, _LOOK = 0.05, 0.008

# Seconds between two looks at the number of events.
_PACE = 0.004

# Boundaries at which blocks are looked at, and modules whose paths are written down.
_LOOKS, _MOST_MODULES = 4, 20_000

_KINDS = {"weights": WEIGHTS, "gradients": GRADIENTS, "optimizer": OPTIMIZER}


class PeakWindow(Window):
    """The trace of some whole steps with their stacks."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._is_long = bool(self._request & LONG_PAUSES)
        self._ring, self._pace = LONG_RING if self._is_long else RING, _PACE
        self._enough = self._ring * (3 if self._skips else 2) // 5
        self._take = self._with_stacks
        self._paused = 0.0
        # The ends of steps as (µs since 1970, number), and addresses by device and kind.
        self._boundaries, self._blocks, self._modules = [], {}, []
        # Ends of steps so far, and the one with which the first whole step begins.
        self._ends, self._first_end = 0, 1
        # What is left of the first look.
        self._unread = None

    def boundary(self, number, parts):
        """Looks at the blocks of the optimizers at the end of a step; on the thread that trains."""
        if not self.is_on:
            return
        self._ends += 1
        if self._ends == 1 and len(parts.optimizers()) > 1:
            # What the steps of several optimizers share is made before the first of them.
            self._first_end = 2
        if len(self._boundaries) >= _LOOKS:
            return
        try:
            with Resting(), parts.without_overrides():
                self._look(number, parts)
        except Exception as error:
            if not is_ours(error):
                raise
            self._note("the blocks of the optimizers are unknown: %r" % (error,))

    def _look(self, number, parts):
        if self._ends >= self._first_end:
            self._boundaries.append((time.time_ns() // 1000, number))
        begun = time.thread_time()
        if self._unread is None:
            self._unread = addresses(parts, self._torch, (WEIGHTS, OPTIMIZER, GRADIENTS))
            own = os.path.dirname(self._torch.__file__) + os.sep
            self._modules = _modules(parts.models(), own, begun + _LOOK / 2)
        self._read(self._unread, begun)
        if self._ends > 1:
            # Gradients are other blocks at each step.
            self._read(addresses(parts, self._torch, (GRADIENTS,)), begun)
        self._paused += time.thread_time() - begun

    def _read(self, found, begun):
        for device, kind, address in found:
            self._blocks.setdefault(device, {}).setdefault(kind, set()).add(address)
            if time.thread_time() - begun > _LOOK:
                break

    def _history(self):
        return {"context": "alloc", "stacks": "python"}

    def _with_stacks(self, use):
        from pickle import dumps

        # Its own time: that of other processes is no pause by this one.
        begun = time.thread_time()
        try:
            with Resting(), CompilerHidden(self._torch):
                held = dumps(self._torch.cuda.memory._snapshot(), 4)
        finally:
            self._paused += time.thread_time() - begun
        return use(held)

    def _steps(self):
        # The first one is not whole, and one that ended before the history was on is none.
        return max(0, self._ends - self._first_end)

    def _end(self):
        why = super()._end()
        if why is None and self._paused >= _PAUSES and not self._is_long:
            return "complete"
        return why

    def _before_the_end(self):
        self._unread = None
        kept = {
            "boundaries": self._boundaries,
            "modules": self._modules,
            "paused_us": int(1e6 * self._paused),
            "blocks": {
                device: {name: sorted(of.get(kind, ())) for name, kind in _KINDS.items()}
                for device, of in self._blocks.items()
            },
        }
        from json import dumps

        data = zlib.compress(dumps(kept).encode(), 1)
        self._write({"kept": len(data)}, data)


def _modules(roots, own, until):
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
                paths[key] = path if key not in paths else _common(paths[key], path)
            inner = dict.get(namespace(module) or {}, "_modules")
            for name, it in dict.items(inner) if issubclass(type(inner), dict) else ():
                if it is not None and type(name) is str:
                    stack.append((path + "." + name if path else name, it))
    return [[*key, path] for key, path in paths.items()]


def _forward(kind):
    for space in kind.__mro__:
        function = space.__dict__.get("forward")
        if function is not None:
            return getattr(function, "__code__", None)
    return None


def _common(one, other):
    """Returns the path of both, with `*` where they differ; empty if they are not alike."""
    first, second = one.split("."), other.split(".")
    if len(first) != len(second):
        return ""
    return ".".join(a if a == b else "*" for a, b in zip(first, second))
