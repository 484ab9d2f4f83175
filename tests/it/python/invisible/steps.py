"""Programs with optimizers on the device: what they, their tools and PyTorch see of each step."""

import abc
import cProfile
import copy
import dis
import functools
import gc
import inspect
import io
import pickle
import pstats
import random
import sys
import threading
import trace
import traceback
import warnings
import weakref

import torch
from torch.optim import optimizer as optim

from reported import program, run, stable

DEVICE = "cuda"
ALL_OF = [it for it in vars(torch.optim).values() if isinstance(it, type) and issubclass(it, torch.optim.Optimizer)]


def parameters(count=2):
    made = [torch.nn.Parameter(torch.ones(3, device=DEVICE)) for _ in range(count)]
    for it in made:
        it.grad = torch.ones(3, device=DEVICE)
    return made


def sgd(kind=torch.optim.SGD, **named):
    return kind(parameters(), lr=0.1, **named)


def steps(optimizer, count=8):
    for _ in range(count):
        optimizer.step()
    return optimizer


class Counting(torch.optim.SGD):
    """Counts how often each attribute is read."""

    def __init__(self, *args, **named):
        object.__setattr__(self, "reads", {})
        super().__init__(*args, **named)

    def __getattribute__(self, name):
        reads = object.__getattribute__(self, "reads")
        reads[name] = reads.get(name, 0) + 1
        return object.__getattribute__(self, name)


class Property(torch.optim.SGD):
    """Has its groups behind a property that counts."""

    reads = 0

    @property
    def param_groups(self):
        Property.reads += 1
        return self.__dict__["groups"]

    @param_groups.setter
    def param_groups(self, groups):
        self.__dict__["groups"] = groups


class Missing(torch.optim.Optimizer):
    """Answers for attributes that it does not have."""

    asked = []

    def __init__(self, them):
        super().__init__(them, {})
        self.__dict__.pop("param_groups")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.asked.append(name)
        return [{"params": []}]

    def step(self, closure=None):
        pass


class Groups(list):
    reads = 0

    def __iter__(self):
        Groups.reads += 1
        return list.__iter__(self)

    def __getitem__(self, at):
        Groups.reads += 1
        return list.__getitem__(self, at)


class Group(dict):
    reads = 0

    def __getitem__(self, key):
        Group.reads += 1
        return dict.__getitem__(self, key)

    def get(self, *it):
        Group.reads += 1
        return dict.get(self, *it)


class Slots(torch.optim.Optimizer):
    __slots__ = ("rate",)

    def __init__(self, them):
        self.rate = 0.5
        super().__init__(them, {})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for it in group["params"]:
                it.add_(it.grad, alpha=-self.rate)


class Failing(torch.optim.SGD):
    def step(self, closure=None):
        raise ValueError("the step fails")


class Static(torch.optim.Optimizer):
    def __init__(self, them):
        super().__init__(them, {})

    @staticmethod
    def step(self=None, closure=None):
        return "static"


class Bare(torch.optim.Optimizer):
    """Dynamo makes one graph of its step."""

    def __init__(self, them):
        super().__init__(them, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for it in group["params"]:
                it.add_(it.grad, alpha=-0.1)


@program
def reads_of_attributes():
    return steps(sgd(Counting)).reads


@program
def reads_of_a_property():
    Property.reads = 0
    steps(sgd(Property))
    return Property.reads


@program
def reads_by_getattr():
    steps(Missing(parameters()))
    return Missing.asked


@program
def reads_of_containers():
    optimizer = sgd()
    optimizer.param_groups = Groups(map(Group, optimizer.param_groups))
    Groups.reads = Group.reads = 0
    steps(optimizer)
    return Groups.reads, Group.reads


@program
def slots():
    optimizer = steps(Slots(parameters()))
    return optimizer.rate, sorted(optimizer.__dict__), str(optimizer.param_groups[0]["params"][0].tolist())


@program
def a_failing_step():
    try:
        sgd(Failing).step()
    except ValueError:
        return stable(traceback.format_exc())


@program
def a_failing_closure():
    def closure():
        return 1 / 0

    try:
        sgd().step(closure)
    except ZeroDivisionError as error:
        return stable(traceback.format_exc()), [it.name for it in traceback.extract_tb(error.__traceback__)]


@program
def wrong_arguments():
    seen = []
    for arguments in ((1, 2, 3), ("closure",)):
        try:
            sgd().step(*arguments)
        except TypeError as error:
            seen.append(str(error))
    return seen


@program
def a_static_step():
    optimizer = Static(parameters())
    return [optimizer.step() for _ in range(3)], len(optim._global_optimizer_post_hooks)


@program
def other_kinds_of_steps():
    class Partial(torch.optim.Optimizer):
        def __init__(self, them):
            super().__init__(them, {})

        def work(self, times):
            return times

        step = functools.partialmethod(work, 3)

    class Decorated(torch.optim.SGD):
        @torch.no_grad()
        @functools.wraps(torch.optim.SGD.step)
        def step(self, closure=None):
            return "decorated"

    class Abstract(torch.optim.Optimizer, abc.ABC):
        def __init__(self, them):
            super().__init__(them, {})

        @abc.abstractmethod
        def step(self, closure=None):
            return "abstract"

    class Concrete(Abstract):
        def step(self, closure=None):
            return super().step(closure)

    seen = [sgd(Decorated).step(), Concrete(parameters()).step()]
    seen.append([Partial(parameters()).step() for _ in range(3)])
    return seen, len(optim._global_optimizer_pre_hooks)


@program
def hooks_of_the_user():
    order = []
    handles = [
        optim.register_optimizer_step_pre_hook(lambda *it: order.append("all before")),
        optim.register_optimizer_step_post_hook(lambda *it: order.append("all after")),
    ]
    optimizer = sgd()
    optimizer.register_step_pre_hook(lambda *it: order.append("before"))
    optimizer.register_step_post_hook(lambda *it: order.append("after"))
    optimizer.step()
    tables = [len(it) for it in (optim._global_optimizer_pre_hooks, optim._global_optimizer_post_hooks)]
    for it in handles:
        it.remove()
    return order, tables, [it.id for it in handles]


@program
def the_optimizer_itself():
    optimizer = steps(sgd(torch.optim.AdamW))
    return sorted(optimizer.__dict__), repr(optimizer), str(optimizer.state_dict()), sorted(vars(type(optimizer)))


@program
def a_scheduler_wraps_the_step():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        optimizer = sgd()
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        scheduler.step()
        steps(optimizer, 3)
        scheduler.step()
        state = scheduler._step_count, getattr(optimizer, "_opt_called", None), scheduler.get_last_lr()
        wrapped = getattr(optimizer.step, "_wrapped_by_lr_sched", None), optimizer.step.__name__
    return [str(it.message) for it in seen], state, wrapped


@program
def copies():
    optimizer = steps(sgd(torch.optim.AdamW))
    once = pickle.loads(pickle.dumps(optimizer))
    deep = copy.deepcopy(optimizer)
    steps(deep), steps(once)
    return [sorted(it.__dict__) for it in (once, deep)], str(deep.state_dict()) == str(once.state_dict())


@program
def files():
    module = torch.nn.Linear(2, 2).to(DEVICE)
    optimizer = steps(torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9))
    file = io.BytesIO()
    torch.save({"module": module.state_dict(), "optimizer": optimizer.state_dict()}, file)
    length = len(file.getvalue())
    file.seek(0)
    return length, sorted(torch.load(file, weights_only=True)), len(pickle.dumps(module))


@program
def calls_seen_by_settrace():
    events = []
    optimizer = steps(sgd())

    def tracer(frame, event, arg):
        events.append((event, frame.f_code.co_name, frame.f_code.co_filename.rpartition("/")[2]))
        return tracer

    sys.settrace(tracer)
    steps(optimizer, 3)
    sys.settrace(None)
    return events


@program
def first_steps_seen_by_settrace():
    events = []

    def tracer(frame, event, arg):
        events.append((event, frame.f_code.co_name, frame.f_code.co_filename.rpartition("/")[2]))
        return tracer

    sys.settrace(tracer)
    for kind in (torch.optim.Adagrad, torch.optim.RMSprop):
        steps(sgd(kind), 2)
    sys.settrace(None)
    return events


@program
def calls_seen_by_setprofile():
    events = []
    optimizer = sgd()

    def profiler(frame, event, arg):
        events.append((event, frame.f_code.co_name, getattr(arg, "__name__", None) if event[0] == "c" else None))

    sys.setprofile(profiler)
    steps(optimizer, 5)
    sys.setprofile(None)
    return events


@program
def calls_seen_by_monitoring():
    if not hasattr(sys, "monitoring"):
        return None
    events = []
    tool, event = sys.monitoring.DEBUGGER_ID, sys.monitoring.events
    sys.monitoring.use_tool_id(tool, "test")
    for which in (event.PY_START, event.PY_RETURN, event.CALL):
        sys.monitoring.register_callback(tool, which, lambda code, *it: events.append(code.co_name))
    sys.monitoring.set_events(tool, event.PY_START | event.PY_RETURN | event.CALL)
    steps(sgd(), 5)
    sys.monitoring.set_events(tool, 0)
    sys.monitoring.free_tool_id(tool)
    return events


@program
def calls_seen_by_cprofile():
    profile = cProfile.Profile()
    profile.enable()
    steps(sgd(), 20)
    profile.disable()
    return sorted((str(at[0]).rpartition("/")[2], at[1], stable(at[2]), it[0]) for at, it in pstats.Stats(profile).stats.items())


@program
def lines_seen_by_trace():
    tracer = trace.Trace(count=1, trace=0)
    tracer.runfunc(steps, sgd())
    counts = tracer.results().counts
    return sorted((file.rpartition("/")[2], line, count) for (file, line), count in counts.items())


@program
def events_of_the_profiler_of_torch():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True) as profile:
        steps(sgd(), 4)
    return sorted((it.key, it.count) for it in profile.key_averages())


@program
def objects():
    gc.collect()
    before = gc.get_threshold(), gc.isenabled(), gc.get_freeze_count(), [repr(it) for it in gc.callbacks], gc.get_debug()
    optimizer = steps(sgd())
    of = (torch.nn.Parameter, torch.optim.Optimizer, Counting)
    return before, [sum(isinstance(it, kind) for it in gc.get_objects()) for kind in of], sys.getrefcount(optimizer)


@program
def collections():
    """Each step of a job without garbage makes as many of them due; reading counters makes none."""
    optimizer = steps(sgd(), 100)
    before, seen = gc.get_threshold(), []
    gc.set_threshold(30, 10, 10)
    # Once a second, the probe does more.
    for _ in range(5):
        gc.collect()
        count = gc.get_stats()[0]["collections"]
        steps(optimizer, 20)
        seen.append(gc.get_stats()[0]["collections"] - count)
    gc.set_threshold(*before)
    return min(seen)


@program
def ends_of_objects():
    ended = []
    optimizer = steps(sgd())
    weakref.finalize(optimizer, ended.append, "optimizer")
    weakref.ref(optimizer.param_groups[0]["params"][0], lambda it: ended.append("parameter"))
    keep = weakref.ref(optimizer.param_groups[0]["params"][0], lambda it: ended.append("kept"))
    del optimizer
    return ended, keep() is None


@program
def weak_references():
    return [type(it).__name__ for it in weakref.getweakrefs(steps(sgd()))]


@program
def ends_of_classes():
    class Own(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    ended = []
    weakref.finalize(Own, ended.append, "class")
    references = sys.getrefcount(Own)
    steps(sgd(Own))
    del Own
    gc.collect()
    return ended, references


@program
def warnings_of_a_step():
    class Warning_(torch.optim.SGD):
        def step(self, closure=None):
            warnings.warn("from the step", UserWarning, stacklevel=2)
            return super().step(closure)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        steps(sgd(Warning_))
    return [(str(it.message), it.filename.rpartition("/")[2], it.lineno) for it in seen]


@program
def stacks_in_a_step():
    class Stack(torch.optim.SGD):
        def step(self, closure=None):
            return [it.name for it in traceback.extract_stack()], sys._getframe(1).f_code.co_name

    return sgd(Stack).step()


@program
def depth_of_recursion():
    class Deep(torch.optim.SGD):
        def step(self, closure=None):
            def down(depth):
                try:
                    return down(depth + 1)
                except RecursionError:
                    return depth

            return down(0)

    return sys.getrecursionlimit(), sgd(Deep).step()


@program
def sources():
    step = torch.optim.SGD.step
    seen = [stable(repr(it)) for it in (step, step.__wrapped__, functools.update_wrapper, optim.Optimizer.step)]
    seen += [str(inspect.signature(kind)) for kind in ALL_OF] + [str(inspect.signature(kind.step)) for kind in ALL_OF]
    seen += [len(inspect.getsource(kind.step)) for kind in ALL_OF] + [len(inspect.getsource(optim.Optimizer.profile_hook_step))]
    return seen, [sorted(vars(kind.step)) for kind in ALL_OF], [it.__name__ for it in optim.Optimizer.__subclasses__()]


@program
def bytecode():
    steps(Bare(parameters()))
    text = [it.opname for it in dis.get_instructions(Bare.step.__wrapped__)]
    wrapper = Bare.step
    return text, wrapper.__code__.co_code.hex(), wrapper.__closure__ and len(wrapper.__closure__), wrapper.__defaults__


@program
def new_subclasses():
    made = []

    class Base(torch.optim.SGD):
        def __init_subclass__(cls, **named):
            made.append((cls.__name__, sorted(named)))
            super().__init_subclass__()

    class Sub(Base, flag=1):
        pass

    steps(sgd(Sub))
    return made, [it.__name__ for it in Sub.__mro__], torch.optim.Optimizer.__init_subclass__.__qualname__


@program
def threads():
    before = threading.active_count(), [it.name for it in threading.enumerate()], sorted(map(type, sys._current_frames()), key=repr).__len__() > 0
    done = []
    workers = [threading.Thread(target=lambda: done.append(len(steps(sgd()).param_groups))) for _ in range(3)]
    for it in workers:
        it.start()
    for it in workers:
        it.join()
    return before, done, threading.active_count(), [it.name for it in workers]


@program
def memory():
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()
    optimizer = steps(sgd(torch.optim.AdamW), 20)
    now = torch.cuda.memory_stats()
    return {key: it - before[key] for key, it in now.items()}, len(torch.cuda.memory_snapshot()), len(optimizer.state)


@program
def random_numbers():
    torch.manual_seed(1), random.seed(1)
    steps(sgd())
    return [torch.rand(3).tolist(), random.random(), torch.get_rng_state().sum().item(), torch.cuda.get_rng_state().sum().item()]


@program
def state_of_torch():
    return [
        torch.is_grad_enabled(), torch.get_num_threads(), torch.get_default_dtype(), torch.cuda.current_device(),
        torch.cuda.is_initialized(), str(torch.cuda.current_stream().stream_id), torch.backends.cudnn.enabled,
        torch.are_deterministic_algorithms_enabled(), torch.cuda.get_allocator_backend(), torch.is_inference_mode_enabled(),
        stable(repr(torch.cuda.OutOfMemoryError.__init__)), sorted(vars(torch.cuda.OutOfMemoryError)),
        torch.cuda.memory._snapshot()["segments"].__len__() > 0,
    ]


@program
def accumulation_and_scaler():
    them = parameters(1)
    optimizer = torch.optim.SGD(them, lr=0.1)
    scaler = torch.amp.GradScaler(DEVICE, init_scale=4.0)
    for n in range(4):
        optimizer.zero_grad()
        scaler.scale((them[0] * (float("inf") if n == 1 else 1.0)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    return scaler.state_dict(), them[0].tolist()


if __name__ == "__main__":
    torch.zeros(1, device=DEVICE)
    run()
