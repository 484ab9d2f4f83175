"""Branches that a loop enters now and then, as every hundred steps: whether each time keeps memory.

One that does is entered again in the passes that follow, as often as the whole run enters it, up to a bound.
"""

import os

# How often a branch is entered, and branches that are followed.
_TIMES, _MOST = 40, 200
# What one still keeps in the whole run matters from this part of the highest reserved bytes on.
_PART = 1 / 100


class Repeats:
    """The branches of one process. `memory` returns the allocated bytes now, and the highest reserved ones."""

    def __init__(self, memory):
        self._memory = memory
        # {branch: allocated bytes each time that it was about to be entered}, and how often the whole run enters it.
        self._levels, self._times = {}, {}
        # Those that still keep memory after the last time: {branch: (bytes each time, times)}.
        self.unseen = {}

    def is_over(self, branch):
        """Whether a branch was entered, and has kept nothing since."""
        levels = self._levels.get(branch)
        return levels is not None and self._memory()[0] <= max(levels)

    def pass_by(self, branch, test, frame):
        """Notes that a branch which was entered is reached, and not entered for this; returns whether it may be again."""
        levels = self._levels.get(branch)
        if levels is not None and test.is_now(frame):
            levels.append(self._memory()[0])
        return levels is None or len(levels) < self._times[branch]

    def enter(self, branch, test, frame, passes):
        """Notes that a branch is entered, where all loops make so many passes (`None`: nobody knows); returns whether it may
        be again."""
        # Other ranks have other figures, and must make as many passes.
        if test.is_once or int(os.environ.get("WORLD_SIZE") or 1) > 1 or len(self._levels) >= _MOST:
            return False
        levels = self._levels.setdefault(branch, [])
        if not levels:
            self._times[branch] = test.times(frame, passes)
        levels.append(self._memory()[0])
        # The loop may have entered it by itself since the last time.
        if _TIMES <= len(levels) < self._times[branch]:
            kept = (levels[-1] - levels[0]) // (len(levels) - 1)
            if kept * (self._times[branch] - len(levels)) > self._memory()[1] * _PART:
                self.unseen[branch] = kept, len(levels)
        return len(levels) < min(self._times[branch], _TIMES)

    def count(self, branch):
        """Returns how often a branch was entered."""
        return len(self._levels.get(branch, ()))
