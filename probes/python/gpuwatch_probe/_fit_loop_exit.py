"""Leads a job out of its training loop under `gpuwatch fit`, once the peak of training is known: so that evaluation,
checkpoints and what follows the loop are seen too.

Loaders end early (`_fit_batches.py`). In the job's own functions, an `if` that a later step would enter is entered
once, and a loop ends after one more pass, as a debugger does it: by setting the line that runs next. Trainers that
hold the loop themselves are asked to evaluate, to save and to stop.
"""

import ast
import linecache
import os
import sys
import threading
import warnings

from ._fit_source import SCOPES

# Passes of a loop before it ends.
_PASSES = 2
# Later values of a counter that are tried.
_LATER = 100_000
# Most entries of a list.
_LINES = 20

_LEAVES = (ast.Raise, ast.Continue, ast.Break, ast.Return)
# What may be evaluated in place of the job.
_PURE = (
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Constant,
    ast.Compare,
    ast.BoolOp,
    ast.BinOp,
    ast.UnaryOp,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
    ast.boolop,
)
# Stands for a counter.
_COUNTER = "_counter"


class LoopExit:
    """How one process is led on."""

    def __init__(self, unknowns, trees, batches, allocations):
        self._unknowns = unknowns
        # Returns how often the device's memory was allocated so far.
        self._allocations = allocations
        self._trees = trees
        self._batches = batches
        self._plans = {}
        self._first = None
        # Tests that were entered and allocated: {line: source}.
        self.entered = {}

    def step(self, number, frame, uses_loader):
        """Leads on after a step; returns whether anything does."""
        leads = uses_loader or any(it.leads() for it in self._plans.values())
        is_first = self._first is None
        if is_first:
            self._first = number
            self._batches.lead()
        if threading.current_thread() is not threading.main_thread():
            return leads
        at = frame
        while at is not None:
            try:
                leads |= self._ask(at.f_locals.get("self"), is_first)
                if self._unknowns.is_own(at.f_code.co_filename):
                    leads |= self._plan(at)
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

    def _plan(self, frame):
        """Follows a function from here on if it is in a loop; returns whether that leads anywhere."""
        if frame in self._plans:
            return False
        if sys.gettrace() not in (None, self._called):
            return False
        loops = self._trees.around(frame, (ast.For, ast.While))
        if not loops:
            return False
        plan = _Plan(loops, frame.f_lineno)
        if not plan.leads():
            return False
        self._plans[frame] = plan
        frame.f_trace = self._moved
        sys.settrace(self._called)
        return True

    def _called(self, frame, event, argument):
        return None

    def _moved(self, frame, event, argument):
        plan = self._plans.get(frame)
        if plan is None:
            return None
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
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        frame.f_lineno = move.to
                    plan.within = move.test and (move.test, self._allocations())
            except Exception:
                pass
        return self._moved


    def _note(self, plan, frame):
        """Lists a test whose branch has been left, if it allocated."""
        if plan.within is None or plan.within[0].has(frame.f_lineno):
            return
        test, before = plan.within
        plan.within = None
        if self._allocations() > before and len(self.entered) < _LINES:
            file = frame.f_code.co_filename
            line = "%s:%d" % (os.path.basename(file), test.line)
            self.entered[line] = linecache.getline(file, test.line).strip()[:120]


class _Move:
    """The line to go to, and the test whose branch is entered there."""

    def __init__(self, to, test=None):
        self.to, self.test = to, test


class _Plan:
    """Loops and tests of a running function."""

    def __init__(self, loops, line):
        # The test that was entered, and the allocations before.
        self.within = None
        self._loops = [_Loop(it) for it in loops]
        self._headers = {it.header: it for it in self._loops}
        counters = _counters(loops)
        self._tests = {}
        for it in _inside(loops[0]):
            if isinstance(it, ast.If) and it.body[0].lineno > it.test.end_lineno and not _is_plain(it.body):
                test = _Test(it, counters)
                # What is in a branch already needs no help.
                if test.counts and not test.has(line):
                    self._tests[it.lineno] = test

    def leads(self):
        """Whether there is anything to enter or to leave yet."""
        has_tests = bool(self._tests) and self._loops[-1].passes < _PASSES
        return has_tests or any(it.after is not None and it.passes <= _PASSES for it in self._loops)

    def next(self, frame):
        """Returns where to go from here; `None` to go on."""
        line = frame.f_lineno
        test = self._tests.get(line)
        if test is not None and test.is_due(frame):
            del self._tests[line]
            return _Move(test.body, test)
        loop = self._headers.get(line)
        if loop is None:
            return None
        loop.passes += 1
        at = self._loops.index(loop)
        for inner in self._loops[at + 1 :]:
            inner.passes = 0
        return _Move(loop.after) if loop.passes >= _PASSES and loop.after is not None else None


class _Loop:
    """Where a loop begins again, what follows it, and how often it was passed."""

    def __init__(self, loop):
        is_endless = isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant)
        self.header = loop.body[0].lineno if is_endless else loop.lineno
        self.after = _after(loop)
        self.passes = 0


class _Test:
    """An `if` whose test depends on what a loop counts."""

    def __init__(self, statement, counters):
        self.line, self.body, self._last = statement.lineno, statement.body[0].lineno, statement.body[-1].end_lineno
        test = statement.test
        parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        self._parts = [_Part(it, counters) for it in parts]
        self.counts = any(it.counter is not None for it in self._parts)

    def has(self, line):
        """Whether a line is in the branch."""
        return self.body <= line <= self._last

    def is_due(self, frame):
        """Whether the test is false now and true for later values of what it counts."""
        all_ = [it.truth(frame) for it in self._parts]
        return None not in all_ and LATER in all_


NOW, LATER = "now", "later"


class _Part:
    """One operand of `and`."""

    def __init__(self, test, counters):
        found = [it for it in ast.walk(test) if isinstance(it, (ast.Name, ast.Attribute)) and _text(it) in counters]
        names = {_text(it) for it in found}
        self.counter = names.pop() if len(names) == 1 else None
        self._values = counters.get(self.counter)
        self._is_pure = not names and all(map(_is_pure, ast.walk(test)))
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
        for later in self._values(scope, now):
            scope[_COUNTER] = later
            if eval(self._counted, scope):
                return LATER
        return None


class _Counted(ast.NodeTransformer):
    """Puts a name of our own in the place of a counter."""

    def __init__(self, counter):
        self._counter = counter

    def visit(self, node):
        if isinstance(node, (ast.Name, ast.Attribute)) and _text(node) == self._counter:
            return ast.Name(_COUNTER, ast.Load())
        return self.generic_visit(node)


def _inside(loop):
    """Yields the nodes inside of a loop, without functions that it defines."""
    for child in ast.iter_child_nodes(loop):
        if not isinstance(child, SCOPES):
            yield child
            yield from _inside(child)


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
        node = above


def _counters(loops):
    """Returns what loops count: {its text: function of scope and value that yields later values}."""
    counters = {}

    def upwards(scope, now):
        return range(now + 1, now + _LATER)

    for loop in loops:
        for it in _inside(loop):
            if isinstance(it, ast.AugAssign) and isinstance(it.op, ast.Add):
                counters[_text(it.target)] = upwards
            elif isinstance(it, ast.Assign) and isinstance(it.value, ast.BinOp) and isinstance(it.value.op, ast.Add):
                if _text(it.targets[0]) == _text(it.value.left):
                    counters[_text(it.targets[0])] = upwards
    for loop in loops:
        target = getattr(loop, "target", None)
        if isinstance(target, ast.Tuple) and target.elts:
            target = target.elts[0]
        if isinstance(target, ast.Name):
            counters[target.id] = _values(loop.iter)
    counters.pop(None, None)
    return counters


def _values(iterated):
    """Returns the function that yields the values which `range` or `enumerate` give after one."""

    def values(scope, now):
        at = iterated
        # As in `tqdm(range(9))`.
        while isinstance(at, ast.Call) and _text(at.func) not in ("range", "enumerate") and at.args:
            at = at.args[0]
        most = range(now + 1, now + _LATER)
        if not isinstance(at, ast.Call):
            return most
        try:
            if _text(at.func) == "range":
                bounds = [_pure_value(it, scope) for it in at.args]
                return range(now + 1, min(range(*bounds)[-1] + 1, now + _LATER))
            return range(now + 1, min(len(_pure_value(at.args[0], scope)), now + _LATER))
        except Exception:
            return most

    return values


def _pure_value(node, scope):
    if not all(map(_is_pure, ast.walk(node))):
        raise ValueError
    return eval(compile(ast.Expression(node), "<value>", "eval"), scope)


def _is_pure(node):
    if isinstance(node, ast.Call):
        return _text(node.func) == "len" and not node.keywords
    return isinstance(node, _PURE)


def _text(node):
    """Returns `step` or `self.step`; `None` of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _text(node.value)
        return inner and "%s.%s" % (inner, node.attr)
    return None


def _is_plain(body):
    """Whether a branch leaves, or does nothing but print."""
    prints = (isinstance(it, ast.Expr) and _text(getattr(it.value, "func", None)) == "print" for it in body)
    return isinstance(body[-1], _LEAVES) or all(prints)


def _is_set(arguments, *names):
    """Whether a strategy of a trainer is anything but none."""
    for name in names:
        strategy = getattr(arguments, name, None)
        if strategy is not None:
            return str(getattr(strategy, "value", strategy)) != "no"
    return False
