"""Branches of a training loop that evaluate or save late, under tests of many kinds, on any Python, without PyTorch."""

import itertools
import math
import os
import time

from led_job import accelerator, net, ran, run, steps, train


class Hooks:
    """Stores the epoch for a later callback."""

    def __init__(self):
        self.now = None

    def on_epoch_begin(self, epoch):
        self.now = epoch

    def on_epoch_end(self):
        if self.now and not self.now % 20:
            net.eval()


def told_before():
    hook = Hooks()
    for epoch in range(100):
        hook.on_epoch_begin(epoch)
        for _ in range(50):
            train()
        hook.on_epoch_end()


def entry_that_a_loop_sets():
    at = {"epoch": 0, "name": "x"}

    def after():
        if at["epoch"] in (30, 60, 90):
            net.eval()

    for epoch in range(1, 91):
        at["epoch"] = epoch
        for _ in range(50):
            train()
        after()


class At:
    epoch = 0


def attribute_that_a_loop_counts():
    at = At()
    for at.epoch in range(10):
        for _ in range(50):
            train()
        is_due(at)


def is_due(at):
    if at.epoch in (4, 9):
        net.eval()


def large_amounts():
    seen = last = 0
    while seen < 10**12:
        train()
        seen += 64 * 4096
        if seen - last > 10**10: net.eval(); last = seen  # noqa: E701, E702


def amounts_of_batches():
    seen, every = 0, 1_000_000
    for _ in range(10**6):
        batch = [0] * 64
        train()
        before = seen // every
        seen += len(list(batch))
        if seen // every > before:
            net.eval()


def list_that_fills():
    metrics = []
    for step in range(10_000):
        train()
        metrics.append(step)
        if len(metrics) >= 1000:
            net.eval()
            metrics.clear()


def countdown():
    left = 5000
    while left:
        train()
        left -= 1
        if left % 1000 == 0:
            net.eval()


def backwards():
    for at in reversed(range(5000)):
        train()
        if at == 0:
            net.eval()


def steps_of_four():
    for at in range(0, 50_000, 4):
        train()
        if at == 40_000:
            net.eval()


def function_of_a_counter():
    for step in range(10_000):
        train()
        if step > 100 and math.log10(step).is_integer():
            net.eval()


def list_of_steps():
    when, at = [1000, 3000, 9000], 0
    for step in range(10_000):
        train()
        if at < len(when) and step >= when[at]:
            net.eval()
            at += 1


def kinds():
    all_ = ["a"] * 100 + ["b"] * 10
    for kind in all_:
        train()
        if kind == "b":
            net.eval()


def plan():
    actions = {500: "evaluate", 800: "nothing"}
    for step in range(1000):
        train()
        action = actions.get(step)
        if action == "evaluate": net.eval()  # noqa: E701


def best():
    lowest = 1.0
    for step in range(1000):
        train()
        loss = 2.0 - step * 0
        if loss < lowest:
            lowest = loss
            accelerator.save()


def flag_that_ends():
    """What only sets the flag of a loop ends it, and comes last."""
    at, is_over = At(), False
    while not is_over:
        train()
        at.epoch += 1
        if at.epoch >= 10_000:
            is_over = True
        if at.epoch % 700 == 0:
            net.eval()


def settings(every=0, is_dry=True, name="x"):
    """What a job's settings leave out is left out."""
    for step in range(1000):
        train()
        if every and step % every == 0:
            net.eval()
        if os.environ.get("NO_SUCH_VARIABLE"):
            net.eval()
        if not is_dry and step > 5:
            accelerator.save()
        if isinstance(name, int) and step % name == 0:
            net.eval()


def nothing_there():
    """What is not there yet cannot be used, whatever the test looks like."""
    teacher = extra = None
    states, named = [], {}
    for step in range(1000):
        train()
        teacher = None if step < 5000 else net
        states.extend(())
        named.update(())
        if teacher is not None:
            teacher.eval()
        if states and len(states) > 5:
            states[0].eval()
        if step >= 0 and "best" in named:
            named["best"].eval()
        if isinstance(extra, str):
            accelerator.save(extra.upper())
        extra = None


def another_mode():
    """What a caller wants, and the kind of a value, are no matter of time."""

    def run(mode, batch):
        for _ in range(100):
            train()
            batch = list(batch)
            if mode == "test":
                batch.no_such_method()
                net.eval()
            if isinstance(batch, dict):
                batch.update(batch)
                net.eval()

    run("train", [])


def shown():
    """On the line of its test, a branch would see what stands there."""
    for step in range(1000):
        train()
        if step > 5 and math.log10(step).is_integer(): accelerator.save("%d" % step)  # noqa: E701


def hours():
    """Nobody knows when."""
    start = time.time()
    for _ in range(1000):
        train()
        if time.time() - start > 3600:
            net.eval()


def beyond_its_end():
    for step in range(1000):
        train()
        if step == 5000 or step < 0:
            net.eval()


LATE = (
    told_before,
    entry_that_a_loop_sets,
    attribute_that_a_loop_counts,
    large_amounts,
    amounts_of_batches,
    list_that_fills,
    countdown,
    backwards,
    steps_of_four,
    function_of_a_counter,
    list_of_steps,
    kinds,
    plan,
    best,
    flag_that_ends,
)
for it in LATE:
    found = run(lambda: (it(), ran.append("after")))
    expected = "saving" if it is best else "evaluation"
    assert found == [expected, "after"] and steps[0] < 20, (it.__name__, steps[0], found)
for it in settings, nothing_there, another_mode, shown, hours, beyond_its_end:
    found = run(lambda: (it(), ran.append("after")))
    assert found == ["after"] and steps[0] < 20, (it.__name__, steps[0], found)
assert next(itertools.count()) == 0
print("branches are right")
