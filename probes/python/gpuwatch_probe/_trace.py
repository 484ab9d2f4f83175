"""Traces every allocation of a job that `gpuwatch run --trace` started, without holding up the thread that trains.

The allocator keeps its latest events in a ring. A thread of the probe has PyTorch write the ring down before events
that are not yet written are overwritten, and appends what it gets to a file. PyTorch holds the allocator's lock only
while it copies the ring, and does the rest without the GIL.

A trace has no call stacks: stacks of Python can be written only with the GIL held.
"""

import _thread
import ctypes
import errno
import json
import os
import pickle
import signal
import sys
import time
import zlib

from ._captures import Resting, is_recorded
from ._memory_history import SWITCHES, parameters
from ._native import log

# Events in the ring: PyTorch copies 20,000 in about 5 ms. With the GIL held, a piece must be smaller.
RING, SMALL_RING = 20_000, 2_500

# Seconds between two readings of the counters; and seconds after which even a few events are written.
_PACE, _PATIENCE = 0.02, 30

# Seconds until the history is switched on; without it the job continues untraced.
_START = 5

# `std::string torch::cuda::_memory_snapshot_pickled()`. Wheels of the old ABI of C++ have another name for it, and
# return another structure.
NATIVE_DUMP = "_ZN5torch4cuda24_memory_snapshot_pickledB5cxx11Ev"

# gzip's format, and its fastest level.
_GZIP, _FAST = 31, 1


def wanted():
    """Returns the most bytes of a trace and the folder for it; `None` if no trace is requested."""
    limit, _, folder = os.environ.get("GPUWATCH_TRACE", "").partition(":")
    return (int(limit), folder) if folder and limit.isdigit() else None


def traced(torch, backend, note):
    """Returns the running trace of this process; `None` if none is requested or possible."""
    try:
        asked = wanted()
        if asked is None:
            return None
        why = refusal(torch, backend)
        if why is None:
            limit, folder = asked
            trace = Trace(torch, note)
            trace.begin(folder, limit)
            return trace
    except Exception as error:
        why = "%r" % (error,)
    log("the job is not traced: %s" % why)
    return None


def refusal(torch, backend):
    """Returns why a job cannot be traced from here on, or `None`."""
    if backend != "native":
        return "the allocator %s keeps no trace" % backend
    if "stacks" not in parameters(torch):
        return "PyTorch %s keeps no trace that can be switched on in a running job: 2.1 does" % torch.__version__
    if is_recorded(torch):
        return "the job records its memory history itself"
    return None


class Trace:
    """The file with this process's trace, and the thread that writes it."""

    def __init__(self, torch, note, ring=RING):
        self._torch = torch
        self._note = note
        self._written = _thread.allocate_lock()
        self._wake, self._ready, self._done = (_thread.allocate_lock() for _ in range(3))
        # PyTorch's functions by name, and their replacements.
        self._watched = {}
        self._file, self._left = None, 0
        # The end of the latest whole piece, and the first line until it is written.
        self._whole, self._owed = 0, b""
        # Whether a part of a piece lies behind that.
        self._is_torn = False
        # What the file is known by, should it have to be opened again.
        self._name, self._first = "", b""
        self._is_full, self._pace = False, _PACE
        self._pieces, self._last, self._at = 0, 0, 0.0
        self._is_on = self._is_ending = self._is_over = self._is_urgent = False
        self._pid = os.getpid()
        self._skips = "skip_actions" in parameters(torch)
        self._take, self._ring = _native_dump(torch), ring
        if self._take is None:
            self._take, self._ring = _python_dump(torch), SMALL_RING
        # A block causes an allocation and a free, and in some releases a third event.
        self._enough = self._ring * (3 if self._skips else 2) // 5

    @property
    def is_on(self):
        """Whether the allocator keeps a history for this trace."""
        return self._is_on and not self._is_over

    def begin(self, folder, limit):
        """Makes the file and switches the history on; returns once that is done."""
        os.makedirs(folder, 0o700, exist_ok=True)
        # A process that executes itself again keeps its pid.
        self._make(os.path.join(folder, "%d_%d.trace" % (self._pid, time.time_ns() // 1000)), limit)
        self._start()

    def _make(self, name, limit):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file, self._left = os.open(name, flags, 0o600), limit
        self._name = name
        self._owed = self._first = self._line(
            {
                "gpuwatch_trace": 1,
                "pid": self._pid,
                "python": sys.executable,
                "torch": self._torch.__version__,
                "ring": self._ring,
                "reserved": self._sum("reserved_bytes", "current"),
            }
        )
        try:
            self._append(b"")
        except OSError as error:
            self._pauses(error)

    def _start(self):
        """Starts the thread; returns once it has switched the history on."""
        for it in (self._wake, self._ready, self._done):
            it.acquire()
        # The thread takes no signal of the job's.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            _thread.start_new_thread(self._run, ())
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._ready.acquire(True, _START)

    def write_now(self):
        """Has the thread write what there is at once: memory ran out, and the job may end."""
        self._is_urgent = True

    def end(self, why):
        """Writes what is left and ends the trace, in the thread that calls it; waits for a piece that is being
        written."""
        # A signal handler of the job's may come here while this runs.
        if self._is_ending or self._file is None:
            return
        self._is_ending = True
        with self._written:
            if not self._is_over:
                self._finish(why)
        self._done.acquire(True, _START)

    def forked(self):
        """To be called in a forked child: the file is the parent's."""
        self._is_over = True
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _run(self):
        """The thread. It alone switches the history, because PyTorch ties a part of that to the thread that does it."""
        try:
            self._switch_on()
            self._now_ready()
            while not self._is_over:
                self._wake.acquire(True, self._pace)
                with self._written:
                    if not self._is_over and self._is_due():
                        self._next_piece()
        except Exception as error:
            self._fail(error)
        finally:
            self._now_ready()
            self._switch_off()
            self._done.release()

    def _now_ready(self):
        if self._ready.locked():
            self._ready.release()

    def _fail(self, error):
        self._note("the trace ended: %r" % (error,))
        try:
            with self._written:
                if not self._is_over:
                    self._is_over = True
                    self._close("%r" % (error,))
        except Exception:
            pass

    def _switch_on(self):
        # A replay has no use for these.
        more = {"skip_actions": ["free_requested"]} if self._skips else {}
        switch_on = self._torch.cuda.memory._record_memory_history
        switch_on(enabled="all", max_entries=self._ring, **self._history(), **more)
        self._is_on = True
        for name in SWITCHES:
            real = getattr(self._torch._C, name, None)
            if real is not None:
                self._watched[name] = real, self._watching(real)
                setattr(self._torch._C, name, self._watched[name][1])

    def _history(self):
        """Returns what the history records beside the events."""
        return {"context": None, "stacks": "python"}

    def _watching(self, real):
        def switch(*arguments, **named):
            # The history is the job's from then on, and nothing of this trace is left in it.
            self.end("the job began to record its memory history itself")
            return real(*arguments, **named)

        return switch

    def _switch_off(self):
        was_on = self._is_on
        while self._watched:
            name, (real, watching) = self._watched.popitem()
            if getattr(self._torch._C, name) is watching:
                setattr(self._torch._C, name, real)
        self._is_on = False
        if was_on:
            try:
                self._torch.cuda.memory._record_memory_history(enabled=None)
            except Exception as error:
                self._note("the history could not be switched off: %r" % (error,))

    def _is_due(self):
        events = self._events()
        new = events - self._last
        if not new:
            return False
        waited = time.monotonic() - self._at
        return self._is_urgent or new >= self._enough or not self._pieces or waited >= _PATIENCE

    def _next_piece(self):
        try:
            self._piece()
            self._is_full = False
        except OSError as error:
            # The next piece continues; where the ring did not keep what this one lost, the trace begins there.
            self._pauses(error)

    def _pauses(self, error):
        if not self._is_full:
            self._is_full = True
            self._note("the trace pauses: %s" % (error,))

    def _piece(self):
        """Writes the ring as it is."""
        self._is_urgent = False
        begun, begun_at = time.thread_time(), time.monotonic()
        unix_us, self._last, allocations = time.time_ns() // 1000, self._events(), self._sum("allocation", "allocated")
        packed = self._take(self._packed)
        self._at = time.monotonic()
        cpu_us = int(1e6 * (time.thread_time() - begun))
        head = {"piece": self._pieces, "bytes": len(packed), "unix_us": unix_us, "allocations": allocations, "cpu_us": cpu_us}
        head["took_us"] = int(1e6 * (self._at - begun_at))
        head.update(self._about_piece())
        if len(packed) + 1024 > self._left:
            self._finish("its limit of bytes is reached", False)
            return
        self._write(head, packed)
        self._pieces += 1

    def _about_piece(self):
        """Returns what a reader must know of the piece that was just taken."""
        return {}

    @staticmethod
    def _packed(data):
        packer = zlib.compressobj(_FAST, zlib.DEFLATED, _GZIP)
        return packer.compress(data) + packer.flush()

    def _finish(self, why, with_piece=True):
        """Called with the lock held."""
        if with_piece and (self._events() != self._last or not self._pieces):
            try:
                self._piece()
            except Exception as error:
                why = "%s; %r" % (why, error)
        if not self._is_over:
            self._is_over = True
            self._close(why)
        try:
            self._wake.release()
        except RuntimeError:
            pass

    def _close(self, why):
        try:
            self._write({"end": why})
        except OSError as error:
            self._note("the trace has no end: %s" % (error,))
        finally:
            file, self._file = self._file, None
            os.close(file)

    def _write(self, head, data=b""):
        self._append(self._line(head) + data)

    @staticmethod
    def _line(head):
        return json.dumps(head).encode() + b"\n"

    def _append(self, data):
        data = self._owed + data
        try:
            self._put(data)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            self._open_again()
            self._put(data)
        self._whole += len(data)
        self._left -= len(data)
        self._owed = b""

    def _put(self, data):
        if self._is_torn:
            # A part of a piece would hide all that follow.
            os.ftruncate(self._file, self._whole)
        self._is_torn = True
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self._is_torn = False

    def _open_again(self):
        """A file system was mounted again: the descriptor is of the one before."""
        file = os.open(self._name, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        if os.fstat(file).st_size < self._whole or os.pread(file, len(self._first), 0) != self._first:
            os.close(file)
            raise OSError(errno.ESTALE, "another file has the place of the trace")
        os.close(self._file)
        self._file = file

    def _events(self):
        """Allocations and frees since the job began: the events are as many, or a few more."""
        return self._sum("allocation", "allocated") + self._sum("allocation", "freed")

    def _sum(self, of, which):
        return sum(self._torch._C._cuda_memoryStats(it)[of]["all"][which] for it in self._devices())

    def _devices(self):
        inner = self._torch._C
        return [it for it in range(inner._cuda_getDeviceCount()) if inner._cuda_hasPrimaryContext(it)]


class _String(ctypes.Structure):
    """A `std::string` of the new ABI."""

    _fields_ = [("at", ctypes.c_void_p), ("length", ctypes.c_size_t), ("rest", ctypes.c_char * 16)]


def _native_dump(torch):
    """Returns what writes a snapshot without the GIL and hands its bytes to a function, whose result it returns.

    `None` where this PyTorch has no such function. With Python stacks in the history it must not be called.
    """
    path = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cuda.so")
    try:
        library = ctypes.CDLL(path)
        snapshot, delete = library[NATIVE_DUMP], library._ZdlPv
    except (OSError, AttributeError):
        return None
    snapshot.restype, snapshot.argtypes = _String, ()
    delete.restype, delete.argtypes = None, (ctypes.c_void_p,)

    def take(use):
        string = snapshot()
        try:
            return use((ctypes.c_char * string.length).from_address(string.at))
        finally:
            # Shorter strings would lie within the structure, and no snapshot is as short.
            delete(string.at)

    return take


def _python_dump(torch):
    """Returns the same with the GIL held."""

    def take(use):
        with Resting():
            held = torch.cuda.memory._snapshot()
        return use(pickle.dumps(held, 4))

    return take
