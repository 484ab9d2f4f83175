"""Numbers that rise in the loop of a trainer under `gpuwatch fit`, and how they get later values."""

import inspect
import math
import types
import weakref

from ._fit_conditions import set_values
from ._fit_counters import scope_of

# What a number rises by at least.
_LEAST = 1e-6
# Objects that are searched for what a property tells.
_OBJECTS = 2000


class Number:
    """A number that may rise in the loop of a trainer: an attribute, an entry, or a global variable."""

    def __init__(self, place, owner, name, by_epoch=None):
        self.place, self._name, self.key = place, name, (id(owner), name)
        # By how much it rises in a pass, and as an epoch begins.
        self.by_pass, self.by_epoch = None, by_epoch
        self._before = None
        # Whether it stayed in a pass.
        self._is_quiet = False
        try:
            # Nothing is kept alive.
            self._owner = weakref.ref(owner)
        except TypeError:
            is_plain = isinstance(owner, dict) and all(isinstance(it, (bool, int, float, str)) for it in owner.values())
            self._owner = (lambda: owner) if isinstance(owner, dict) and ("__name__" in owner or is_plain) else lambda: None

    @property
    def rises(self):
        return bool(self.by_pass or self.by_epoch)

    @property
    def is_part(self):
        """Whether it tells a part of an epoch, too."""
        return bool(self.by_pass and self.by_epoch and isinstance(self.now(), float))

    def look(self, epoch):
        """A step of an epoch has ended."""
        now = self.now()
        before, self._before = self._before, (epoch, now)
        is_same = before is not None and before[0] == epoch
        self._is_quiet |= is_same and now == before[1]
        if now is None or before is None or before[1] is None or now <= before[1]:
            return
        risen = now - before[1]
        if isinstance(now, float) and math.floor(now) > math.floor(before[1]) and math.floor(now) in (epoch - 1, epoch):
            # A part of the epoch as well, which is only set as a step ends.
            self.by_epoch = risen
        elif is_same or (isinstance(now, float) and self.by_epoch):
            self.by_pass = risen if risen > _LEAST else self.by_pass
        elif self.by_pass is None and (self._is_quiet or now <= epoch + 1):
            self.by_epoch = risen

    def add(self, risen, batches=0):
        """Gives it a later value."""
        for values, name in self._places() if risen else ():
            values[name] = type(values[name])(values[name] + risen)
        if self._before is not None:
            self._before = self._before[0], self.now()

    def set(self, value):
        """Gives it a value that its trainer has replaced."""
        for values, name in self._places():
            # What is a whole number by then has to be one.
            values[name] = type(values[name])(round(value, 9))
        self._before = self._before and (self._before[0], value)

    def now(self):
        """Returns its value; `None` where it has no number."""
        owner = self._owner()
        try:
            value = owner.get(self._name) if isinstance(owner, dict) else getattr(owner, self._name, None)
        except Exception:
            return None
        return value if type(value) in (int, float) else None

    def _places(self):
        owner = self._owner()
        values = owner if isinstance(owner, dict) else getattr(owner, "__dict__", {})
        return [(values, self._name)] if self._name in values else _behind(owner, self._name)


class Parameter(Number):
    """The same of a parameter that a trainer gives to the job's functions."""

    def __init__(self, place):
        super().__init__(place, None, None)
        self._given, self._left_out, self._most = None, 0, None

    def give(self, frame, name):
        now = scope_of(frame).get(name)
        self._given = now if type(now) is int else None
        if self._given is not None and self._left_out:
            set_values(frame, {name: max(min(now + self._left_out, self._most), now)})

    def add(self, risen, batches=0):
        self._left_out, self._most = self._left_out + int(risen), batches - 1

    def now(self):
        return self._given


def _behind(owner, name):
    """Returns the attributes from which a property is computed, as (values, name): those that change it."""
    before, found, all_ = getattr(owner, name), [], [owner]
    seen = {id(owner)}
    for it in all_:
        values = getattr(it, "__dict__", {})
        for key, value in list(values.items()):
            if type(value) is int and value == before:
                values[key] = value + 1
                try:
                    is_told = getattr(owner, name) != before
                finally:
                    values[key] = value
                if is_told:
                    found.append((values, key))
            elif id(value) not in seen and len(all_) < _OBJECTS and _is_object(value):
                seen.add(id(value))
                all_.append(value)
    return found


def _is_object(value):
    return hasattr(value, "__dict__") and not (isinstance(value, (type, types.ModuleType)) or inspect.isroutine(value))
