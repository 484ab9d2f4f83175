"""Loads the compiled probe and passes samples to it; if loading fails, a line in a log file has the remedy.

The library's table lists the counters of a sample and their places in PyTorch's dictionary.
"""

import ctypes
import os
import stat
import sys

from ._frames import has_lock

STEP, TICK, CALL = 0, 1, 2

# Return codes: invalid arguments; a viewer requests sites; Python itself has to handle this optimizer step; reading the
# counters has raised.
INVALID, REQUESTED, NOT_ARMED, RAISED = -2, 1, 2, -1000


# The library's path where gpuwatch itself has put it; and the library, which is loaded once.
LIBRARY = None
_loaded = {}


def loaded():
    """Returns the library, loaded now if need be."""
    at = path()
    if at not in _loaded:
        _loaded[at] = Native()
    return _loaded[at]


def young(most):
    """Returns the latest `most` of the collector's containers, the oldest of them first; `None` where only
    `gc.get_objects` lists them."""
    is_known = (3, 9) <= sys.version_info < (3, 14) and sys.implementation.name == "cpython" and sys.maxsize > 1 << 32
    # A build that can do without the lock keeps no such lists, also while it has the lock.
    is_known = is_known and "t" not in sys.abiflags
    if not is_known or not has_lock() or hasattr(sys, "gettotalrefcount") or not _loaded:
        return None
    return next(iter(_loaded.values())).young(most)[::-1]


class Frame(ctypes.Structure):
    """`struct gpuwatch_frame` (gpuwatch_probe.h)."""

    _fields_ = [("file", ctypes.c_char_p), ("line", ctypes.c_uint64), ("function", ctypes.c_char_p)]


class FailedRequest(ctypes.Structure):
    """`struct gpuwatch_request` (gpuwatch_probe.h)."""

    _fields_ = [
        ("frames", ctypes.POINTER(Frame)),
        ("count", ctypes.c_uint32),
        ("has_library", ctypes.c_uint32),
        ("phase", ctypes.c_char_p),
        ("again_bytes", ctypes.c_uint64),
    ]


class Native:
    """The loaded library. Its functions keep the GIL: releasing it would cost milliseconds to get it back."""

    def __init__(self):
        if LIBRARY is None:
            _check(os.environ.get("GPUWATCH_PROBE_SO"))
        self.lib = lib = ctypes.PyDLL(path())
        self._builtins = {}
        text, number = ctypes.c_char_p, ctypes.c_uint64
        for name, arguments in (
            ("describe", (text, text)),
            ("device", (ctypes.c_uint32, text, text, number)),
            ("start", ()),
            ("mark", (text, ctypes.c_int64, ctypes.c_int32)),
            ("oom_of", (ctypes.c_uint32, number, number, number, number, text, ctypes.c_void_p, ctypes.c_void_p)),
            ("oom_message", (ctypes.c_uint32, text)),
            ("stop", (text,)),
            ("reset", ()),
            ("log", (text,)),
            ("sites", (text, ctypes.c_int32)),
            ("sites_asked", ()),
            ("sites_rises", ()),
            ("torch_counters", (text,)),
            ("window_asked", ()),
            ("window_ended", (number,)),
        ):
            function = getattr(lib, "gpuwatch_" + name)
            function.argtypes = arguments
            is_number = name in ("sites_asked", "sites_rises", "torch_counters", "window_asked")
            function.restype = number if is_number else ctypes.c_int32
            setattr(self, name, function)
        self.folder = lib.gpuwatch_folder
        self.folder.restype = text
        self.fault = lib.gpuwatch_fault
        self.fault.restype = text
        self.latest = lib.gpuwatch_latest
        self.latest.argtypes, self.latest.restype = (ctypes.c_int32,), text

    def builtin(self, name):
        """Returns a builtin function of the library (gpuwatch_probe.h): a ctypes call would cost each step
        microseconds."""
        # Each one that is made lives as long as the process.
        if name not in self._builtins:
            make = self.lib.gpuwatch_python
            make.argtypes = (ctypes.c_char_p,)
            make.restype = ctypes.py_object
            self._builtins[name] = make(utf8(name))
        return self._builtins[name]

    def young(self, most):
        """Returns the latest of the collector's containers, the latest first, as far as `most`."""
        young = self.lib.gpuwatch_young
        young.argtypes, young.restype = (ctypes.py_object, ctypes.c_uint32), ctypes.py_object
        return young([], most)

    def stop_aside(self, reason):
        """Stops the probe without Python's lock, which the job needs meanwhile."""
        stop = ctypes.CDLL(None, handle=self.lib._handle).gpuwatch_stop
        stop.argtypes = (ctypes.c_char_p,)
        return stop(utf8(reason))


def path():
    """Returns the library's path: where gpuwatch put it, from the environment, or next to this file."""
    named = LIBRARY or os.environ.get("GPUWATCH_PROBE_SO")
    return named or os.path.join(os.path.dirname(os.path.abspath(__file__)), "libgpuwatch_probe.so")


def _check(named):
    """Refuses a library from the environment that another user may have written."""
    if not named:
        return
    found = os.stat(named)
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o022:
        raise OSError("others may have written it")


def utf8(text):
    """Text as the library takes it: UTF-8 without NUL."""
    return str(text).encode("utf-8", "replace").replace(b"\0", b"")


def log_file():
    """Returns the path of the probe's log file."""
    folder = os.environ.get("GPUWATCH_SOCKET_DIR") or "/tmp/gpuwatch-%d" % os.geteuid()
    return os.environ.get("GPUWATCH_LOG") or os.path.join(folder, "%d.log" % os.getpid())


def log(line):
    """Writes a line to the probe's log file, if the library that otherwise writes it is missing."""
    try:
        name = log_file()
        if not os.environ.get("GPUWATCH_LOG"):
            folder = os.path.dirname(name)
            try:
                os.mkdir(folder, 0o700)
            except FileExistsError:
                pass
            found = os.lstat(folder)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(name, flags, 0o600)
        try:
            os.write(file, utf8(line).replace(b"\n", b" ") + b"\n")
        finally:
            os.close(file)
    except Exception:
        pass


def cure(error):
    """Returns what to do about a library that does not load."""
    text = str(error)
    if "others may have" in text:
        return "let it belong to this user or root, mode 0600 or less"
    if "GLIBC_" in text:
        return "this system's C library is too old for it: use a newer image, or a gpuwatch built on one as old"
    if "wrong ELF class" in text or "invalid ELF header" in text:
        return "it is built for another architecture: run the gpuwatch of this machine's architecture"
    if "failed to map" in text or "not permitted" in text:
        return "its file system forbids execution: set XDG_CACHE_HOME to a directory that allows it"
    if "No such file" in text or "cannot open" in text:
        return "it is not there: set GPUWATCH_PROBE_SO to it, or start the job with `gpuwatch run`"
    return "start the job with `gpuwatch run` of the same release"


_NO_PARTS = None, None, None


def taker(push, stats, host, mask, joined, memory):
    """Makes `take(devices, step, edge, with_pinned=False, parts=None)`, which pushes one row for each device.

    `joined(device)` returns the bytes and blocks of parameters that joined an optimizer, `memory(device)` the free and
    total bytes of the device, and `parts` has the bytes of weights, gradients and optimizer state by device, at the
    instants at which they were counted.

    `mask` has a bit for each valid counter. `push` leaves out counters that this PyTorch does not have.
    `take` returns true if a viewer requests sites.
    """

    def take(devices, step, edge, with_pinned=False, parts=None):
        code = 0
        for device in devices:
            of = parts.get(device, ()) if parts else ()
            if with_pinned:
                beside = *pinned(host), *joined(device), *(of or _NO_PARTS), *memory(device)
                code = push(stats(device), device, step, edge, mask, *beside)
            elif of:
                code = push(stats(device), device, step, edge, mask, None, None, None, None, *of)
            else:
                code = push(stats(device), device, step, edge, mask)
            if code == INVALID:
                raise unknown_shape()
        return code == REQUESTED

    return take


def unknown_shape():
    """Returns the error for a row that could not be read."""
    return ValueError("this PyTorch's counters are of a shape that this probe does not know")


def pinned(host):
    """Pinned bytes in use and held; the keys were renamed in PyTorch 2.10, before 2.7 there is nothing."""
    if host is None:
        return None, None
    now = host()
    if "active_bytes" in now:
        return now["active_bytes"]["current"], now["allocated_bytes"]["current"]
    if "reserved_bytes" in now:
        return now["allocated_bytes"]["current"], now["reserved_bytes"]["current"]
    return None, None
