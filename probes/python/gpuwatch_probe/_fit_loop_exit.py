"""Leads a job out of its training loop under `gpuwatch fit`, once the peak of training is known: so that evaluation,
checkpoints and what follows the loop are seen too.

Loaders end early (`_fit_batches.py`). In the job's own functions, an `if` that a later step would enter is entered
once, also in functions that the loop calls, and a loop ends after one more pass, as a debugger does it: by setting the
line that runs next. A loop continues while memory rises from pass to pass. Where more than tests depends on what it
counts, its last pass gets the last value (`_fit_counters.py`). Trainers that hold the loop themselves are asked to
evaluate, to save and to stop.
"""

import ast
import functools
import linecache
import os
import sys
import threading
import warnings

from ._fit_conditions import Move, Tests, enters, is_shared, set_values
from ._fit_counters import Counted, added_to, counters_of, given_to, scope_of
from ._fit_later_passes import Counts, LaterPasses
from ._fit_loops import PASSES, Loop, Passes
from ._fit_not_run import calls_of, leading, uses_model_after
from ._fit_repeats import Repeats
from ._fit_sizes import Sizes
from ._fit_source import FUNCTIONS, place_of, place_of_code
from ._fit_trainers import Trainers, planned_steps, read_by
from ._frames import values
from ._loops import loops_around

# More passes of a loop for chains of branches.
_CHAINED = 4
# Most entries of a list.
_LINES = 20
# The most functions that are followed, the most of their lines, and the nodes of files that are searched for sizes.
_MOST, _EVENTS, _NODES = 2000, 1_000_000, 200_000


class LoopExit:
    """How one process is led on."""

    def __init__(self, unknowns, trees, batches, allocations, memory, others):
        self._unknowns, self._others = unknowns, others
        # Returns how often the device's memory was allocated so far.
        self._allocations = allocations
        # Returns the allocated bytes now, and the highest reserved ones.
        self._memory = memory
        self._trees = trees
        self._batches = batches
        self._plans = {}
        self._repeats = Repeats(memory)
        self._trainers = Trainers(lambda: batches.round, memory, self._repeats, others)
        batches.begins = self._trainers.epoch_begins
        # Where the job calls the trainer.
        self._trained = None
        # What loops call, by code; `None` where it is not the job's.
        self._functions = {}
        # {file: lines of the job that ran since the first step here}.
        self.ran = {}
        # Lines that ran, and whether they are too many to know of each.
        self._events, self._is_full = 0, False
        self._counted = None
        # What sizes depend on, and what of that functions count.
        self._sizes, self._counts, self._counts_sizes = None, Counts(), False
        # The later passes of all loops: [(file, those)].
        self._all = []
        # Lines that lead to an evaluation and the like: {file: lines}.
        self._phases = {}
        # Whether functions are followed to the job's end.
        self._is_watching = False
        # Whether there is more in the job's functions than what the loops themselves show, and calls after these.
        self._has_more = self.calls_later = False
        # The step after which the job is led on, and whether its peak was still rising.
        self._first, self._rises = None, False
        self._passes = Passes(trees, unknowns, lambda: batches.round)
        # Tests that were entered and allocated: {line: source}.
        self.entered = {}
        # Tests of functions that were entered, and the calls in which that is now: {frame: (test, allocations before)}.
        self._tried, self._within = set(), {}
        # Those that did not allocate since the latest step, with the highest reserved bytes before: [(file, test, bytes)].
        self._pending = []
        # How often a loop was passed again.
        self._chained = 0
        # Counters with later values, until a test's lines are left: {frame: (test, {name: value now})}.
        self._ahead = {}
        # The loop that ends now: (frame, move, {name: value before}).
        self._hidden = None
        # The tests of all that was followed: [(file, first line of the function, tests)].
        self._followed = []

    def known(self):
        """Returns the functions of which all lines are known that ran since the first step here: (file, first line)."""
        return set() if self._is_full else {(file, first) for file, first, _ in self._followed}

    def left_out(self):
        """Returns (file, line) of branches that the job's settings leave out."""
        return {(file, line) for file, _, tests in self._followed for line in tests.never}

    @property
    def passes(self):
        """The steps that the job makes in all; `None` where nobody knows."""
        return self._passes.all

    def unseen(self):
        """Returns the loops that were left although sizes come from what they go over, and branches that keep memory each
        time: [(line, passes, bytes of a pass)]. What it is in loops, the peaks show."""
        found = [(file, it.unseen()) for file, all_ in self._all for it in all_]
        found = [("%s:%d" % (os.path.basename(file), it[0]), it[1], None) for file, it in found if it is not None]
        found += [(*it, None) for it in [self._trainers.unseen()] if it is not None]
        self._trainers.leave(self._trained)
        repeats = self._repeats.unseen.items()
        return found + [("%s:%d" % (os.path.basename(of[0]), of[1]), times, kept) for of, (kept, times) in repeats]

    def has_later(self):
        """Whether later passes of a loop are still to be made, because a size depends on them, or what a branch keeps."""
        return self._trainers.goes_on or self._repeats.goes_on or any(it.has_later() for it in self._plans.values())

    def wants(self, frame):
        """Whether the loop for which a frame takes a batch has later passes to make, because a size depends on them."""
        while frame is not None and not self._unknowns.is_own(frame.f_code.co_filename):
            frame = frame.f_back
        plan = self._plans.get(frame)
        of_trainer = self._trainers.wants_batches or self._repeats.may_go_on
        return of_trainer if plan is None else plan.wants(frame.f_lineno, self._counts_sizes)

    def step(self, number, frame, uses_loader, rises=False):
        """Leads on after a step; returns whether anything does. `rises` if the peak of training still did."""
        leads = uses_loader or any(it.leads() for it in self._plans.values())
        is_first = self._first is None
        if is_first:
            self._first, self._rises = number, rises
            self._batches.lead()
            self._look()
        self._counted.step = number
        self._repeats.step()
        for file, test, before in self._pending:
            if self._memory()[1] > before:
                self._list(file, test)
        self._pending.clear()
        if threading.current_thread() is not threading.main_thread():
            return leads
        at, is_inner, is_trained, is_alone = frame, True, False, int(os.environ.get("WORLD_SIZE") or 1) == 1
        # Steps of the loops of libraries since the job's own function; `None` where that is not known. Optimizers loop over
        # their hooks.
        steps, optimizers = 1, os.path.join(os.path.dirname(sys.modules["torch.optim"].__file__), "")
        while at is not None:
            try:
                trainer = dict(values(at)).get("self")
                is_own = self._unknowns.is_own(at.f_code.co_filename)
                if is_first and not is_own and not at.f_code.co_filename.startswith(optimizers):
                    steps = planned_steps(trainer) or (None if loops_around(at) else steps)
                waits = any(it.tests.waits() for it in list(self._functions.values()) if it is not None)
                allocations = self._allocations() if is_alone else None
                if self._trainers.ask(trainer, number, self._first, waits, allocations):
                    leads, is_trained = True, True
                    self._watch()
                if is_own and is_trained:
                    self._trained, is_trained = (at.f_code.co_filename, at.f_lineno), False
                if is_own:
                    if is_first:
                        self._passes.count(at, steps)
                    steps = 1
                    leads |= self._plan(at, is_inner)
                    is_inner &= not self._trees.around(at, (ast.For, ast.While))
            except Exception:
                pass
            at = at.f_back
        return leads

    def _look(self):
        """Reads the job's files."""
        files = []
        try:
            files = self._trees.own(self._unknowns)
        except Exception:
            pass
        counted = self._counted = Counted(files, self.ran)
        self._sizes = Sizes([it for _, nodes in files for it in nodes][:_NODES])
        functions = [it for _, nodes in files for it in nodes if isinstance(it, FUNCTIONS)]
        self._counts_sizes = any(_counted_sizes(it, self._sizes, counted) for it in functions)
        reads = any(read_by(it, self._sizes) for it in functions)
        self._trainers.read(files, self._counts_sizes or reads)
        has_tests = any(Tests(it, counters_of([], it, counted), counted).has_counters() for it in functions)
        calls = calls_of(files)
        self._has_more = has_tests or any(phase is not None for _, phase in calls)
        self._phases = leading(calls)

    # Trainers that hold the loop

    def _watch(self):
        """Follows the job's functions that a trainer calls."""
        if sys.gettrace() is None:
            self._is_watching = True
            sys.settrace(self._called)

    # The job's own loops

    def _plan(self, frame, is_inner):
        """Follows a function from here on if it is in a loop; returns whether that leads anywhere."""
        if frame in self._plans:
            return False
        if sys.gettrace() not in (None, self._called):
            return False
        loops = self._trees.around(frame, (ast.For, ast.While))
        if not loops:
            return False
        function = self._node(frame.f_code)
        phases = self._phases.get(frame.f_code.co_filename, ())
        later = []
        for it in loops:
            around = later[-1] if later else None
            of = self._counts, lambda: self._batches.round
            later.append(LaterPasses(it, self._counted, self._sizes, around, *of, self._rises, frame))
        self._all.append((frame.f_code.co_filename, later))
        self.calls_later |= uses_model_after(loops[0], scope_of(frame))
        has_more = self._has_more or self.calls_later
        of = self._counted, phases, frame.f_lineno, self._memory, self._allocations, has_more, self._repeats, self._passes
        name = os.path.basename(frame.f_code.co_filename)
        agree = [functools.partial(self._others.any_now, "loop-%s-%d" % (name, it.lineno)) for it in loops]
        plan = _Plan(loops, later, agree, function, *of)
        if is_inner:
            # What each step keeps is a growth, which is known by now.
            plan.ignore_rises()
        if not plan.leads():
            return False
        self._plans[frame] = plan
        self._followed.append((frame.f_code.co_filename, place_of_code(frame.f_code), plan.tests))
        frame.f_trace = self._moved
        sys.settrace(self._called)
        return True

    def _node(self, code):
        """Returns the function of a code; `None` where it has none."""
        for it in self._trees.of(code.co_filename):
            if isinstance(it, FUNCTIONS) and it.name == code.co_name and place_of(it) == code.co_firstlineno:
                return it
        return None

    def _called(self, frame, event, argument):
        """Follows a function of the job that a loop calls."""
        code = frame.f_code
        try:
            self._show()
            if code not in self._functions and len(self._functions) < _MOST:
                self._functions[code] = self._follow(code)
            function = self._functions.get(code)
            if function is None:
                return None
            function.give(self._given(frame))
            later = self._later_of(frame) if function.added else None
            if later is not None:
                self._counts.note(frame, function.added, later)
            elif self._is_watching and not self._plans and (function.added or function.read):
                is_own = self._unknowns.is_own(frame.f_back.f_code.co_filename)
                read = [it for it in function.read if not (is_own and isinstance(it, ast.arg))]
                self._trainers.note(frame, function.added, read, self._counted.stored, self._is_own_class)
            self._note_line(frame)
            return self._moved_in_call
        except Exception:
            return None

    def _is_own_class(self, kind):
        return self._unknowns.is_own(getattr(sys.modules.get(kind.__module__), "__file__", None) or "<")

    def _follow(self, code):
        node = self._node(code) if self._unknowns.is_own(code.co_filename) else None
        if node is None:
            return None
        function = _Function(node, self._counted, self._sizes, self._phases.get(code.co_filename, ()))
        self._followed.append((code.co_filename, code.co_firstlineno, function))
        return function

    def _given(self, frame):
        """Returns the parameters of a function that its caller gives what it counts."""
        caller, code = frame.f_back, frame.f_code
        of = self._plans.get(caller) or self._functions.get(caller.f_code)
        if of is None or not code.co_argcount + code.co_kwonlyargcount:
            return set()
        line, key = caller.f_lineno, (code.co_name, caller.f_lineno)
        if key not in of.given:
            calls = [it for it in self._trees.of(caller.f_code.co_filename) if isinstance(it, ast.Call)]
            calls = [it for it in calls if it.lineno <= line <= it.end_lineno]
            # Where none has its name, a variable has the function.
            named = [it for it in calls if getattr(it.func, "attr", getattr(it.func, "id", None)) == code.co_name]
            of.given[key] = {at for it in named or calls for at in given_to(it, of.counters)}
        names = code.co_varnames[: code.co_argcount]
        own = names[1:] if names[:1] in (("self",), ("cls",)) else names
        return {own[it] if isinstance(it, int) else it for it in of.given[key] if not isinstance(it, int) or it < len(own)}

    def _note_line(self, frame):
        self._events += 1
        self._is_full |= self._events > _EVENTS
        if not self._is_full:
            self.ran.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)

    def _moved_in_call(self, frame, event, argument):
        self._come_back(frame, event)
        self._note(frame, event)
        if event == "line":
            try:
                self._note_line(frame)
                tests = self._functions[frame.f_code].tests
                tests.note(frame)
                test = tests.by_line.get(frame.f_lineno)
                # Objects of one class have counters of their own.
                key = test and (frame.f_code, frame.f_lineno, id(dict(values(frame)).get("self")))
                may_move = test and key not in self._tried and self._may_pass(frame, test)
                may_move = may_move and not self._waits_for(frame, test)
                if may_move and self._repeats.is_over((frame.f_code.co_filename, *key[1:])):
                    self._tried.add(key)
                    may_move = False
                move = may_move and (test.move(frame) or (self._is_late(frame) and test.force(frame)))
                if move:
                    branch = (frame.f_code.co_filename, *key[1:])
                    if move.is_last and not self._repeats.enter(branch, test, frame, self._passes_left(frame, test)):
                        self._tried.add(key)
                    self._go(frame, move, self._repeats.count(branch) > 1)
                    self._note_line(frame)
                    tests.note(frame)
                elif may_move and not self._repeats.pass_by((frame.f_code.co_filename, *key[1:]), test, frame):
                    self._tried.add(key)
            except Exception:
                pass
        return self._moved_in_call

    def _passes_left(self, frame, test):
        """Returns how often a test that is called in a loop is still reached; `None` where nobody knows."""
        left = None if self._plans else self._trainers.passes_left(test.value(frame))
        return left or self._passes.around(frame)

    def _later_of(self, frame):
        """Returns the later passes of the innermost loop in which a function is called; `None` where there are none."""
        while frame is not None and frame not in self._plans:
            frame = frame.f_back
        return None if frame is None else self._plans[frame].later_at(frame.f_lineno)

    def _waits_for(self, frame, test):
        """Whether a test on which a size depends is true in a later pass of the loop, which is made for that."""
        if not self._sizes.decided_by(test.statement):
            return False
        later = self._later_of(frame)
        passes = later and test.passes_to(frame, self._counts.rate)
        if passes:
            later.change_in(passes)
        return bool(passes)

    def _is_late(self, frame):
        """Whether a function runs in a pass that begins and ends under this lead."""
        while frame is not None and frame not in self._plans:
            frame = frame.f_back
        if frame is None:
            return self._is_watching and self._counted.step > self._first
        return self._plans[frame].is_late(frame.f_lineno)

    def _may_pass(self, frame, test):
        """Whether nothing is against a test that is true: a caller may leave if it is."""
        caller = frame.f_back
        return not test.is_returned or (caller is not None and enters(self._trees.of(caller.f_code.co_filename), caller))

    def _go(self, frame, move, is_again=False):
        is_chained = not move.is_last and self._chained < _CHAINED
        if (is_chained or is_again) and self._plans:
            self._chained += is_chained
            next(iter(self._plans.values())).pass_again()
        if move.test is not None:
            self._within[frame] = move, self._allocations()
        if move.to is None:
            self._ahead[frame] = move, set_values(frame, move.ahead)
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame.f_lineno = move.to
        if move.hidden is not None:
            self._hidden = frame, move, set_values(frame, move.hidden)

    def _show(self, frame=None, event="call"):
        """Gives the names of a loop's head their values again, once that has been computed, or calls a function."""
        if self._hidden is None or (event == "line" and frame.f_lineno in self._hidden[1].lines):
            return
        of, _, before = self._hidden
        self._hidden = None
        set_values(of, {it: was for it, was in before.items() if event != "return" or is_shared(of, it)})

    def _come_back(self, frame, event):
        """Gives counters their values again, once a test's lines are left."""
        move, before = self._ahead.get(frame, (None, None))
        if move is None or (event == "line" and frame.f_lineno in move.lines) or event not in ("line", "return"):
            return
        del self._ahead[frame]
        try:
            set_values(frame, {it: was for it, was in before.items() if event == "line" or is_shared(frame, it)})
        except Exception:
            pass

    def _moved(self, frame, event, argument):
        plan = self._plans.get(frame)
        if plan is None:
            return None
        self._come_back(frame, event)
        if self._hidden is not None and self._hidden[0] is frame:
            self._show(frame, event)
        self._note(frame, event)
        plan.ran(frame.f_lineno if event == "line" else None)
        if event == "return":
            del self._plans[frame]
            if not self._plans and not self._is_watching:
                sys.settrace(None)
            return None
        if event == "line" and self._hidden is None:
            try:
                self._note_line(frame)
                plan.tests.note(frame)
                move = plan.next(frame)
                if move is not None:
                    self._go(frame, move)
                    # It is not met again.
                    self._note_line(frame)
                    plan.tests.note(frame)
                else:
                    plan.count(frame)
            except Exception:
                pass
        return self._moved

    def _note(self, frame, event):
        """Lists a test whose branch has been left, if it allocated; otherwise the next step shows whether it needs more."""
        move, before = self._within.get(frame, (None, None))
        if move is None or event not in ("line", "return") or (event == "line" and frame.f_lineno in move.lines):
            return
        del self._within[frame]
        file = frame.f_code.co_filename
        if self._allocations() > before:
            self._list(file, move.test)
        elif len(self._pending) < _LINES:
            self._pending.append((file, move.test, self._memory()[1]))

    def _list(self, file, test):
        if len(self.entered) < _LINES:
            line = "%s:%d" % (os.path.basename(file), test.line)
            self.entered[line] = linecache.getline(file, test.line).strip()[:120]


def _counted_sizes(function, sizes, counted):
    """Returns what a function adds to for others, where sizes depend on it."""
    return [it for it in added_to(function) if sizes.has(it) and counted.counts_for_others(it)]


class _Function:
    """A function of the job that a loop calls."""

    def __init__(self, node, counted, sizes, phases):
        self._node, self._counted, self._phases = node, counted, phases
        self._parameters = set()
        # What it adds to for others, where sizes depend on it.
        self.added = _counted_sizes(node, sizes, counted)
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


class _Plan:
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
        return any(it.is_rising or (it.later.is_open() and it.later.is_sized) for it in self._loops)

    def wants(self, line, counts_sizes):
        """Whether the innermost loop around a line has later passes to make for sizes; `counts_sizes` if functions that were
        not called yet may count."""
        loop = next((it for it in reversed(self._loops) if line in it.lines), None)
        if loop is None:
            return False
        return (loop.later.is_open() and loop.later.is_sized) or (counts_sizes and loop.passes < PASSES)

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
