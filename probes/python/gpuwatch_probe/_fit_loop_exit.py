"""Leads a job out of its training loop under `gpuwatch fit`, once the peak of training is known: so that evaluation,
checkpoints and what follows the loop are seen too.

Loaders end early (`_fit_batches.py`). In the job's own functions, an `if` that a later step would enter is entered
once, also in functions that the loop calls, and a loop ends after one more pass, as a debugger does it: by setting the
line that runs next. A loop continues while memory rises from pass to pass. Where more than tests depends on what it
counts, its last pass gets the last value (`_fit_counters.py`). Trainers that hold the loop themselves are asked to
evaluate, to save and to stop.
"""

import ast
import linecache
import os
import sys
import threading
import warnings

from ._fit_conditions import Move, set_counters, tests_of
from ._fit_counters import counters_of, inside, last_value, length, matters
from ._fit_source import SCOPES, SUITES
from ._frames import values
from ._loops import loops_around

# Passes of a loop before it ends.
_PASSES = 2
# Passes of a loop in which memory rises, and passes of one that cannot be left, at most.
_RISING, _WAITING = 50, 100
# Most entries of a list.
_LINES = 20
# The most functions whose tests are kept.
_FUNCTIONS = 2000

# Statements whose first line is that of their end too, and plain ones.
_ENDED = (ast.For, ast.AsyncFor, ast.With, ast.AsyncWith)
_PLAIN = (ast.Expr, ast.Assign, ast.AugAssign, ast.Import, ast.ImportFrom, ast.Assert, ast.Return)


class LoopExit:
    """How one process is led on."""

    def __init__(self, unknowns, trees, batches, allocations, memory):
        self._unknowns = unknowns
        # Returns how often the device's memory was allocated so far.
        self._allocations = allocations
        # Returns the allocated bytes now, and the highest reserved ones.
        self._memory = memory
        self._trees = trees
        self._batches = batches
        self._plans = {}
        # Tests of functions that loops call, by code, and what is left of them in calls that run.
        self._functions = {}
        self._first = None
        # The most passes that the loops around the step make; `None` where that is not known.
        self.passes = 1
        # Tests that were entered and allocated: {line: source}.
        self.entered = {}
        # Counters with later values, until a test's lines are left: {frame: (test, {name: value now})}.
        self._ahead = {}

    def step(self, number, frame, uses_loader):
        """Leads on after a step; returns whether anything does."""
        leads = uses_loader or any(it.leads() for it in self._plans.values())
        is_first = self._first is None
        if is_first:
            self._first = number
            self._batches.lead()
        if threading.current_thread() is not threading.main_thread():
            return leads
        at, is_inner = frame, True
        # Steps of the loops of libraries since the job's own function; `None` where that is not known. Optimizers loop over
        # their hooks.
        steps, optimizers = 1, os.path.join(os.path.dirname(sys.modules["torch.optim"].__file__), "")
        while at is not None:
            try:
                trainer = dict(values(at)).get("self")
                is_own = self._unknowns.is_own(at.f_code.co_filename)
                if is_first and not is_own and not at.f_code.co_filename.startswith(optimizers):
                    steps = _planned_steps(trainer) or (None if loops_around(at) else steps)
                leads |= self._ask(trainer, is_first)
                if is_own:
                    if is_first:
                        self._count(at, steps)
                    steps = 1
                    leads |= self._plan(at, is_inner)
                    is_inner &= not self._trees.around(at, (ast.For, ast.While))
            except Exception:
                pass
            at = at.f_back
        return leads

    # Trainers that hold the loop

    def _ask(self, it, is_first):
        """Asks a trainer to evaluate and to save, and later to stop; returns whether it is one."""
        if it is None:
            return False
        control, arguments = getattr(it, "control", None), getattr(it, "args", None)
        if hasattr(control, "should_training_stop") and hasattr(control, "should_evaluate"):
            if is_first:
                control.should_evaluate = _is_set(arguments, "eval_strategy", "evaluation_strategy")
                control.should_save = _is_set(arguments, "save_strategy")
            else:
                control.should_training_stop = True
            return True
        trainer = _trainer_of(it)
        if hasattr(trainer, "val_check_batch") and hasattr(trainer, "should_stop"):
            if is_first and isinstance(trainer.val_check_batch, (int, float)):
                trainer.val_check_batch = trainer.check_val_every_n_epoch = 1
            trainer.should_stop |= not is_first
            return True
        return False

    # The job's own loops

    def _count(self, frame, steps):
        """Counts the passes of the loops that a function is in, and the steps that libraries make in one."""
        self.passes = self.passes * steps if steps and self.passes else None
        for it in self._trees.around(frame, (ast.For, ast.While)):
            # A `for` without a length of its own goes over a loader.
            count = (length(it.iter, frame) or self._batches.round) if isinstance(it, ast.For) else 0
            self.passes = self.passes * count if count and self.passes else None

    def _plan(self, frame, is_inner):
        """Follows a function from here on if it is in a loop; returns whether that leads anywhere."""
        if frame in self._plans:
            return False
        if sys.gettrace() not in (None, self._called):
            return False
        loops = self._trees.around(frame, (ast.For, ast.While))
        if not loops:
            return False
        plan = _Plan(loops, frame.f_lineno, self._memory)
        if is_inner:
            # What each step keeps is a growth, which is known by now.
            plan.ignore_rises()
        if not plan.leads():
            return False
        self._plans[frame] = plan
        frame.f_trace = self._moved
        sys.settrace(self._called)
        return True

    def _called(self, frame, event, argument):
        """Follows a function that a loop calls, if it has tests of what the loop counts."""
        code = frame.f_code
        try:
            if code not in self._functions and len(self._functions) < _FUNCTIONS:
                is_own = self._unknowns.is_own(code.co_filename)
                self._functions[code] = self._tests_of(code) if is_own else None
            return self._moved_in_call if self._functions.get(code) else None
        except Exception:
            return None

    def _tests_of(self, code):
        """Returns the tests of a function by line."""
        names = {it.rpartition(".")[2] for plan in self._plans.values() for it in plan.counters}
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        for it in self._trees.of(code.co_filename):
            # The first line of code is that of a decorator.
            first = min([one.lineno for one in getattr(it, "decorator_list", [])] + [getattr(it, "lineno", 0)])
            if isinstance(it, functions) and it.name == code.co_name and first == code.co_firstlineno:
                return tests_of(it, counters_of([], it, names), ())
        return None

    def _moved_in_call(self, frame, event, argument):
        self._come_back(frame, event)
        if event == "line":
            try:
                tests = self._functions[frame.f_code]
                test = tests.get(frame.f_lineno)
                move = test and test.move(frame)
                if move:
                    del tests[frame.f_lineno]
                    self._go(frame, move)
                    self._note_entered(frame, test)
            except Exception:
                pass
        return self._moved_in_call

    def _go(self, frame, move):
        if move.to is None:
            self._ahead[frame] = move.test, set_counters(frame, move.ahead)
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if move.beside is not None:
                frame.f_lineno = move.beside
            frame.f_lineno = move.to

    def _come_back(self, frame, event):
        """Gives counters their values again, once a test's lines are left."""
        test, before = self._ahead.get(frame, (None, None))
        if test is None or (event == "line" and test.has(frame.f_lineno)) or event not in ("line", "return"):
            return
        del self._ahead[frame]
        if event == "line" or any("." in it for it in before):
            set_counters(frame, before)

    def _moved(self, frame, event, argument):
        plan = self._plans.get(frame)
        if plan is None:
            return None
        self._come_back(frame, event)
        if event == "return":
            del self._plans[frame]
            if not self._plans:
                sys.settrace(None)
            return None
        if event == "line":
            try:
                self._note(plan, frame)
                move = plan.next(frame)
                if move is not None:
                    self._go(frame, move)
                    plan.within = move.test and (move.test, self._allocations())
                else:
                    plan.count(frame)
            except Exception:
                pass
        return self._moved

    def _note(self, plan, frame):
        """Lists a test whose branch has been left, if it allocated."""
        if plan.within is None or plan.within[0].has(frame.f_lineno):
            return
        test, before = plan.within
        plan.within = None
        if self._allocations() > before:
            self._note_entered(frame, test)

    def _note_entered(self, frame, test):
        if len(self.entered) < _LINES:
            file = frame.f_code.co_filename
            line = "%s:%d" % (os.path.basename(file), test.line)
            self.entered[line] = linecache.getline(file, test.line).strip()[:120]


class _Plan:
    """Loops and tests of a running function."""

    def __init__(self, loops, line, memory):
        # The test that was entered, and the allocations before.
        self.within = None
        self._memory = memory
        self._loops = [_Loop(it) for it in loops]
        self._headers = {it.header: it for it in self._loops}
        self._bodies = {it.body: it for it in self._loops}
        self._besides = {it.after: it.beside for it in self._loops}
        self.counters = counters_of(loops)
        # What is in a branch already needs no help.
        self._tests = tests_of(loops[0], self.counters, (line,))
        # The line to go to from the next one.
        self._then = None
        # Tests that only one step passes, and that have been entered.
        self._passed = {}

    def ignore_rises(self):
        """Leaves the innermost loop also while memory rises."""
        self._loops[-1].rises = _RISING

    def leads(self):
        """Whether there is anything to enter or to leave yet."""
        has_tests = bool(self._tests) and self._loops[-1].passes < _PASSES
        return has_tests or any(it.leads() for it in self._loops if it.after not in self._headers)

    def next(self, frame):
        """Returns where to go from here; `None` to go on."""
        line = frame.f_lineno
        if self._then is not None:
            then, self._then = self._then, None
            return Move(then)
        test = self._tests.get(line)
        move = test and test.move(frame)
        if move:
            del self._tests[line]
            if test.is_once and test.other is not None:
                self._passed[line] = test
            return move
        test = self._passed.get(line)
        if test is not None and test.is_now(frame):
            return Move(test.other)
        loop = self._headers.get(line)
        to = loop and self._pass(loop, frame)
        return Move(to, beside=self._besides.get(to)) if to is not None else None

    def _pass(self, loop, frame):
        """Counts a pass of a loop; returns where to go if it was the last one."""
        for inner in self._loops[self._loops.index(loop) + 1 :]:
            inner.passes = 0
        if not loop.ends(self._memory(), frame):
            return None
        # A line to which one goes is not met again.
        outer = self._headers.get(loop.after)
        if outer is None:
            self._then = loop.after if loop.via is not None else None
            return loop.via or loop.after
        to = self._pass(outer, frame)
        return loop.after if to is None and not outer.is_over else to

    def count(self, frame):
        """Gives the last pass of a loop the last value of what it counts."""
        loop = self._bodies.get(frame.f_lineno)
        if loop is not None and loop.last is not None:
            value, loop.last = loop.last, None
            set_counters(frame, {loop.name: value})


class _Loop:
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
        self._iterated = getattr(loop, "iter", None)
        # The most memory at its header, in how many passes that rose, and whether it did in the latest.
        self._memory, self.rises, self._is_rising = None, 0, False

    def leads(self):
        """Whether it is still to be left."""
        if self.counter is not None or self.last is not None or self._waits > 0:
            return True
        return self.after is not None and (self.passes <= _PASSES or self._is_rising)

    def ends(self, memory, frame):
        """Counts a pass at the loop's header; returns whether it was the last one."""
        self.passes += 1
        self._waits -= 1
        before = self._memory
        self._is_rising = before is not None and any(a > b for a, b in zip(memory, before)) and self.rises < _RISING
        # Other ranks have other figures, and must make as many passes.
        self._is_rising &= int(os.environ.get("WORLD_SIZE") or 1) == 1
        self.rises += self._is_rising
        self._memory = memory if before is None else tuple(max(a, b) for a, b in zip(memory, before))
        if self.passes < _PASSES or self._is_rising:
            return False
        counter, self.counter = self.counter, None
        if counter is not None:
            self.last, self.name = last_value(self._iterated, frame), counter
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


def _trainer_of(it):
    """Returns a trainer that validates by itself: this one, or that of one of its loops."""
    return it if hasattr(it, "val_check_batch") else getattr(it, "trainer", None)


def _planned_steps(trainer):
    """Returns how many steps a trainer makes at most; 0 where it does not say."""
    most = getattr(getattr(trainer, "state", None), "max_steps", 0)
    if isinstance(most, int) and most > 0 and hasattr(trainer, "control"):
        return most
    trainer = _trainer_of(trainer)
    if not hasattr(trainer, "val_check_batch"):
        return 0
    if trainer.max_steps > 0:
        return trainer.max_steps
    batches, epochs = trainer.num_training_batches, trainer.max_epochs
    return epochs * batches if isinstance(epochs, int) and isinstance(batches, int) and epochs > 0 else 0


def _is_set(arguments, *names):
    """Whether a strategy of a trainer is anything but none."""
    for name in names:
        strategy = getattr(arguments, name, None)
        if strategy is not None:
            return str(getattr(strategy, "value", strategy)) != "no"
    return False
