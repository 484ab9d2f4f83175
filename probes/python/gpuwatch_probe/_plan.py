"""When stacks are recorded and blocks are compared, in steps since somebody asked: pure arithmetic."""

# Steps until the first look: what a step leaves behind and the next one replaces has a stack by then.
SETTLE = 2

# Looks after the first one.
_LOOKS = 8

# Rises that are looked at, and times that one may fail to come before no more is waited for.
_RISES, _MISSES = 2, 3


class Spread:
    """Looks spread over some steps, while all of them are recorded."""

    # Whether rises are waited for.
    is_rare = False

    def __init__(self, steps):
        # Nothing but the looks says how many steps they compare.
        self.steps = 0
        looks = min(steps, _LOOKS)
        self._looks = [SETTLE + round(it * steps / looks) for it in range(looks + 1)]

    def is_recorded(self, passed):
        """Whether stacks are to be recorded after this step."""
        return bool(self._looks)

    def is_look(self, passed):
        """Whether blocks are compared at this step."""
        return passed >= self._looks[0]

    def looked(self, has_grown, is_slow):
        """Goes on to the next look; whether there is one."""
        del self._looks[0]
        if is_slow and len(self._looks) > 2:
            # The last one stays where it is.
            self._looks = self._looks[1::2] if len(self._looks) % 2 == 0 else self._looks[::2]
        return bool(self._looks)


class Rises:
    """A look before and one after each of the next rises, while the steps in between are not recorded.

    The first rise comes after `first` steps, the others `every` steps later, each of them as much as `slack` steps too
    early or late. One that does not come is looked for around the next, with more slack.
    """

    is_rare = True

    def __init__(self, first, every, slack):
        # The steps that the growth seen took; 0 where that is from the first look to the last.
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

    def is_look(self, passed):
        # A step after the rise, when the variables of its own step have other values.
        return passed >= (self._rise + self._slack + 1 if self._is_after else self._before())

    def looked(self, has_grown, is_slow):
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
        # What is recorded without a pause needs no time to settle.
        self._go_on(self._rise - self._every + self._slack + 1)
        return True


def plan(steps, rises, step):
    """What is asked for: `rises` is `(every, phase, slack)`, or `None` where they come all the time or nobody knows."""
    if rises is None or step is None:
        return Spread(steps)
    every, phase, slack = rises
    return Rises((phase - step) % every, every, slack)
