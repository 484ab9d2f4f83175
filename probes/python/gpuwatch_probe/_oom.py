"""The report of an out-of-memory error: counters, live blocks and PyTorch's message.

What runs here runs within the job's failing allocation. It must not raise, allocate on the device, or take long.
"""

import ctypes
import os
import sys
import time

from ._native import TICK, FailedRequest, Frame, utf8
from ._oom_blocks import bytes_of, grouped, groups, snapshot
from ._oom_request import Request, frames_from, keeps_tensors
from ._size_search import SizeSearch
from ._stacks import cell

# Seconds from the report of one burst of errors to the next.
_BETWEEN_ACCOUNTS = 10

# Reports of one burst: that of the first error, of the first retry, and of the first retry within an `except` block.
_IN_A_BURST = 3

# Blocks to remember from one report to the next: how large at least, and how many.
_LARGE, _MOST = 1 << 16, 20_000


class Burst:
    """The reports of a burst of errors: when it began, how many there are, and whether an error was handled then.

    `live` are the large blocks at the latest report, by device.
    """

    def __init__(self, now, live):
        self.begun, self.live = now, live
        self.reports, self.was_handled = 0, False


class Errors:
    """The part of `Probe` that reports errors, with the probe's own fields."""

    def _on_oom(self, device, tried, limit, free):
        """Called by the allocator before it raises; what is raised here would replace its error."""
        try:
            if self.native is None or self.off:
                return
            self._row((device,), self.number(), TICK)
            report, live, again = self._report(device)
            request = self._request(again)
            self.native.oom_of(device, self.number(), tried, free, limit, None, report, request)
            if self._tracing() is not None:
                self._tracing().write_now()
            elif live:
                self._sites.at_oom(device, self.number(), live)
            self._oom_message.listen(device, self.number())
        except Exception as error:
            if not self._fault(error):
                raise

    def _on_oom_message(self, device, message):
        """Called as PyTorch makes the error; what is raised here would replace it."""
        try:
            if not self.off:
                self.native.oom_message(device, utf8(message))
        except Exception as error:
            if not self._fault(error):
                raise

    def _on_oom_message_alone(self, device, message):
        """The same where no allocator has called `_on_oom` before."""
        try:
            if self.native is None or self.off:
                return
            if device is None:
                # The device is known if the job uses only one.
                self._find_devices()
                if len(self.devices) != 1:
                    self._note("memory ran out, on which device PyTorch does not say")
                    return
                (device,) = self.devices
            if device in self._visible:
                self._row((device,), self.number(), TICK)
            self.native.oom_of(device, self.number(), 0, 0, 0, utf8(message), None, self._request(0))
        except Exception as error:
            if not self._fault(error):
                raise

    def _report(self, device):
        """Returns live blocks by size, and by group for the search of their holders, for the first errors of a burst:
        jobs that retry run into one after the other. Also returns the bytes of blocks that were live at the error before
        as well, if the job keeps an error that keeps tensors; 0 without one."""
        now, burst = time.monotonic(), self._burst
        if burst is None or now - burst.begun >= _BETWEEN_ACCOUNTS:
            burst = self._burst = Burst(now, {} if burst is None else burst.live)
        try:
            handled = burst.reports < _IN_A_BURST and keeps_tensors(self.torch, self._oom_message.alive())
            if burst.reports >= _IN_A_BURST - 1 and (burst.was_handled or not handled):
                return None, None, 0
            burst.reports += 1
            burst.was_handled |= handled
            held = snapshot(self.torch, device, self._sites.is_recording or self._tracing() is not None)
            if held is None:
                return None, None, 0
            live = groups(held, device)
            large = [it for of in live.values() for it in of if it[1] >= _LARGE][:_MOST]
            before = burst.live.get(device, ())
            burst.live[device] = frozenset(large)
            again = bytes_of(burst.live[device].intersection(before)) if handled else 0
            return ctypes.byref(grouped(held, device)), live, again
        except Exception as error:
            if not is_ours(error):
                raise
            # Report the error itself nevertheless.
            self._note("live blocks could not be counted: %r" % (error,))
            return None, None, 0

    def _note_attempt(self, stack):
        try:
            if self._size_search is None:
                self._size_search = SizeSearch(self._sites.stacks.rank)
            self._size_search.failed(stack, self.number())
        except Exception as error:
            if not is_ours(error):
                raise
            self._size_search = None

    def _describe_size(self):
        """Reports the size with which the first step after early errors fitted."""
        search, self._size_search = self._size_search, None
        found = search.fitted(frames_from(sys._getframe(1)))
        if found is not None:
            self.native.describe(b"fitted", utf8(found))

    def _request(self, again):
        """Returns the lines that ask for memory, in the library's form; `None` if they are unreadable."""
        try:
            request = Request(self.torch)
            lines, library = request.lines(self._sites.stacks)
            frames = [Frame(utf8(cell(it[0]) or it[0]), it[1], utf8(it[2])) for it in lines + [library or ("", 0, "")]]
            frames = (Frame * len(frames))(*frames)
            phase = utf8(request.phase)
            failed = FailedRequest(frames, len(lines), library is not None, phase, again)
            self._note_attempt(request.stack)
            return ctypes.byref(failed)
        except Exception as error:
            if not is_ours(error):
                raise
            self._note("the failing line could not be read: %r" % (error,))
            return None


def is_ours(error):
    """Returns whether code of this package raised it, or a function outside of Python that this code called."""
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return os.path.dirname(trace.tb_frame.f_code.co_filename) == os.path.dirname(__file__)
