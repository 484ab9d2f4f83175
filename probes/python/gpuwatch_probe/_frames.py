"""What the local variables of frames hold, by identity, without the job noticing.

`frame.f_locals` would not do before Python 3.13: of a function's frame it makes a dictionary that the frame keeps,
and with it every value that the job lets go of later, or writes over the one that the job has from `locals()`. So
each release is read in the way that leaves nothing behind: 3.13 and newer through `f_locals`, which is only a view
there; 3.12 through `PyFrame_GetVar`; older ones by looking at the frame's variables where CPython keeps them.
"""

import sys
from _thread import get_ident
from functools import partial
from operator import attrgetter
from types import AsyncGeneratorType, CellType, CoroutineType, GeneratorType

# Frames looked at, of all threads together, and variables of one frame: more are a runaway recursion, or generated.
_MOST_FRAMES = 1000
_MOST_VARIABLES = 400

_OPTIMIZED = 1  # CO_OPTIMIZED: a function's frame; a module's has its variables in a dictionary.

# By the type's identity: to hash or compare a type may be the job's own code.
_FRAMES = {id(GeneratorType): "gi_frame", id(CoroutineType): "cr_frame", id(AsyncGeneratorType): "ag_frame"}

_PACKAGE = __name__.rpartition(".")[0]


def running():
    """Frames of functions that run now, each thread's innermost first; the probe's own are left out."""
    tops = []
    if getattr(sys, "_is_gil_enabled", bool)() or sys.version_info < (3, 13):
        # Without the lock another thread's frames may go while they are looked at.
        tops = sys._current_frames()
        # A frame that is in a variable of its own would live on, and with it all that it refers to.
        del tops[get_ident()]
        tops = list(tops.values())
    tops.insert(0, sys._getframe(1))
    found = []
    for frame in tops:
        while frame is not None and len(found) < _MOST_FRAMES:
            if not is_own(frame):
                found.append(frame)
            frame = frame.f_back
    return found


def is_own(frame):
    """Whether it runs code of this package."""
    name = dict.get(frame.f_globals, "__name__")
    return type(name) is str and (name == _PACKAGE or name.startswith(_PACKAGE + "."))


def is_library(file):
    """Whether a source file is no part of the job's own program."""
    return "site-packages" in file or "dist-packages" in file or file.startswith((sys.base_prefix + "/lib/", "<frozen"))


def of_generator(it):
    """The frame of a generator or coroutine that is not over; `None` of anything else."""
    name = _FRAMES.get(id(type(it)))
    return getattr(it, name) if name else None


def function_name(code):
    """`Trainer.fit` for the code of that method; functions within functions go by their own name."""
    return getattr(code, "co_qualname", code.co_name).rpartition("<locals>.")[2]


def values(frame):
    """`[(name, value)]` of a frame's variables, those of shared variables included; none where it cannot be read."""
    code = frame.f_code
    if not code.co_flags & _OPTIMIZED:
        # The very dictionary in which its variables are, which may be another one than its module's.
        mapping = frame.f_locals
        return list(dict.items(mapping)) if type(mapping) is dict and mapping is not frame.f_globals else []
    names = _names(code)
    if len(names) > _MOST_VARIABLES or _read is None:
        return []
    try:
        return _read.values(frame, names)
    except (AttributeError, KeyError, NameError, RuntimeError, ValueError):
        return []


def variables(frame):
    """`[(name, id of its value)]` of a function's frame; `None` where this Python cannot be read without a trace.

    A variable that is shared with an inner function comes with the identity of its cell too.
    """
    code = frame.f_code
    if not code.co_flags & _OPTIMIZED:
        return []
    names = _names(code)
    if len(names) > _MOST_VARIABLES or _read is None:
        return None
    try:
        return _read.ids(frame, names)
    except (AttributeError, KeyError, NameError, RuntimeError, ValueError):
        return None


def _names(code):
    """The variables of a function in the order in which its frame has them."""
    own = code.co_varnames
    if sys.version_info >= (3, 11):
        # An argument that an inner function uses has one place; before, it had two.
        return own + tuple(it for it in code.co_cellvars if it not in own) + code.co_freevars
    return own + code.co_cellvars + code.co_freevars


class _ByName:
    """3.13 and newer: `f_locals` is a view of the frame; 3.12: `PyFrame_GetVar`."""

    def __init__(self, get):
        self._get = get

    def values(self, frame, names):
        get, found = self._get(frame), []
        for name in names:
            try:
                found.append((name, get(name)))
            except (KeyError, NameError):
                pass
        return found

    def ids(self, frame, names):
        return [(name, id(it)) for name, it in self.values(frame, names)]


class _Places:
    """3.11 and older: where CPython keeps the variables of a frame, as the released headers have it.

    Each look is one call into C, during which no other thread can run and end the frame.
    """

    def __init__(self, ctypes):
        self._ctypes = ctypes
        # Readers by number of variables: those of identities, and of single values.
        self._ids, self._values = {}, {}

    def _type(self, kind, count):
        ctypes = self._ctypes
        slots = [("s%d" % at, kind) for at in range(count)]
        if sys.version_info < (3, 11):
            # PyFrameObject ends in f_localsplus[1].
            from types import FrameType

            head = [("head", ctypes.c_char * (FrameType.__basicsize__ - 8))]
            return type("Frame", (ctypes.Structure,), {"_fields_": head + slots}), ""
        # PyFrameObject: two words of head, f_back, f_frame; _PyInterpreterFrame: nine words before localsplus.
        inner = type("Inner", (ctypes.Structure,), {"_fields_": [("head", ctypes.c_char * 72)] + slots})
        fields = [("head", ctypes.c_char * 24), ("f_frame", ctypes.POINTER(inner))]
        return type("Frame", (ctypes.Structure,), {"_fields_": fields}), "f_frame.contents."

    def _addresses(self, frame, count):
        """The addresses in all places of a frame; 0 in those that hold nothing."""
        if count not in self._ids:
            kind, prefix = self._type(self._ctypes.c_size_t, count)
            # With a single name it would give no tuple.
            self._ids[count] = kind, attrgetter(*[prefix + "s%d" % at for at in range(count)] + [prefix + "s0"])
        kind, get = self._ids[count]
        return get(kind.from_address(id(frame)))[:count]

    def _value(self, frame, at):
        """What one place holds."""
        if at not in self._values:
            kind, prefix = self._type(self._ctypes.py_object, at + 1)
            self._values[at] = kind, attrgetter(prefix + "s%d" % at)
        kind, get = self._values[at]
        return get(kind.from_address(id(frame)))

    def ids(self, frame, names):
        return [it for name, value in self._raw(frame, names) for it in _named(name, value)]

    def values(self, frame, names):
        found = []
        for name, value in self._raw(frame, names):
            try:
                found.append((name, value.cell_contents if type(value) is CellType else value))
            except ValueError:
                pass  # An empty cell.
        return found

    def _raw(self, frame, names):
        """What the places hold: of a variable that is shared with an inner function, its cell."""
        addresses = self._addresses(frame, len(names)) if names else ()
        for at, (name, address) in enumerate(zip(names, addresses)):
            if address:
                yield name, self._value(frame, at)

    def is_right(self):
        """Whether the places are where they are thought to be, by a frame whose variables are known."""

        def probe(first, shared, unset=None):
            del unset
            frame = sys._getframe()
            inner = lambda: shared  # noqa: E731
            return frame, _names(frame.f_code), first, inner

        first, shared = object(), object()
        frame, names, first, inner = probe(first, shared)
        told = dict(zip(names, self._addresses(frame, len(names))))
        cell = inner.__closure__[0]
        want = {"first": id(first), "frame": id(frame), "inner": id(inner), "unset": 0, "shared": id(cell)}
        # Before 3.11 `shared` has two places; the latter, which the dictionary kept, is the cell's there too.
        return all(told.get(name) == value for name, value in want.items())


def _named(name, value):
    yield name, id(value)
    try:
        if type(value) is CellType:
            yield name, id(value.cell_contents)
    except ValueError:
        pass  # An empty cell.


def _reader():
    """How this Python's frames are read; `None` where that is not known for certain."""
    if sys.implementation.name != "cpython":
        return None
    if sys.version_info >= (3, 13):
        return _ByName(lambda frame: frame.f_locals.__getitem__)
    try:
        import ctypes

        if sys.version_info >= (3, 12):
            get = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object)(
                ("PyFrame_GetVar", ctypes.pythonapi)
            )
            return _ByName(lambda frame: partial(get, frame))
        if hasattr(sys, "gettotalrefcount") or ctypes.sizeof(ctypes.c_void_p) != 8:
            return None
        places = _Places(ctypes)
        return places if places.is_right() else None
    except Exception:
        return None


_read = _reader()
