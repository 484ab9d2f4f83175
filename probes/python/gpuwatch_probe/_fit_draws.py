"""Sizes that a job under `gpuwatch fit` draws at random: the largest one may come late.

In some steps, draws in the job's own lines give their largest value where that becomes a size: that of an image, of a
sequence, of a loop. A line that draws without end, as one that waits for another value does, gets others again.
"""

import functools
import math
import random
import sys

from ._fit_phases import compiling
from ._fit_sizes import sources
from ._fit_source import contains, position_of
from ._fit_varied import AGAIN

# Draws of one line between two steps that get the largest value, and the largest one below 1.
_MANY, _NEARLY_ONE = 4096, 1 - 2**-53


class Draws:
    """The draws of one process."""

    def __init__(self, torch, unknowns):
        self._torch, self._unknowns = torch, unknowns
        # Steps after which the largest value is due, whether it is now, and whether some draw got it.
        self._due = list(AGAIN)
        self._is_on = self._is_done = False
        # Whether the job draws sizes at all.
        self.has_drawn = False
        # {line: draws since the latest step}.
        self._counts = {}
        self._wrapped, self._wrapped_generators = set(), []
        # {file: expressions whose results become sizes}.
        self._sources = {}
        # {place in a function: whether what is drawn there becomes a size}.
        self._known = {}
        # Generators that are made before the first use of CUDA draw after it.
        self._wrap_generators()

    def step(self, number, is_led):
        """A step has ended; a job that is led on gets the largest values only."""
        self._install()
        self._counts.clear()
        if self._due and self._due[0] <= number:
            self._due = [it for it in self._due if it > number]
            self._is_on, self._is_done = True, False
        self._is_on = is_led or (self._is_on and not self._is_done)

    def begin(self):
        """Makes the order of sizes the same in each run, and follows what is drawn from now on."""
        random.seed(0)
        self._torch.default_generator.manual_seed(0)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(0)
        self._install()

    def _install(self):
        """Wraps the functions that draw; one that was taken from its module before stays as it is."""
        for owner, skipped, all_ in ((random, 0, _PYTHON), (random.Random, 1, _PYTHON), (self._torch, 0, _TORCH)):
            self._wrap(owner, skipped, all_)
        if "numpy" in sys.modules:
            self._wrap(sys.modules["numpy"].random, 0, _NUMPY)
        self._wrap_generators()

    def _wrap_generators(self):
        """Lets NumPy make generators whose draws are wrapped; without a seed, they begin in the same way in each run."""
        numpy = sys.modules.get("numpy")
        if numpy is None or numpy.random in self._wrapped_generators:
            return
        self._wrapped_generators.append(numpy.random)
        module, make = numpy.random, numpy.random.default_rng
        generator, state = _like(module.Generator), _like(module.RandomState)
        self._wrap(generator, 1, _GENERATOR)
        self._wrap(state, 1, _NUMPY)
        seeded = state.__init__

        @functools.wraps(make)
        def default_rng(seed=None):
            made = make(0 if seed is None else seed)
            return made if made is seed else generator(made.bit_generator)

        def begun(it, seed=None):
            seeded(it, 0 if seed is None else seed)

        state.__init__ = begun
        module.default_rng, module.Generator, module.RandomState = default_rng, generator, state

    def _wrap(self, owner, skipped, all_):
        if owner not in self._wrapped:
            self._wrapped.add(owner)
            for name, most in all_.items():
                setattr(owner, name, self._largest(getattr(owner, name), skipped, most))

    def _largest(self, function, skipped, most):
        """Wraps a function of whose arguments the first ones do not say what it draws."""
        is_compiling = compiling(self._torch)

        @functools.wraps(function)
        def drawn(*arguments, **named):
            # Of a function that is being compiled, only the call itself is seen.
            if is_compiling():
                return function(*arguments, **named)
            value = function(*arguments, **named)
            try:
                # A list to choose from may be long.
                largest = most(value, *arguments[skipped:], **named) if self._is_sized(sys._getframe(1)) else None
                self.has_drawn |= largest is not None
                if self._is_on and largest is not None:
                    self._is_done = True
                    self._unknowns.drawn(sys._getframe(1), largest)
                    return largest
            except Exception:
                pass
            return value

        return drawn

    def _is_sized(self, frame):
        """Whether what the frame draws becomes a size."""
        code = frame.f_code
        if not self._unknowns.is_own(code.co_filename):
            return False
        line = code.co_filename, frame.f_lineno
        self._counts[line] = self._counts.get(line, 0) + 1
        if self._counts[line] > _MANY:
            return False
        place = code, frame.f_lasti
        if place not in self._known:
            self._known[place] = self._becomes_size(code.co_filename, position_of(frame))
        return self._known[place]

    def _becomes_size(self, file, position):
        if file not in self._sources:
            self._sources[file] = sources(self._unknowns.trees.of(file))
        return any(contains(it, position) for it in self._sources[file])


def _like(kind):
    """Returns a class of its own that has the same instances, whose functions can be set."""

    class Same(type):
        def __instancecheck__(cls, it):
            return isinstance(it, kind)

    return Same(kind.__name__, (kind,), {"__module__": kind.__module__, "__qualname__": kind.__qualname__})


def _extent(it):
    """Returns how large a size is: that of an image has two numbers."""
    return math.prod(it) if isinstance(it, (list, tuple)) else it


def _of_numpy(value, low, high=None, size=None, **named):
    return None if size is not None else type(value)((low if high is None else high) - 1)


def _of_generator(value, low, high=None, size=None, dtype=None, endpoint=False):
    return _of_numpy(value, low if high is not None else 0, (low if high is None else high) + endpoint, size)


def _part_of_numpy(value, size=None, *more):
    return None if size not in (None, ()) else _NEARLY_ONE


def _uniform(value, low=0.0, high=1.0, size=None):
    return None if size is not None else max(low, high)


def _chosen_by_numpy(value, a, size=None, *more, **named):
    return None if size is not None else max(range(a) if isinstance(a, int) else a, key=_extent)


def _of_torch(value, *arguments, **named):
    if value.device.type != "cpu" or value.numel() != 1:
        return None
    high = named.get("high", [it for it in arguments if isinstance(it, int)][-1:])
    return value.new_full(value.shape, (high[0] if isinstance(high, list) else high) - 1)


# The largest value of a draw that gave `value`, by the name of the function and from its arguments; `None` of several.
_PYTHON = {
    "randint": lambda value, a, b: b,
    "randrange": lambda value, *arguments: max(range(*arguments)),
    "choice": lambda value, seq: max(seq, key=_extent),
    "uniform": lambda value, a, b: max(a, b),
    "random": lambda value: _NEARLY_ONE,
}
_OF_BOTH = {"choice": _chosen_by_numpy, "uniform": _uniform, "random": _part_of_numpy}
_NUMPY = {**_OF_BOTH, "randint": _of_numpy, "rand": lambda value, *shape: None if shape else _NEARLY_ONE}
_GENERATOR = {**_OF_BOTH, "integers": _of_generator}
_TORCH = {"randint": _of_torch}
