"""Leaks of many kinds, and who is said to hold them; tensors in host memory are as good as any here.

With the argument `standin` without PyTorch, for the sake of this Python's own ways.
"""

import collections
import functools
import gc
import json
import os
import sys
import threading
import time
import weakref

if "standin" in sys.argv:
    import standin as torch
else:
    import torch

from gpuwatch_probe._holders import collect, find

HERE = __file__
MADE = []


def made(*shape):
    """A tensor that the search is asked for."""
    it = torch.zeros(*shape or (16,))
    storage = it.untyped_storage()
    MADE.append((storage.data_ptr(), storage.nbytes()))
    return it


def asked(limit_s=30, groups=None):
    """What is found of the tensors made since; the steps as short tuples."""
    found = find(torch, [list(MADE)] if groups is None else groups, limit_s)
    MADE.clear()
    assert not found["cut"] and not found["hidden"] and found["us"] > 0, found
    return found["groups"][0]


def steps(group):
    """The path with what is not `None` of each step, but for lines and files."""
    said = []
    for step in group["holders"]:
        assert set(step) == {"by", "name", "type", "items", "function", "file", "line"}, step
        said.append(tuple(it for it in (step["by"], step["name"], step["type"], step["items"], step["function"]) if it))
    return said


def expect(*want):
    group = asked()
    assert steps(group) == list(want), (steps(group), want)
    return group


LOSSES = []


def a_list_of_a_module():
    for _ in range(5):
        LOSSES.append(made())
    group = expect(("item", "list", 5), ("global", "LOSSES", "module"))
    assert group["holders"][1]["file"] == HERE
    assert group["owners"] == [{"shape": [16], "dtype": "float32", "grad": False, "count": 5}], group
    assert group["autograd"] is False


def a_list_of_a_function():
    losses = []
    for _ in range(5):
        loss = made()
        losses.append(loss)
    group = expect(("item", "list", 5), ("local", "losses", "frame", "a_list_of_a_function"))
    assert group["holders"][1]["line"] == sys._getframe().f_lineno - 1 and group["holders"][1]["file"] == HERE


def outputs_in_a_dictionary():
    outputs = {}
    for at in range(5):
        outputs["step", at] = {"out": made()}
    expect(("key", "out", "dict", 1), ("key", "dict", 5), ("local", "outputs", "frame", "outputs_in_a_dictionary"))


CACHE = {}


def keyed_by_identity():
    for _ in range(5):
        it = made()
        CACHE[id(it)] = it
    del it
    expect(("key", "dict", 5), ("global", "CACHE", "module"))


def counting():
    kept = []

    def count(it):
        kept.append(it)
        return len(kept)

    return count


def a_closure():
    count = counting()
    for _ in range(5):
        count(made())
    group = expect(("item", "list", 5), ("cell", "kept", "function", "count"), ("local", "count", "frame", "a_closure"))
    assert group["holders"][1]["line"] == counting.__code__.co_firstlineno + 3


def a_shared_variable():
    kept = []

    def keep():
        kept.append(made())

    for _ in range(5):
        keep()
    expect(("item", "list", 5), ("local", "kept", "frame", "a_shared_variable"))


def a_forward_hook():
    def watching():
        seen = []

        def hook(module, arguments, out):
            seen.append(made())

        return hook

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    list(model._modules.values())[1].register_forward_hook(watching())
    for _ in range(5):
        model(torch.zeros(1, 2))
    expect(
        ("item", "list", 5),
        ("cell", "seen", "function", "hook"),
        ("hook", "1._forward_hooks", "Sequential"),
        ("local", "model", "frame", "a_forward_hook"),
    )


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(2, 2), Block())


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cache = []
        self.register_buffer("history", made(8))
        MADE.clear()


def a_module_of_a_network():
    model = Net()
    block = list(model.inner._modules.values())[1]
    for _ in range(5):
        block.cache.append(made())
    del block
    here = ("local", "model", "frame", "a_module_of_a_network")
    expect(("item", "list", 5), ("attribute", "inner.1.cache", "Net"), here)
    model.inner._modules["1"].history = made(64)
    expect(("attribute", "inner.1.history", "Net"), here)


class Trainer:
    seen = []

    def __init__(self):
        self.outputs = []

    def fit(self):
        for _ in range(5):
            self.outputs.append(made())
        expect(("item", "list", 5), ("attribute", "outputs", "Trainer"), ("local", "self", "frame", self.where()))

    def where(self):
        return "Trainer.fit" if sys.version_info >= (3, 11) else "fit"


def an_instance():
    Trainer().fit()


def a_class():
    for _ in range(5):
        Trainer.seen.append(made())
    group = expect(("item", "list", 5), ("class", "seen", "Trainer"))
    assert group["holders"][1]["file"] == HERE
    Trainer.seen.clear()


class Slotted:
    __slots__ = ("last", "all")

    def __init__(self):
        self.all = []


def slots():
    it = Slotted()
    for _ in range(5):
        it.all.append(made())
    expect(("item", "list", 5), ("slot", "all", "Slotted"), ("local", "it", "frame", "slots"))


ERRORS = []


def exceptions():
    def fail():
        activations = made()
        raise ValueError(len(activations.shape))

    for _ in range(5):
        try:
            fail()
        except ValueError as error:
            ERRORS.append(error)
    group = expect(
        ("traceback", "activations", "ValueError", "fail"), ("item", "list", 5), ("global", "ERRORS", "module")
    )
    assert group["holders"][0]["line"] == exceptions.__code__.co_firstlineno + 3
    ERRORS.clear()


class Node:
    def __init__(self, parent=None):
        self.parent, self.children = parent, []


def cycles():
    gc.disable()
    for _ in range(5):
        node = Node()
        node.children.append(Node(node))
        node.saved = made()
    del node
    expect(
        ("attribute", "saved", "Node"),
        ("attribute", "parent", "Node"),
        ("item", "list", 1),
        ("attribute", "children", "Node"),
        ("cycle", "Node.parent, Node.children", "Node", 3),
    )
    gc.enable()
    freed, us = collect()
    assert freed >= 15 and us > 0


def held_by_c():
    """No cycle, and nothing that the collector knows of: `threading.local` in the interpreter's own dictionary."""
    local = threading.local()
    local.kept = Node()
    local.kept.children.append(Node(local.kept))
    for _ in range(5):
        local.kept.children.append(made())
    group = asked()
    assert all(it["by"] != "cycle" for it in group["holders"]), group
    assert steps(group)[:2] == [("item", "list", 6), ("attribute", "children", "Node")], steps(group)


def growing():
    whole = made(4)
    for _ in range(5):
        MADE.clear()
        whole = made(whole.shape[0] + 4)
    expect(("local", "whole", "frame", "growing"))


class Metric:
    def __init__(self):
        self.state = collections.defaultdict(list)

    def update(self, it):
        self.state["values"].append(it)


def a_metric():
    metrics = {"accuracy": Metric()}
    for _ in range(5):
        metrics["accuracy"].update(made())
    expect(
        ("item", "list", 5),
        ("key", "values", "defaultdict", 1),
        ("attribute", "state", "Metric"),
        ("key", "accuracy", "dict", 1),
        ("local", "metrics", "frame", "a_metric"),
    )


def batches(count):
    kept = []
    for _ in range(count):
        kept.append(made())
        yield len(kept)


def a_generator():
    running = batches(5)
    for _ in range(4):
        next(running)
    group = expect(
        ("item", "list", 4), ("generator", "kept", "generator", "batches"), ("local", "running", "frame", "a_generator")
    )
    assert group["holders"][1]["line"] == batches.__code__.co_firstlineno + 4


def a_library():
    name = os.path.join(os.getcwd(), "site-packages", "shelf.py")
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "w") as file:
        file.write("_kept = []\n\n\ndef keep(it):\n    _kept.append(it)\n")
    sys.path.insert(0, os.path.dirname(name))
    import shelf

    for _ in range(5):
        shelf.keep(made())
    group = expect(("item", "list", 5), ("global", "_kept", "module"))
    assert group["holders"][1]["file"] == name


def a_thread():
    ready, done = threading.Event(), threading.Event()

    def work():
        mine = []
        for _ in range(5):
            mine.append(made())
        ready.set()
        done.wait()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    expect(("item", "list", 5), ("local", "mine", "frame", "work"))
    done.set()
    thread.join()


def containers():
    last = collections.deque(maxlen=100)
    for _ in range(5):
        last.append(made())
    expect(("item", "deque", 5), ("local", "last", "frame", "containers"))
    unique = set()
    for _ in range(5):
        unique.add((made(), 1))
    expect(("item", "tuple", 2), ("item", "set", 5), ("local", "unique", "frame", "containers"))


class Mine(list):
    """Answers nothing truthfully."""

    __class__ = property(lambda self: 1 / 0)
    __dict__ = property(lambda self: 1 / 0)

    def trap(self, *_):
        raise AssertionError("code of the job ran")

    __len__ = __iter__ = __eq__ = __repr__ = __getattribute__ = __contains__ = __getitem__ = trap
    __hash__ = None


class Type(type):
    def trap(cls, *_):
        raise AssertionError("code of the job ran")

    __hash__ = __eq__ = __repr__ = __subclasscheck__ = __instancecheck__ = __getattribute__ = trap


def none_of_its_code_runs():
    kept = Mine()
    Odd = Type("Odd", (), {"__slots__": ("it",)})
    for _ in range(5):
        list.append(kept, made())
    expect(("item", "Mine", 5), ("local", "kept", "frame", "none_of_its_code_runs"))
    odd = [object.__new__(Odd) for _ in range(5)]
    put = type.__dict__["__dict__"].__get__(Odd)["it"].__set__
    for it in odd:
        put(it, made())
    expect(("slot", "it", "Odd"), ("item", "list", 5), ("local", "odd", "frame", "none_of_its_code_runs"))


def callables():
    keep = made
    bound = [Slotted().all.append, functools.partial(print, [keep()])]
    expect(
        ("item", "list", 1),
        ("item", "tuple", 1),
        ("attribute", "args", "partial"),
        ("item", "list", 2),
        ("local", "bound", "frame", "callables"),
    )
    it = Trainer()
    call = it.fit
    it.outputs = [made() for _ in range(5)]
    del it
    where = "Trainer.fit" if sys.version_info >= (3, 11) else "fit"
    expect(
        ("item", "list", 5),
        ("attribute", "outputs", "Trainer"),
        ("attribute", "__self__", "method", where),
        ("local", "call", "frame", "callables"),
    )

    def default(it, seen=[]):
        seen.append(it)

    for _ in range(5):
        default(made())
    expect(
        ("item", "list", 5), ("default", "seen", "function", "default"), ("local", "default", "frame", "callables")
    )

    @functools.lru_cache(maxsize=None)
    def remembered(at):
        return made()

    for at in range(5):
        remembered(at)
    expect(("item", "lru_cache", 5, "remembered"), ("local", "remembered", "frame", "callables"))


def a_graph():
    """Blocks that no tensor owns, and a tensor whose graph has many steps."""
    if "standin" in sys.argv:
        return
    layer = torch.nn.Linear(4, 4)
    nowhere = [[(1 << 60, 512)] * 3]
    total = layer(torch.zeros(2, 4)).relu().sum()
    assert asked(groups=nowhere)["holders"] == [], "one step's graph says nothing"
    for _ in range(20):
        total = total + layer(torch.zeros(2, 4)).relu().sum()
    group = asked(groups=nowhere)
    nodes = group["holders"][0]["items"]
    assert nodes > 60 and steps(group) == [("graph", "Tensor", nodes), ("local", "total", "frame", "a_graph")], group


def gradients_and_hooks():
    if "standin" in sys.argv:
        return
    layer = torch.nn.Linear(4, 4)
    layer(torch.zeros(2, 4)).sum().backward()
    storage = layer.weight.grad.untyped_storage()
    MADE.append((storage.data_ptr(), storage.nbytes()))
    here = ("local", "layer", "frame", "gradients_and_hooks")
    expect(("grad", "Parameter"), ("attribute", "weight", "Linear"), here)

    def watching():
        seen = []
        return lambda grad: seen.append(made())

    layer.weight.register_hook(watching())
    for _ in range(5):
        layer(torch.zeros(2, 4)).sum().backward()
    hook = [("item", "list", 5), ("cell", "seen", "function", "<lambda>"), ("hook", "Parameter")]
    expect(*hook, ("attribute", "weight", "Linear"), here)


def odd_tensors():
    """Those without a storage, and those of classes that answer for themselves."""
    if "standin" in sys.argv:
        return
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Odd(torch.Tensor):
        shape = property(lambda self: 1 / 0)

        @classmethod
        def __torch_function__(cls, *_, **__):
            raise AssertionError("code of the job ran")

    class Mode(TorchFunctionMode):
        __torch_function__ = Odd.__torch_function__

    class Dispatch(TorchDispatchMode):
        __torch_dispatch__ = Odd.__torch_function__

    with FakeTensorMode():
        fake = torch.zeros(4)
    kept = [fake, torch.eye(4).to_sparse(), torch.zeros(4, device="meta"), torch.nn.parameter.UninitializedParameter()]
    odd = [made().as_subclass(Odd) for _ in range(5)]
    with Mode(), Dispatch():
        group = expect(("item", "list", 5), ("local", "odd", "frame", "odd_tensors"))
    assert group["owners"] == [{"shape": [16], "dtype": "float32", "grad": False, "count": 5}], group
    del kept


def two_groups():
    small, large = [], []
    for _ in range(5):
        small.append(made(4))
        large.append(made(400))
    groups = [MADE[::2], MADE[1::2], [(1 << 60, 512)] * 3]
    found = find(torch, groups, 30)
    MADE.clear()
    assert [it["holders"][-1]["name"] for it in found["groups"][:2]] == ["small", "large"], found
    assert found["groups"][2] == {"owners": [], "autograd": True, "holders": []}, found
    assert [it["autograd"] for it in found["groups"][:2]] == [False, False]


def nothing_is_kept():
    """Neither objects nor references to them, whatever was found, and the job's own `locals()` stay as they are."""
    before = locals()
    holder = Node()
    holder.children = [made() for _ in range(5)]
    gone = weakref.ref(holder.children[0])
    counts = [sys.getrefcount(it) for it in holder.children] + [sys.getrefcount(holder)]
    find(torch, [MADE], 30)
    gc.collect()
    shown, objects = dict(before), len(gc.get_objects())
    referrers = len(gc.get_referrers(holder.children[0]))
    for _ in range(3):
        find(torch, [MADE], 30)
    assert [sys.getrefcount(it) for it in holder.children] + [sys.getrefcount(holder)] == counts
    assert len(gc.get_objects()) - objects < 10, "what it made is gone"
    assert before == shown and "holder" not in before, before
    assert len(gc.get_referrers(holder.children[0])) == referrers
    assert gc.isenabled()
    holder.children.clear()
    assert gone() is None, "nothing lives longer for having been found"
    MADE.clear()


def time_is_limited():
    chain = [made()]
    for _ in range(100):
        chain = [chain]
    MADE_NOW = [MADE[:]]
    found = find(torch, MADE_NOW, 0)
    assert found["cut"], found
    found = find(torch, MADE_NOW, 30)
    assert found["cut"] and found["groups"][0]["holders"], "so far, at least"
    MADE.clear()


def a_frozen_heap():
    """What `gc.freeze` hides is said to be hidden, and what is known from above is found all the same."""
    kept = []
    gc.freeze()
    try:
        kept.extend(made() for _ in range(5))
        more = [made() for _ in range(5)]
        found = find(torch, [MADE[:5], MADE[5:]], 30)
        hidden, seen = found["groups"]
        assert found["hidden"] and hidden["owners"] and not hidden["autograd"] and hidden["holders"] == [], found
        assert steps(seen) == [("item", "list", 5), ("local", "more", "frame", "a_frozen_heap")], found
    finally:
        gc.unfreeze()
    assert not find(torch, [], 30)["hidden"]
    del kept, more


def a_large_heap():
    """A million objects, of which 20,000 are tensors; what the search takes of a processor, in microseconds."""
    losses, kept = [], Trainer()
    for _ in range(10_000):
        losses.append(made())
        kept.outputs.append(made(4))
    rows = [[at, [at]] for at in range((1_000_000 - len(gc.get_objects())) // 2)]
    groups = [MADE[at : at + 160 : 10] for at in range(10)]
    MADE.clear()
    begun = time.thread_time()
    find(torch, groups)
    taken = int((time.thread_time() - begun) * 1e6)
    # By default its time may end it early, on a slow machine.
    found = find(torch, groups, 30)
    assert found["objects"] > 900_000, found
    assert {steps(it)[-1][1] for it in found["groups"]} == {"losses", "kept"}, found
    del rows
    return {"objects": found["objects"], "us": taken}


CASES = (
    a_list_of_a_module, a_list_of_a_function, outputs_in_a_dictionary, keyed_by_identity, a_closure, a_shared_variable,
    a_forward_hook, a_module_of_a_network, an_instance, a_class, slots, exceptions, cycles, held_by_c, growing,
    a_metric, a_generator, a_library, a_thread, containers, none_of_its_code_runs, callables, a_graph, gradients_and_hooks,
    odd_tensors, two_groups, nothing_is_kept, time_is_limited, a_frozen_heap,
)  # fmt: skip

for case in CASES:
    case()
    # What it left must not be found by the next one, at the same addresses.
    MADE.clear()
print(json.dumps(dict(a_large_heap(), cases=len(CASES))))
