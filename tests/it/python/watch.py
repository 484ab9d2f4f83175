"""The library's watching of functions, in any Python: with a wrapper as PyTorch's, and a class that stands for it."""

import functools
import gc
import os
import sys
import threading
import traceback
import weakref
from itertools import chain

from gpuwatch_probe import _native
from gpuwatch_probe._optimizers import address_of_first_parameter

builtin = _native.loaded().builtin
before, after, answers = {}, {}, []


def wrap(func):
    @functools.wraps(func)
    def wrapper(*args, **kwargs):
        self, *_ = args
        for hook in chain(before.values(), self.hooks):
            hook()
        out = func(*args, **kwargs)
        for hook in chain(after.values(), self.hooks):
            hook()
        return out

    return wrapper


code = wrap(lambda it: None).__code__


def found(wrapper, _):
    step = wrapper.__closure__[code.co_freevars.index("func")].cell_contents
    assert builtin("watch")(step) == 0 and builtin("watch")(step) == 0


def other(optimizer, answer):
    answers.append((type(optimizer).__name__, answer))
    if optimizer.raises:
        raise KeyboardInterrupt
    return "ignored"


def evaluate(callback):
    evaluated.append(callback)
    return "before" if callback is None else None


evaluated = []


class Optimizer:
    hooks, raises, slow = (), False, None

    def __init__(self):
        self.param_groups = [{"params": [object()]}]

    def step(self, *args, **named):
        if self.slow is not None:
            self.slow.wait()
        if args == ("fail",):
            raise ValueError("the step")
        return args, named


class Outer(Optimizer):
    def step(self, inner, how=None):
        try:
            return inner.step(how)
        finally:
            answers.append("inside")


def check(what, got, wanted):
    if got != wanted:
        sys.exit(("%s: got %r, wanted %r" % (what, got, wanted))[:2000])


def seen():
    found_now = answers[:]
    answers.clear()
    return found_now


if builtin("begin_watching")(functools.update_wrapper, code, found, other, evaluate):
    print("not watched")
    sys.exit()
check("it watches once", builtin("begin_watching")(functools.update_wrapper, code, found, other, evaluate), -2)
for kind in (Optimizer, Outer):
    kind.step = wrap(kind.step)
one, outer = Optimizer(), Outer()
evaluated.clear()
unarmed = [("Optimizer", 2)]
for _ in range(50):
    check("a result", one.step(1, two=2), ((1,), {"two": 2}))
check("each step", seen(), unarmed * 50)
check("Dynamo is off meanwhile", evaluated, [None, "before"] * 50)
outer.step(one)
check("the outermost step", seen(), ["inside", ("Outer", 2)])
for body in (lambda: one.step("fail"), lambda: outer.step(one, "fail")):
    try:
        body()
    except ValueError as error:
        names = [it.name for it in traceback.extract_tb(error.__traceback__)]
        check("a traceback", [it for it in names if it not in ("<module>", "<lambda>")][-2:], ["wrapper", "step"])
check("no step", seen(), ["inside"])
one.step()
check("a step after errors", seen(), unarmed)
one.raises = True
try:
    one.step()
except KeyboardInterrupt:
    answers.append("interrupted")
one.raises = False
check("an interruption reaches the job", seen(), unarmed + ["interrupted"])

one.slow = threading.Event()
thread = threading.Thread(target=one.step)
thread.start()
Optimizer().step()
check("threads have steps of their own", seen(), unarmed)
one.slow.set()
thread.join()
check("and end them", seen(), unarmed)
one.slow = None

if sys.version_info >= (3, 11):
    events = []
    sys.setprofile(lambda frame, event, arg: events.append(frame.f_code.co_name))
    one.step()
    sys.setprofile(None)
    check("a profiler", "other" in events, False)
    sys.settrace(lambda frame, event, arg: events.append(frame.f_code.co_name))
    one.step()
    sys.settrace(None)
    check("a tracer", "other" in events, False)
check("all were seen", len(seen()), 2 if sys.version_info >= (3, 11) else 0)


def a_class_that_ends():
    class Own(Optimizer):
        def step(self):
            return super().step()

    Own.step = wrap(Own.step)
    Own().step()
    return weakref.ref(Own)


ended = a_class_that_ends()
gc.collect()
# With threads, 3.13t keeps classes for ever.
is_kept = "t" in sys.abiflags and sys.version_info < (3, 14)
check("a class ends", ended() is None, not is_kept)
check("and was seen", seen(), [("Own", 2)])


class Property(Optimizer):
    reads = 0

    @property
    def param_groups(self):
        Property.reads += 1
        return []

    @param_groups.setter
    def param_groups(self, groups):
        pass


Property().step()
check("no code of the class", (Property.reads, address_of_first_parameter(Property())), (0, 0))
seen()
check("what is no function", [builtin("watch")(it) for it in (print, Optimizer, one.step, functools.partial(print))], [-2] * 4)
parameter = one.param_groups[0]["params"][0]
check("the first parameter", address_of_first_parameter(one), id(parameter))
builtin("arm")(id(one), id(parameter), 7, 0, dict)
for _ in range(1000):
    one.step()
check("an armed step needs no Python", (seen(), builtin("disarm")()), ([], 1007))
references = sys.getrefcount(one), sys.getrefcount(parameter), sys.getrefcount(None) // 1000
for _ in range(3000):
    one.step()
check("no reference is kept", (sys.getrefcount(one), sys.getrefcount(parameter)), references[:2])
seen()
builtin("end_watching")()
one.step()
check("it has ended", seen(), [])
check("it begins again", builtin("begin_watching")(functools.update_wrapper, code, found, other, evaluate), 0)
one.step()
check("and sees what it saw", seen(), unarmed)
pid = os.fork()
if pid == 0:
    one.step()
    os._exit(len(seen()))
check("a child", os.waitpid(pid, 0)[1] >> 8, 1)
builtin("end_watching")()
print("watched")
