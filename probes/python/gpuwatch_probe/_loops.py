"""Locates the calls of optimizers in the job's loops, by the call stack and the loops of each function on it."""

import os
import sys

# The relation of one call to another: in a pass of the same loop, before it or after it; in a loop inside of the
# other's pass, or the other way round; each in a loop of its own inside of one pass, or of no common pass; unknown.
LEVEL, AHEAD, INNER, OUTER, BESIDE, APART, UNKNOWN = range(7)

# The number of nearest calls that are compared each time; and the number of calls after which all are compared.
_NEAR, _OFTEN = 4, 17

# Deeper stacks are compared by this many innermost calls; and the number of different places that are kept.
_DEPTH = 200
_MOST = 1024

_HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")


class Places:
    """The places of calls, each a tuple of (function, instruction) from the outermost call to the innermost.

    Calls from files in the folder `skipped` do not count: they lie between the job and this package, such as the loop
    over an optimizer's hooks.
    """

    __slots__ = ("_skipped", "_calls", "_known", "_codes", "_loops", "_relations")

    def __init__(self, skipped=None):
        self._skipped = (_HERE, os.path.join(skipped, "")) if skipped else (_HERE,)
        self._calls = 0
        self._known = {}
        # Functions by identity: to compare them by their content would take longer than the job's step.
        self._codes = {}
        self._loops = {}
        self._relations = {}

    def here(self, last):
        """Returns the place of the call into this package; `None` if there are too many places.

        Reading the whole stack costs microseconds. If the nearest calls are those of `last`, this reads it only now and
        then.
        """
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(self._skipped):
            frame = frame.f_back
        self._calls += 1
        if last is not None and self._calls % _OFTEN and _is_near(frame, last):
            return last
        codes, place = [], []
        while frame is not None and len(place) < _DEPTH:
            codes.append(frame.f_code)
            place.append((id(frame.f_code), frame.f_lasti))
            frame = frame.f_back
        place = tuple(reversed(place))
        known = self._known.get(place)
        if known is None and len(self._known) < _MOST:
            known = self._known[place] = place
            self._codes.update((id(it), it) for it in codes)
        return known

    def relation(self, one, other):
        """Returns the relation of `one` to `other`."""
        if one is other:
            return LEVEL
        pair = one, other
        found = self._relations.get(pair)
        if found is None:
            if len(self._relations) >= _MOST:
                self._relations.clear()
            found = self._relations[pair] = self._compare(one, other)
        return found

    def _compare(self, one, other):
        if one is None or other is None:
            return UNKNOWN
        shared = 0
        while shared < min(len(one), len(other)) and one[shared] == other[shared]:
            shared += 1
        is_around = any(self._around(*it) for it in one[:shared])
        is_own = [any(self._around(*it) for it in place[shared + 1 :]) for place in (one, other)]
        loops = [self._around(*place[shared]) if shared < len(place) else set() for place in (one, other)]
        # In the function in which their ways part, some loops may have both of them in it.
        is_one = shared < min(len(one), len(other)) and one[shared][0] == other[shared][0]
        both = loops[0] & loops[1] if is_one else set()
        is_around = is_around or bool(both)
        inner, outer = (own or bool(its - both) for own, its in zip(is_own, loops))
        if inner and outer:
            return BESIDE if is_around else APART
        if inner or outer:
            return INNER if inner else OUTER
        if not is_around:
            return UNKNOWN
        return AHEAD if is_one and one[shared][1] > other[shared][1] else LEVEL

    def _around(self, code, at):
        """The loops of a function that an instruction lies in, by where they begin and end."""
        loops = self._loops.get(code)
        if loops is None:
            loops = self._loops[code] = _loops(self._codes[code])
        return {it for it in loops if it[0] <= at <= it[1]}


def loops_around(frame):
    """The loops of its function that a frame is in, by where they begin and end."""
    return {it for it in _loops(frame.f_code) if it[0] <= frame.f_lasti <= it[1]}


def _is_near(frame, place):
    """Whether the innermost calls of a stack are those of a place."""
    for code, at in place[: -_NEAR - 1 : -1]:
        if frame is None or frame.f_lasti != at or id(frame.f_code) != code:
            return False
        frame = frame.f_back
    return True


def _loops(code):
    """The loops of a function: from where a backward jump leads to the last one that leads there."""
    # Only a job of several optimizers needs it.
    import dis

    loops = {}
    try:
        for it in dis.get_instructions(code):
            is_jump = it.opcode in dis.hasjrel or it.opcode in dis.hasjabs
            # Waiting for a coroutine jumps back too.
            if is_jump and it.argval < it.offset and "NO_INTERRUPT" not in it.opname:
                loops[it.argval] = max(it.offset, loops.get(it.argval, 0))
    except Exception:
        # The code was not written in Python, so its loops are unknown.
        return ()
    return tuple(loops.items())
