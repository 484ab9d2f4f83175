"""Finds training steps among the calls of optimizers. Pure logic, without torch.

A training step is one pass of the main loop, in which every optimizer that belongs to it is called.

1. Optimizers called in one pass of one loop share a step, however rarely some of them are called: the next step begins
when one is called again. This covers ZeRO's groups and the parameters of optimizer-in-backward.
2. Optimizers called in a loop inside of that pass (five times the discriminator, once the generator) belong to it, if
   they are called at most `_CYCLE` times. One that is called more often has the main loop, and each call is a step.
3. Optimizers called in loops that no pass has in common are trained one after the other: each call is a step.

If the counter learns something late, it counts late: the number of steps then rises by more than one, and is right
again.
"""

from ._loops import AHEAD, APART, BESIDE, INNER, UNKNOWN

# Optimizers remembered at once. Optimizer-in-backward has one per parameter; far more than that is not a cycle.
_MOST = 16384

# Calls of one optimizer within a step.
_CYCLE = 10

# A new optimizer may pause this many events before it counts as gone, until its own rhythm is known.
_PATIENCE = 64

# With more optimizers than this, the counter assumes that each is always called from its first place: reading the
# stack each time costs too much.
_PLACES_MOST = 32


class Steps:
    """Counts steps by the calls of optimizers and by the relations of their places (`places`, as in `_loops`).

    A key is one optimizer working on one group of parameters. Without known places, only the order of calls counts: a
    step begins when the key that began the last step comes again after every active key has come.

        events   D D G   D D G   D D G
        steps    1 2 .   3 . .   4 . .      (that G exists is known only after the first cycle)

    In that case, a key that has not come for more than twice its longest pause is no longer active.
    """

    __slots__ = ("number", "places", "_events", "_cycle", "_before", "_active", "_rare", "_only", "_from")

    def __init__(self, places=None):
        self.number = 0
        self.places = places
        self._events = 0
        # The number of calls of each key in this step, with the key that began the step first; and in the step before.
        self._cycle = {}
        self._before = {}
        # Maps a key to (event of its last call, longest pause in events, place), with the latest key last.
        self._active = {}
        # Keys that no step waits for, each with the number of the last step in which it came.
        self._rare = {}
        # The only key, in the plain case, which saves the bookkeeping; and the first step in which it was alone.
        self._only = None
        self._from = 0

    def event(self, key):
        """Counts an outermost optimizer step of `key`; returns whether it is the first one of a training step."""
        if key == self._only:
            self.number += 1
            return True
        return self._event(key)

    def is_alone(self, key):
        """Returns whether each further event of this key is a step, until another key comes."""
        return key == self._only

    def _event(self, key):
        if self._only is not None:
            self._end_of_solitude()
        self._events += 1
        events, active, cycle = self._events, self._active, self._cycle
        if len(active) >= _MOST:
            active.clear()
            cycle.clear()
            self._rare.clear()
        last, pause, place = active.pop(key, (events, 0, None))
        before = place
        if self.places is not None and (place is None or len(active) < _PLACES_MOST):
            place = self.places.here(place)
        # A guessed pause is negative until the key comes again.
        active[key] = (events, max(pause, events - last) or -min(max(events, _CYCLE // 2), _PATIENCE), place)
        if key in self._rare:
            if self.number - self._rare.pop(key) > _CYCLE:
                self._rare[key] = self.number
        if not cycle:
            return self._begin(key, 0)
        if key not in cycle:
            leader = next(iter(cycle))
            if leader in active and self._lies(place, active[leader][2]) == APART:
                active.clear()
                active[key] = (events, -1, place)
                return self._begin(key, 0)
            cycle[key] = 1
            return False
        missed = None if self._lies(place, before) == AHEAD else self._missed(key, place)
        if missed is None:
            cycle[key] += 1
            return False
        return self._begin(key, missed)

    def _end_of_solitude(self):
        """Restores the bookkeeping of a key that was alone: its latest event was a step of its own."""
        only, self._only = self._only, None
        if self.number > self._from:
            self._active[only] = (self._events, 1, self._active[only][2])
            self._before = dict(self._cycle)

    def _begin(self, key, missed):
        """Begins a step; counts `missed` earlier steps that were not counted."""
        active = self._active
        self._before, self._cycle = self._cycle, {key: 1}
        # Drop the key that has not come for longest, so that a key that remains alone is cheap again.
        oldest = next(iter(active))
        last, pause, _ = active[oldest]
        if oldest != key and self._events - last > 2 * abs(pause) + _PATIENCE:
            del active[oldest]
            self._rare.pop(oldest, None)
        self.number += 1 + missed
        if len(active) == 1:
            self._only, self._from = key, self.number
        return True

    def _missed(self, key, place):
        """Returns how many uncounted steps this call reveals; `None` if it begins no step."""
        cycle, active = self._cycle, self._active
        leader = next(iter(cycle))
        awaited = []
        gone = []
        for other, (last, pause, its) in active.items():
            if other == key or other in self._rare:
                continue
            how = self._lies(place, its)
            if how == UNKNOWN and (other not in cycle or other == leader):
                (awaited if self._events - last <= 2 * abs(pause) + 2 else gone).append(other)
            elif how == INNER or how == BESIDE and (other not in cycle or key != leader):
                awaited.append(other)
        if awaited and cycle[key] <= _CYCLE:
            return None
        for other in gone:
            del active[other]
        for other in awaited:
            self._rare[other] = self.number
        missed = 0
        if gone or awaited:
            # The calls that waited for these keys were steps of the remaining keys.
            self._rare.pop(key, None)
            missed = min(times for it, times in cycle.items() if it in active and it not in self._rare) - 1
        # A key that is called again before the one that it seemed to share a step with had a step of its own.
        if key != leader and cycle[leader] == 1 and leader in self._before and key not in self._before:
            missed += 1
            del cycle[leader]
        return missed

    def _lies(self, one, other):
        return UNKNOWN if self.places is None else self.places.relation(one, other)


def hooks(true_depth, end_step, other_step, fault):
    """Makes the hooks before and after an optimizer's step, which may have others inside it.

    `end_step(optimizer)` ends a plain training step in one call without Python code, during which no signal handler of
    the job can raise. If it returns anything but 0, `other_step(optimizer, answer)` handles the step. `fault(error)`
    returns whether it handled an error. `true_depth()` counts the open steps. The hooks keep a count of their own,
    which is wrong after an exception inside a step because no hook runs then; they use it only where an error is
    harmless.
    """
    depth = 0

    def pre(optimizer, args, kwargs):
        nonlocal depth
        depth = true_depth() if depth else 1

    def post(optimizer, args, kwargs):
        nonlocal depth
        depth = true_depth() - 1 if depth > 1 else 0
        if depth > 0:
            return
        try:
            answer = end_step(optimizer)
            if answer:
                other_step(optimizer, answer)
        except Exception as error:
            if not fault(error):
                raise

    return pre, post
