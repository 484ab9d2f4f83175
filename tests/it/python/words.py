"""The messages of errors are read without side effects, also if the job's class has an `__init__`; without torch."""

import pickle
import sys
import threading

from gpuwatch_probe._oom_message import OomMessage


class Fault(RuntimeError):
    """The raised error."""


class Own(Fault):
    """A job's own, made from two words."""

    def __init__(self, one, other):
        super().__init__(one + other)
        self.other = other


def members():
    return {name: it for name, it in vars(Fault).items() if name != "__weakref__"}


before, received = members(), []
words = OomMessage(Fault, lambda *what: received.append(what))


def reported():
    out = received[:]
    received.clear()
    return out


def is_as_before():
    return members() == before and Fault.__init__ is RuntimeError.__init__


Fault("nobody waits")
assert is_as_before() and reported() == []

words.listen(0, 7)
assert not is_as_before()
error = Fault("GPU 0 has none")
assert is_as_before() and reported() == [(0, "GPU 0 has none")]
assert (error.args, str(error), repr(error)) == (("GPU 0 has none",), "GPU 0 has none", "Fault('GPU 0 has none')")
assert error.__dict__ == {} and repr(pickle.loads(pickle.dumps(error))) == repr(error)
Fault("only the first")
assert reported() == []

# Whatever its class does with its arguments.
words.listen(0, 7)
error = Own("a", "b")
assert (error.args, error.other, reported()) == (("ab",), "b", [(0, "ab")]) and is_as_before()
for wrong in ({"no": 1}, {}):
    words.listen(0, 7)
    try:
        Own("a") if not wrong else Fault("a", **wrong)
    except TypeError as error:
        printed = str(error)
    words.stop()
    try:
        Own("a") if not wrong else Fault("a", **wrong)
    except TypeError as error:
        assert str(error) == printed
assert is_as_before() and reported() == []

# An error without a message, or with another one, does not count.
words.listen(0, 7)
Fault(), Fault(7), Fault(None, "x")
assert reported() == [] and not is_as_before()
words.stop()
assert is_as_before()

# Two devices at once, in the order in which their errors are made; what names no device is of the latest.
words.listen(0, 7), words.listen(1, 7)
Fault("GPU 0 has none"), Fault("GPU 1 has none")
assert reported() == [(0, "GPU 0 has none"), (1, "GPU 1 has none")] and is_as_before()
words.listen(1, 7), words.listen(0, 7), words.listen(1, 7)
Fault("none"), Fault("none")
assert reported() == [(1, "none"), (0, "none")] and is_as_before()

# PyTorch caught it: the next error is not read, because it may be another's.
words.listen(0, 7)
words.second(8)
assert not is_as_before(), "it may be on its way"
words.second(8)
Fault("a job's own")
assert is_as_before() and reported() == []

# On a busy machine it takes long to arrive: a job that ends no step meanwhile may not have it yet.
words.listen(0, 7)
for _ in range(59):
    words.second(7)
Fault("late")
assert is_as_before() and reported() == [(0, "late")]
words.listen(0, 7)
for _ in range(60):
    words.second(7)
assert is_as_before(), "nothing is awaited forever"

# Without observers, every error that names a device in the allocator's wording is read, for as long as requested.
words.listen_alone()
Fault("Allocation on device 3 would exceed"), Fault("Allocation on device x"), Fault("a job's own")
words.second(8), words.second(8)
Fault("Allocation on device 12 would exceed"), Fault("Allocation on device ")
assert [it[0] for it in reported()] == [3, 12, None] and not is_as_before()
told = "out of memory. Tried to allocate 192.00 MiB"
Fault("XPU %s. GPU 3 has a total capacity of 31.89 GiB of which 13.22 GiB is free." % told)
Fault("NPU %s (NPU 1; 60.97 GiB total capacity)" % told)
Fault("XPU %s" % told), Fault("my XPU %s. GPU 3 has none" % told), Fault("XPU out of memory on GPU 3")
assert [it[0] for it in reported()] == [3, 1]
words.stop()
Fault("Allocation on device 3 would exceed")
assert is_as_before() and reported() == []

# A method that the job put there stays.
Fault.__init__ = own = lambda error, text: RuntimeError.__init__(error, text.upper())
words.listen(0, 7)
assert Fault("x").args == ("X",) and reported() == []
words.stop()
assert vars(Fault)["__init__"] is own
del Fault.__init__
words.listen(0, 7)
Fault.__init__ = own
assert Fault("x").args == ("X",) and reported() == []
words.second(8), words.second(8)
assert vars(Fault)["__init__"] is own
del Fault.__init__
assert is_as_before()

# However many threads.
sys.setswitchinterval(1e-6)


def fail(device):
    for _ in range(2000):
        words.listen(device, 7)
        try:
            raise Fault("GPU %d has none" % device)
        except Fault as error:
            assert str(error) == "GPU %d has none" % device


threads = [threading.Thread(target=fail, args=(it,)) for it in range(4)]
for it in threads:
    it.start()
for it in threads:
    it.join()
assert received and all(text == "GPU %d has none" % device for device, text in reported())
words.second(8), words.second(8)
assert is_as_before()


class Interrupted(type):
    """A class that another thread awaits an error of while its listener goes."""

    def __delattr__(cls, name):
        if other.ident is None:
            other.start()
            # It waits, unless it comes in between.
            other.join(0.1)
        super().__delattr__(name)


class Failure(RuntimeError, metaclass=Interrupted):
    pass


words = OomMessage(Failure, lambda *what: received.append(what))
other = threading.Thread(target=words.listen, args=(1, 7))
words.listen(0, 7), words.second(8), words.second(8)
other.join()
Failure("GPU 1 has none")
assert reported() == [(1, "GPU 1 has none")]
print("words are right")
