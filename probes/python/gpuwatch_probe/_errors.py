"""The account of an out-of-memory error: counters, live blocks and PyTorch's message.

What runs here runs within the job's failing allocation. It must not raise, allocate on the device, or take long.
"""

import ctypes
import os
import time

from ._blocks import blocks
from ._native import TICK, utf8

# Seconds from one account of live blocks to the next.
_BETWEEN_ACCOUNTS = 10


class Errors:
    """The part of `Probe` that accounts for errors, with the probe's own fields."""

    def _on_oom(self, device, tried, limit, free):
        """Called by the allocator before it raises; what is raised here would replace its error."""
        try:
            if self.native is None or self.off:
                return
            self._row((device,), self.number(), TICK)
            account = self._blocks(device)
            self.native.oom(device, self.number(), tried, free, limit, None, account)
            if self._tracing() is not None:
                self._tracing().hurry()
            elif account is not None:
                self._sites.at_oom(device, self.number())
            self._words.listen(device, self.number())
        except Exception as error:
            if not self._fault(error):
                raise

    def _on_words(self, device, message):
        """Called as PyTorch makes the error; what is raised here would replace it."""
        try:
            if not self.off:
                self.native.oom_message(device, utf8(message))
        except Exception as error:
            if not self._fault(error):
                raise

    def _on_words_alone(self, device, message):
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
            self.native.oom(device, self.number(), 0, 0, 0, utf8(message), None)
        except Exception as error:
            if not self._fault(error):
                raise

    def _blocks(self, device):
        """Live blocks by size, for the first of several errors: jobs that retry run into one after the other."""
        now = time.monotonic()
        if self._accounted is not None and now - self._accounted < _BETWEEN_ACCOUNTS:
            return None
        self._accounted = now
        try:
            account = blocks(self.torch, device, self._sites.is_recording or self._tracing() is not None)
        except Exception as error:
            if not is_ours(error):
                raise
            # Report the error itself nevertheless.
            self._note("live blocks could not be counted: %r" % (error,))
            return None
        return None if account is None else ctypes.byref(account)


def is_ours(error):
    """Returns whether code of this package raised it, or a function outside of Python that this code called."""
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return os.path.dirname(trace.tb_frame.f_code.co_filename) == os.path.dirname(__file__)
