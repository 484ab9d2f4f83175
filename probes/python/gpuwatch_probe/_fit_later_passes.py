"""Passes of a loop that come later, made without those before them.

What a pass needs may depend on how far the loop is: by a schedule, a table, an object that counts its calls. Where what
a loop counts becomes a size, or decides about one (`_fit_sizes.py`), the loop goes on with the next pass in which such
a decision changes, with a few between, and with the last one. All that is counted gets the value that it has by then:
by how much it rose in the passes before.

Of a loop over sizes that come from anything else, as from a generator, the first passes are made as they come.
"""

import argparse
import ast
import collections.abc
import dataclasses
import types
import weakref

from ._fit_conditions import set_values
from ._fit_counters import added_in, counter_of, inside, is_pure, limit_of, passes_of, place, scope_of, text
from ._fit_source import called

# Changes that are followed, and how many as long as memory rises with them; passes among which one is looked for.
_CHANGES, _RISING, _SEARCHED = 6, 40, 20_000
# Where these parts of the passes are left, one is made.
_PARTS = (3 / 4, 1 / 2, 1 / 4)
# Passes over what is not known ahead, those where several ranks make them, and allocations after which there are no more.
_UNKNOWN, _OF_RANKS, _ALLOCATIONS = 200, 24, 30_000
# Decisions in one loop that are looked at, and attributes that functions count.
_MOST, _COUNTS = 20, 200


class LaterPasses:
    """The later passes of one loop. `around` are those of the loop around it, `counts` is what functions count, `batches`
    returns how many passes a loop over a loader makes, and `rises` is whether memory still does."""

    def __init__(self, loop, counted, sizes, around, counts, batches, rises, frame):
        self._loop, self._around, self._counts, self._batches = loop, around, counts, batches
        self._inner = None
        if around is not None:
            around._inner = self
        scope = scope_of(frame)
        nodes = list(inside(loop))
        sized = {text(it) for it in nodes if text(it) is not None and sizes.has(it)}
        # What it counts, whether more than tests needs that, and what else sizes depend on that each pass adds to.
        self._name, self._is_needed = counter_of(loop, counted, scope)
        added = added_in(loop, counted, scope)
        self._added = {it: added[it] for it in added if it in sized | {self._name} and _value(it, scope) is not None}
        names = {it for it in (self._name, *self._added) if it is not None}
        tests = [it for it in map(sizes.decided_by, nodes) if it is not None and _uses(it, names)]
        tests += [it for it in map(_lookup, nodes) if it is not None and _uses(it.left, names & sized)]
        self._decisions = [_Decision(it, names, self._added) for it in tests][:_MOST]
        self._is_sized = bool(self._decisions) or not sized.isdisjoint(names)
        # Whether sizes come from what it goes over; after which allocations it is left, whether it was, or came to its end.
        self._is_blind = _is_blind(loop, nodes, sizes, scope, self._name)
        self._is_blind |= rises and not self._is_sized and not passes_of(loop, scope)
        self._until, self._is_cut, self._is_done = None, False, False
        # Passes since the job is led on, and how many when the first one of this round was over; a pass makes a step.
        all_, now = self._all(scope), self._name and _value(self._name, scope)
        before = all_.index(now) if _is_in(now, all_) else (counted.step - 1) % (len(all_) or 1)
        self.passes, self._from, self._is_entered, self._is_again = 0, 1 - before, False, False
        # How many there will be with those of the loops around it.
        self._end = None
        # What was added to at first, as {name: (passes, value)}, and by how much in each pass.
        self._first, self._rates = {}, {}
        # Passes that were left out in all, those before the next one, and whether that has not begun.
        self._left_out, self._skipped, self._is_due = 0, 0, False
        # Passes until a function decides otherwise about a size, and changes so far.
        self._change_in, self._followed = None, 0
        # Whether the latest pass was made for one, and whether memory rose with that.
        self._is_change, self._rises = False, False
        # Passes that are left where one is made; rounds that were made for them alone.
        self._marks, self._rounds = None, 0
        self._is_over = False

    @property
    def is_sized(self):
        """Whether a size depends on what is counted here."""
        return self._is_sized or self._has_counts()

    def _has_counts(self):
        return not self._is_again and self._counts.has(self)

    def is_open(self):
        """Whether there may be a later pass to make."""
        return not self._is_over and (self._is_needed or self._is_blind or self.is_sized)

    def has_sizes(self):
        """Whether there may be one for the sizes that come with it."""
        return self.is_open() and (self._is_blind or self.is_sized)

    def decides(self, test):
        """Whether it follows what a test decides."""
        return any(it.test is test for it in self._decisions)

    def change_in(self, passes):
        """A function decides otherwise about a size in so many passes."""
        self._change_in = passes if self._change_in is None else min(passes, self._change_in)

    def restart(self):
        """A pass of the loop around it begins."""
        # Its head comes before the first one, too.
        self._from, self._is_entered = self.passes + 1, True
        if self._name is not None and self._marks is not None:
            # A size may depend on both; all else has been counted.
            self._left_out, self._is_due, self._is_again = 0, False, True
            self._added, self._rates, self._marks, self._is_over = {}, {}, [0], not self._is_sized

    def passed(self, frame):
        """The loop is at its head."""
        is_entered, self._is_entered, self._is_due = self._is_entered, False, True
        if is_entered:
            return
        self.passes += 1
        self._counts.passed(self)
        scope = scope_of(frame)
        for name in self._added:
            value = _value(name, scope)
            passes, first = self._first.setdefault(name, (self.passes, value))
            if not self._left_out and self.passes > passes and None not in (value, first):
                self._rates[name] = (value - first) / (self.passes - passes)

    def more(self, frame, rises, allocations):
        """Whether another pass is to be made, at the loop's head; `rises` if memory did in the latest one, after so many
        allocations (`None` where other ranks have to make as many passes)."""
        told, self._change_in = self._change_in, None
        if self._is_blind:
            self._until = self._until or (allocations and allocations + _ALLOCATIONS)
            is_late = self.passes >= (_OF_RANKS if allocations is None else _UNKNOWN)
            self._is_over = is_late or (allocations is not None and allocations >= self._until)
            self._is_cut = self._is_over
            return not self._is_over
        left = self.left(frame) if self.is_open() else 0
        if self._marks is None and left:
            # What functions count may show in the pass after that.
            self._marks = [int(left * it) for it in _PARTS if self.is_sized]
            self._marks += [1, 0] if self._has_counts() else [0]
        if self._is_change:
            self._rises = rises
        change = mark = None
        if self.is_sized and left != 0 and self._followed < (_RISING if self._rises else _CHANGES):
            change = min((it for it in (told, self._next_change(frame, left)) if it is not None), default=None)
        if left:
            self._marks = [it for it in self._marks if it < left]
            mark = next((left - it for it in self._marks), None)
        self._is_change = change is not None and (mark is None or change <= mark)
        self._followed += self._is_change
        ways = [it for it in (change, mark) if it is not None]
        if not ways:
            self._is_over = True
            # What is counted in the loop within it goes on in its next pass.
            return self._inner is not None and self._inner.goes_on(frame)
        self._skipped = max(min(ways), 1) - 1
        return True

    def goes_on(self, frame):
        """Whether more passes are to be made than those of this round."""
        self._rounds += 1
        is_on = self.is_open() and self._marks and not self._is_again and self.left(frame) and self._rounds < _RISING
        return bool(is_on) or (self._inner is not None and self._inner.goes_on(frame))

    def ran(self, line=None):
        """Another line runs in the function, or it has ended."""
        at = self._loop
        self._is_done |= not self._is_cut and (line is None or not at.lineno <= line <= at.end_lineno)

    def unseen(self):
        """Returns the line of a loop that was left although sizes come from what it goes over, and its passes; `None` of
        others."""
        return (self._loop.lineno, self.passes) if self._is_blind and self.passes and not self._is_done else None

    def begin(self, frame):
        """A pass begins."""
        if not self._is_due:
            return
        self._is_due, skipped, self._skipped = False, self._skipped, 0
        self._left_out += skipped
        scope = scope_of(frame)
        found = self._added_after(scope, skipped) if skipped else {}
        if self._left_out:
            # The loop itself leaves nothing out.
            found.update(self._counted_after(scope, self._left_out))
        if skipped:
            self._counts.add(self, skipped, {place(ast.parse(it, mode="eval").body) for it in found})
        if found:
            set_values(frame, found)

    def left(self, frame):
        """Returns how many passes are left; with those of the loops around it, where not only it counts. `None` where that
        is not known."""
        scope = scope_of(frame)
        if isinstance(self._loop, ast.While):
            limit, now = limit_of(self._loop, scope), _value(self._name, scope)
            rate = self._rates.get(self._name, 1)
            return None if None in (limit, now) or rate <= 0 else max(int((limit - now) // rate) + 1, 0)
        all_ = self._all(scope)
        if not all_:
            return None
        left = max(len(all_) - 1 - (max(self.passes, 1) - self._from), 0)
        if self._around is None or not (self._added or self._has_counts()):
            return max(left - self._left_out, 0)
        if self._end is None:
            # Loaders end early from here on.
            self._end = self.passes + left + (self._around.left(frame) or 0) * len(all_)
        return max(self._end - self.passes - self._left_out, 0)

    def passes_in_all(self, frame):
        """Returns the passes of a `for` that says how many it makes; `None` of others."""
        return len(passes_of(self._loop, scope_of(frame))) or None

    def _all(self, scope):
        """Returns what a `for` counts in all its passes; an empty range where that is not known."""
        return passes_of(self._loop, scope) or range(self._batches())

    def _next_change(self, frame, left):
        """Returns the passes until the first one that decides otherwise, or `None`."""
        scope = scope_of(frame)
        decisions = [it for it in self._decisions if it.look(scope, self._later(scope, 0))]
        for passes in range(1, min(left or _SEARCHED, _SEARCHED) + 1 if decisions else 0):
            later = self._later(scope, passes)
            if any(it.changes(scope, later) for it in decisions):
                return passes
        return None

    def _later(self, scope, passes):
        """Returns what is counted in the pass that comes after so many: as it begins, and once it has been added to."""
        begun, counted = self._added_after(scope, passes - 1), self._counted_after(scope, passes)
        return {**begun, **counted}, {**self._added_after(scope, passes), **counted}

    def _added_after(self, scope, passes):
        """Returns what is added to, with its values after so many passes."""
        now = {name: _value(name, scope) for name in self._rates}
        return {name: type(it)(it + self._rates[name] * passes) for name, it in now.items() if it is not None}

    def _counted_after(self, scope, passes):
        """The same of what a `for` counts."""
        if self._name is None or isinstance(self._loop, ast.While):
            return {}
        all_, now = self._all(scope), _value(self._name, scope)
        return {self._name: all_[min(all_.index(now) + passes, len(all_) - 1)]} if _is_in(now, all_) else {}


class Counts:
    """What the job's functions count while a loop makes its passes: attributes, entries and global variables."""

    def __init__(self):
        # {(object, place): _Count}.
        self._all = {}

    def has(self, loop):
        """Whether functions count something about sizes in the passes of a loop."""
        return any(it.loop is loop for it in self._all.values())

    def note(self, frame, nodes, loop):
        """A function that adds to `nodes` is called in a pass of a loop."""
        scope = scope_of(frame)
        for it in nodes:
            owner = frame.f_globals if isinstance(it, ast.Name) else evaluated(ast.unparse(it.value), scope)
            key = it.id if isinstance(it, ast.Name) else it.attr if isinstance(it, ast.Attribute) else it.slice.value
            known = self._all.get((id(owner), place(it) or key))
            if known is None and len(self._all) < _COUNTS:
                known = self._all[id(owner), place(it) or key] = _Count(owner, key, loop)
            if known is not None:
                known.note(loop.passes)

    def passed(self, loop):
        """A loop is at its head."""
        for it in self._all.values():
            if it.loop is loop:
                it.note(loop.passes)

    def rate(self, owner, node):
        """Returns by how much an attribute or an entry rises in a pass; `None` where that is not known."""
        known = self._all.get((id(owner), place(node)))
        return known and known.rate

    def add(self, loop, passes, without):
        """Gives all that is counted in a loop the values of so many passes later, but for what `without` names."""
        for (_, name), it in list(self._all.items()):
            if it.loop is loop:
                it.add(0 if name in without else passes)


class _Count:
    """An attribute, an entry or a global variable that functions add to in the passes of a loop."""

    def __init__(self, owner, key, loop):
        self.loop, self._key = loop, key
        if not isinstance(owner, dict):
            # Nothing is kept alive.
            self._owner = weakref.ref(owner)
        elif "__name__" in owner or all(isinstance(it, (bool, int, float, str)) for it in owner.values()):
            self._owner = lambda: owner
        else:
            self._owner = lambda: None
        self._first, self.rate = None, None
        self._is_known = False

    def note(self, passes):
        now = self._now()
        if now is None or self._is_known:
            return
        self._first = self._first or (passes, now)
        if passes > self._first[0]:
            self.rate = (now - self._first[1]) / (passes - self._first[0])

    def add(self, passes):
        now, self._is_known = self._now(), True
        if now is not None and self.rate:
            self._values()[self._key] = type(now)(now + self.rate * passes)

    def _values(self):
        owner = self._owner()
        return owner if isinstance(owner, dict) else vars(owner) if owner is not None else {}

    def _now(self):
        value = self._values().get(self._key)
        return value if type(value) in (int, float) else None


class _Decision:
    """A test on which a size depends, what a `match` looks at, or what a table is asked for: whether it has an entry for
    that, or its largest one there."""

    def __init__(self, test, names, added):
        self.test = test
        # Names that were added to before it is reached.
        line = getattr(test, "lineno", test.left.lineno if isinstance(test, ast.Compare) else 0)
        self._is_after = [it for it in names if added.get(it, line) < line]
        self._places = {name: "_later_%d" % at for at, name in enumerate(sorted(names))}
        above = getattr(test, "above", None)
        self._is_truth = above is not None and not hasattr(above, "subject")
        self._table, shown = (ast.unparse(test.comparators[0]), test.left) if above is None else (None, test)
        # What is found in the table, as it is now.
        self._found, self._code = (), None
        if all(map(is_pure, ast.walk(shown))):
            later = _Later(self._places).visit(ast.parse(ast.unparse(shown), mode="eval"))
            self._code = compile(ast.fix_missing_locations(later), "<test>", "eval")
        # What it was in passes so far, and what it is with what is counted then.
        self._seen, self._now = [], None

    def look(self, scope, counted):
        """Notes what it is now; returns whether that is known."""
        if self._table is not None:
            self._found = _found(evaluated(self._table, scope))
        self._now = self._value(scope, counted)
        if self._now not in self._seen and len(self._seen) < _MOST:
            self._seen.append(self._now)
        return self._now is not None

    def changes(self, scope, counted):
        """Whether it becomes true, or what it was never before, with what is counted next."""
        before, self._now = self._now, self._value(scope, counted)
        return self._now not in (None, before) and (self._now is True or self._now not in self._seen)

    def _value(self, scope, counted):
        if self._code is None:
            return None
        begun, ended = counted
        values = {self._places[it]: (ended if it in self._is_after else begun)[it] for it in begun}
        value = evaluated(self._code, scope, values)
        if self._table is not None:
            return type(value) in (int, str) and value in self._found
        # What a tensor says would have to be read.
        if not isinstance(value, (bool, int, float, str, bytes, list, tuple, dict, set)):
            return None
        return bool(value) if self._is_truth else value if isinstance(value, (int, str)) else None


def _found(table):
    """Returns the keys of a mapping, and the place of the largest number in a list; nothing of anything else."""
    if isinstance(table, collections.abc.Mapping):
        return table
    is_list = isinstance(table, (list, tuple)) and all(type(it) in (int, float) for it in table)
    return (table.index(max(table)),) if is_list and table else ()


class _Later(ast.NodeTransformer):
    """Puts names of our own in the places of what is counted."""

    def __init__(self, places):
        self._places = places

    def visit(self, node):
        name = self._places.get(text(node))
        return self.generic_visit(node) if name is None else ast.Name(name, ast.Load())


def _is_blind(loop, nodes, sizes, scope, name):
    """Whether sizes come from what a loop goes over, or from the next of something."""
    if any(called(it) == "next" and sizes.uses(it) for it in nodes):
        return True
    target = getattr(loop, "target", ast.Pass())
    names = [it for it in ast.walk(target) if text(it) not in (None, name) and sizes.has(it)]
    if any(_is_plain(scope.get(text(it))) for it in names):
        return True
    # A generator makes what is no size itself, and has one.
    return any(sizes.varies(it) for it in _made_by(getattr(loop, "iter", ast.Pass()), scope))


def _made_by(iterated, scope):
    """Yields the names of functions and classes that make what a loop goes over."""
    for it in ast.walk(iterated):
        yield called(it)
        value = scope.get(it.id) if isinstance(it, ast.Name) else None
        # Of a loader, its dataset does.
        yield from (type(one).__name__ for one in (value, getattr(value, "dataset", None)))


def _is_plain(value):
    """Whether something may be a size, or have some, as the settings of a phase do."""
    if dataclasses.is_dataclass(value) or isinstance(value, (argparse.Namespace, types.SimpleNamespace)):
        value = getattr(value, "__dict__", {})
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return any(isinstance(it, (int, float, str)) for it in value)
    return isinstance(value, (int, float, str))


def _uses(node, names):
    return any(text(it) in names for it in ast.walk(node))


def _lookup(node):
    """Returns the test whether a table has an entry for what it is asked for; `None` of other nodes."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        key, table = node.slice, node.value
    elif called(node) == "get" and isinstance(node.func, ast.Attribute) and node.args:
        key, table = node.args[0], node.func.value
    else:
        return None
    is_key = not isinstance(key, (ast.Slice, ast.Constant))
    return ast.Compare(key, [ast.In()], [table]) if is_key and all(map(is_pure, ast.walk(table))) else None


def _is_in(value, range_):
    # Anything but an integer would be compared with all of it.
    return type(value) is int and value in range_


def _value(name, scope):
    value = evaluated(name, scope)
    return value if type(value) in (int, float) else None


def evaluated(code, scope, more=None):
    """Returns the value of an expression; `None` where it has none."""
    try:
        return eval(code, scope, more)
    except Exception:
        return None
