"""Captures PyTorch's message of an out-of-memory error, which PyTorch writes only after it has called its observers.

From an observer's call until the error object is created, the error's class has an `__init__` that reads the message.
This works for caught and uncaught errors, in any thread, from Python 3.9 on. The error itself is unchanged, and its
class is restored at once; without a failure, nothing of the job is touched.

PyTorch also catches errors itself and tries something smaller; no object is created then. Such a job soon ends a step,
which ends the wait after two seconds. Without a step the wait lasts for up to a minute: on a busy machine PyTorch
takes seconds to unwind its stack before it creates the object.

`sys.monitoring` would need Python 3.12 and see every exception of the job. Hooks for uncaught errors would miss the
caught ones, and jobs, debuggers and notebooks use those hooks themselves.

The stream-ordered backend (`cudaMallocAsync`) and the allocators of other accelerators call no observer. There the
`__init__` stays for as long as the job runs, and the message is the only information about the error.
"""

import re
from _thread import RLock
from _weakref import ref

# Errors of allocators without observers: their start, and what precedes the device's number.
_STREAM_ORDERED = "Allocation on device "
_ACCELERATOR = re.compile(r"[A-Z]+ out of memory\. Tried to allocate .*?[A-Z]PU (\d+)\b")

# The latest errors to look for again.
_ERRORS = 4

# Seconds for which a message is awaited at least, and at most if the job ends no step.
_SECONDS, _MOST_SECONDS = 2, 60


class OomMessage:
    """Reads the messages of errors of one class, and passes them to `report(device, text)`."""

    def __init__(self, kind, report):
        self._kind = kind
        self._report = report
        # The devices whose latest error has no message yet, the newest last: the seconds since, and the step then.
        self._awaited = {}
        # Whether errors come without an observer's call.
        self._alone = False
        # Held while the class changes: another thread may raise an error meanwhile, and so may a signal handler in
        # this thread.
        self._lock = RLock()
        # The latest errors, which the probe does not keep alive.
        self._errors = []
        receive = self._receive

        def __init__(error, *args, **named):
            super(kind, error).__init__(*args, **named)
            receive(args, error)

        self._listener = __init__

    def listen(self, device, step):
        """Waits for the message of this device's latest error, which happened after this step."""
        with self._lock:
            self._awaited.pop(device, None)
            self._awaited[device] = 0, step
            self._attach()

    def listen_alone(self):
        """Reads every error from now on, for an allocator that calls no observer."""
        with self._lock:
            self._alone = True
            self._attach()

    def second(self, step):
        """Handles a passed second, at this step: which errors were caught inside of PyTorch?"""
        with self._lock:
            for device, (seconds, failed) in list(self._awaited.items()):
                seconds += 1
                if seconds >= (_SECONDS if step != failed else _MOST_SECONDS):
                    self._awaited.pop(device, None)
                else:
                    self._awaited[device] = seconds, failed
            self._settle()

    def stop(self):
        """Stops reading messages."""
        with self._lock:
            self._awaited.clear()
            self._alone = False
            self._settle()

    def forked(self):
        """Stops in a forked child too, whose copy of the lock may never be released."""
        self._lock = RLock()
        self.stop()

    def _attach(self):
        # Leave an `__init__` of the job in place.
        if "__init__" not in vars(self._kind):
            self._kind.__init__ = self._listener

    def _settle(self):
        if self._awaited or self._alone or vars(self._kind).get("__init__") is not self._listener:
            return
        del self._kind.__init__

    def alive(self):
        """Returns those of the latest errors that something still keeps."""
        return [it for it in [weak() for weak in self._errors] if it is not None]

    def _receive(self, args, error):
        text = args[0] if args else None
        if not isinstance(text, str):
            return
        self._errors = self._errors[1 - _ERRORS :] + [ref(error)]
        with self._lock:
            awaited = list(self._awaited)
            named = [it for it in awaited if "GPU %d has" % it in text]
            device = (named or awaited or [None])[-1]
            self._awaited.pop(device, None)
        if awaited:
            self._report(device, text)
        elif self._alone:
            number = _device(text)
            if number is not None:
                self._report(int(number) if number else None, text)
        with self._lock:
            self._settle()


def _device(text):
    """Returns the digits of the device's number in the message of an allocator without observers: empty where it has
    none, and `None` for other messages."""
    if text.startswith(_STREAM_ORDERED):
        number = text[len(_STREAM_ORDERED) :].split(" ", 1)[0]
        # A job may raise a similar error itself. PyTorch 2.9 gives only this text, without the device.
        return number if number.isdecimal() or text == _STREAM_ORDERED else None
    named = _ACCELERATOR.match(text)
    return named and named[1]
