"""What a loop counts, which values come later, and whether more than tests depends on it."""

import ast

from ._fit_source import SCOPES
from ._frames import values

# Later values of a counter that are tried.
_LATER = 100_000
_COUNTS = ("range", "enumerate")
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
# Statements that are no part of an expression.
_LEAVES = (ast.Raise, ast.Continue, ast.Break, ast.Return)


def inside(loop):
    """Yields the nodes inside of a loop, without functions that it defines."""
    for child in ast.iter_child_nodes(loop):
        if not isinstance(child, SCOPES):
            yield child
            yield from inside(child)


def counters_of(loops, function=None, names=()):
    """Returns what loops count: {its text: function of scope and value that yields later values}.

    Of a function that a loop calls, these are the parameters and attributes with the names of what the loop counts.
    """
    counters = {}

    def upwards(scope, now):
        return range(now + 1, now + _LATER)

    for loop in loops:
        for it in inside(loop):
            if isinstance(it, ast.AugAssign) and isinstance(it.op, ast.Add):
                counters[text(it.target)] = upwards
            elif isinstance(it, ast.Assign) and isinstance(it.value, ast.BinOp) and isinstance(it.value.op, ast.Add):
                if text(it.targets[0]) == text(it.value.left):
                    counters[text(it.targets[0])] = upwards
    for loop in loops:
        target = getattr(loop, "target", None)
        if isinstance(target, ast.Tuple) and target.elts:
            target = target.elts[0]
        if isinstance(target, ast.Name):
            counters[target.id] = _values(loop.iter)
    if function is not None:
        parameters = {it.arg for it in ast.walk(function.args) if isinstance(it, ast.arg)}
        for it in inside(function):
            shown = text(it) if isinstance(it, (ast.Name, ast.Attribute)) else None
            if shown in parameters and shown in names or shown and shown.rpartition(".")[2] in names and "." in shown:
                counters[shown] = upwards
    counters.pop(None, None)
    return counters


def _values(iterated):
    """Returns the function that yields the values which `range` or `enumerate` give after one."""

    def later(scope, now):
        at = iterated
        # As in `tqdm(range(9))`.
        while isinstance(at, ast.Call) and text(at.func) not in _COUNTS and at.args:
            at = at.args[0]
        most = range(now + 1, now + _LATER)
        if not isinstance(at, ast.Call):
            return most
        try:
            if text(at.func) == "range":
                bounds = [_pure_value(it, scope) for it in at.args]
                return range(now + 1, min(range(*bounds)[-1] + 1, now + _LATER))
            return range(now + 1, min(len(_pure_value(at.args[0], scope)), now + _LATER))
        except Exception:
            return most

    return later


def scope_of(frame):
    """Returns what a function that runs sees, as a dictionary that the frame does not keep."""
    return {**frame.f_globals, **dict(values(frame))}


def _pure_value(node, scope):
    if not all(map(is_pure, ast.walk(node))):
        raise ValueError
    return eval(compile(ast.Expression(node), "<value>", "eval"), scope)


def is_pure(node):
    if isinstance(node, ast.Call):
        return text(node.func) == "len" and not node.keywords
    return isinstance(node, _PURE)


def text(node):
    """Returns `step` or `self.step`; `None` of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = text(node.value)
        return inner and "%s.%s" % (inner, node.attr)
    return None


def matters(loop):
    """Returns the name that a loop over `range` or `enumerate` counts with, if what a pass needs may depend on its
    value: it is computed with, given to a call, or decides between branches. `None` where it is an index, or only shown."""
    target = getattr(loop, "target", None)
    iterated = _counted(getattr(loop, "iter", None))
    if isinstance(target, ast.Tuple) and target.elts and iterated is not None and text(iterated.func) == "enumerate":
        target = target.elts[0]
    if iterated is None or not isinstance(target, ast.Name):
        return None
    uses = [it for it in inside(loop) if isinstance(it, ast.Name) and it.id == target.id]
    kinds = [_use(it) for it in uses if isinstance(it.ctx, ast.Load)]
    # A list that grows with the loop lacks later places; what is set in the loop is no counter.
    if _INDEX in kinds or len(uses) - len(kinds) > 1:
        return None
    return target.id if _NEEDS in kinds else None


def last_value(iterated, frame):
    """Returns the last value that a loop over `range` or `enumerate` counts to; `None` where that is not known."""
    try:
        at, scope = _counted(iterated), scope_of(frame)
        if text(at.func) == "range":
            return range(*(_pure_value(it, scope) for it in at.args))[-1]
        return len(_pure_value(at.args[0], scope)) - 1
    except Exception:
        return None


def length(iterated, frame):
    """Returns how many passes a loop over `range` or something with a length makes; 0 where that is not known."""
    try:
        at, scope = _counted(iterated), scope_of(frame)
        if at is None:
            return len(_pure_value(iterated, scope))
        if text(at.func) == "range":
            return len(range(*(_pure_value(it, scope) for it in at.args)))
        return len(_pure_value(at.args[0], scope))
    except Exception:
        return 0


_INDEX, _NEEDS = "index", "needs"


def _use(node):
    """Returns how a counter is used at one place."""
    inner, at = node, node.above
    while not isinstance(at, ast.stmt):
        if isinstance(at, ast.Subscript) and inner is at.slice:
            return None if isinstance(inner, ast.Slice) else _INDEX
        if isinstance(at, ast.JoinedStr) or (isinstance(at, ast.Constant) and isinstance(at.value, str)):
            return None
        if isinstance(at, ast.Call) and isinstance(at.func, ast.Name) and at.func.id == "print":
            return None
        if isinstance(at, ast.BinOp) and isinstance(getattr(at.left, "value", None), str):
            return None
        inner, at = at, at.above
    if isinstance(at, (ast.If, ast.While)) and inner is at.test:
        return _NEEDS if at.orelse or isinstance(at.body[-1], _LEAVES) else None
    # As in `step += 1` in place of a loop's own counting, or a call without a result.
    return _NEEDS if inner is not node else None


def _counted(at):
    """Returns the call of `range` or `enumerate` that is iterated, as in `tqdm(range(9))`."""
    while isinstance(at, ast.Call) and text(at.func) not in _COUNTS and at.args:
        at = at.args[0]
    return at if isinstance(at, ast.Call) and text(at.func) in _COUNTS else None
