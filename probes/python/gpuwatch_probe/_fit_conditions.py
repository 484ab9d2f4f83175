"""Tests of what a loop counts: whether a later value would enter a branch, and how to enter it now."""

import ast
import builtins
import ctypes
import inspect
import sys

from ._fit_counters import inside, is_pure, scope_of, text
from ._fit_source import SUITES
from ._frames import values

_LEAVES = (ast.Raise, ast.Continue, ast.Break, ast.Return)
# Stands for a counter.
_COUNTER = "_counter"


class Move:
    """The line to go to, by another one where that is necessary, and the test whose branch is entered there. A branch on
    the line of its test is entered with later values of counters."""

    def __init__(self, to, test=None, ahead=None, beside=None):
        self.to, self.test, self.ahead, self.beside = to, test, ahead, beside


def tests_of(around, counters, lines):
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
            return Move(self.other, self) if self._parts[0].is_false_later(frame) else None
        all_ = [it.truth(frame) for it in self._parts]
        if None in all_ or LATER not in all_:
            return None
        self.is_once = any(it.is_once for it in self._parts)
        if not self._is_line:
            return Move(self.body, self)
        parts = [it for it, truth in zip(self._parts, all_) if truth == LATER]
        ahead = {it.counter: it.later for it in parts}
        # Two tests of one counter have to agree on its value.
        return Move(None, self, ahead) if len(ahead) == len(parts) else None

    def is_now(self, frame):
        """Whether the test is true."""
        return all(it.truth(frame) == NOW for it in self._parts)


def _other(statement):
    """Returns the line that runs if a test is false, of the statements beside it."""
    if statement.orelse:
        return statement.orelse[0].lineno
    for name in SUITES:
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
        scope = scope_of(frame)
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
        scope = scope_of(frame)
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


def set_counters(frame, counters):
    """Gives local variables and attributes other values, as a function that runs sees them; returns those before."""
    held, places = dict(values(frame)) or frame.f_globals, {}
    for name in counters:
        owner, _, attribute = name.rpartition(".")
        # What is no plain attribute is left alone.
        places[name] = vars(eval(owner, frame.f_globals, held)) if owner else held, attribute
    before = {name: of[attribute] for name, (of, attribute) in places.items()}
    for name, (of, attribute) in places.items():
        of[attribute] = counters[name]
    own = {name: counters[name] for name in counters if "." not in name}
    if own and held is not frame.f_globals:
        _set_variables(frame, own)
    return before


def _set_variables(frame, own):
    """Sets variables of a function that runs."""
    held = frame.f_locals
    held.update(own)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        if sys.version_info >= (3, 11):
            # It would keep what the job releases. In earlier releases, each event renews it.
            held.clear()
