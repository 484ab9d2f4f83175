"""The loops that a job of `gpuwatch fit` is led out of: where each begins again, what follows it, and when it ends."""

import ast
import os
import sys

from ._fit_counters import inside, last_value, matters
from ._fit_source import SCOPES, SUITES

# Passes of a loop before it ends.
PASSES = 2
# Passes of a loop in which memory rises, and passes of one that cannot be left, at most.
RISING, _WAITING = 50, 100

# Statements whose first line is that of their end too, and plain ones.
_ENDED = (ast.For, ast.AsyncFor, ast.With, ast.AsyncWith)
_PLAIN = (ast.Expr, ast.Assign, ast.AugAssign, ast.Import, ast.ImportFrom, ast.Assert, ast.Return)


class Loop:
    """Where a loop begins again, what follows it, and how often it was passed."""

    def __init__(self, loop):
        self.header = _header(loop)
        self.body = loop.body[0].lineno
        self.after, following = _after(loop)
        # A `with` and a `for` have the line of their ends too, which would take the iterator of this loop for their own. So
        # one goes to a statement beside them first, where nothing is left of it, and does not run that.
        self.beside = _beside(following) if isinstance(following, _ENDED) else None
        # Where there is none, one may run that changes nothing.
        self.via, self._waits = None, 0
        if isinstance(loop, ast.For) and self.beside is None and _is_context(loop, self.after):
            self.via = _harmless(loop)
            # Without one, the loop may come to its end by itself.
            self._waits = _WAITING if self.via is None else 0
            self.after = self.after if self.via is not None else None
        self.passes = 0
        self.is_over = False
        # What it counts, if the last value may need more than the first ones; then that value, for one pass.
        self.counter = self.name = matters(loop)
        self.last = None
        self._loop = loop
        # The most memory at its header, in how many passes that rose, and whether it did in the latest.
        self._memory, self.rises, self._is_rising = None, 0, False

    def leads(self):
        """Whether it is still to be left."""
        if self.counter is not None or self.last is not None or self._waits > 0:
            return True
        return self.after is not None and (self.passes <= PASSES or self._is_rising)

    def ends(self, memory, frame):
        """Counts a pass at the loop's header; returns whether it was the last one."""
        self.passes += 1
        self._waits -= 1
        before = self._memory
        self._is_rising = before is not None and any(a > b for a, b in zip(memory, before)) and self.rises < RISING
        # Other ranks have other figures, and must make as many passes.
        self._is_rising &= int(os.environ.get("WORLD_SIZE") or 1) == 1
        self.rises += self._is_rising
        self._memory = memory if before is None else tuple(max(a, b) for a, b in zip(memory, before))
        if self.passes < PASSES or self._is_rising:
            return False
        counter, self.counter = self.counter, None
        if counter is not None:
            self.last, self.name = last_value(self._loop, frame), counter
        self.is_over = self.last is None
        return self.is_over


def _after(loop):
    """Returns the line of the statement that follows a loop, or the loops that it ends, and the statement; nothing where
    there is none."""
    node = loop
    while True:
        above = node.above
        for name in SUITES:
            suite = getattr(above, name, None)
            if isinstance(suite, list) and node in suite:
                rest = suite[suite.index(node) + 1 :]
                if rest:
                    first = rest[0]
                    decorators = getattr(first, "decorator_list", [])
                    return (decorators[0] if decorators else first).lineno, first
        # What is around must be left as it would be by itself.
        if not isinstance(above, (ast.If, ast.For, ast.While)):
            return None, None
        if isinstance(above, (ast.For, ast.While)) and (matters(above) is not None or _after(above)[0] is None):
            # Another pass of it, although a `for` then begins anew.
            return _header(above), above
        node = above


def _beside(statement):
    """Returns the line of a plain statement that runs with nothing more around it than another one has, or of the function
    whose body that is; `None` where there is none."""
    while True:
        above = statement.above
        suites = (getattr(above, name, None) for name in SUITES)
        for it in next(it for it in suites if isinstance(it, list) and statement in it):
            is_empty = isinstance(getattr(it, "value", None), ast.Constant) and isinstance(it, ast.Expr)
            if isinstance(it, _PLAIN) and it.lineno == it.end_lineno and not is_empty:
                return it.lineno
        if isinstance(above, ast.FunctionDef) and not above.decorator_list:
            return above.lineno
        # Since 3.11, the body of a `try` runs as what is around it.
        is_tried = isinstance(above, ast.Try) and sys.version_info >= (3, 11) and statement not in above.finalbody
        if not isinstance(above, (ast.If, ast.While)) and not is_tried:
            return None
        statement = above


def _is_context(loop, line):
    """Whether the statement of a line after a loop is a `with`."""
    function = loop
    while not isinstance(function, SCOPES):
        function = function.above
    return any(isinstance(it, (ast.With, ast.AsyncWith)) and it.lineno == line for it in inside(function))


def _harmless(loop):
    """Returns the line of a statement beside a loop and before it that may run once more; `None` where there is none."""
    suites = (getattr(loop.above, name, None) for name in SUITES)
    suite = next(it for it in suites if isinstance(it, list) and loop in it)
    for it in suite[: suite.index(loop)]:
        called = getattr(getattr(it, "value", None), "func", None)
        trains = isinstance(it, ast.Expr) and getattr(called, "attr", None) == "train" and not it.value.args
        if trains or isinstance(it, (ast.Import, ast.ImportFrom)):
            return it.lineno
    return None


def _header(loop):
    """Returns the line at which a loop begins a pass."""
    is_endless = isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant)
    return loop.body[0].lineno if is_endless else loop.lineno
