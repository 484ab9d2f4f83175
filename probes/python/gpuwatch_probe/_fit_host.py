"""What a job under `gpuwatch fit` takes of the machine's own memory: its process, what it pins, and the workers of its
loaders."""

import ctypes
import os
import resource
import sys
import threading
import time

# The machine's memory, the part of it that has to stay free, and the part that a job takes before it is ended for that.
_MEMINFO, _FREE, _MUCH = "/proc/meminfo", 0.05, 0.25
# Seconds between two looks, and how many times as long as a look there is none.
_OFTEN, _REST = 0.2, 20


class HostMemory:
    """The most that the job took at a time, of what a thread saw and what the kernel knows."""

    def __init__(self, folder):
        self._folder = folder
        self._most = 0
        self._beyond = None

    def bytes(self):
        # The kernel knows the highest moment of the process alone.
        return max(self._most, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)

    def look(self):
        """Adds up what the job takes now."""
        now = _resident() + self._workers()
        self._most = max(self._most, now + self._pinned_beyond())
        return now

    def watch(self, is_over, end):
        """Looks until the job is over, and ends it where it takes all of this machine's memory, which stands for a
        larger one."""
        event, rest = threading.Event(), _OFTEN
        while not is_over():
            event.wait(rest)
            try:
                begun = time.monotonic()
                own = self.look()
                with open(_MEMINFO) as file:
                    sizes = {it.split(":")[0]: int(it.split()[1]) << 10 for it in file}
                rest = max(_OFTEN, _REST * (time.monotonic() - begun))
                if sizes["MemAvailable"] < sizes["MemTotal"] * _FREE and own > sizes["MemTotal"] * _MUCH and not is_over():
                    return end()
            except Exception:
                return

    def _workers(self):
        """Returns what loaders' workers have for themselves: what they share with the process is its own already."""
        children = getattr(sys.modules.get("multiprocessing.process"), "_children", ())
        return sum(_private(it.pid) for it in list(children) if not self._is_of_device(it.pid))

    def _is_of_device(self, pid):
        """Whether a process has a report of its own, as the ranks have that a program starts."""
        return os.path.exists(os.path.join(self._folder, "%s.json" % pid))

    def _pinned_beyond(self):
        """Returns the bytes of pinned memory that nothing was written to. On a real machine they are resident, too."""
        if self._beyond is None:
            try:
                self._beyond = ctypes.CDLL("libsimgpu.so").simgpu_pinned_beyond
                self._beyond.restype = ctypes.c_uint64
            except (OSError, AttributeError):
                self._beyond = int
        return self._beyond()


def _resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _private(pid):
    """Returns the bytes that a process shares with no other one; 0 where it has ended."""
    try:
        with open("/proc/%d/smaps_rollup" % pid) as file:
            return sum(int(it.split()[1]) << 10 for it in file if it.startswith("Private_"))
    except (OSError, TypeError, ValueError):
        return 0
