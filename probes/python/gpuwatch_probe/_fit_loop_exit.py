"""Leads a job out of its training loop under `gpuwatch fit`, once the peak of training is known: so that evaluation,
checkpoints and what follows the loop are seen too.

Loaders end early (`_fit_batches.py`). In the job's own functions, an `if` that a later step would enter is entered
once, also in functions that the loop calls, and a loop ends after one more pass, as a debugger does it: by setting the
line that runs next. A loop continues while memory rises from pass to pass. Where more than tests depends on what it
counts, its last pass gets the last value (`_fit_counters.py`). Trainers that hold the loop themselves are asked to
evaluate, to save and to stop.
"""

import ast
import builtins
import ctypes
import linecache
import os
import sys
import threading
import warnings

from ._fit_counters import counters_of, inside, is_pure, last_value, length, matters, text
from ._fit_source import SCOPES
from ._loops import loops_around

# Passes of a loop before it ends.
_PASSES = 2
# Passes of a loop in which memory rises, and passes of one that cannot be left, at most.
_RISING, _WAITING = 50, 100
# Most entries of a list.
_LINES = 20
# The most functions whose tests are kept.
_FUNCTIONS = 2000

_LEAVES = (ast.Raise, ast.Continue, ast.Break, ast.Return)
# Stands for a counter.
_COUNTER = "_counter"


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
                trainer = at.f_locals.get("self")
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
        trainer = it if hasattr(it, "val_check_batch") else getattr(it, "trainer", None)
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
                return _tests(it, counters_of([], it, names), ())
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
            self._ahead[frame] = move.test, {name: frame.f_locals[name] for name in move.ahead}
            _set_locals(frame, move.ahead)
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame.f_lineno = move.to

    def _come_back(self, frame, event):
        """Gives counters their values again, once a test's lines are left."""
        test, values = self._ahead.get(frame, (None, None))
        if test is None or (event == "line" and test.has(frame.f_lineno)) or event not in ("line", "return"):
            return
        del self._ahead[frame]
        if event == "line":
            _set_locals(frame, values)

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


def _set_locals(frame, values):
    """Gives local variables of a function that runs other values."""
    frame.f_locals.update(values)
    if sys.version_info < (3, 13):
        # Otherwise the next look at them would undo it.
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


class _Move:
    """The line to go to, and the test whose branch is entered there. A branch on the line of its test is entered with
    later values of counters."""

    def __init__(self, to, test=None, ahead=None):
        self.to, self.test, self.ahead = to, test, ahead


class _Plan:
    """Loops and tests of a running function."""

    def __init__(self, loops, line, memory):
        # The test that was entered, and the allocations before.
        self.within = None
        self._memory = memory
        self._loops = [_Loop(it) for it in loops]
        self._headers = {it.header: it for it in self._loops}
        self._bodies = {it.body: it for it in self._loops}
        self.counters = counters_of(loops)
        # What is in a branch already needs no help.
        self._tests = _tests(loops[0], self.counters, (line,))
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
            return _Move(then)
        test = self._tests.get(line)
        move = test and test.move(frame)
        if move:
            del self._tests[line]
            if test.is_once and test.other is not None:
                self._passed[line] = test
            return move
        test = self._passed.get(line)
        if test is not None and test.is_now(frame):
            return _Move(test.other)
        loop = self._headers.get(line)
        to = loop and self._pass(loop, frame)
        return _Move(to) if to is not None else None

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
            _set_locals(frame, {loop.name: value})


class _Loop:
    """Where a loop begins again, what follows it, and how often it was passed."""

    def __init__(self, loop):
        self.header = _header(loop)
        self.body = loop.body[0].lineno
        self.after = _after(loop)
        # A `with` has the line of its end too, which would take the iterator of a `for` for its context. So one goes to
        # a statement that changes nothing first, where there is one.
        self.via, self._waits = None, 0
        if isinstance(loop, ast.For) and _is_context(loop, self.after):
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


def _tests(around, counters, lines):
    """Returns the tests of counters inside of a loop or a function by line, but for branches with these lines."""
    tests = {}
    for it in inside(around):
        if isinstance(it, ast.If):
            test = _Test(it, counters)
            if test.counts and not any(map(test.has, lines)) and (test.is_guard or not _is_plain(it.body)):
                tests[it.lineno] = test
    return tests


class _Test:
    """An `if` whose test depends on what a loop counts."""

    def __init__(self, statement, counters):
        self.line, self.body, self._last = statement.lineno, statement.body[0].lineno, statement.body[-1].end_lineno
        test = statement.test
        # Whether no line begins with the branch.
        self._is_line = self.body <= test.end_lineno
        parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        self._parts = [_Part(it, counters) for it in parts]
        self.counts = any(it.counter is not None for it in self._parts)
        # The line that follows if the test is false.
        self.other = _other(statement)
        # Whether it leaves what follows out, as `if step % 100: continue`.
        leaves = isinstance(statement.body[-1], (ast.Continue, ast.Return)) and not statement.orelse
        self.is_guard = leaves and len(parts) == 1 and self.other is not None
        # Whether only one step passes it.
        self.is_once = False

    def has(self, line):
        """Whether a line is in the branch."""
        return self.body <= line <= self._last

    def move(self, frame):
        """Returns how to go on if the test is false now and true for later values of what it counts."""
        if self.is_guard:
            return _Move(self.other, self) if self._parts[0].is_false_later(frame) else None
        all_ = [it.truth(frame) for it in self._parts]
        if None in all_ or LATER not in all_:
            return None
        self.is_once = any(it.is_once for it in self._parts)
        if not self._is_line:
            return _Move(self.body, self)
        parts = [it for it, truth in zip(self._parts, all_) if truth == LATER]
        ahead = {it.counter: it.later for it in parts}
        # Two tests of one counter have to agree on its value.
        is_known = len(ahead) == len(parts) and all(it.isidentifier() for it in ahead)
        return _Move(None, self, ahead) if is_known else None

    def is_now(self, frame):
        """Whether the test is true."""
        return all(it.truth(frame) == NOW for it in self._parts)


def _other(statement):
    """Returns the line that runs if a test is false, of the statements beside it."""
    if statement.orelse:
        return statement.orelse[0].lineno
    for name in ("body", "orelse", "finalbody"):
        suite = getattr(statement.above, name, None)
        if isinstance(suite, list) and statement in suite[:-1]:
            return suite[suite.index(statement) + 1].lineno
    return None


NOW, LATER = "now", "later"


class _Part:
    """One operand of `and`."""

    def __init__(self, test, counters):
        found = [it for it in ast.walk(test) if isinstance(it, (ast.Name, ast.Attribute)) and text(it) in counters]
        names = {text(it) for it in found}
        self.counter = names.pop() if len(names) == 1 else None
        self._values = counters.get(self.counter)
        self._is_pure = not names and all(map(is_pure, ast.walk(test)))
        # The first later value that passes it, and whether no other one does.
        self.later, self.is_once = None, False
        self._code = self._counted = None
        if self._is_pure:
            self._code = compile(ast.Expression(test), "<test>", "eval")
            counted = _Counted(self.counter).visit(ast.parse(ast.unparse(test), mode="eval"))
            self._counted = compile(ast.fix_missing_locations(counted), "<test>", "eval")

    def truth(self, frame):
        """`NOW`, `LATER`, or `None`: whether it is true."""
        if not self._is_pure:
            return None
        scope = {**frame.f_globals, **frame.f_locals}
        if self.counter is None:
            value = eval(self._code, scope)
            # A tensor's truth would have to be read.
            return NOW if not hasattr(value, "is_cuda") and value else None
        now = eval(self.counter, scope)
        if type(now) is not int:
            return None
        if eval(self._code, scope):
            return NOW
        later = self._later(scope, now, True)
        self.later = next(later, None)
        if self.later is None:
            return None
        self.is_once = next(later, None) is None
        return LATER

    def is_false_later(self, frame):
        """Whether it is true, and false for a later value."""
        if self.truth(frame) != NOW or self.counter is None:
            return False
        scope = {**frame.f_globals, **frame.f_locals}
        return next(self._later(scope, eval(self.counter, scope), False), None) is not None

    def _later(self, scope, now, truth):
        """Yields the later values for which it is so."""
        for later in self._values(scope, now):
            scope[_COUNTER] = later
            if bool(eval(self._counted, scope)) == truth:
                yield later


class _Counted(ast.NodeTransformer):
    """Puts a name of our own in the place of a counter."""

    def __init__(self, counter):
        self._counter = counter

    def visit(self, node):
        if isinstance(node, (ast.Name, ast.Attribute)) and text(node) == self._counter:
            return ast.Name(_COUNTER, ast.Load())
        return self.generic_visit(node)


def _after(loop):
    """Returns the line of the statement that follows a loop, or the loops that it ends; `None` where there is none."""
    node = loop
    while True:
        above = node.above
        for name in ("body", "orelse", "finalbody"):
            suite = getattr(above, name, None)
            if isinstance(suite, list) and node in suite:
                rest = suite[suite.index(node) + 1 :]
                if rest:
                    first = rest[0]
                    decorators = getattr(first, "decorator_list", [])
                    return decorators[0].lineno if decorators else first.lineno
        # What is around must be left as it would be by itself.
        if not isinstance(above, (ast.If, ast.For, ast.While)):
            return None
        if isinstance(above, (ast.For, ast.While)) and (matters(above) is not None or _after(above) is None):
            # Another pass of it, although a `for` then begins anew.
            return _header(above)
        node = above


def _is_context(loop, line):
    """Whether the statement of a line after a loop is a `with`."""
    function = loop
    while not isinstance(function, SCOPES):
        function = function.above
    return any(isinstance(it, (ast.With, ast.AsyncWith)) and it.lineno == line for it in inside(function))


def _harmless(loop):
    """Returns the line of a statement beside a loop and before it that may run once more; `None` where there is none."""
    suites = (getattr(loop.above, name, None) for name in ("body", "orelse", "finalbody"))
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


def _is_plain(body):
    """Whether a branch leaves, or does nothing but print what is there."""
    return isinstance(body[-1], _LEAVES) or all(map(_prints, body))


def _prints(statement):
    """Whether a statement prints without a call of a function that is no builtin."""
    call = getattr(statement, "value", None)
    if not isinstance(statement, ast.Expr) or text(getattr(call, "func", None)) != "print":
        return False
    names = [it.func.id for it in ast.walk(call) if isinstance(it, ast.Call) and isinstance(it.func, ast.Name)]
    return all(hasattr(builtins, it) for it in names)


def _planned_steps(trainer):
    """Returns how many steps a trainer makes at most; 0 where it does not say."""
    most = getattr(getattr(trainer, "state", None), "max_steps", 0)
    if isinstance(most, int) and most > 0 and hasattr(trainer, "control"):
        return most
    trainer = trainer if hasattr(trainer, "val_check_batch") else getattr(trainer, "trainer", None)
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
