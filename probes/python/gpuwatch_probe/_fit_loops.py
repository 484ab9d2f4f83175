"""The loops that a job of `gpuwatch fit` is led out of: where each begins again, and how it ends.

A loop ends as it would by itself, so that all around it takes its course: a `for` begins anew with nothing to iterate
over, a `while` has its test computed from values that make it false. Where a branch leaves the loop at a later step and
does something before that, the loop ends there.
"""

import ast
import inspect
import os

from ._fit_conditions import Move, is_plain
from ._fit_counters import passes_of, scope_of, text
from ._fit_later_passes import evaluated
from ._fit_source import SCOPES, SUITES
from ._fit_stand_ins import decided, entering, iterated

# Passes with a step before a loop ends; and passes without one, after which that counts as one.
PASSES, _IDLE = 2, 20
# Passes of a loop in which memory rises, and passes of one that cannot be left, at most.
RISING, _WAITING = 50, 100


class Loop:
    """Where a loop begins again, how it ends, and how often it was passed."""

    def __init__(self, loop, counters, later, agree):
        self.header, self.body = _header(loop), loop.body[0].lineno
        self.lines = range(loop.lineno, loop.end_lineno + 1)
        # Passes, the latest step, and passes since then.
        self.passes, self._step, self._idle = 0, None, 0
        # What is made of its later passes.
        self.later = later
        # The ways that are left to end it. Without any, it may come to its end by itself.
        self._ways, self._is_tried = list(_ways(loop, counters)), False
        self._waits = 0 if self._ways else _WAITING
        # The most memory at its header, in how many passes that rose, and whether it did in the latest.
        self._memory, self._rises, self.is_rising = None, 0, False
        # Allocated bytes in each pass.
        self.levels = []
        # Returns whether a rank says yes.
        self._agree = agree

    def leads(self):
        """Whether it is still to be left."""
        if self.later.is_open() or self._waits > 0:
            return True
        return bool(self._ways) and (self.passes <= PASSES or self.is_rising)

    def ends(self, step, memory, allocations, frame):
        """Counts a pass at the loop's header, after so many steps and allocations; returns whether it was the last one."""
        self.later.passed(frame)
        self._idle = self._idle + 1 if step == self._step else 0
        self._step = step
        if self._idle % _IDLE:
            return False
        self.passes += 1
        self._waits -= 1
        before = self._memory
        rises = before is not None and any(a > b for a, b in zip(memory, before))
        if before is not None and self._rises < RISING:
            # Other ranks have other figures, and must make as many passes.
            rises = self._agree(rises)
        self.is_rising = rises and self._rises < RISING
        self._rises += self.is_rising
        self.levels.append(memory[0])
        self._memory = memory if before is None else tuple(max(a, b) for a, b in zip(memory, before))
        made = allocations if int(os.environ.get("WORLD_SIZE") or 1) == 1 else None
        if self.passes < PASSES or self.later.more(frame, rises, made):
            return False
        return not self.is_rising

    def ignore_rises(self):
        """Ends also while memory rises."""
        self._rises = RISING + 1

    def keeps(self):
        """Whether memory rose in as many passes as it may, and still does."""
        return self._rises == RISING and self.levels[-1] > max(self.levels[:-1])

    def pass_again(self):
        """Gives it one more pass."""
        self.passes -= 1

    def restart(self):
        """Notes that a pass of the loop around it begins."""
        self.passes, self._is_tried = 0, False
        self.later.restart()

    def way(self):
        """Returns how to end it; `None` where all has been tried."""
        if self._is_tried:
            # It could not be gone from there, or did not lead out.
            del self._ways[:1]
        self._is_tried = True
        return self._ways[0] if self._ways else None


class Passes:
    """How many passes the loops make that a step is in, by the loops that are entered; `round_` returns the batches of a
    loader."""

    def __init__(self, trees, unknowns, round_):
        self._trees, self._unknowns, self._round = trees, unknowns, round_
        # Steps in all; and loops from the innermost one on: (code, lines, passes). `None` where nobody knows.
        self.all, self._loops = 1, []

    def count(self, frame, steps):
        """Counts the loops that a function is in, where a library makes so many steps in one pass of theirs."""
        self._add(None, (), steps)
        for it in reversed(self._trees.around(frame, (ast.For, ast.While))):
            self._add(frame.f_code, range(it.lineno, it.end_lineno + 1), self._of(it, scope_of(frame)))

    def _of(self, loop, scope):
        if not isinstance(loop, ast.For):
            return None
        calls = [it.func for it in ast.walk(loop.iter) if isinstance(it, ast.Call)]
        if any(inspect.isgeneratorfunction(evaluated(ast.unparse(it), scope)) for it in calls):
            return None
        # What has no length of its own is a loader.
        return len(passes_of(loop, scope)) or self._round()

    def _add(self, code, lines, passes):
        self._loops.append((code, lines, passes or None))
        self.all = self.all * passes if passes and self.all else None

    def around(self, frame):
        """Returns the passes of the loops around what a function of the job runs now; `None` where nobody knows."""
        codes = {code for code, _, _ in self._loops}
        while frame is not None and frame.f_code not in codes:
            # What is called in the loop of a library is called in all of its passes.
            frame = frame.f_back if self._unknowns.is_own(frame.f_code.co_filename) else None
        if frame is None:
            return self.all
        found, is_inner = 1, True
        for code, lines, passes in self._loops:
            is_inner &= code is not frame.f_code
            if not is_inner and (code is not frame.f_code or frame.f_lineno in lines):
                found = found * passes if passes and found else None
        return found


def _ways(loop, counters):
    """Yields moves that end a loop, the best one first."""
    leaves = [it for it in _own_branches(loop) if isinstance(it.body[-1], (ast.Break, ast.Return))]
    own = [it for it in leaves if any(text(one) in counters for one in ast.walk(it.test))]
    is_for = isinstance(loop, ast.For)
    hidden = iterated(loop.iter) if is_for else decided(loop.test, False)
    for it in own:
        is_of_use = hidden is None or not is_plain(it.body[:-1] or it.body)
        if is_of_use and (isinstance(it.body[-1], ast.Break) or hidden is None or _is_last(loop)):
            yield from _enter(it)
    if hidden is not None:
        head = loop.iter if is_for else loop.test
        yield Move(head.lineno, lines=range(loop.lineno, head.end_lineno + 1), hidden=hidden)
    after = _after(loop)
    if after is not None:
        yield Move(after)
    yield from (move for it in leaves if it not in own for move in _enter(it))


def _enter(branch):
    """Yields the move into a branch, where there is one: to its first line, or to its test where they share a line."""
    if branch.body[0].lineno > branch.test.end_lineno:
        yield Move(branch.body[0].lineno)
        return
    hidden = entering(branch.test, branch.body)
    if hidden is not None:
        yield Move(branch.lineno, lines=range(branch.lineno, branch.test.end_lineno + 1), hidden=hidden)


def _own_branches(of):
    """Yields the branches of a loop that are in no other one's statements but branches, the last one first."""
    for it in reversed(of.body):
        if isinstance(it, ast.If):
            yield it
            yield from _own_branches(it)


def _is_last(statement):
    """Whether nothing follows a statement in its function."""
    while not isinstance(statement, SCOPES):
        if _after(statement) is not None:
            return False
        statement = statement.above
    return True


def _after(loop):
    """Returns the line of the statement that follows a loop beside it; `None` where there is none."""
    for name in SUITES:
        suite = getattr(loop.above, name, None)
        if isinstance(suite, list) and loop in suite[:-1]:
            following = suite[suite.index(loop) + 1]
            decorators = getattr(following, "decorator_list", [])
            return (decorators[0] if decorators else following).lineno
    return None


def _header(loop):
    """Returns the line at which a loop begins a pass."""
    is_endless = isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant)
    return loop.body[0].lineno if is_endless else loop.lineno
