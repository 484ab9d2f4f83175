"""Finds training steps among the calls of optimizers; pure, and without torch."""

# Optimizers remembered at once. Optimizer-in-backward has one per parameter; far more than that is not a cycle.
_MOST = 16384

# A new optimizer may pause this many events before it counts as gone, until its own rhythm is known.
_PATIENCE = 64


class Steps:
    """Counts one step for each cycle of optimizer calls.

    A key is one optimizer working on one group of parameters. A step begins when a key comes again after every
    active key has come: so D D D D D G is one step, and so are ZeRO's groups and optimizer-in-backward's parameters.

        events   D D G   D D G   D D G
        steps    1 2 .   3 . .   4 . .      (that G exists is known only after the first cycle)

    A key that has not come for more than twice its longest pause is no longer active.
    """

    __slots__ = ("depth", "number", "_events", "_fired", "_active", "_only")

    def __init__(self):
        self.depth = 0
        self.number = 0
        self._events = 0
        self._fired = set()
        # Key to (event of its last call, longest pause in events), the one that came last standing last.
        self._active = {}
        # The one key there is, in the plain case; it saves the bookkeeping.
        self._only = None

    def enter(self, true_depth):
        """An optimizer's step begins. `true_depth()` counts the open ones, where the kept depth may be wrong.

        It is wrong after an exception inside a step, which is never told of.
        """
        self.depth = 1 if self.depth == 0 else true_depth()

    def leave(self, true_depth):
        """An optimizer's step is over; true if it was the outermost one."""
        depth = self.depth - 1
        if depth > 0:
            depth = true_depth() - 1
        self.depth = depth if depth > 0 else 0
        return depth <= 0

    def event(self, key):
        """An outermost optimizer step of `key`; true if it is the first one of a training step."""
        if key == self._only:
            self.number += 1
            return True
        return self._event(key)

    def _event(self, key):
        if self._only is not None:
            # Events of a key that was alone were not counted one by one: it came just now.
            self._active = {self._only: (self._events, 1)}
            self._only = None
        self._events += 1
        events = self._events
        active = self._active
        if len(active) >= _MOST:
            active.clear()
            self._fired.clear()
        last, pause = active.pop(key, (events, 0))
        # A pause that is a guess is kept negative until the key comes again.
        active[key] = (events, max(pause, events - last) or -min(events, _PATIENCE))
        fired = self._fired
        if fired and not (key in fired and self._is_complete(events)):
            fired.add(key)
            return False
        fired.clear()
        fired.add(key)
        self.number += 1
        self._only = key if len(active) == 1 else None
        return True

    def _is_complete(self, events):
        """Whether every active key has come in this cycle; forgets those that have gone.

        The keys stand in the order of their last calls, so those that are missing stand first.
        """
        while True:
            oldest = next(iter(self._active))
            if oldest in self._fired:
                return True
            last, pause = self._active[oldest]
            if events - last <= 2 * abs(pause) + 2:
                return False
            del self._active[oldest]
