"""Traces the allocations of a few steps at a viewer's request, in a job that is not traced.

A window is a trace that begins in the middle of the run. Its file lies next to the socket, and its reader removes it.
The history is switched on for the window alone, and never while the job keeps one of its own.
"""

import os
import stat
import time

from ._trace import Trace, refusal

# Events in the ring. A window may interrupt a job that was never asked, so its pieces are smaller than a trace's.
RING = 10_000

# The most bytes of a window.
_LIMIT = 64 << 20

# Seconds of a window in a job that has counted no step.
_WITHOUT_STEPS = 10

# Seconds after which no reader of a file is left; the probe writes to it for a minute at most.
_LEFT_BEHIND = 600

# The most live blocks that are written down with stacks, at some 3 µs each, where pauses may not be long.
_MOST_BLOCKS = 12_000

# The parts of a request, as in gpuwatch_probe.h.
_STEPS, _SECONDS, LONG_PAUSES, WITH_STACKS = (1 << 20) - 1, (1 << 10) - 1, 1 << 30, 1 << 31


class Windows:
    """Takes requests for windows, one at a time.

    `number` returns the number of the latest step, `note` writes a line to the probe's log, and `sites` captures call
    stacks, which rests during a window.
    """

    def __init__(self, torch, backend, native, number, note, sites, is_traced):
        self._torch, self._backend, self._native = torch, backend, native
        self._number, self._note, self._sites, self._is_traced = number, note, sites, is_traced
        self._current = None
        # A job that never asks for requests gets none.
        native.window_asked()

    @property
    def current(self):
        """The window that is being traced; `None` without one."""
        window = self._current
        return window if window is not None and window.is_on else None

    @property
    def watches_steps(self):
        """Whether a window waits for the ends of steps."""
        window = self._current
        return window is not None and window.watches_steps

    def boundary(self, number, parts):
        """Hands the end of a step, and the optimizers of the job, to a window that waits for it."""
        window = self._current
        if window is not None and window.watches_steps:
            window.boundary(number, parts)

    def second(self):
        """Begins a requested window; on the timer's thread."""
        request = self._native.window_asked()
        # A capture ends first.
        if not request or self._current is not None or not self._sites.bar():
            return
        kind = Window
        if request & WITH_STACKS:
            from ._peak_window import PeakWindow as kind
        window = self._current = kind(self._torch, self._note, self._native, request, self._number, self._over)
        try:
            why = self._refusal(request)
            if why is None:
                _sweep(self._native)
                window.begin_at(_path(self._native, request))
            else:
                window.refuse(_path(self._native, request), why)
        except Exception as error:
            self._note("no window was traced: %r" % (error,))
            window.give_up()

    def end(self):
        """Ends with the probe; what was traced is written."""
        if self._current is not None:
            self._current.end("the probe ended")

    def forked(self):
        """To be called in a forked child: the file is the parent's."""
        if self._current is not None:
            self._current.forked()

    def _refusal(self, request):
        if "nosites" in os.environ.get("GPUWATCH", "").split(","):
            return "GPUWATCH=nosites forbids it in this job"
        if request & WITH_STACKS and "noparts" in os.environ.get("GPUWATCH", "").split(","):
            return "GPUWATCH=noparts forbids it in this job"
        if self._is_traced():
            return "gpuwatch run --trace traces it: replay its recording"
        why = refusal(self._torch, self._backend)
        if why is None and request & WITH_STACKS and not request & LONG_PAUSES:
            blocks = self._current.live_blocks()
            if blocks > _MOST_BLOCKS:
                pause = "writing down its %d live blocks would pause it for about %d ms (--long-pauses allows that)"
                return pause % (blocks, 3 * blocks // 1000)
        return why

    def _over(self, request):
        self._current = None
        self._sites.unbar()
        self._native.window_ended(request)


class Window(Trace):
    """The trace of some steps. `over` is called once with the request when everything is as it was."""

    # Whether `boundary` is to be called at the end of a step.
    watches_steps = False

    def __init__(self, torch, note, native, request, number, over):
        super().__init__(torch, note, RING)
        self._native, self._request, self._number, self._over = native, request, number, over
        self._first, self._begun, self._why, self._path = 0, 0.0, None, None

    def begin_at(self, path):
        """Makes the file and switches the history on."""
        self._path = path
        self._make(path, _LIMIT)
        self._first, self._begun = self._number(), time.monotonic()
        self._start()

    def _switch_on(self):
        super()._switch_on()
        self._count_from_here()

    def _count_from_here(self):
        # On a busy machine, all the steps that were asked for may end before the history is on.
        self._first, self._begun = self._number(), time.monotonic()

    def live_blocks(self):
        """Returns the number of blocks that are allocated on all devices."""
        return self._sum("allocation", "current")

    def refuse(self, path, why):
        """Writes the reason in place of a trace."""
        self._path = path
        self._make(path, _LIMIT)
        self._write({"refused": why})
        self.give_up()

    def give_up(self):
        """Ends a window that has not begun."""
        self._is_over = True
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)
        self._over(self._request)

    def _is_cancelled(self):
        return self._native.window_asked() != self._request

    def _is_due(self):
        if self._is_cancelled():
            # The viewer is gone, and no other one reads or removes the file.
            self._finish("cancelled", False)
            os.unlink(self._path)
            return False
        why = self._end()
        if why is None:
            return super()._is_due()
        self._finish(why)
        return False

    def _end(self):
        """Returns why the window ends now; `None` if it continues."""
        steps, waited = self._steps(), time.monotonic() - self._begun
        if steps >= self._request & _STEPS:
            return "complete"
        seconds = self._request >> 20 & _SECONDS
        if not self._first and not steps:
            seconds = min(seconds, _WITHOUT_STEPS)
        return "complete" if waited >= seconds else None

    def _steps(self):
        return max(0, self._number() - self._first)

    def _close(self, why):
        # The last line follows when the history is off.
        self._why = why

    def _switch_off(self):
        try:
            super()._switch_off()
            if self._file is not None:
                self._before_the_end()
                seconds = time.monotonic() - self._begun
                self._write({"end": self._why or "it failed", "steps": self._steps(), "ms": int(1e3 * seconds)})
        except Exception as error:
            self._note("the window was not closed: %r" % (error,))
        finally:
            self.give_up()

    def _before_the_end(self):
        """Writes what follows the events."""


def _path(native, request):
    return os.path.join(_folder(native), "%d.%d.trace" % (os.getpid(), request >> 32))


def _folder(native):
    folder = native.folder()
    if folder is None:
        raise OSError("the probe has no socket")
    return os.fsdecode(folder)


def _sweep(native):
    """Removes the files of earlier windows whose readers ended before they removed them."""
    folder = _folder(native)
    for name in os.listdir(folder):
        pid, number, ending = (name.split(".") + ["", ""])[:3]
        if name.count(".") != 2 or pid != str(os.getpid()) or not number.isdecimal() or ending != "trace":
            continue
        path = os.path.join(folder, name)
        try:
            about = os.lstat(path)
            # A reader may still be busy with a young one, and a process in another container may have this number.
            if stat.S_ISREG(about.st_mode) and time.time() - about.st_mtime > _LEFT_BEHIND:
                os.unlink(path)
        except OSError:
            # Its reader may have removed it meanwhile. This window begins even if the file stays.
            pass
