"""The functions of a job that are followed under `gpuwatch fit`: those that loops call, and the running ones with the loops
that they are led out of."""

from ._fit_conditions import Move, Tests
from ._fit_counters import added_to, counters_of
from ._fit_loops import PASSES, Loop
from ._fit_trainers import read_by


def counted_sizes(function, sizes, counted):
    """Returns what a function adds to for others, where sizes depend on it."""
    return [it for it in added_to(function) if sizes.has(it) and counted.counts_for_others(it)]


class Function:
    """A function of the job that a loop calls."""

    def __init__(self, node, counted, sizes, phases):
        self._node, self._counted, self._phases = node, counted, phases
        self._parameters = set()
        # What it adds to for others, where sizes depend on it.
        self.added = counted_sizes(node, sizes, counted)
        # What it reads on which sizes depend.
        self.read = read_by(node, sizes)
        # The arguments of its own calls that are counters: {(function, line): places and names}.
        self.given = {}
        self._read()

    def give(self, parameters):
        """Learns that callers give these parameters what they count."""
        if not parameters <= self._parameters:
            self._parameters |= parameters
            self.given = {}
            self._read()

    def _read(self):
        self.counters = counters_of([], self._node, self._counted, self._parameters)
        self.tests = Tests(self._node, self.counters, self._counted, self._phases)

    @property
    def never(self):
        return self.tests.never


class Plan:
    """Loops and tests of a running function."""

    def __init__(self, loops, later, agree, function, counted, phases, line, memory, allocations, has_more, repeats, passes):
        self._memory, self._allocations, self._has_more, self._counted = memory, allocations, has_more, counted
        self._repeats, self._all_passes = repeats, passes
        # The branch that was entered for the first time in this pass.
        self._first = None
        self.counters = counters_of(loops, function, counted)
        self._loops = [Loop(it, self.counters, *of) for it, *of in zip(loops, later, agree)]
        self._headers = {it.header: it for it in self._loops}
        self._bodies = {it.body: it for it in self._loops}
        # As of a function that is called.
        self.given = {}
        # What is in a branch already needs no help.
        self.tests = Tests(loops[0], self.counters, counted, phases, (line,))
        # Passes of the innermost loop.
        self._passes = 0
        # Tests that only one step passes, and that have been entered.
        self._passed = {}

    def ignore_rises(self):
        """Leaves the innermost loop also while memory rises."""
        self._loops[-1].ignore_rises()

    def ran(self, line):
        """A line runs next, or none any more."""
        for it in self._loops:
            it.later.ran(line)

    def has_later(self):
        return any(it.is_rising or it.later.has_sizes() for it in self._loops)

    def wants(self, line, counts_sizes):
        """Whether the innermost loop around a line has later passes to make for sizes; `counts_sizes` if functions that were
        not called yet may count."""
        loop = next((it for it in reversed(self._loops) if line in it.lines), None)
        if loop is None:
            return False
        return loop.later.has_sizes() or (counts_sizes and loop.passes < PASSES)

    def later_at(self, line):
        """Returns the later passes of the innermost loop around a line; `None` where there is none."""
        return next((it.later for it in reversed(self._loops) if line in it.lines), None)

    def is_late(self, line):
        """Whether a line runs in a pass of its loop that began under this lead."""
        return next((it.passes > 0 for it in reversed(self._loops) if line in it.lines), False)

    def pass_again(self):
        """Gives the innermost loop one more pass."""
        self._loops[-1].pass_again()
        self._passes -= 1

    def _loop_at(self, line):
        """Returns the innermost loop around a line."""
        return next((it for it in reversed(self._loops) if line in it.lines), self._loops[0])

    def _finish(self, line, branch, test):
        """A branch is entered for the last time: more often than this, the whole run does not."""
        del self.tests.by_line[line]
        if self._repeats.count(branch) > 1:
            if test.other is None or test.is_guard:
                # Memory that still rises is what the whole run does not keep.
                self._loop_at(line).ignore_rises()
            else:
                self._passed[line] = test

    def leads(self):
        """Whether there is anything to enter or to leave yet."""
        has_more = self._passes < PASSES and (self._has_more or self.tests.has_counters())
        return has_more or any(it.leads() for it in self._loops)

    def next(self, frame):
        """Returns where to go from here; `None` to go on."""
        line = frame.f_lineno
        test = self.tests.by_line.get(line)
        # What decides about a size waits for its pass.
        may_move = test and not test.is_returned and not any(it.later.decides(test.test) for it in self._loops)
        branch = frame.f_code.co_filename, line
        if may_move and self._repeats.is_over(branch):
            del self.tests.by_line[line]
            may_move = False
        move = may_move and (test.move(frame) or (self.is_late(line) and test.force(frame)))
        if move:
            if move.is_last and not self._repeats.enter(branch, test, frame, self._all_passes.around(frame)):
                self._finish(line, branch, test)
            self._first = branch if self._repeats.count(branch) == 1 else None
            if self._repeats.count(branch) > 1:
                self._loop_at(line).pass_again()
            if test.is_once and test.other is not None:
                self._passed[line] = test
            return move
        if may_move and not self._repeats.pass_by(branch, test, frame):
            self._finish(line, branch, test)
        test = self._passed.get(line)
        if test is not None and test.is_now(frame):
            return Move(test.other)
        loop = self._headers.get(line)
        return loop and self._pass(loop, frame)

    def _pass(self, loop, frame):
        """Counts a pass of a loop; returns where to go if it was the last one."""
        for inner in self._loops[self._loops.index(loop) + 1 :]:
            inner.restart()
        before = loop.passes
        if self._first is not None and loop is self._loop_at(self._first[1]):
            if not self._repeats.is_over(self._first):
                # The next pass shows whether it keeps memory.
                loop.pass_again()
            self._first = None
        is_over = loop.ends(self._counted.step, self._memory(), self._allocations(), frame)
        self._passes += loop is self._loops[-1] and loop.passes > before
        if is_over and loop.keeps():
            times = loop.later.passes_in_all(frame)
            self._repeats.leave((frame.f_code.co_filename, loop.header), loop.levels, times)
        return loop.way() if is_over else None

    def count(self, frame):
        """Gives a later pass of a loop the values of what is counted."""
        loop = self._bodies.get(frame.f_lineno)
        if loop is not None:
            loop.later.begin(frame)
