"""Names the size that fitted after attempts that ran out of memory: an integer variable that was larger in each attempt.

It reads integers of the functions on the stack, at early errors and at the end of the first step after them.
"""

import re

from ._frames import function_name, values
from ._stacks import MACHINERY

# The latest step of an error of a search, and of frames and variables as many as are read.
_EARLY, _MOST_FRAMES, _MOST_VARIABLES = 64, 40, 2000

# What sizes are called, where several variables would explain the search.
_SIZE = re.compile("batch|size|bs$|length|len$|seq|tokens|chunk|micro|width|samples|rows|crop|resolution")


class SizeSearch:
    """The attempts of a search. `rank(file)` is lower for files of the user."""

    def __init__(self, rank):
        self._rank = rank
        # {(file, line, function, name): value}: the smallest of the attempts.
        self._failed = {}
        self.attempts = 0

    def failed(self, frames, number):
        """Takes note of an attempt that fails after so many steps; its frames come innermost first."""
        if number > _EARLY:
            return
        found = self._integers(frames)
        if self.attempts:
            found = {key: min(it, found[key]) for key, it in self._failed.items() if key in found}
        self._failed, self.attempts = found, self.attempts + 1

    def fitted(self, frames):
        """Ends the search with a step; returns the name of the size and its value as a text, or `None`."""
        failed, self._failed, self.attempts = self._failed, {}, 0
        smaller = {key: it for key, it in self._integers(frames).items() if 0 < it < failed.get(key, 0)}
        named = [it for it in smaller if _SIZE.search(it[-1].lower())]
        if not named and len(smaller) != 1:
            return None
        # Of the user's functions, the outermost one.
        best = min(named or smaller, key=lambda it: self._rank(it[0]))
        return "%s = %d" % (best[-1], smaller[best])

    def _integers(self, frames):
        found = {}
        for frame in reversed(frames[:_MOST_FRAMES]):
            code = frame.f_code
            if self._rank(code.co_filename) >= MACHINERY:
                continue
            place = code.co_filename, code.co_firstlineno, function_name(code)
            for name, value in _variables(frame):
                if type(value) is int and len(found) < _MOST_VARIABLES:
                    found[place + (name,)] = value
        return found


def _variables(frame):
    """Returns a function's variables, or those of a script."""
    space = frame.f_globals
    if frame.f_code.co_name == "<module>" and type(space) is dict and len(space) <= _MOST_VARIABLES:
        return [it for it in list(space.items()) if type(it[0]) is str]
    return values(frame)
