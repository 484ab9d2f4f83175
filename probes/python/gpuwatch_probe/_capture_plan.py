"""Plans when to record stacks and when to compare blocks, in steps since the request: pure arithmetic."""

# Steps before the first comparison: blocks that the next step replaces have a stack by then.
SETTLE = 2

# Comparisons after the first one.
_CAPTURES = 8

# Rises to observe, and missed rises after which the plan gives up.
_RISES, _MISSES = 2, 3


class Spread:
    """Comparisons spread over some steps, all of which are recorded."""

    # Whether the plan waits for rises.
    is_rare = False

    def __init__(self, steps):
        # The comparisons alone determine how many steps they cover.
        self.steps = 0
        captures = min(steps, _CAPTURES)
        self._captures = [SETTLE + round(it * steps / captures) for it in range(captures + 1)]

    def is_recorded(self, passed):
        """Whether to record stacks after this step."""
        return bool(self._captures)

    def is_due(self, passed):
        """Whether to compare blocks at this step."""
        return passed >= self._captures[0]

    def captured(self, has_grown, is_slow):
        """Advances to the next comparison; returns whether there is one."""
        del self._captures[0]
        if is_slow and len(self._captures) > 2:
            # The last one keeps its place.
            self._captures = self._captures[1::2] if len(self._captures) % 2 == 0 else self._captures[::2]
        return bool(self._captures)


class Rises:
    """One comparison before and one after each of the next rises; the steps in between are not recorded.

    The first rise comes after `first` steps, the others every `every` steps, each up to `slack` steps early or late. If
    one does not come, the plan tries the next, with more slack.
    """

    is_rare = True

    def __init__(self, first, every, slack):
        # The steps of the observed growth; 0 means from the first comparison to the last.
        self.steps = 0
        self._every, self._slack = every, slack
        self._rise, self._is_after = first, False
        self._seen = self._missed = 0
        self._go_on(0)

    def _go_on(self, passed):
        while self._before() - SETTLE < passed:
            self._rise += self._every

    def _before(self):
        return self._rise - 1 - self._slack

    def is_recorded(self, passed):
        return self._seen < _RISES and passed >= self._before() - SETTLE

    def is_due(self, passed):
        # One step after the rise, when the variables of the rise's step have other values.
        return passed >= (self._rise + self._slack + 1 if self._is_after else self._before())

    def captured(self, has_grown, is_slow):
        if not self._is_after:
            self._is_after = True
            return True
        self._is_after = False
        self._seen += has_grown
        self.steps = self._seen * self._every
        self._missed += not has_grown
        if self._seen == _RISES or self._missed == _MISSES:
            self._seen = _RISES
            return False
        if not has_grown:
            self._slack = min(2 * self._slack + 1, self._every // 2)
        self._rise += self._every
        # A recording without a pause needs no time to settle.
        self._go_on(self._rise - self._every + self._slack + 1)
        return True


def plan(steps, rises, step):
    """Returns the plan: `rises` is `(every, phase, slack)`, or `None` if memory rises all the time or this is
    unknown."""
    if rises is None or step is None:
        return Spread(steps)
    every, phase, slack = rises
    return Rises((phase - step) % every, every, slack)
