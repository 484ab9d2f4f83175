"""What a job counts, which values come later, and whether more than tests depends on it.

A counter is known by its text, as `step`, `self.step`, `state['step']` or `seen[0]`.
"""

import ast
import itertools

from ._fit_source import FUNCTIONS, SCOPES, scope_around
from ._frames import values

# Later values of a counter that are tried.
_LATER = 100_000
# How often their distance is doubled where it is not known what is added.
_DOUBLED = 30
_COUNTS = ("range", "enumerate")
# What may be evaluated in place of the job.
_PURE = (
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.Set,
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


class Counted:
    """What the job's functions count for each other: attributes, entries, and variables that they share."""

    def __init__(self, files, ran):
        # {file: lines that ran in the training loop}. What only others count is no counter there.
        self._ran = ran
        # Where they are counted, and how: {name: [(file, line, later values)]}.
        self._places, self._shared = {}, {}
        # The step that ended last.
        self.step = 0
        # Attributes and entries that anything but an `__init__` sets, and `None` for entries that are not known.
        self.set = set()
        # Attributes that anything sets.
        self.stored = set()
        # Attributes and entries that something is computed from.
        self.needed = set()
        # Those that find places in a list.
        self._indexes = set()
        # What the tests of their loops read: setting it ends a loop.
        self.ends = set()
        for file, nodes in files:
            for it in nodes:
                self._note(file, it)
        self.ends.discard(None)

    def _note(self, file, node):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            self.stored.add(node.attr)
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
            function = scope_around(node)
            if isinstance(function, FUNCTIONS) and function.name != "__init__":
                self.set.add(place(node))
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Load):
            kinds = {_NEEDS: self.needed, _INDEX: self._indexes}
            kinds.get(_use(node), set()).add(place(node))
        if isinstance(node, ast.While):
            self.ends.update(_known_as(it) for it in ast.walk(node.test))
        counted = [(target, _counting(amount)) for target, amount in _increased(node)]
        if isinstance(node, ast.For):
            counted.append((node.target, _values(node.iter)))
        for target, later in counted:
            if isinstance(target, (ast.Attribute, ast.Subscript)):
                if place(target):
                    self._places.setdefault(place(target), []).append((file, node.lineno, later))
            elif isinstance(target, ast.Name) and _is_shared(target.id, scope_around(node)):
                self._shared.setdefault(target.id, []).append((file, node.lineno, later))

    def ends_loop(self, body):
        """Whether all that statements do is to set what a loop's test reads."""
        targets = [it.targets[0] for it in body if isinstance(it, ast.Assign) and isinstance(it.value, ast.Constant)]
        return len(targets) == len(body) and all(_known_as(it) in self.ends for it in targets)

    def counts(self, node):
        """Whether functions count an attribute or an entry for each other."""
        return place(node) in self._places

    def counts_for_others(self, node):
        """The same, also of a global variable; not of what finds places in a list."""
        if isinstance(node, ast.Name):
            return node.id in self._shared
        return self.counts(node) and place(node) not in self._indexes

    def later(self, node, own):
        """Returns what yields the later values of an expression, if functions count it for each other; `own` are the
        variables that the function around has for itself."""
        if isinstance(node, ast.Name):
            places = () if node.id in own else self._shared.get(node.id, ())
        else:
            places = self._places.get(place(node), ())

        def later(scope, now):
            active = (of for file, line, of in places if line in self._ran.get(file, ()))
            return next((of(scope, now) for of in active), None)

        return later if places else None


def counters_of(loops, function, counted, given=()):
    """Returns what loops, or a function that they call, count: {its text: function of scope and value that yields later
    values}. Of a function, `given` are the names of parameters that get such values. What yields nothing but `None` is
    not known to be a counter yet."""
    counters = {}
    around = loops or [function]
    for loop in loops:
        for it in inside(loop):
            counters.update((text(target), _counting(amount)) for target, amount in _increased(it))
    for loop in loops:
        name = _limited(loop)[0] if isinstance(loop, ast.While) else None
        if name is not None:
            counters[name] = _below_limit(loop)
    for loop in loops:
        target = getattr(loop, "target", None)
        if isinstance(target, ast.Tuple) and target.elts:
            target = target.elts[0]
        if text(target) is not None:
            counters[text(target)] = _values(loop.iter)
    counters.update((it, upwards) for it in given)
    own = own_variables(function)
    for one in around:
        for it in inside(one):
            shown = text(it)
            if shown is not None and shown not in counters:
                later = counted.later(it, own)
                if later is not None:
                    counters[shown] = later
    for one in around:
        _add_copies(one, counters)
    counters.pop(None, None)
    return counters


def _add_copies(around, counters):
    """Adds what is computed from nothing but a counter and what does not change."""
    for it in inside(around):
        target = text(it.targets[0]) if isinstance(it, ast.Assign) else None
        if target is None or target in counters or isinstance(it.value, (ast.Compare, ast.BoolOp, ast.Constant)):
            continue
        found = {text(one) for one in ast.walk(it.value)} & set(counters)
        if len(found) == 1 and all(map(is_pure, ast.walk(it.value))):
            counters[target] = _later_of_copy(counters[found.pop()])


def _later_of_copy(later):
    return lambda scope, now: upwards(scope, now) if later(scope, now) is not None else None


def given_to(call, counters):
    """Returns the places and the names of the arguments of a call that are counters, or computed from one."""

    def is_counted(node):
        names = {text(it) for it in ast.walk(node)}
        return bool(names & set(counters)) and all(map(is_pure, ast.walk(node))) and not isinstance(node, ast.Compare)

    places = {at for at, it in enumerate(call.args) if is_counted(it)}
    return places | {it.arg for it in call.keywords if it.arg and is_counted(it.value)}


def _increased(node):
    """Yields what a statement adds to, or takes from a counter of Python's, and what is added; `None` where that is 1 or
    not known."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.Sub)):
        yield node.target, _signed(node.op, node.value)
    if not isinstance(node, ast.Assign):
        return
    pairs = [(node.targets[0], node.value)]
    if isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
        pairs = zip(node.targets[0].elts, node.value.elts)
    for target, value in pairs:
        is_sum = isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub))
        if text(target) and is_sum and text(target) == text(value.left):
            yield target, _signed(value.op, value.right)
        elif text(target) and isinstance(value, ast.Call) and text(value.func) == "next":
            yield target, None


def added_to(function):
    """Returns what a function adds to."""
    return [target for it in inside(function) for target, _ in _increased(it)]


def _signed(op, amount):
    return ast.copy_location(ast.UnaryOp(ast.USub(), amount), amount) if isinstance(op, ast.Sub) else amount


def _is_shared(name, function):
    """Whether a variable that a function counts belongs to others, too."""
    if not isinstance(function, FUNCTIONS):
        return True
    for it in ast.walk(function):
        if isinstance(it, (ast.Global, ast.Nonlocal)) and name in it.names:
            return True
        if isinstance(it, FUNCTIONS) and it is not function and any(_names(it, name)):
            return True
    return False


def _names(function, name):
    return (it for it in ast.walk(function) if isinstance(it, ast.Name) and it.id == name)


def own_variables(function):
    """Returns the variables that a function has for itself: parameters, and what it sets and shares with none."""
    if not isinstance(function, FUNCTIONS):
        return set()
    parameters = {it.arg for it in ast.walk(function.args) if isinstance(it, ast.arg)}
    stored = {it.id for it in inside(function) if isinstance(it, ast.Name) and isinstance(it.ctx, ast.Store)}
    return parameters | {it for it in stored if not _is_shared(it, function)}


def _known_as(node):
    """Returns what a variable, an attribute or an entry is called in any function."""
    return node.id if isinstance(node, ast.Name) else place(node)


def place(node):
    """Returns what an attribute or an entry is called in any function: `step`, `['step']`, `seen[0]`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    shown = text(node) if isinstance(node, ast.Subscript) else None
    if shown is None:
        return None
    key = node.slice.value
    return "[%r]" % key if isinstance(key, str) else "%s[%r]" % (text(node.value).rpartition(".")[2], key)


def upwards(scope, now):
    """Returns the later values of what is added to."""
    return range(now + 1, now + _LATER)


def _counting(amount):
    """Returns the function that yields the later values of what an amount is added to in each pass. What is taken from ends
    at 0."""

    def later(scope, now):
        try:
            by = 1 if amount is None else _pure_value(amount, scope)
        except Exception:
            # It may come to any limit.
            return itertools.chain(upwards(scope, now), (now + (_LATER << more) for more in range(_DOUBLED)))
        if type(by) is not int or not by:
            return ()
        return range(now + by, now + by * _LATER, by) if by > 0 else range(now + by, -1, by)

    return later


def _values(iterated):
    """Returns the function that yields the values which `range` or `enumerate` give after one. Of anything else they are
    guessed."""
    at = _counted(iterated)

    def later(scope, now):
        if at is None:
            return upwards(scope, now)
        try:
            if text(at.func) == "range":
                all_ = _range(iterated, scope)
                following = all_.index(now) + 1
                return all_[following : following + _LATER]
            first = _pure_value(at.args[1], scope) if len(at.args) > 1 else 0
            return range(now + 1, min(len(_pure_value(at.args[0], scope)) + first, now + _LATER))
        except Exception:
            return upwards(scope, now)

    later.is_guess = at is None
    return later


def _range(iterated, scope):
    """Returns the range that a loop goes over, in its order."""
    calls = [it for it in ast.walk(iterated) if isinstance(it, ast.Call)]
    is_reversed = any(text(it.func) == "reversed" for it in calls)
    return range(*(_pure_value(it, scope) for it in _counted(iterated).args))[:: -1 if is_reversed else 1]


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
    """Returns `step`, `self.step` or `state['step']`; `None` of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = text(node.value)
        return inner and "%s.%s" % (inner, node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        inner = text(node.value)
        return inner and "%s[%r]" % (inner, node.slice.value)
    return None


def counter_of(loop, counted, scope):
    """Returns what a loop counts over `range` or `enumerate`, or up to a limit, and whether what a pass needs may depend on
    its value: it is computed with, given to a call, or decides between branches, and not only shown. `None` where it does
    not count, or finds places in a list that are not there yet."""
    counter, increments = _limited(loop, counted) if isinstance(loop, ast.While) else _counter_of(loop)
    if counter is None:
        return None, False
    if isinstance(loop, ast.While) and not increments:
        # Functions count it, and others compute with it.
        return counter, place(loop.test.left) in counted.needed
    uses = [it for it in inside(loop) if text(it) == counter and not any(it in one for one in increments)]
    # The loop's own test is no need.
    uses = [it for it in uses if not any(it is one for one in ast.walk(getattr(loop, "test", ast.Pass())))]
    kinds = [_use(it, scope, last_value(loop, scope)) for it in uses if isinstance(it.ctx, ast.Load)]
    # What is set in the loop is no counter.
    if _INDEX in kinds or len(uses) - len(kinds) > isinstance(loop, ast.For):
        return None, False
    return counter, _NEEDS in kinds


def added_in(loop, counted, scope):
    """Returns what is added to in each pass of a loop but not of one in it, and in functions for its limit, with the line
    where it is; not what finds places in a list."""
    found = {}
    for it in inside(loop):
        for target, _ in _increased(it):
            around = it.above
            while not isinstance(around, (ast.For, ast.AsyncFor, ast.While)):
                around = around.above
            if around is loop and text(target) is not None:
                found[text(target)] = it.lineno
    limited = _limited(loop, counted)[0] if isinstance(loop, ast.While) else None
    if limited is not None:
        found.setdefault(limited, loop.end_lineno)
    uses = [(text(it), it) for it in inside(loop) if isinstance(getattr(it, "ctx", None), ast.Load)]
    is_index = {one for one, it in uses if one in found and _use(it, scope) == _INDEX}
    return {name: line for name, line in found.items() if name not in is_index}


def _counter_of(loop):
    """Returns what a `for` counts with over `range` or `enumerate`; `None` where it does not."""
    target, iterated = getattr(loop, "target", None), _counted(getattr(loop, "iter", None))
    if isinstance(target, ast.Tuple) and target.elts and iterated is not None and text(iterated.func) == "enumerate":
        target = target.elts[0]
    return (target.id if iterated is not None and isinstance(target, ast.Name) else None), []


def _limited(loop, counted=None):
    """Returns what a `while` adds to as long as it is below a limit, and the nodes of these additions; `None` where there
    is nothing of that kind. With `counted`, functions may add to it instead."""
    test = loop.test
    is_limit = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], (ast.Lt, ast.LtE))
    counter = text(test.left) if is_limit else None
    if counter is None or not all(map(is_pure, ast.walk(test.comparators[0]))):
        return None, []
    increments = [it for it in inside(loop) if any(text(target) == counter for target, _ in _increased(it))]
    is_counted = increments or (counted is not None and counted.counts(test.left))
    return (counter if is_counted else None), [list(ast.walk(it)) for it in increments]


def _below_limit(loop):
    """Returns the function that yields the values which a `while` comes to."""

    def later(scope, now):
        try:
            return range(now + 1, min(_last(loop, scope) + 1, now + _LATER))
        except Exception:
            return upwards(scope, now)

    return later


def _last(loop, scope):
    """Returns the last value of what a `while` adds to."""
    return _pure_value(loop.test.comparators[0], scope) - isinstance(loop.test.ops[0], ast.Lt)


def last_value(loop, scope):
    """Returns the last value that a loop counts to; `None` where that is not known."""
    if isinstance(loop, ast.While):
        return limit_of(loop, scope)
    all_ = passes_of(loop, scope)
    return all_[-1] if all_ else None


def limit_of(loop, scope):
    """Returns the last value of what a `while` adds to; `None` where that is not known."""
    try:
        last = _last(loop, scope)
        return last if type(last) in (int, float) else None
    except Exception:
        return None


def passes_of(loop, scope):
    """Returns the values that a `for` counts over `range` or `enumerate`, and those from 0 on for each pass over something
    with a length; an empty range where that is not known."""
    try:
        at = _counted(loop.iter)
        if at is None:
            return range(len(_pure_value(loop.iter, scope)))
        if text(at.func) == "range":
            return _range(loop.iter, scope)
        first = _pure_value(at.args[1], scope) if len(at.args) > 1 else 0
        return range(first, first + len(_pure_value(at.args[0], scope)))
    except Exception:
        return range(0)


_INDEX, _NEEDS = "index", "needs"


def _use(node, scope=None, last=None):
    """Returns how a counter is used at one place; where it finds one in a mapping, or in a list that has all up to the last
    value, it is of no need by itself."""
    inner, at, is_given = node, node.above, False
    while not isinstance(at, ast.stmt):
        # What a call makes of it, as `bisect(limits, step)`, does not lack places.
        if isinstance(at, ast.Subscript) and inner is at.slice and not is_given:
            return None if isinstance(inner, ast.Slice) or _has_places(at.value, scope, last) else _INDEX
        is_given |= isinstance(at, ast.Call)
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


def _has_places(node, scope, last):
    """Whether something finds entries by a key, or has a place for the last value."""
    try:
        of = _pure_value(node, scope)
        return isinstance(of, dict) or (last is not None and isinstance(of, (list, tuple, range)) and last < len(of))
    except Exception:
        return False


def _counted(at):
    """Returns the call of `range` or `enumerate` that is iterated, as in `tqdm(range(9))`."""
    while isinstance(at, ast.Call) and text(at.func) not in _COUNTS and at.args:
        at = at.args[0]
    return at if isinstance(at, ast.Call) and text(at.func) in _COUNTS else None
