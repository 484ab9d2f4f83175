"""Leads loops whose passes differ in size out of their training on any Python, without PyTorch: each function trains with
sizes that `make` is given, and its largest one comes late."""

import bisect
import itertools
import math
import types

from led_job import ran, run, steps, train, unseen

torch = types.SimpleNamespace(ones=lambda *size: size)
PASSES, LAST = 1000, 4096
STAGES = {0: 8, 400: 64, 900: LAST}


def make(size):
    torch.ones(2, size)
    ran.append(size)
    train()


def looked_up():
    for step in range(PASSES):
        size = STAGES.get(step, locals().get("size"))
        make(size)


def entered():
    size = 8
    for step in range(PASSES):
        if step in STAGES:
            size = STAGES[step]
        make(size)


def chained():
    size = 8
    for step in range(PASSES):
        if step == 300:
            size = 64
        elif step == 600:
            size = LAST
        elif step == 700:
            size = 16
        make(size)


def taken():
    stages = [(400, 64), (900, LAST)]
    size = 8
    for step in range(PASSES):
        if stages and step >= stages[0][0]:
            size = stages.pop(0)[1]
        make(size)


def pointed():
    limits, sizes, at = [400, 900], [8, 64, LAST], 0
    for step in range(PASSES):
        while at < 2 and step >= limits[at]:
            at += 1
        make(sizes[at])


def of_a_list():
    sizes = [8] * 617 + [LAST] + [8] * 382
    for step in range(PASSES):
        make(sizes[step])


def bisected():
    for step in range(PASSES):
        make([8, 64, LAST][bisect.bisect([400, 900], step)])


def added_to():
    """Tokens are counted by more than one in each pass, and epochs end before all is counted."""
    tokens = 0
    for epoch in range(10):
        for _ in range(100):
            make(min(LAST, 8 + tokens // 250))
            tokens += 1024


def in_both():
    for epoch in range(10):
        for batch in range(100):
            make(LAST * (1 + epoch * 100 + batch) // 1000)


def multiplied():
    """Each change builds upon the one before."""
    size = 8
    for step in range(PASSES):
        if step and step % 100 == 0:
            size *= 2
        make(size)


class Schedule:
    def __init__(self):
        self.calls, self.size, self.state = 0, 8, {"calls": 0}

    def of_call(self):
        self.calls += 1
        return LAST * self.calls // PASSES

    def of_entry(self):
        self.state["calls"] += 1
        return LAST * self.state["calls"] // PASSES

    def after(self):
        self.calls += 1
        self.size = int(LAST * (1 - math.cos(math.pi * self.calls / PASSES)) / 2)

    def at_some(self):
        self.calls += 1
        if self.calls in (300, 800):
            self.size *= 22 + 1 // self.calls


def asks():
    schedule = Schedule()
    for _ in range(PASSES):
        make(schedule.of_call())


def asks_for_entries():
    schedule = Schedule()
    for _ in range(PASSES):
        make(schedule.of_entry())


def tells():
    """What the call at the end of a pass sets is used by the next one."""
    schedule = Schedule()
    for _ in range(PASSES):
        make(schedule.size)
        schedule.after()


def calls_back():
    schedule = Schedule()
    for _ in range(10):
        for _ in range(100):
            make(schedule.size)
            schedule.at_some()


calls = 0


def shared():
    def size():
        global calls
        calls += 1
        return LAST * calls // PASSES

    for _ in range(PASSES):
        make(size())


class Trainer:
    def __init__(self):
        self.step, self.size = 0, 8

    def one(self):
        make(self.size)
        self.step += 1
        if self.step % 250 == 0:
            self.size *= 8

    def run(self):
        while self.step < PASSES:
            self.one()


def trains():
    Trainer().run()


def generated():
    """Nothing is known ahead of what is not counted."""
    for size in itertools.chain([8] * 90, [LAST] * 30):
        make(size)


def follows():
    sizes = itertools.cycle([8] * 9 + [LAST])
    for _ in range(100):
        make(next(sizes))


class Batches:
    """What grows while a loop goes over it."""

    def __iter__(self):
        length = 8
        for at in range(100):
            yield torch.ones(2, length)
            length += 40 * (at > 50)


def iterated(batches=None):
    for batch in batches or Batches():
        ran.append(batch[1])
        train()


def loads():
    iterated(Loader(Batches()))


class Loader:
    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        return iter(self.dataset)


# {function: its largest size, as far as it is not `LAST`}, and the most steps.
ALL = {
    looked_up: LAST,
    entered: LAST,
    chained: LAST,
    taken: LAST,
    pointed: LAST,
    of_a_list: LAST,
    bisected: LAST,
    added_to: LAST,
    in_both: LAST,
    multiplied: LAST,
    asks: LAST,
    asks_for_entries: LAST,
    tells: LAST,
    calls_back: 8 * 22 * 22,
    shared: LAST,
    trains: 8 * 8**3,
}
for function, largest in ALL.items():
    found = run(function, lambda: (0, max(it for it in ran if it != "step")))
    assert 0.98 * largest <= max(found) <= largest, (function.__name__, max(found), found)
    assert steps[0] < 40, (function.__name__, steps[0])
for function in (generated, follows, iterated, loads):
    found = run(function)
    assert max(found) == (LAST if function in (generated, follows) else 8 + 40 * 48) and steps[0] <= 120, (function.__name__, steps[0])


# A list of results goes over its sizes by itself; one that is not over when nothing else leads on is named.


def listed():
    return [make(size) for size in (*range(8, 60), LAST)]


def of_stages():
    stages = [("first", 8, 2), ("second", 64, 3), ("last", LAST, 1)]

    def stage(label, size, times):
        for _ in range(times * 100):
            make(size)

    return {label: stage(label, *rest) for label, *rest in stages}


for function in (listed, of_stages):
    found = run(function)
    assert max(found) == LAST and steps[0] < 80 and not unseen(), (function.__name__, steps[0], found)
run(lambda: [make(size) for size in range(8, LAST)], most=50)
assert [it[1] for it in unseen()] == [48], unseen()


class Layer:
    """What is trained of a model."""

    requires_grad = False

    def requires_grad_(self, is_trained):
        self.requires_grad = is_trained


def in_loop():
    layers, milestones = [Layer() for _ in range(6)], [200, 400, 990]
    for epoch in range(PASSES):
        if epoch in milestones:
            for it in layers[: 2 * milestones.index(epoch) + 2]:
                it.requires_grad = True
        ran.append(sum(it.requires_grad for it in layers))
        train()


def from_table():
    layers, table = [Layer() for _ in range(6)], {100: (5, 4), 500: (3, 2), 900: (1, 0)}
    for epoch in range(PASSES):
        for at in table.get(epoch, ()):
            layers[at].requires_grad_(True)
        ran.append(sum(it.requires_grad for it in layers))
        train()


for function in (in_loop, from_table):
    found = run(function)
    assert max(found) == 6 and steps[0] < 60, (function.__name__, steps[0], found)


# Healthy twins: what becomes no size, is only shown, or finds places in a list is left alone.


def shows():
    step = 0
    for _ in range(PASSES):
        make(8)
        step += 1
        ran.append("step %d" % step)


def collects():
    """A list that grows with the loop lacks later places."""
    sizes, at = [8], 0
    for _ in range(PASSES):
        make(sizes[at])
        sizes.append(8)
        at += 1


def equal():
    for _ in range(PASSES):
        make(8)


for function in (shows, collects, equal):
    found = run(lambda: (function(), ran.append("after")))
    assert found[-1] == "after" and steps[0] < 12, (function.__name__, steps[0], found)
print("passes are right")
