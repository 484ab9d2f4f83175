"""Tests of what a loop counts: whether a later value would enter a branch, and how to enter it now."""

import ast
import builtins
import ctypes
import inspect
import itertools
import math
import sys

from ._fit_counters import inside, is_pure, place, scope_of, text, upwards
from ._fit_source import SUITES
from ._fit_stand_ins import entering
from ._frames import values

_LEAVES = (ast.Raise, ast.Continue, ast.Break, ast.Return)
# Stands for a counter.
_COUNTER = "_counter"
# What asks for the kind of a value.
_TYPES = {"callable", "hasattr", "isinstance", "issubclass", "type"}
# How often no later value passes before none is looked for.
_SEARCHES = 10
# What makes a number of numbers; of a tensor, it would read its values.
_NUMBERS = ("int", "float", "round", "abs", "min", "max")
# Counters that are no whole numbers are smaller.
_FLOATS = 1e6


class Move:
    """The line to go to, and the test whose branch is entered there, with its lines. A branch on the line of its test, and a
    test that stands by itself, are passed with later values of counters. What ends a loop hides the names of its head:
    {name: what stands in its place}. `is_last` is whether no other branch of the test is left."""

    def __init__(self, to, test=None, lines=(), ahead=None, hidden=None, is_last=True):
        self.to, self.test, self.lines, self.ahead, self.hidden, self.is_last = to, test, lines, ahead, hidden, is_last


class Tests:
    """The tests in a loop or a function, by line."""

    def __init__(self, around, counters, counted, phases=(), lines=()):
        """`phases` are lines of the file that lead to an evaluation and the like, `lines` are in branches that need no
        help."""
        # Those whose branches do something.
        self.by_line = {}
        # All that may turn out never to be true, lines of branches where that is so, and lines where it once was not.
        self._switches, self._never, self._entered = {}, set(), set()
        nodes = list(inside(around))
        names = _Names(around, nodes, counters, counted, phases)
        branches = [it for it in nodes if isinstance(it, ast.If)]
        entered = {name for it in branches if not is_plain(it.body) for name in _operands(it.test)}
        for it in nodes:
            if isinstance(it, ast.If):
                test = _Test(it, it.test, it.body, names)
                if not test.is_guard:
                    self._switches[it.lineno] = test
                is_of_use = test.is_guard or not is_plain(it.body) or test.has_other
                # The loop would end before anything else is seen.
                is_of_use &= not counted.ends_loop(it.body)
            else:
                test = _alone(it, entered, names)
                # A branch on the line of its test comes after that.
                is_of_use = test is not None and it.lineno not in self.by_line
            if is_of_use and not any(line in test.lines for line in lines):
                self.by_line[it.lineno] = test
        for test in self.by_line.values():
            # That of `elif`.
            test.following = self._switches.get(test.other) if test.has_other else None

    def has_counters(self):
        """Whether any is known to depend on what the job counts."""
        return any(it.counts for it in self.by_line.values())

    def waits(self):
        """Whether any compares a number that has not risen yet."""
        return any(it.waits() for it in self.by_line.values())

    def note(self, frame):
        """Learns from a line that is about to run."""
        test = self._switches.get(frame.f_lineno)
        if test is not None:
            truth = test.truth(frame)
            lines = self._never if truth == NEVER else self._entered if truth is not None else set()
            lines.update(test.lines)

    @property
    def never(self):
        """Lines of branches that settings leave out."""
        return self._never - self._entered


class _Names:
    """What the names in the tests of a loop or a function are."""

    def __init__(self, around, nodes, counters, counted, phases):
        self.counters, self.counted, self.phases = counters, counted, phases
        self.stored = {text(it) for it in nodes if isinstance(getattr(it, "ctx", None), ast.Store)}
        # What a call gives to a function is another value each time.
        self.parameters = {it.arg for it in ast.walk(getattr(around, "args", ast.Pass())) if isinstance(it, ast.arg)}
        # What a method is called of for what that does, as `list.append`.
        calls = [it.value for it in nodes if isinstance(it, ast.Expr) and isinstance(it.value, ast.Call)]
        self.altered = {text(it.func.value) for it in calls if isinstance(it.func, ast.Attribute)}


def _operands(test):
    """Yields the names that are a test, or an operand of its `and`."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    return (text(it) for it in parts if text(it))


def _alone(it, entered, names):
    """Returns a test that is kept for a branch, as `due = step % 100 == 0`, returned, or that of `a if test else b`; `None`
    of anything else."""
    value = getattr(it, "value", None)
    if not isinstance(it, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return)) or value is None:
        return None
    is_test = isinstance(value, (ast.Compare, ast.BoolOp)) or isinstance(getattr(value, "op", None), ast.Not)
    if is_test and (isinstance(it, ast.Return) or _is_kept(it, entered)):
        return _Test(it, value, [it], names)
    choice = next((one for one in ast.walk(value) if isinstance(one, ast.IfExp)), None)
    test = choice and _Test(it, choice.test, [it], names)
    # With another value, the rest of the line has to do the same.
    others = [text(one) for one in ast.walk(value)] if choice else []
    in_test = [text(one) for one in ast.walk(choice.test)] if choice else []
    return test if choice and all(others.count(name) == in_test.count(name) for name in set(in_test) - {None}) else None


def _is_kept(it, entered):
    return isinstance(it, ast.Assign) and len(it.targets) == 1 and text(it.targets[0]) in entered


class _Test:
    """A statement whose test depends on what a loop counts."""

    def __init__(self, statement, test, body, names):
        self.statement, self.test = statement, test
        self.line, self.lines = statement.lineno, _lines(body)
        # Whether no line begins with the branch, and whether that does nothing.
        self._is_line, self._is_plain = self.lines[0] <= test.end_lineno, is_plain(body)
        # Whether its caller decides what follows, and whether it stands by itself.
        self.is_returned = isinstance(statement, ast.Return) and test is statement.value
        self.is_alone = not isinstance(statement, ast.If)
        parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
        self._parts = [_Part(it, names) for it in parts]
        # The line that follows if the test is false, whether that is an `else`, and the test of an `elif` there.
        self.other, self.has_other, self.following = None, False, None
        # Whether it leaves what follows out, as `if step % 100: continue`.
        self.is_guard = False
        if isinstance(statement, ast.If):
            self.other = _other(statement)
            leaves = isinstance(statement.body[-1], (ast.Continue, ast.Return)) and not statement.orelse
            self.is_guard = leaves and len(parts) == 1 and self.other is not None
            # An `else` on the line of what it does has no line to go to.
            is_apart = bool(statement.orelse) and self.other > self.lines[-1]
            self.has_other = is_apart and not is_plain(statement.orelse)
            self._others = _lines(statement.orelse)
        # Whether only one step passes it, and whether the branch of an `elif` was entered.
        self.is_once, self._is_passed = False, False
        # Whether its branch leads to an evaluation and the like, and has not been entered for that.
        self._is_phase = not self.is_alone and any(it in names.phases for it in self.lines)
        self._hidden = entering(test, body) if self._is_phase and self._is_line else None
        # What the test looks for, and the branch uses.
        self._needs = _looked_for(test) & {text(one) for it in body for one in ast.walk(it)} if self._is_phase else set()

    @property
    def counts(self):
        """Whether it is known to depend on what the job counts."""
        return any(it.counter is not None for it in self._parts)

    def waits(self):
        """Whether it is false, and compares a number that has not risen yet."""
        return any(it.waits for it in self._parts)

    def passes_to(self, frame, rate):
        """Returns in how many passes of a loop it is true, by the values of what is counted and what `rate` returns of an
        attribute; `None` where it is now, or that is not known."""
        truths = {it: it.truth(frame) for it in self._parts}
        if not all(it in (NOW, LATER) for it in truths.values()):
            return None
        return max((it.passes_to(frame, rate) for it, truth in truths.items() if truth == LATER), default=None)

    def value(self, frame):
        """Returns the value of what it counts; `None` where nothing is known to."""
        scope = scope_of(frame)
        return next((eval(it.counter, scope) for it in self._parts if it.counter is not None), None)

    def times(self, frame, passes):
        """Returns how often later values of what it counts enter its branch, in so many passes of the loops around it
        (`None`: nobody knows)."""
        scope = scope_of(frame)
        times = (it.times(scope, not self.is_guard, passes) for it in self._parts if it.counter is not None)
        return min(times, default=0)

    def move(self, frame):
        """Returns how to go on if the test is false now and true for later values of what it counts, or the other way round
        where there is an `else`."""
        if self.is_guard:
            return Move(self.other, self) if self._parts[0].false_later(frame) else None
        truths = []
        for it in self._parts:
            truths.append(it.truth(frame))
            if truths[-1] not in (NOW, LATER):
                return None
        if LATER not in truths:
            return self._move_to_other(frame)
        self.is_once = any(it.is_once for it in self._parts)
        if self._is_plain and not self.is_alone:
            return None
        if not self._is_line:
            return Move(self.lines[0], self, self.lines)
        parts = [it for it, truth in zip(self._parts, truths) if truth == LATER]
        return self._ahead(parts)

    def force(self, frame):
        """Returns how to enter a branch that evaluates, generates or saves once, if its test is false, may change, and no
        value is known that would pass it."""
        if not self._is_phase or self.is_guard or self._is_plain or (self._is_line and self._hidden is None):
            return None
        truths = [it.truth(frame) for it in self._parts]
        may_change = all(it.changes for it, truth in zip(self._parts, truths) if truth is None)
        if None not in truths or NEVER in truths or not may_change:
            return None
        scope = scope_of(frame)
        if not all(_is_there(eval(it, scope)) for it in self._needs):
            return None
        self._is_phase = False
        if not self._is_line:
            return Move(self.lines[0], self, self.lines)
        return Move(self.line, self, self.lines, hidden=self._hidden)

    def _move_to_other(self, frame):
        """The same of a test that is true, and false for later values."""
        if self.is_returned or not (self.has_other or self.is_alone):
            return None
        # What only the last pass does prepares no further one.
        parts = [it for it in self._parts if it.false_later(frame) and not it.is_once]
        if not parts or self.is_alone:
            return self._ahead(parts[:1]) if parts else None
        if self.following is None:
            return Move(self.other, self, self._others)
        inner = self.following.move(frame)
        is_next = inner is None or (self.following.is_now(frame) and not self._is_passed)
        self._is_passed |= is_next
        return Move(self.other, self, self._others, is_last=inner is None) if is_next else inner

    def _ahead(self, parts):
        ahead = {it.counter: it.later for it in parts}
        # Two tests of one counter have to agree on its value.
        return Move(None, self, self.lines, ahead) if len(ahead) == len(parts) else None

    def is_now(self, frame):
        """Whether the test is true."""
        return all(it.truth(frame) == NOW for it in self._parts)

    def enters_now(self, frame):
        """Whether its branch is entered now; that of a guard is what follows."""
        return self.is_now(frame) != self.is_guard

    def truth(self, frame):
        """`NEVER` if it is never true, whatever is counted, `LATER` if it is or may be; `None` where that is not known."""
        for it in self._parts:
            truth = it.truth(frame)
            if truth not in (NOW, LATER):
                return truth
        return LATER


def _looked_for(test):
    """Returns the names of what a test asks whether it is there, is in something, or has anything in it."""
    found = {text(it) for it in (test.values if isinstance(test, ast.BoolOp) else [test])}
    for it in ast.walk(test):
        if isinstance(it, ast.Compare) and isinstance(it.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
            found.update(map(text, (it.left, *it.comparators)))
        elif isinstance(it, ast.UnaryOp) and isinstance(it.op, ast.Not):
            found.add(text(it.operand))
        elif isinstance(it, ast.Call):
            found.update(map(text, it.args))
    return found - {None}


def _is_there(value):
    is_empty = isinstance(value, (bool, str, bytes, list, tuple, dict, set)) and not value
    return value is not None and not is_empty


def _other(statement):
    """Returns the line that runs if a test is false, of the statements beside it."""
    if statement.orelse:
        return statement.orelse[0].lineno
    for name in SUITES:
        suite = getattr(statement.above, name, None)
        if isinstance(suite, list) and statement in suite[:-1]:
            return suite[suite.index(statement) + 1].lineno
    return None


NOW, LATER, NEVER = "now", "later", "never"


class _Part:
    """One operand of `and`."""

    def __init__(self, test, names):
        nodes = list(ast.walk(test))
        owners = {text(it.value) for it in nodes if isinstance(it, (ast.Attribute, ast.Subscript))}
        found = {text(it) for it in nodes if text(it)} - owners
        counters = found & set(names.counters)
        made = [it for it in nodes if isinstance(it, ast.Call) and text(it.func) in _NUMBERS and not it.keywords]
        # What numbers are made of.
        self._converted = sorted({text(one) for it in made for one in ast.walk(it) if text(one)} - owners)
        self._test, self._is_pure = test, all(it in made or is_pure(it) for it in nodes) and len(counters) < 2
        self._code = compile(ast.Expression(test), "<test>", "eval") if self._is_pure else None
        self._counted = names.counted
        # What may turn out to be a counter, and its value in a step: {(name, object): (step, value, whether it rises)}.
        self._candidates, self._seen = sorted(found - names.stored), {}
        self.waits = False
        # Whether something that runs here changes it. A parameter is what its caller wants, and a type stays.
        self.changes = bool(found & (names.stored | names.altered) or self._is_set(nodes, names)) and not found & _TYPES
        # Whether nothing that runs here changes it.
        self._is_fixed = not found & (names.stored | names.parameters) and not self._is_set(nodes, names)
        self._is_fixed &= not any(isinstance(it, ast.Call) for it in nodes)
        # The first later value that passes it, and whether no other one does; how often there was none.
        self.later, self.is_once, self._failed = None, False, 0
        self.counter = self._values = self._ahead = None
        for it in counters if self._is_pure else ():
            self._count(it, names.counters[it])

    @staticmethod
    def _is_set(nodes, names):
        """Whether functions set an attribute or an entry for each other."""
        return any(place(it) in names.counted.set for it in nodes if isinstance(it, (ast.Attribute, ast.Subscript)))

    def _count(self, counter, later):
        """Makes a name the counter."""
        self.counter, self._values = counter, later
        # What to say where no later value passes.
        self._none = None if getattr(later, "is_guess", False) else NEVER
        node = _Substitution(counter).visit(ast.parse(ast.unparse(self._test), mode="eval"))
        self._ahead = compile(ast.fix_missing_locations(node), "<test>", "eval")

    def truth(self, frame):
        """`NOW`, `LATER` or `NEVER`, or `None`: whether it is true."""
        if not self._is_pure:
            return None
        scope = scope_of(frame)
        is_tensor = any(hasattr(eval(it, scope), "is_cuda") for it in self._converted)
        value = None if is_tensor else eval(self._code, scope)
        if is_tensor or hasattr(value, "is_cuda"):
            # It would have to be read.
            return None
        if value:
            if self._is_idle(scope):
                # It may be false later for what it compares.
                self._watch(scope)
                self.waits = False
            return NOW
        is_known = not self._is_idle(scope) or self._watch(scope)
        if self.counter is None:
            return NEVER if self._is_fixed and is_known else None
        now = _whole(eval(self.counter, scope))
        return None if now is None else self._look_ahead(scope, now, True)

    def passes_to(self, frame, rate):
        """Returns in how many passes its counter has the later value that passes it."""
        scope = scope_of(frame)
        node = ast.parse(self.counter, mode="eval").body
        owner = None if isinstance(node, ast.Name) else eval(ast.unparse(node.value), scope)
        by = rate(frame.f_globals if owner is None else owner, node) or 1
        return max(math.ceil((self.later - eval(self.counter, scope)) / by), 1)

    def times(self, scope, truth, passes):
        """Returns how often its counter makes it so: in a loop within others, in each of their passes."""
        now = _whole(eval(self.counter, scope))
        later = [] if now is None else list(itertools.islice(self._values(scope, now) or (), passes))
        rounds = max((passes or 0) // (len(later) + max(now, 0) + 1), 1) if later else 0
        return sum(1 for _ in self._passing(scope, later, truth)) * rounds

    def _is_idle(self, scope):
        """Whether no counter is known, or nothing that runs here counts what others of that name count."""
        return self.counter is None or self._values(scope, 0) is None

    def _look_ahead(self, scope, now, truth):
        """Finds a later value for which it is so."""
        if self._failed >= _SEARCHES:
            return self._none
        passing = self._later(scope, now, truth)
        if passing is None:
            return None
        self.later = next(passing, None)
        if self.later is None:
            self._failed += 1
            return self._none
        self.is_once = next(passing, None) is None
        return LATER

    def _watch(self, scope):
        """Notes numbers at the first look in each step: the one that rises by one is a counter. Returns whether that is
        known of all."""
        rising, is_known, owner, step = [], True, id(scope.get("self")), self._counted.step
        for name in self._candidates:
            value = _whole(eval(name, scope))
            if value is None:
                continue
            before = self._seen.get((name, owner))
            if before is None or before[0] != step:
                rises = None if before is None else value == before[1] + 1
                before = self._seen[name, owner] = step, value, rises
            is_known &= before[2] is not None
            if before[2]:
                rising.append(name)
        self.waits = bool(self._seen) and len(rising) != 1
        if not self.waits and rising:
            self._count(rising[0], upwards)
        return is_known

    def false_later(self, frame):
        """Whether it is true, and false for a later value."""
        if self.truth(frame) != NOW or self.counter is None:
            return False
        scope = scope_of(frame)
        now = _whole(eval(self.counter, scope))
        return now is not None and self._look_ahead(scope, now, False) == LATER

    def _later(self, scope, now, truth):
        """Returns what yields the later values for which it is so; `None` while nothing is known to count."""
        later = self._values(scope, now)
        return None if later is None else self._passing(scope, later, truth)

    def _passing(self, scope, later, truth):
        for one in later:
            scope[_COUNTER] = one
            if bool(eval(self._ahead, scope)) == truth:
                yield one


def _whole(value):
    """Returns what a counter counts whole ones of, which may have a part, too: an epoch. `None` of anything else."""
    if type(value) is float and 0 <= value < _FLOATS:
        return int(value)
    return value if type(value) is int else None


class _Substitution(ast.NodeTransformer):
    """Puts a name of our own in the place of a counter."""

    def __init__(self, counter):
        self._counter = counter

    def visit(self, node):
        if text(node) == self._counter:
            return ast.Name(_COUNTER, ast.Load())
        return self.generic_visit(node)


def _lines(body):
    return range(body[0].lineno, body[-1].end_lineno + 1) if body else range(0)


def is_plain(body):
    """Whether a branch leaves, or does nothing but print what is there."""
    return isinstance(body[-1], _LEAVES) or all(map(_prints, body))


def _prints(statement):
    """Whether a statement prints without a call of a function that is no builtin."""
    call = getattr(statement, "value", None)
    if not isinstance(statement, ast.Expr) or text(getattr(call, "func", None)) != "print":
        return False
    names = [it.func.id for it in ast.walk(call) if isinstance(it, ast.Call) and isinstance(it.func, ast.Name)]
    return all(hasattr(builtins, it) for it in names)


def enters(nodes, frame):
    """Whether a function decides by a call that it makes now whether it enters a branch that does something."""
    line = frame.f_lineno
    tests = (it for it in nodes if isinstance(it, ast.If) and it.test.lineno <= line <= it.test.end_lineno)
    return any(not is_plain(it.body) and any(isinstance(one, ast.Call) for one in ast.walk(it.test)) for it in tests)


# Stands for the value of a name that has none.
_ABSENT = object()


def set_values(frame, counters):
    """Gives variables, attributes and entries other values, as a function that runs sees them; returns those before."""
    held, places = dict(values(frame)), {}
    scope = held or frame.f_globals
    for name in counters:
        node = ast.parse(name, mode="eval").body
        if isinstance(node, ast.Name):
            places[name] = (scope if name in scope else frame.f_globals), name
            continue
        owner = eval(ast.unparse(node.value), frame.f_globals, held)
        # What is neither a plain attribute nor a property is left alone.
        if isinstance(node, ast.Subscript):
            places[name] = owner, node.slice.value
        else:
            places[name] = _attributes(owner, node.attr, counters[name]), node.attr
    may_be_new = {id(frame.f_globals)} | {id(of) for of, _ in places.values() if isinstance(of, _OfClass)}
    before = {name: _ABSENT if id(of) in may_be_new and key not in of else of[key] for name, (of, key) in places.items()}
    for name, (of, key) in places.items():
        if counters[name] is _ABSENT:
            of.pop(key, None)
        else:
            of[key] = counters[name]
    own = {name: counters[name] for name in counters if name in held}
    if own:
        _set_variables(frame, own)
    return before


def _attributes(owner, key, value):
    """Returns where an attribute is set: a property gives way to a value of its class, and comes back in its place."""
    kind = type(owner)
    now = inspect.getattr_static(kind, key, None)
    is_back = isinstance(value, property) or (value is _ABSENT and key not in vars(owner))
    return _OfClass(kind) if is_back or isinstance(now, property) else vars(owner)


class _OfClass:
    """The attributes of a class, as a mapping."""

    def __init__(self, kind):
        self._kind = kind

    def __contains__(self, key):
        return key in vars(self._kind)

    def __getitem__(self, key):
        return vars(self._kind)[key]

    def __setitem__(self, key, value):
        setattr(self._kind, key, value)

    def pop(self, key, default):
        if key in self:
            delattr(self._kind, key)


def is_shared(frame, name):
    """Whether others see the value of a counter once a function has ended."""
    return name not in frame.f_code.co_varnames or name in frame.f_code.co_cellvars


def _set_variables(frame, own):
    """Sets variables of a function that runs."""
    held = frame.f_locals
    held.update(own)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        if sys.version_info >= (3, 11):
            # It would keep what the job releases. In earlier releases, each event renews it.
            held.clear()
