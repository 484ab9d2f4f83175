"""Leaks of many kinds, and the holders that the search finds; tensors in host memory serve as well."""

import collections
import functools
import gc
import os
import sys
import tempfile
import threading

from held import MADE, asked, expect, made, run, steps, torch

from gpuwatch_probe._holders import collect

HERE = __file__
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


def wrapped(function):
    @functools.wraps(function)
    def call(*arguments):
        return function(*arguments)

    return call


def at(holder):
    return holder["file"], holder["line"]


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
    of_block = (HERE, Block.__init__.__code__.co_firstlineno)
    group = expect(("item", "list", 5), ("attribute", "inner.1.cache", "Net"), here)
    assert at(group["holders"][1]) == of_block, group
    model.inner._modules["1"].history = made(64)
    group = expect(("attribute", "inner.1.history", "Net"), here)
    # What stands in for PyTorch is no library.
    assert at(group["holders"][0]) == of_block or torch.__name__ != "torch", group


class Trainer:
    seen = []

    def __init__(self):
        self.outputs = []

    def fit(self):
        for _ in range(5):
            self.outputs.append(made())
        here = ("local", "self", "frame", self.where())
        group = expect(("item", "list", 5), ("attribute", "outputs", "Trainer"), here)
        assert at(group["holders"][1]) == (HERE, Trainer.__init__.__code__.co_firstlineno), group

    @wrapped
    def clear(self):
        self.more = []

    def where(self):
        return "Trainer.fit" if sys.version_info >= (3, 11) else "fit"


class Later(Trainer):
    def __init__(self):
        self.clear()


def an_instance():
    Trainer().fit()


def an_instance_of_an_extended_class():
    later = Later()
    for _ in range(5):
        later.more.append(made())
    here = ("local", "later", "frame", "an_instance_of_an_extended_class")
    group = expect(("item", "list", 5), ("attribute", "more", "Later"), here)
    # A method of its base, with something wrapped around it, mentions the attribute.
    assert at(group["holders"][1]) == (HERE, Trainer.clear.__wrapped__.__code__.co_firstlineno), group


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
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "site-packages", "shelf.py")
        os.mkdir(os.path.dirname(name))
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
    try:
        expect(("item", "list", 5), ("local", "mine", "frame", "work"))
    finally:
        # The interpreter waits for its threads.
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


run((
    a_list_of_a_module, a_list_of_a_function, outputs_in_a_dictionary, keyed_by_identity, a_closure, a_shared_variable,
    a_forward_hook, a_module_of_a_network, an_instance, an_instance_of_an_extended_class, a_class, slots, exceptions, cycles,
    held_by_c, growing, a_metric, a_generator, a_library, a_thread, containers, callables,
))  # fmt: skip
