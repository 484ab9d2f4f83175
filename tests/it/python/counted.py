"""Trainings that evaluate now and then, each of which counts its steps in another way (`case`, then `bad` or `good`: in
the latter the evaluation takes little)."""

import dataclasses
import itertools
import sys
import time

import torch
from torch import nn

CASE, IS_BAD = sys.argv[1], sys.argv[2] == "bad"
NET = nn.Linear(256, 256).cuda()
OPTIMIZER = torch.optim.Adam(NET.parameters())
STEPS = 5000


def learn():
    NET(torch.randn(64, 256, device="cuda")).square().mean().backward()
    OPTIMIZER.step()
    OPTIMIZER.zero_grad()


def evaluate():
    NET.eval()
    with torch.no_grad():
        NET(torch.randn((700 if IS_BAD else 7) << 10, 256, device="cuda"))  # evaluate
    NET.train()


def mapping():
    state = {"step": 0, "epoch": 0}
    while state["epoch"] < 3:
        for _ in range(STEPS):
            learn()
            state["step"] += 1
            if state["step"] % 1000 == 0:
                evaluate()
        state["epoch"] += 1


def mapping_on_one_line():
    state = {"step": 0}
    for _ in range(STEPS):
        learn()
        state["step"] = state["step"] + 1
        before = state["step"]
        if state["step"] % 1000 == 0: evaluate()
        assert state["step"] == before


def cell():
    seen = [0]

    def after_step():
        seen[0] += 1
        if seen[0] % 1000 == 0:
            evaluate()

    for _ in range(STEPS):
        learn()
        after_step()


def closure():
    number = 0

    def after_step():
        nonlocal number
        number += 1
        if number > 1500 and number % 100 == 0:
            evaluate()

    for _ in range(STEPS):
        learn()
        after_step()


NUMBER = 0


def count():
    global NUMBER
    NUMBER += 1


def module():
    for _ in range(STEPS):
        learn()
        count()
        if NUMBER % 1000 == 0:
            evaluate()


class Every:
    """Counts its own calls."""

    def __init__(self, steps, function):
        self.steps, self.function, self.calls = steps, function, 0

    def __call__(self, loss=None):
        self.calls += 1
        if self.calls % self.steps == 0:
            self.function()


class Progress:
    def __init__(self):
        self.seen = {"train": 0}

    def advance(self):
        self.seen["train"] += 1

    def is_due(self):
        return self.seen["train"] % 1000 == 0


def callback():
    callbacks = [Every(1000, evaluate), Every(500, lambda: None)]
    for _ in range(STEPS):
        learn()
        for it in callbacks:
            it()


def callback_on_one_line():
    class Beside(Every):
        def __call__(self, loss=None):
            self.calls += 1
            before = self.calls
            if self.calls == 2000: self.function()
            assert self.calls == before

    beside = Beside(0, evaluate)
    for _ in range(STEPS):
        learn()
        beside()


def attribute_of_another():
    progress = Progress()
    for _ in range(STEPS):
        learn()
        progress.advance()
        if progress.seen["train"] % 2000 == 1999:
            evaluate()


def renamed():
    def after(step, loss):
        inner(loss, number=step + 1)

    def inner(loss, number):
        if number % 1000 == 0:
            evaluate()

    for i in range(STEPS):
        learn()
        after(i, None)


@dataclasses.dataclass
class State:
    step: int = 0


def in_dataclass():
    state = State()
    steps = itertools.count(1)
    for _ in range(STEPS):
        learn()
        state.step = next(steps)
        if state.step % 1000 == 0:
            evaluate()


def asked():
    """The test is in a function."""
    progress = Progress()
    for _ in range(STEPS):
        learn()
        progress.advance()
        if progress.is_due():
            evaluate()


def kept():
    """The test is a variable, and its counter a copy."""
    progress = Progress()
    for _ in range(STEPS):
        learn()
        progress.advance()
        seen = progress.seen["train"] - 1
        is_due = seen > 0 and seen % 1000 == 0
        if is_due:
            evaluate()


LIBRARY = """
class Counts:
    should_evaluate = should_save = should_training_stop = False
    seen = 0

class Trainer:
    def __init__(self):
        self.control = self.counts = Counts()

    def train(self, learn, after, steps):
        for index in range(steps):
            learn()
            self.counts.seen += 1
            after(self.counts)
            if self.control.should_training_stop:
                break
"""


def library():
    """A loop and a counter that are not the job's."""
    names = {}
    exec(compile(LIBRARY, "/opt/site-packages/trainers/trainer.py", "exec"), names)

    def after(counts):
        if counts.seen % 1000 == 0:
            evaluate()

    names["Trainer"]().train(learn, after, STEPS)


def hours():
    """Nobody knows when an hour is over, but it will be."""
    last = time.time()
    for _ in range(STEPS):
        learn()
        if time.time() - last > 3600:
            evaluate()
            last = time.time()


def batches():
    while True:
        yield torch.randn(64, 256)


class Trainer:
    """Its functions end with their loops."""

    def __init__(self):
        self.seen = 0

    def run_epoch(self):
        for number, x in enumerate(batches()):
            learn()
            self.seen += len(x)
            if number == STEPS: return  # noqa: E701

    def fit(self):
        while self.seen < 10**9:
            self.run_epoch()


def trainer():
    Trainer().fit()
    evaluate()


@torch.no_grad()
def small():
    NET(torch.randn(7, 256, device="cuda"))


def decorated():
    """What ran is not said to be left out: decorated, on one line, and of several passes a step."""
    number = 0
    while number < STEPS:
        with torch.no_grad(): NET(torch.randn(7, 256, device="cuda"))  # noqa: E701
        number += 1
        if number % 4 == 0:
            learn()
            with torch.no_grad():
                NET(torch.randn(7, 256, device="cuda"))
        if number % 1000 == 0:
            small()


def ends_by_itself():
    """The job is led to its end, over which it would save what took an hour."""
    last, saved = time.time(), 0
    for epoch in range(9):
        for _ in range(STEPS):
            learn()
            if time.time() - last > 3600:
                torch.save(NET.state_dict(), "net.pt")  # ends
                saved += 1
    if saved:
        torch.save(NET.state_dict(), "last.pt")  # last


def callback_of_hours():
    class Hourly(Every):
        def __call__(self, loss=None):
            if time.time() - self.calls > 3600:
                self.function()
                torch.save(NET.state_dict(), "net.pt")
                self.calls = time.time()

    hourly = Hourly(0, lambda: evaluate())
    hourly.calls = time.time()
    for _ in range(STEPS):
        learn()
        hourly()


def switched_off():
    """What settings leave out is no gap of the answer."""
    options = dataclasses.make_dataclass("Options", ["every", "validate"])(0, False)
    saves = None
    for step in range(STEPS):
        learn()
        if options.validate and step % 100 == 0:
            evaluate()
        if options.every and step % options.every == 0:
            evaluate()
        if saves is not None:
            torch.save(NET.state_dict(), saves)


globals()[CASE]()
