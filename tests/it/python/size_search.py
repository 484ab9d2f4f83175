"""Names the size that fitted after attempts that failed, from the variables of functions and scripts."""

import sys

from gpuwatch_probe import _size_search
from gpuwatch_probe._oom_request import frames_from
from gpuwatch_probe._size_search import SizeSearch


def rank(file):
    return 0 if file == __file__ else 2


search = SizeSearch(rank)


def failed(number=0):
    search.failed(frames_from(sys._getframe(1)), number)


def fitted():
    return search.fitted(frames_from(sys._getframe(1)))


# Halving, with a counter of attempts beside it, and the same size in an inner function.
def halving(end):
    size, attempt = 64, 0
    while size > 8:
        inner(size, failed)
        size, attempt = size // 2, attempt + 1
    return inner(size, end)


def inner(rows, end):
    return end()


assert halving(fitted) == "size = 8"

# A single variable explains the search, whatever its name; of several without a telling name, none does.
def one(end, k, steps=20):
    return end()


one(failed, 40)
assert one(fitted, 30) == "k = 30"
one(failed, 40, 30)
assert one(fitted, 30, 20) is None
one(failed, 40)
assert one(fitted, 40) is None and one(fitted, 30) is None

# What fits is smaller than in every attempt.
for batch_size in (32, 24):
    failed()
assert fitted() is None
for batch_size in (32, 24):
    failed()
batch_size = 16
assert fitted() == "batch_size = 16"

# Errors after many steps are no search; what is neither positive nor an integer of Python's own is no size.
batch_size = 64
failed(1000)
batch_size = 32
assert fitted() is None
batch_size = True
failed()
batch_size = False
assert fitted() is None


class Strange(int):
    def __lt__(self, other):
        raise AssertionError("its code ran")


batch_size = Strange(9)
failed()
batch_size = Strange(5)
assert fitted() is None

# Variables of PyTorch's own code are none of the job's.
_size_search.MACHINERY, batch_size = 0, 64
failed()
batch_size = 32
assert fitted() is None
print("sizes are right")
