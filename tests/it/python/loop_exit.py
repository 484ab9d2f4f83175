"""Leads loops out of their training on any Python, without PyTorch: what runs then, and what is kept alive."""

import itertools
import sys
import types
import weakref

from gpuwatch_probe._fit_source import Trees
from led_job import Unknowns, ran, run, steps, train


class Value:
    """What a job holds in a variable."""


latest = [None]


def nested():
    for epoch in range(9):
        length = 10 ** (epoch // 4)
        for _ in range(50):
            ran.append(length)
            train()


def followed():
    for _ in range(9):
        for _ in range(50):
            train()
    for _ in range(2):
        ran.append("evaluation")


def tried():
    try:
        for _ in range(9):
            for _ in range(50):
                train()
        for _ in range(2):
            ran.append("evaluation")
    except ValueError:
        pass


def in_context():
    with memoryview(b"x"):
        for _ in range(9):
            for _ in range(50):
                train()
        with memoryview(b"y"):
            ran.append("evaluation")


is_closed = []


def batches():
    try:
        while True:
            yield Value()
    finally:
        is_closed.append(True)


def ranged():
    for _ in range(10**9):
        train()


def of_a_generator():
    for _ in batches():
        train()


def of_several():
    for number, _ in enumerate(batches(), 1):
        for _ in zip(range(10**9), batches()):
            train()
        assert number < 10


def of_several_lines():
    for _ in enumerate(
        batches(),
        start=1,
    ):
        train()


def in_an_expression():
    for _ in (it for it in batches()):
        train()


def in_branch():
    if steps is not None:
        for _ in map(id, batches()):
            train()
    else:
        ran.append("not that")


def on_the_line_of_its_head():
    for _ in range(10**9): train()  # noqa: E701


def in_contexts():
    with memoryview(b"x") as view:
        try:
            with memoryview(view):
                for _ in itertools.count():
                    train()
        finally:
            view.tolist()


def up_to_a_limit():
    step = 0
    while step < 10**9 and steps is not None:
        train()
        step += 1


def until():
    is_done = False
    while not is_done:
        train()
        is_done = steps[0] > 10**9


def awaits():
    following = batches()
    while (batch := next(following, None)) is not None:
        train()
        del batch


def endless():
    step = 0
    while True:
        train()
        step += 1
        if step > 10**9:
            break


def endless_on_one_line():
    step = 0
    while 1:
        train()
        step += 1
        if step > 10**9: break  # noqa: E701


def beside_a_lambda():
    for _ in map(lambda it: it, batches()): train()  # noqa: E701


def returns():
    for step in itertools.count():
        train()
        if steps[0] > 0:
            step += 0
            if step > 10**9:
                return step


def limits_itself():
    """A local name is hidden while the loop ends, and a parameter of another function is not."""
    range = lambda count: iter(batches, count)  # noqa: E731
    for _ in range(10**9):
        train()
    assert callable(range)


ENDS = (
    ranged,
    of_a_generator,
    of_several,
    of_several_lines,
    in_an_expression,
    in_branch,
    on_the_line_of_its_head,
    in_contexts,
    up_to_a_limit,
    until,
    awaits,
    endless,
    endless_on_one_line,
    beside_a_lambda,
    returns,
    limits_itself,
)


def saves_at_its_end():
    for _ in range(100):
        for number in itertools.count():
            train()
            if number == 10**6:
                ran.append("saved")
                return


def on_one_line():
    step = 0
    while step < 5000:
        train()
        step += 1
        if step % 1000 == 0: ran.append(step)  # noqa: E701
        ran.append("at %d" % step)
    ran.append("end")


def keeps():
    """What the step before made has gone once this one's took its place."""
    for step in range(5000):
        value = Value()
        ran.append("kept" if latest[0] and latest[0]() else "gone")
        latest[0] = weakref.ref(value)
        train()
        if step % 1000 == 999:
            ran.append("evaluation")


class Stages:
    def __init__(self):
        self.seen = 0

    def after(self):
        if self.seen < 100:
            stage = "first"
        elif self.seen < 1000:
            ran.append("second")
            stage = "second"
        else:
            ran.append("third")
            stage = "third"
        if self.seen + 1 < 5000:
            ran.append("more")
        else:
            ran.append("nothing")
        size = 8 if self.seen < 2000 else 64
        ran.append("size %d %s" % (size, stage))
        self.seen += 1


def later_branches():
    """What follows the first steps, also in a chain of branches; not what the last pass alone does."""
    stages = Stages()
    for step in range(5000):
        train()
        stages.after()
        if step + 1 < 5000:
            ran.append("next")
        else:
            ran.append("none")


counted = 0


def count():
    global counted
    counted += 1


class Every:
    def __init__(self, steps):
        self.steps, self.calls = steps, {"all": 0}

    def is_due(self):
        return self.calls["all"] % self.steps == 0

    def after(self):
        self.calls["all"] += 1
        if self.is_due():
            ran.append("every %d" % self.steps)


def counts_elsewhere():
    """Each way to count gets a later value for one line, and has its own again after it."""
    number, state, callbacks = 0, {"step": 0}, [Every(1000), Every(10**9), Every(700)]

    def after(at):
        nonlocal number
        number += 1
        if number == 1000: ran.append("closure")  # noqa: E701
        if at % 1000 == 998: ran.append("given")  # noqa: E701
        if counted % 1000 == 999: ran.append("global")  # noqa: E701

    for step in range(5000):
        train()
        state["step"] += 1
        count()
        for it in callbacks:
            it.after()
        after(step + 1)
        is_due = state["step"] % 1000 == 0
        if is_due:
            ran.append("mapping")
        ran.append("at %d %d %d %d" % (state["step"], number, counted, callbacks[0].calls["all"]))


found = run(nested)
# The last epoch runs, too.
assert 1 in found and 100 in found and len(found) < 20, found
assert run(followed) == ["evaluation"] * 2, ran
assert run(tried) == ["evaluation"] * 2, ran
assert run(in_context) == ["evaluation"], ran
for it in ENDS:
    found = run(lambda: (it(), ran.append("after")))
    assert found == ["after"] and steps[0] < 12, (it.__name__, steps[0], found)
assert is_closed == [True] * is_closed.count(True) and len(is_closed) >= 5, is_closed
found = run(lambda: (saves_at_its_end(), ran.append("after")))
assert found == ["saved", "after"] and steps[0] < 12, (steps[0], found)
assert range(3)[-1] == 2 and len(list(enumerate("ab"))) == 2 and "range" not in globals(), "names are as before"
found = run(on_one_line)
numbers = [it for it in found if str(it).startswith("at ")]
assert 1000 in found and found[-1] == "end" and steps[0] < 20, found
# But for the last pass, which has the last value.
assert numbers == ["at %d" % (at + 1) for at in range(len(numbers) - 1)] + ["at 5000"], found
found = run(keeps)
assert "evaluation" in found and steps[0] < 20, found
if sys.version_info >= (3, 11):
    assert "kept" not in found, found
found = run(later_branches)
assert {"second", "third", "next", "more"} <= set(found) and any("size 64" in it for it in found), found
assert found.count("none") == 1 and found[-1] == "none" and len(found) < 100, found
counted = 0
found = run(counts_elsewhere)
once = "every 1000", "every 700", "closure", "given", "global", "mapping"
assert all(found.count(it) == 1 for it in once) and "every %d" % 10**9 not in found, found
# The first steps were before.
assert "at 3 3 3 3" in found and steps[0] < 20, found
assert all(len(set(it.split()[1:])) == 1 for it in found if it.startswith("at ")), found
# Of very many files of a job, those that are next to its script come first.
for at in range(300):
    sys.modules["a%d" % at] = types.ModuleType("a%d" % at)
    sys.modules["a%d" % at].__file__ = "/a/%d.py" % at
Unknowns.is_own = lambda self, file: file == __file__ or file.startswith("/a/")
own = [file for file, _ in Trees().own(Unknowns())]
assert own[0] == __file__ and 50 < len(own) < 200, own
print("loops are right")
