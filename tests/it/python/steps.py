"""The golden cases of what a training step is: first as bare events, then with PyTorch's own optimizers on the CPU."""

import signal
import sys
import threading

from gpuwatch_probe._loops import Places
from gpuwatch_probe._native import NOT_ARMED
from gpuwatch_probe._steps import Steps, hooks


def numbers(events):
    """The step that each event begins, 0 where it belongs to the one before."""
    steps = Steps()
    return [steps.number if steps.event(it) else 0 for it in events]


def count(events):
    return max(numbers(events))


def check(what, got, wanted):
    if got != wanted:
        sys.exit("%s: got %r, wanted %r" % (what, got, wanted))


check("plain", numbers("AAAA"), [1, 2, 3, 4])
check("GAN 1:1", numbers("DGDGDG"), [1, 0, 2, 0, 3, 0])
# Before the first call of G, the counter cannot know that it exists.
check("GAN 5:1", numbers("DDDDDG" * 4)[6:], [6, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0])
check("GAN 1:5", count("GDDDDD" * 60), 60)
check("an auxiliary optimizer", [count(it * 10) for it in ("M" * 50 + "A", "A" + "M" * 50)], [500, 500])
check("ZeRO groups", count([("opt", group) for _ in range(10) for group in range(12)]), 10)
check("optimizer in backward", count([(it, 0) for _ in range(10) for it in range(300)]), 10)
check("the same, in another order each time", count([(it, 0) for n in range(10) for it in range(0, 300)][::-1]), 10)
# A discriminator alone, then the two together, then alone again: the counter waits for the pause, then steps continue.
check("a phase that ends", [count("D" * 50 + it * 50 + "D" * 50) for it in ("DG", "GD")], [150, 150])
check("a new optimizer for each trial", count([n // 50 for n in range(200)]), 200)
long = Steps()
for n in range(100_000):
    long.event((n, n))
check("memory is bounded", len(long._active) <= 16384, True)


class Caller:
    """An optimizer that does nothing but be called."""

    def __init__(self, steps):
        self.steps = steps

    def step(self):
        self.steps.event(id(self))


def train(optimizer, passes):
    for _ in range(passes):
        optimizer.step()


def several(made, passes, skips=0, order=None):
    for n in range(passes):
        for at in order(n) if order else range(len(made)):
            if not skips or at or n % skips != 4:
                made[at].step()


def critic(outer, inner, times, passes, inner_first=False):
    for _ in range(passes):
        if inner_first:
            train(inner, times)
        outer.step()
        if not inner_first:
            train(inner, times)


def rarely(main, other, every, passes, first=False):
    for n in range(passes):
        if first and n % every == 0:
            other.step()
        main.step()
        if not first and n % every == every - 1:
            other.step()


def by_epoch(main, other, batches, epochs):
    for _ in range(epochs):
        train(main, batches)
        other.step()


def phases(one, other, ends):
    for n in range(ends[-1]):
        (one if sum(n >= it for it in ends) % 2 == 0 else other).step()


def trials(make, lengths):
    for length in lengths:
        train(make(), length)


def lines(one, other):
    train(one, 30)
    train(other, 40)
    train(one, 1)


def of_loops(what, body, wanted):
    """Steps of optimizers that are called in real loops: the definition is that of `_steps`."""
    steps = Steps(Places())
    body(lambda: Caller(steps))
    check(what, steps.number, wanted)


for times in (1, 2, 5, 10):
    of_loops("GAN 1:%d" % times, lambda new: critic(new(), new(), times, 60), 60)
    # The calls before the other one is known are steps of their own.
    of_loops("GAN %d:1" % times, lambda new: critic(new(), new(), times, 60, True), 60 + times - 1)
of_loops("a critic of 100 has the main loop", lambda new: critic(new(), new(), 100, 5), 500)
for every in (2, 5, 7, 50, 499):
    of_loops("every %d passes" % every, lambda new: rarely(new(), new(), every, 500), 500)
    of_loops("in the first of %d passes" % every, lambda new: rarely(new(), new(), every, 500, True), 500)
for batches in (11, 50, 200):
    of_loops("after epochs of %d" % batches, lambda new: by_epoch(new(), new(), batches, 10), batches * 10)
for count_of in (2, 12, 300):
    of_loops("%d in turn" % count_of, lambda new: several([new() for _ in range(count_of)], 20), 20)
    skipping = lambda new: several([new() for _ in range(count_of)], 20, 9)  # noqa: E731
    of_loops("%d in turn, the first of them skipped now and then" % count_of, skipping, 20)
    turned = lambda n: range(count_of) if n % 2 else range(count_of - 1, -1, -1)  # noqa: E731
    of_loops("%d to and fro" % count_of, lambda new: several([new() for _ in range(count_of)], 20, 0, turned), 20)
for ends in ([50, 100, 150], [7, 9, 200]):
    of_loops("one or the other, by phase", lambda new: phases(new(), new(), ends), ends[-1])
for lengths in ([40] * 8, [2] * 20, [40, 3, 2, 40], [5]):
    of_loops("one trial after the other", lambda new: trials(new, lengths), sum(lengths))
steps = Steps(Places())
lines(Caller(steps), Caller(steps))
check("one loop after the other", steps.number, 71)
check("what remains alone is cheap", steps._only is not None, True)


class Depth:
    """Stands for a call stack."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


depth, ends = Depth(), []
pre, post = hooks(depth, lambda it: ends.append(it) or 0, None, None)


def call(inside=None, fails=False):
    """An optimizer's step with another inside; whether it was seen to be the outermost one to end."""
    depth.now += 1
    pre(None, (), {})
    if inside:
        inside()
    before = len(ends)
    if not fails:
        post(None, (), {})
    depth.now -= 1
    return None if fails else len(ends) > before


inner = []
check("nested", (call(lambda: inner.append(call())), inner), (True, [False]))
call(fails=True)
check("healed after an exception", call(), True)
call(lambda: call(fails=True), fails=True)
check("healed after a nested exception", call(), True)
check("healed below an exception", call(lambda: call(fails=True)), True)

if not sys.argv[1:]:
    print("steps are right without torch")
    sys.exit()

import torch  # noqa: E402
from torch.optim import optimizer as optim  # noqa: E402

from gpuwatch_probe import _native, _torch  # noqa: E402

probe = _torch.Probe(torch)
rows = []
# There is no CUDA here: this tests only the hooks, with a row that holds nothing but its step.
probe._due = False
probe._row = lambda devices, step, edge, *more: rows.append(step)
probe._arm = lambda *armed: None
# Where the library cannot watch, PyTorch's own hooks do.
without = {"begin_watching": lambda *it: _native.INVALID, "watch": None, "end_watching": int}
without["end_step"] = lambda optimizer: NOT_ARMED
builtin = without.get if sys.argv[1] == "hooks" else _native.loaded().builtin
probe._watch_steps(builtin)
places = probe.steps.places


def run(what, body, wanted):
    probe.steps.__init__(places)
    rows.clear()
    body()
    check(what, rows, wanted)


def parameters(count=2):
    made = [torch.nn.Parameter(torch.ones(3)) for _ in range(count)]
    for it in made:
        it.grad = torch.ones(3)
    return made


def sgd(count=2):
    return torch.optim.SGD(parameters(count), lr=0.1)


def accumulation():
    it, optimizer = parameters(1), None
    optimizer = torch.optim.AdamW(it)
    for n in range(12):
        (it[0] * n).sum().backward()
        if n % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


run("accumulation", accumulation, [1, 2, 3])


def skipped():
    it = parameters(1)
    optimizer = torch.optim.SGD(it, lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for n in range(4):
        optimizer.zero_grad()
        scaler.scale((it[0] * (float("inf") if n == 1 else 1.0)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()


run("GradScaler skips one of four", skipped, [1, 2, 3])


def gan(ratio):
    def body():
        d, g = sgd(), sgd()
        for _ in range(4):
            for _ in range(ratio):
                d.step()
            g.step()

    return body


run("GAN 1:1", gan(1), [1, 2, 3, 4])
run("GAN 5:1", gan(5), [1, 2, 3, 4, 5, 6, 7, 8])


def gan_1_to_5():
    d, g = sgd(), sgd()
    for _ in range(60):
        g.step()
        for _ in range(5):
            d.step()


run("GAN 1:5", gan_1_to_5, list(range(1, 61)))


def auxiliary():
    main, other = sgd(), sgd()
    for n in range(500):
        main.step()
        if n % 50 == 0:
            other.step()


run("an auxiliary optimizer", auxiliary, list(range(1, 501)))


def trainers():
    for _ in range(8):
        optimizer = sgd()
        for _ in range(40):
            optimizer.step()


run("eight trainers", lambda: (trainers(), rows.__setitem__(slice(None), [rows[-1]])), [320])


def zero():
    optimizer = torch.optim.AdamW(parameters(6))
    groups = [[it] for it in optimizer.param_groups[0]["params"]]
    for _ in range(3):
        for group in groups:
            # As DeepSpeed does: one group at a time, the others empty.
            optimizer.param_groups[0]["params"] = group
            optimizer.step()


run("ZeRO groups", zero, [1, 2, 3])


def lbfgs():
    it = parameters(1)
    optimizer = torch.optim.LBFGS(it, max_iter=5)

    def closure():
        optimizer.zero_grad()
        loss = (it[0] ** 2).sum()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)


run("LBFGS", lbfgs, [1, 2])


def in_backward():
    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(5)])
    made = {it: torch.optim.SGD([it], lr=0.01) for it in model.parameters()}
    for it in made:
        it.register_post_accumulate_grad_hook(lambda which: made[which].step())
    for _ in range(4):
        model(torch.ones(2, 4)).sum().backward()


run("optimizer in backward", in_backward, [1, 2, 3, 4])


class Inner(torch.optim.SGD):
    def step(self, closure=None):
        if closure == "fail":
            raise ValueError
        return super().step()


class Wrapper(optim.Optimizer):
    """As accelerate's: an optimizer that calls another."""

    def __init__(self, inner):
        self.inner = inner
        super().__init__(inner.param_groups, {})

    def step(self, closure=None):
        self.inner.step(closure)


def wrapped():
    optimizer = Wrapper(Inner(parameters(), lr=0.1))
    for closure in (None, None, "fail", None):
        try:
            optimizer.step(closure)
        except ValueError:
            pass


run("nested, and healed after an exception", wrapped, [1, 2, 3])


def empty():
    optimizer = sgd()
    optimizer.add_param_group({"params": parameters()})
    optimizer.param_groups[0]["params"] = []
    optimizer.step()
    optimizer.step()


run("an empty first group", empty, [1, 2])


def interrupted():
    """An exception that a signal handler of the job raises in the middle of a row reaches the job."""
    optimizer = sgd()

    def row(devices, step, edge, *more):
        raised = compile("raise TimeoutError('the job')", "job.py", "exec")
        exec(raised)

    kept = probe._row
    probe._row = row
    try:
        optimizer.step()
    except TimeoutError:
        rows.append("the job's")
    probe._row = kept


run("a handler's exception passes", interrupted, ["the job's"])


class Hidden(torch.optim.SGD):
    """Shows its groups to its own step alone."""

    hidden = False

    @property
    def param_groups(self):
        if self.hidden:
            raise RuntimeError("not yours")
        return self.__dict__["groups"]

    @param_groups.setter
    def param_groups(self, groups):
        self.__dict__["groups"] = groups

    def step(self, closure=None):
        self.hidden = False
        super().step(closure)
        self.hidden = True


def hidden():
    optimizer = Hidden(parameters(), lr=0.1)
    for _ in range(3):
        optimizer.step()


run("an optimizer that hides its groups", hidden, [1, 2, 3])


def compiled():
    optimizer = sgd()
    step = torch.compile(lambda: optimizer.step(), backend="eager")
    for _ in range(3):
        step()


run("a compiled optimizer", compiled, [1, 2, 3])


def at_once():
    """Threads that step at the same time lose no row, and find their way out of each other's depth."""
    done = []

    def many():
        optimizer = sgd()
        for _ in range(200):
            optimizer.step()
        done.append(1)

    threads = [threading.Thread(target=many) for _ in range(3)]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    check("all went through", len(done), 3)
    check("each row once", sorted(set(rows)), sorted(rows))
    rows.clear()
    optimizer = sgd()
    for _ in range(1400):
        optimizer.step()
    check("steps are counted as before, once the others are taken for gone", len(rows) > 0, True)
    rows.clear()


run("threads", at_once, [])


def masked():
    """The timer's start leaves the thread's signals alone, even where the job's own handler interrupts it."""

    class Interrupting:
        SIG_BLOCK, SIG_SETMASK, valid_signals = signal.SIG_BLOCK, signal.SIG_SETMASK, signal.valid_signals

        @staticmethod
        def pthread_sigmask(how, which):
            before = signal.pthread_sigmask(how, which)
            if which and how == signal.SIG_BLOCK:
                raise KeyboardInterrupt
            return before

    _torch.signal = Interrupting
    try:
        _torch.Probe(torch)._start_timer()
    except KeyboardInterrupt:
        rows.append("interrupted")
    finally:
        _torch.signal = signal
    check("no signal stays blocked", signal.pthread_sigmask(signal.SIG_BLOCK, ()), set())


run("an interrupted start", masked, ["interrupted"])


class Called(torch.optim.SGD):
    """Its step is an object, which cannot be watched."""

    class Step:
        def __get__(self, optimizer, kind):
            return self if optimizer is None else lambda closure=None: self(optimizer, closure)

        def __call__(self, optimizer, closure=None):
            return torch.optim.SGD.step(optimizer, closure)

    step = Step()


def of_any_kind():
    is_watched = sys.argv[1] == "watch"
    check("PyTorch's hooks are not used", len(optim._global_optimizer_post_hooks), int(not is_watched))
    made = Called(parameters(), lr=0.1), sgd()
    for _ in range(3):
        for optimizer in made:
            optimizer.step()
    check("now they are", len(optim._global_optimizer_post_hooks), 1)


run("a step that is no function", of_any_kind, [1, 2, 3])
check("nothing turned the probe off", probe.off, False)
probe._turn_off()
check("and later none", [len(it) for it in (optim._global_optimizer_pre_hooks, optim._global_optimizer_post_hooks)], [0, 0])
print("steps are right with torch", torch.__version__)
