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

from ._fit_conditions import Tests, enters, is_shared, set_values
from ._fit_counters import Counted, counters_of, given_to, scope_of
from ._fit_followed import Function, Plan, counted_sizes
from ._fit_later_passes import Counts, LaterPasses
from ._fit_loops import Passes
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
# Loops that are expressions, and cannot be led out of.
_COMPREHENSIONS = ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp
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
        # Lists and the like whose parts make steps of their own sizes: {(file, line): steps}; and those that do now.
        self._comprehensions, self._comprehensions_now = {}, set()
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
        within = self._comprehensions_around(sys._current_frames().get(threading.main_thread().ident))
        found += [("%s:%d" % (os.path.basename(it[0]), it[1]), self._comprehensions[it], None) for it in within]
        found += [(*it, None) for it in [self._trainers.unseen()] if it is not None]
        self._trainers.leave(self._trained)
        repeats = self._repeats.unseen.items()
        return found + [("%s:%d" % (os.path.basename(of[0]), of[1]), times, kept) for of, (kept, times) in repeats]

    def has_later(self):
        """Whether later passes of a loop are still to be made, because a size depends on them, or what a branch keeps."""
        goes_on = self._trainers.goes_on or self._repeats.goes_on or bool(self._comprehensions_now)
        return goes_on or any(it.has_later() for it in self._plans.values())

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
        self._comprehensions_now.clear()
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
                    leads |= self._is_in_comprehension(at)
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
        self._counts_sizes = any(counted_sizes(it, self._sizes, counted) for it in functions)
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
        plan = Plan(loops, later, agree, function, *of)
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

    def _is_in_comprehension(self, frame):
        """Whether a function makes a list or the like, of something that has sizes: it is not led out of that."""
        file = frame.f_code.co_filename
        found = {(file, it.lineno) for it in self._trees.around(frame, _COMPREHENSIONS) if self._goes_over_sizes(it)}
        for it in found - self._comprehensions_now:
            self._comprehensions[it] = self._comprehensions.get(it, 0) + 1
        self._comprehensions_now |= found
        return bool(found)

    def _goes_over_sizes(self, comprehension):
        return any(self._sizes.has(it.target) for it in comprehension.generators)

    def _comprehensions_around(self, frame):
        """Returns those that were seen among what a frame runs in."""
        found = set()
        while frame is not None and self._comprehensions:
            file = frame.f_code.co_filename
            if self._unknowns.is_own(file):
                found.update((file, it.lineno) for it in self._trees.around(frame, _COMPREHENSIONS))
            frame = frame.f_back
        return found & set(self._comprehensions)

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
        function = Function(node, self._counted, self._sizes, self._phases.get(code.co_filename, ()))
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
            self._within[frame] = move, self._allocations(), self._memory()[0]
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
        move, before, level = self._within.get(frame, (None, None, None))
        if move is None or event not in ("line", "return") or (event == "line" and frame.f_lineno in move.lines):
            return
        del self._within[frame]
        file = frame.f_code.co_filename
        self._repeats.left(file, move.test.line, self._memory()[0] - level)
        if self._allocations() > before:
            self._list(file, move.test)
        elif len(self._pending) < _LINES:
            self._pending.append((file, move.test, self._memory()[1]))

    def _list(self, file, test):
        if len(self.entered) < _LINES:
            line = "%s:%d" % (os.path.basename(file), test.line)
            self.entered[line] = linecache.getline(file, test.line).strip()[:120]
