"""What PyTorch says of an out-of-memory error: it finds its words after its observers ran, as it makes the error.

From an observer's call until the error is made, and for two seconds at most, the error's class has an `__init__` that
hears the words on their way. The error is the same as ever, whatever the thread and the version of Python, and so is
its class as soon as it was heard; while nothing fails, nothing of the job's is touched.

The stream-ordered backend (`cudaMallocAsync`) calls no observer. There the class listens for as long as the job runs,
and what the error says is all that is known of it.
"""

from _thread import RLock

# How the error of an allocator without observers begins; the device's number follows.
_ALONE = "Allocation on device "


class Words:
    """Hears what errors of one class say, as `tell(device, text)`."""

    def __init__(self, kind, tell):
        self._kind = kind
        self._tell = tell
        # The devices whose latest error has no words yet, the newest last, and the seconds that went by since.
        self._awaited = {}
        # Whether errors come without an observer's call before them.
        self._alone = False
        # Held while the class is changed: another thread's error may come in between. A handler of a signal's may
        # run into one in this very thread.
        self._lock = RLock()
        hear = self._hear

        def __init__(error, *args, **named):
            super(kind, error).__init__(*args, **named)
            hear(args)

        self._listener = __init__

    def listen(self, device):
        """Hears the next error of this device."""
        with self._lock:
            self._awaited.pop(device, None)
            self._awaited[device] = 0
            self._attach()

    def listen_alone(self):
        """Hears every error from now on, of an allocator that calls no observer."""
        with self._lock:
            self._alone = True
            self._attach()

    def second(self):
        """A second went by: an error that is not made by now was caught inside of PyTorch."""
        with self._lock:
            for device, seconds in list(self._awaited.items()):
                if seconds:
                    self._awaited.pop(device, None)
                else:
                    self._awaited[device] = 1
            self._settle()

    def stop(self):
        """Hears nothing any more."""
        with self._lock:
            self._awaited.clear()
            self._alone = False
            self._settle()

    def forked(self):
        """Hears nothing in a child either, in which no thread is left that could hold the lock."""
        self._lock = RLock()
        self.stop()

    def _attach(self):
        # One that the job put there stays.
        if "__init__" not in vars(self._kind):
            self._kind.__init__ = self._listener

    def _settle(self):
        if self._awaited or self._alone or vars(self._kind).get("__init__") is not self._listener:
            return
        del self._kind.__init__

    def _hear(self, args):
        text = args[0] if args else None
        if not isinstance(text, str):
            return
        with self._lock:
            awaited = list(self._awaited)
            named = [it for it in awaited if "GPU %d has" % it in text]
            device = (named or awaited or [None])[-1]
            self._awaited.pop(device, None)
        if awaited:
            self._tell(device, text)
        elif self._alone and text.startswith(_ALONE):
            number = text[len(_ALONE) :].split(" ", 1)[0]
            # A job may raise the like in words of its own. PyTorch 2.9 says no more than this: no device either.
            if number.isdecimal() or text == _ALONE:
                self._tell(int(number) if number else None, text)
        with self._lock:
            self._settle()
