"""The search for holders itself: that it runs none of the job's code, keeps nothing, and ends in time."""

import gc
import sys
import time
import weakref

from held import MADE, asked, expect, made, run, steps, torch

from gpuwatch_probe._holders import find


class Node:
    def __init__(self):
        self.children = []


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


def tensors_beside():
    """Those whose graph or shape cannot be asked for keep nobody from being found."""
    if "standin" in sys.argv:
        return
    called = []

    class Sized(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            more = {"requires_grad": inner.requires_grad, "dispatch_sizes_strides_policy": "sizes"}
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, **more)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            called.append(function)
            out = function(*(it.inner if isinstance(it, Sized) else it for it in args), **(kwargs or {}))
            return Sized(out) if isinstance(out, torch.Tensor) else list(out) if isinstance(out, torch.Size) else out

    whole = torch.ones(4, 3, requires_grad=True) * 2
    rows = whole.unbind()
    # From now on PyTorch raises where one of the rows is asked for its graph.
    whole.add_(1)
    ragged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged, requires_grad=True) * 2
    sized = Sized(torch.ones(4, requires_grad=True)) * 2
    called.clear()
    kept = [made() for _ in range(5)]
    expect(("item", "list", 5), ("local", "kept", "frame", "tensors_beside"))
    assert not called, called
    del rows, ragged, sized, kept


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
    losses, kept = [], Node()
    for _ in range(10_000):
        losses.append(made())
        kept.children.append(made(4))
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


run(
    (
        none_of_its_code_runs, a_graph, gradients_and_hooks, odd_tensors, tensors_beside, two_groups, nothing_is_kept,
        time_is_limited, a_frozen_heap,
    ),
    **a_large_heap(),
)  # fmt: skip
