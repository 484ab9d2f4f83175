"""Branches that a loop enters now and then, as every hundred steps: whether each time keeps memory.

One that does is entered again in the passes that follow, as often as the whole run enters it, up to a bound. What that
leaves out is named, and what passes of a loop keep that are left out.
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
        # Those, and loops, that still keep memory after the last time: {(file, line): (bytes each time, times)}; and what
        # was kept within branches.
        self._unseen, self._within = {}, {}
        # Whether one was entered since the last step, and may be again; and whether one was as often as in the whole run.
        self._is_open, self.goes_on, self.is_done = False, False, False

    @property
    def unseen(self):
        """What still keeps memory after the last time: {(file, line): (bytes each time, times)}. Branches in which nothing is
        kept only see what others keep."""
        keeps = {it for it, kept in self._within.items() if kept > 0}
        is_seen = keeps and any(it[:2] in keeps for it in self._unseen)
        return {it: of for it, of in self._unseen.items() if not is_seen or it[:2] in keeps or it[:2] not in self._within}

    def left(self, file, line, kept):
        """Notes by how many bytes more is allocated at the end of a branch than at its beginning."""
        self._within[file, line] = self._within.get((file, line), 0) + kept

    def step(self):
        """A step has ended: notes whether another is to show what a branch keeps."""
        self.goes_on, self._is_open = self._is_open, False

    @property
    def may_go_on(self):
        """Whether another step may be to come for that."""
        return self.goes_on or self._is_open

    def is_over(self, branch):
        """Whether a branch was entered, and has kept nothing since."""
        levels = self._levels.get(branch)
        return levels is not None and self._memory()[0] <= max(levels)

    def pass_by(self, branch, test, frame):
        """Notes that a branch which was entered is reached, and not entered for this; returns whether it may be again."""
        if branch not in self._levels:
            return True
        # The loop may enter it by itself.
        if test.enters_now(frame):
            return self._note(branch)
        self._is_open = True
        return True

    def enter(self, branch, test, frame, passes):
        """Notes that a branch is entered, where the loops around it make so many passes (`None`: nobody knows); returns
        whether it may be again."""
        # Other ranks have other figures, and must make as many passes.
        if test.is_once or int(os.environ.get("WORLD_SIZE") or 1) > 1 or len(self._levels) >= _MOST:
            return False
        if branch not in self._levels:
            self._levels[branch], self._times[branch] = [], test.times(frame, passes)
        return self._note(branch)

    def _note(self, branch):
        levels, times = self._levels[branch], self._times[branch]
        levels.append(self._memory()[0])
        if len(levels) >= _TIMES:
            self.leave(branch, levels, times)
        self.is_done |= 1 < len(levels) == times
        may_be = len(levels) < min(times, _TIMES)
        self._is_open |= may_be
        return may_be

    def leave(self, place, levels, times):
        """Notes what is left out of something that runs so many times (`None`: nobody knows), after the allocated bytes of
        those that did."""
        seen, half = len(levels), len(levels) // 2
        kept = (levels[-1] - levels[half]) // max(seen - 1 - half, 1)
        if kept > 0 and (times is None or is_much(kept, times - seen, self._memory())):
            self._unseen[place] = kept, seen

    def count(self, branch):
        """Returns how often a branch was entered."""
        return len(self._levels.get(branch, ()))


def is_much(kept, times, memory):
    """Whether bytes that are kept so many times matter beside the highest reserved ones."""
    return kept * times > memory[1] * _PART
