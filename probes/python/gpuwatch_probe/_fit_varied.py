"""Whether the steps of a job under `gpuwatch fit` differ in size, and for how many of them it trains then.

What the allocator keeps of one step is too small for a longer one, or is cut for a shorter one: more is reserved from
step to step, although no step allocates more. How much depends on the order of sizes, so that many steps have to be
made in the job's own order.
"""

# Steps after which the largest size comes again: with the optimizer's state, and when memory has been cut for others.
AGAIN = 1, 10, 20, 34, 50
# Steps after which the allocator begins anew, as at the job's beginning: what the largest size left would hold all others.
_ANEW = 3, 12, 22, 36
# Steps until the peak can count as known, the most, and the most where several ranks have to make them.
_LEAST, _MOST, _OF_RANKS = 24, 64, 24
# Allocations after which it counts as known, but not before so many steps.
_ALLOCATIONS, _FEWEST = 250_000, 12


class Varied:
    """What the steps so far have asked for."""

    def __init__(self):
        # Bytes that were asked for before the latest step ended, and in it.
        self._before = self._latest = None
        # The latest step after which a peak was higher.
        self._risen = 0
        self.is_varied = False

    def step(self, number, asked, rises, is_ahead, is_training):
        """A step has ended, until which so many bytes were asked for in all; `rises` if a peak did, `is_ahead` if the largest
        sizes come before their time, `is_training` if nothing but training came since the step before. Returns whether the
        allocator is to begin anew."""
        if rises:
            self._risen = number
        was, self._latest = self._latest, asked - self._before if is_training and self._before is not None else None
        self._before = asked
        # The first step makes the optimizer's state.
        differs = is_ahead or (None not in (was, self._latest) and was != self._latest)
        is_first = not self.is_varied and number >= 3 and differs
        self.is_varied |= is_first
        # Sizes in the job's own order leave what they leave.
        return is_ahead and (is_first or (self.is_varied and number in _ANEW))

    def rises(self, number):
        """Whether a peak was still rising among the latest of so many steps."""
        return self.is_varied and number < 2 * self._risen

    def wants_more(self, number, allocations, is_alone):
        """Whether the peak is not known yet after so many steps and allocations; several ranks are not alone."""
        if not self.is_varied or number >= (_MOST if is_alone else _OF_RANKS):
            return False
        if number >= _FEWEST and allocations >= _ALLOCATIONS:
            return False
        return number < _LEAST or self.rises(number)
