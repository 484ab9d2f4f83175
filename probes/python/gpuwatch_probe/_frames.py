"""Reads the local variables of frames, by identity, without side effects on the job.

Before Python 3.13, `frame.f_locals` creates a dictionary that the frame keeps. It would keep values alive that the job
releases later, or overwrite the dictionary that the job has from `locals()`. So each release is read in a way that
leaves nothing behind: 3.13 and newer through `f_locals`, which is only a view there; 3.12 through `PyFrame_GetVar`;
older ones from the places in the frame where CPython keeps its variables.
"""

import sys
from _thread import get_ident
from functools import partial
from operator import attrgetter
from types import AsyncGeneratorType, CellType, CoroutineType, FrameType, GeneratorType

# Limits for frames of all threads together, and for variables of one frame: more is runaway recursion or generated
# code.
_MOST_FRAMES = 1000
_MOST_VARIABLES = 400

_OPTIMIZED = 1  # CO_OPTIMIZED: a function's frame; a module's has its variables in a dictionary.

# By the type's identity: hashing or comparing a type may run the job's code.
_FRAMES = {id(GeneratorType): "gi_frame", id(CoroutineType): "cr_frame", id(AsyncGeneratorType): "ag_frame"}

_PACKAGE = __name__.rpartition(".")[0]


def has_lock():
    """Whether Python has its global lock. Without it, frames of other threads may end while they are read."""
    return sys.version_info < (3, 13) or sys._is_gil_enabled()


def is_free_threaded():
    """Whether this build of Python can do without its global lock: its collector lists no young objects, and gives
    the search fewer holders, also while the lock is switched on."""
    return "t" in sys.abiflags


def running():
    """Returns the running frames, each thread's innermost first, without the probe's own."""
    tops = []
    if has_lock():
        tops = sys._current_frames()
        # A frame held by its own variable would stay alive, with all that it refers to.
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
    """Whether the frame runs code of this package."""
    name = dict.get(frame.f_globals, "__name__")
    return type(name) is str and (name == _PACKAGE or name.startswith(_PACKAGE + "."))


def is_library(file):
    """Whether a source file belongs to a library or to Python."""
    return "site-packages" in file or "dist-packages" in file or file.startswith((sys.base_prefix + "/lib/", "<frozen"))


def of_generator(it):
    """Returns the frame of an unfinished generator or coroutine; `None` for anything else."""
    name = _FRAMES.get(id(type(it)))
    return getattr(it, name) if name else None


def function_name(code):
    """Returns `Trainer.fit` for the code of that method; nested functions have their own name."""
    return getattr(code, "co_qualname", code.co_name).rpartition("<locals>.")[2]


def values(frame):
    """Returns `[(name, value)]` of a frame's variables, with closure variables; empty if the frame is unreadable."""
    code = frame.f_code
    if not code.co_flags & _OPTIMIZED:
        # The frame's own namespace, which may differ from its module's.
        mapping = frame.f_locals
        return list(dict.items(mapping)) if type(mapping) is dict and mapping is not frame.f_globals else []
    names = _names(code)
    if len(names) > _MOST_VARIABLES or _read is None:
        return []
    try:
        return _read.values(frame, names)
    except (AttributeError, KeyError, NameError, RuntimeError, ValueError):
        return []


def values_here(frame):
    """Returns the values of a function's variables for a frame of the calling thread; empty if they are unreadable. On
    older Pythons it is much faster than `values`."""
    if type(_read) is not _Places:
        return [value for _, value in values(frame)]
    code = frame.f_code
    count = len(_names(code)) if code.co_flags & _OPTIMIZED else 0
    return _read.here(frame, count) if 0 < count <= _MOST_VARIABLES else []


def variables(frame):
    """Returns `[(name, id of its value)]` of a function's frame; `None` if reading it has side effects.

    A variable shared with an inner function also comes with the identity of its cell.
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
    """Returns the variables of a function in the order of its frame."""
    own = code.co_varnames
    if sys.version_info >= (3, 11):
        # An argument that an inner function uses has one place; before 3.11, two.
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
    """3.11 and older: reads the variables where CPython keeps them, according to the released headers.

    Each read is one call into C, during which no other thread can run and end the frame.
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
            head = [("head", ctypes.c_char * (FrameType.__basicsize__ - 8))]
            return type("Frame", (ctypes.Structure,), {"_fields_": head + slots}), ""
        # PyFrameObject: two words of head, f_back, f_frame; _PyInterpreterFrame: nine words before localsplus.
        inner = type("Inner", (ctypes.Structure,), {"_fields_": [("head", ctypes.c_char * 72)] + slots})
        fields = [("head", ctypes.c_char * 24), ("f_frame", ctypes.POINTER(inner))]
        return type("Frame", (ctypes.Structure,), {"_fields_": fields}), "f_frame.contents."

    def _addresses(self, frame, count):
        """Returns the addresses in all places of a frame; 0 in empty ones."""
        if count not in self._ids:
            kind, prefix = self._type(self._ctypes.c_size_t, count)
            # With a single name, `attrgetter` would not return a tuple.
            self._ids[count] = kind, attrgetter(*[prefix + "s%d" % at for at in range(count)] + [prefix + "s0"])
        kind, get = self._ids[count]
        return get(kind.from_address(id(frame)))[:count]

    def _value(self, frame, at):
        """Returns the value in one place."""
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

    def here(self, frame, count):
        """Returns the values in the first places; of a frame of the calling thread, which cannot end meanwhile."""
        ctypes = self._ctypes
        if sys.version_info < (3, 11):
            begin = id(frame) + FrameType.__basicsize__ - 8
        else:
            begin = ctypes.c_size_t.from_address(id(frame) + 24).value + 72
        addresses = (ctypes.c_size_t * count).from_address(begin)[:]
        read, found = ctypes.py_object.from_address, []
        for at in (at for at, it in enumerate(addresses) if it):
            value = read(begin + 8 * at).value
            try:
                # A variable that functions share.
                found.append(value.cell_contents if type(value) is CellType else value)
            except ValueError:
                pass  # An empty cell.
        return found

    def _raw(self, frame, names):
        """Yields the values of the places; for a variable shared with an inner function, its cell."""
        addresses = self._addresses(frame, len(names)) if names else ()
        for at, (name, address) in enumerate(zip(names, addresses)):
            if address:
                yield name, self._value(frame, at)

    def is_right(self):
        """Checks the assumed places against a frame with known variables."""

        def probe(first, shared, unset=None):
            del unset
            frame = sys._getframe()
            inner = lambda: shared  # noqa: E731
            return frame, _names(frame.f_code), first, inner

        first, shared = object(), object()
        frame, names, first, inner = probe(first, shared)
        found = dict(zip(names, self._addresses(frame, len(names))))
        cell = inner.__closure__[0]
        want = {"first": id(first), "frame": id(frame), "inner": id(inner), "unset": 0, "shared": id(cell)}
        # Before 3.11 `shared` has two places; the dictionary keeps the latter, which is the cell's.
        return all(found.get(name) == value for name, value in want.items())


def _named(name, value):
    yield name, id(value)
    try:
        if type(value) is CellType:
            yield name, id(value.cell_contents)
    except ValueError:
        pass  # An empty cell.


def _reader():
    """Returns the reader for this Python's frames; `None` if none is certain to be right."""
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
