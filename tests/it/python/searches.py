"""The search for holders itself: that it runs none of the job's code, keeps nothing, and ends in time."""

import gc
import sys
import time
import weakref

from held import MADE, asked, expect, made, rank, run, searched, steps, torch

from gpuwatch_probe import _holders
from gpuwatch_probe._holders import Search


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
    assert asked(groups=nowhere)["holders"] == [], "one step's graph is no evidence"
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
    """Tensors without a storage, and tensors of classes with a `__torch_function__` of their own."""
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
    """Objects whose graph or shape cannot be read do not prevent others from being found."""
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
    # From now on PyTorch raises when the graph of one of the rows is read.
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
    found = searched(groups).result()
    MADE.clear()
    assert [it["holders"][-1]["name"] for it in found[:2]] == ["small", "large"], found
    assert found[2] == {"owners": [], "autograd": True, "holders": []}, found
    assert [it["autograd"] for it in found[:2]] == [False, False]


def nothing_is_kept():
    """Neither objects nor references to them, whatever was found, and the job's own `locals()` stay as they are."""
    before = locals()
    holder = Node()
    holder.children = [made() for _ in range(5)]
    gone = weakref.ref(holder.children[0])
    counts = [sys.getrefcount(it) for it in holder.children] + [sys.getrefcount(holder)]
    searched([MADE])
    gc.collect()
    shown, objects = dict(before), len(gc.get_objects())
    referrers = len(gc.get_referrers(holder.children[0]))
    for _ in range(3):
        searched([MADE])
    assert [sys.getrefcount(it) for it in holder.children] + [sys.getrefcount(holder)] == counts
    assert len(gc.get_objects()) - objects < 10, "what it made is gone"
    assert before == shown and "holder" not in before, before
    assert len(gc.get_referrers(holder.children[0])) == referrers
    assert gc.isenabled()
    holder.children.clear()
    assert gone() is None, "nothing lives longer for having been found"
    MADE.clear()


def nothing_is_kept_between_slices():
    """An object that the job drops while a search waits for its next slice is gone at once."""
    holder = Node()
    holder.children = [Node() for _ in range(5)]
    gone = [weakref.ref(it) for it in (*holder.children, made())]
    assert gone.pop()() is None
    holder.children.append(made())
    lost = weakref.ref(holder.children[-1])
    search = Search(torch, [[(1 << 60, 512)]], lambda file: 0)
    search.slice()
    holder.children.clear()
    assert lost() is None and all(it() is None for it in gone)
    MADE.clear()


def time_is_limited():
    """The answer leaves out a holder that is too far away, and reports that."""
    chain = [made()]
    for _ in range(500_000):
        chain = [chain]
    kept = _holders.WALK_S, _holders.TOTAL_S
    _holders.WALK_S, _holders.TOTAL_S = 0.001, 0.02
    try:
        search = Search(torch, [MADE[:]], rank)
        while not search.slice():
            pass
        (result,) = search.result()
        assert search.is_cut and not result["autograd"] and all(it["by"] != "local" for it in result["holders"]), result
    finally:
        _holders.WALK_S, _holders.TOTAL_S = kept
    MADE.clear()
    # Objects nested this deep cannot be freed at once.
    while type(chain) is list:
        chain = chain[0]


def a_frozen_heap():
    """The search finds objects that `gc.freeze` hides from the collector's lists."""
    kept = [made() for _ in range(5)]
    gc.freeze()
    try:
        here = ("local", "kept", "frame", "a_frozen_heap")
        assert expect(("item", "list", 5), here)["autograd"] is False
    finally:
        gc.unfreeze()
    del kept


def of_old_tensors_nothing_is_known_that_was_not_seen():
    """Where the young generations may not have them, no graph is reported to hold blocks."""
    search = Search(torch, [[(1 << 60, 512)] * 3], lambda file: 0, None)
    while not search.slice():
        pass
    assert search.result() == [{"owners": [], "autograd": False, "holders": []}], search.result()


def a_variable_of_this_step_holds_nothing_of_the_others():
    """Among many blocks, a variable that holds only the latest one proves nothing."""
    out = made()
    MADE.extend([(1 << 60, 512)] * 7)
    group = asked()
    assert group["holders"] == [] and group["autograd"], group
    del out


class Row:
    def __init__(self, at):
        self.values, self.next = [at, {"at": at}], [at]


def a_large_heap():
    """Millions of objects: the longest slice and all slices together, in microseconds of computing."""
    losses, kept = [], Node()
    for _ in range(10_000):
        losses.append(made())
        kept.children.append(made(4))
    data = {"rows": [[at, [at]] for at in range(OBJECTS // 3)], "table": {at: [at] for at in range(OBJECTS // 3)}}
    objects = [Row(at) for at in range(OBJECTS // 10)]
    groups = [MADE[-160 + at :: 10] for at in range(2)]
    MADE.clear()
    longest = total = 0
    search = Search(torch, groups, rank)
    over = False
    while not over:
        begun = time.thread_time()
        over = search.slice()
        took = time.thread_time() - begun
        longest, total = max(longest, took), total + took
    names = [steps(it)[-1][1] for it in search.result() if it["holders"]]
    assert set(names) == {"losses", "kept"}, search.result()
    count = len(gc.get_objects())
    del data, objects
    return {"objects": count, "longest_us": int(1e6 * longest), "us": int(1e6 * total)}


OBJECTS = int(sys.argv[-1]) if sys.argv[-1].isdigit() else 1_000_000
run(
    (
        none_of_its_code_runs, a_graph, gradients_and_hooks, odd_tensors, tensors_beside, two_groups, nothing_is_kept,
        nothing_is_kept_between_slices, time_is_limited, a_frozen_heap,
        of_old_tensors_nothing_is_known_that_was_not_seen, a_variable_of_this_step_holds_nothing_of_the_others,
    ),
    **a_large_heap(),
)  # fmt: skip
