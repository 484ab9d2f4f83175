"""Finds which way a branch on a value that was not computed keeps a program training.

The statement around the read decides: an assertion holds, a branch that leaves (`raise`, `continue`, `break`, `return`)
is not taken, one that trains is, and a loop continues.
"""

import ast

from ._fit_sizes import sizes
from ._fit_source import called, contains, position_of, stored

_LEAVES = (ast.Raise, ast.Continue, ast.Break, ast.Return)
# Methods that only training calls.
_TRAINS = ("backward", "step")
# What fails with 0.
_DIVIDE, _LOGARITHMS = (ast.Div, ast.FloorDiv, ast.Mod), ("log", "log2", "log10")
# The most callers through which a returned value is followed.
_DEPTH = 8
# The most files whose statements are kept.
_FILES = 200


class Branches:
    """The tests of the files that have been asked for."""

    def __init__(self, trees):
        self._trees = trees
        self._files = {}

    def wanted(self, frame):
        """Returns the truth of the value that this frame reads at its current place; `None` where nothing shows it."""
        found = self._at(frame)
        return found and _wanted(found)

    def decides(self, frame):
        """Whether what the frame reads is about to decide a branch, there or in its caller."""
        return self._at(frame) is not None

    def is_high(self, frame):
        """Whether a number that this frame compares in a test should be large; `None` where nothing shows it."""
        found = self._at(frame)
        goal = found and _wanted(found)
        if goal is None or not isinstance(found.leaf, ast.Compare) or len(found.leaf.ops) != 1:
            return None
        order = found.leaf.ops[0]
        if not isinstance(order, (ast.Gt, ast.GtE, ast.Lt, ast.LtE)):
            return None
        is_left = contains(found.leaf.left, found.position)
        return (isinstance(order, (ast.Gt, ast.GtE)) == is_left) == goal

    def may_repeat(self, frame):
        """Whether a loop may continue for as long as this read gets the same answer."""
        found = self._at(frame)
        if found is not None:
            statement = found.statement
            if not isinstance(statement, ast.If):
                return isinstance(statement, ast.While)
            ends = statement.body[-1:] + statement.orelse[-1:]
            return any(isinstance(it, (ast.Break, ast.Return)) for it in ends)
        line = frame.f_lineno
        around = [it for it in self._of(frame.f_code.co_filename)[1] if it.lineno <= line <= it.end_lineno]
        loop = max(around, key=lambda it: it.lineno, default=None)
        if not isinstance(loop, ast.While):
            return False
        names = {it.id for it in ast.walk(loop.test) if isinstance(it, ast.Name)}
        stored = {
            it.id
            for it in ast.walk(loop)
            if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Store) and it.lineno == line
        }
        return isinstance(loop.test, ast.Constant) or bool(names & stored)

    def sizes(self, frame):
        """Whether the number that this frame reads becomes a size: in a slice or in a call that makes a tensor, there
        or by the name that it is assigned to."""
        return self._is_within(frame, self._of(frame.f_code.co_filename)[3])

    def divides(self, frame):
        """Whether the number that this frame reads must not be 0: something is divided by it, or its logarithm taken."""
        return self._is_within(frame, self._of(frame.f_code.co_filename)[4])

    def _is_within(self, frame, parts):
        """Whether a frame reads in one of these expressions, or what is assigned to a name in them."""
        position = position_of(frame)
        expressions, names = parts
        if any(contains(it, position) for it in expressions):
            return True
        stores = self._of(frame.f_code.co_filename)[5]
        return any(contains(value, position) and target in names for value, target in stores)

    def _at(self, frame, depth=_DEPTH):
        """Returns the innermost test that reads here, or whose call returns what is read here."""
        position = position_of(frame)
        file = self._of(frame.f_code.co_filename)
        test = _innermost([it for it in file[0] if contains(it.test, position)], lambda it: it.test)
        if test is not None:
            leaf, is_inverse = _leaf(test.test, position)
            return _Found(test, leaf, is_inverse, position)
        back = _innermost([it for it in file[2] if contains(it.value, position)], lambda it: it.value)
        found = self._at(frame.f_back, depth - 1) if back is not None and depth and frame.f_back is not None else None
        if found is None:
            return None
        leaf, is_inverse = _leaf(back.value, position)
        if isinstance(leaf, (ast.Dict, ast.List, ast.Tuple, ast.BinOp)):
            return None
        if isinstance(leaf, ast.Compare):
            found.leaf, found.position = leaf, position
        found.is_inverse ^= is_inverse
        return found

    def _of(self, file):
        """Returns the statements with a test, the loops, the returns, what sizes are made of, and divisors, each with the
        names in them, and (value, name) of assignments."""
        found = self._files.get(file)
        if found is None:
            all_ = self._trees.of(file)
            found = (
                [it for it in all_ if isinstance(it, (ast.If, ast.While, ast.Assert, ast.IfExp))],
                [it for it in all_ if isinstance(it, (ast.For, ast.While))],
                [it for it in all_ if isinstance(it, ast.Return) and it.value is not None],
                _with_names(sizes(all_)),
                _with_names(_divisors(all_)),
                [pair for it in all_ if isinstance(it, ast.Assign) for one in it.targets for pair in stored(one, it.value)],
            )
            if len(self._files) >= _FILES:
                self._files.clear()
            self._files[file] = found
        return found


class _Found:
    """A statement whose test reads a value: the expression that reads, whether the test inverts it, its place."""

    def __init__(self, statement, leaf, is_inverse, position):
        self.statement, self.leaf, self.is_inverse, self.position = statement, leaf, is_inverse, position


def _innermost(all_, of):
    return max(all_, key=lambda it: (of(it).lineno, of(it).col_offset), default=None)


def _leaf(at, position):
    """Returns the operand of `not`, `and` and `or` that is read there, and whether they invert it."""
    is_inverse = False
    while True:
        is_not = isinstance(at, ast.UnaryOp) and isinstance(at.op, ast.Not)
        is_inverse ^= is_not
        operands = [at.operand] if is_not else at.values if isinstance(at, ast.BoolOp) else []
        inner = next((it for it in operands if contains(it, position)), None)
        if inner is None:
            return at, is_inverse
        at = inner


def _divisors(all_):
    """Yields the expressions that must not be 0."""
    for it in all_:
        if isinstance(getattr(it, "op", None), _DIVIDE):
            yield it.right if isinstance(it, ast.BinOp) else it.value
        elif called(it) in _LOGARITHMS:
            yield from it.args[:1]


def _with_names(expressions):
    expressions = list(expressions)
    return expressions, {it.id for one in expressions for it in ast.walk(one) if isinstance(it, ast.Name)}


def _wanted(found):
    goal = _goal(found.statement)
    return goal if goal is None else goal != found.is_inverse


def _goal(statement):
    if isinstance(statement, (ast.Assert, ast.While)):
        return True
    if not isinstance(statement, ast.If):
        return None
    body, other = statement.body, statement.orelse
    if _leaves(body) != _leaves(other):
        return _leaves(other)
    if _calls(body, _TRAINS) != _calls(other, _TRAINS):
        return _calls(body, _TRAINS)
    # What is done beside takes memory; a flag may skip what follows.
    if not other and not _leaves(body) and not _sets_flag(body):
        return True
    return None


def _leaves(body):
    """Whether statements end by leaving, or leave the program."""
    return bool(body) and (isinstance(body[-1], _LEAVES) or _refuses(body[-1]) or _calls(body, ("exit", "_exit")))


def _refuses(statement):
    """Whether a statement asserts what is never true."""
    if isinstance(statement, ast.Assert):
        return isinstance(statement.test, ast.Constant) and not statement.test.value
    call = getattr(statement, "value", None)
    if not isinstance(call, ast.Call) or not call.args:
        return False
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    return "assert" in name and isinstance(call.args[0], ast.Constant) and not call.args[0].value


def _calls(body, names):
    for statement in body:
        for it in ast.walk(statement):
            if called(it) in names:
                return True
    return False


def _sets_flag(body):
    for statement in body:
        for it in ast.walk(statement):
            value = getattr(it, "value", None) if isinstance(it, (ast.Assign, ast.AnnAssign)) else None
            if isinstance(value, ast.Constant):
                return True
    return False
