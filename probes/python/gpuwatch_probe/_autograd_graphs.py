"""Finds the tensor that keeps a growing graph: blocks that only autograd holds have no owner to start a search from."""

from time import thread_time
from types import BuiltinFunctionType

from ._references import namespaces, type_name

# Limits for the latest tensors whose graphs are examined, per kind and in total (and for the oldest ones of all kinds),
# and for graph nodes: a node takes a microsecond.
_OF_A_KIND = 2
_MOST_TENSORS = 24
_MOST_NODES = 4_000
_MOST_IN_ALL = 20_000

# A graph that passes every parameter this often most likely spans several steps.
PASSES = 16

# It is this many times larger than the graph of a single step.
_TIMES = 8


def growing(tensors, base, until, most_of_a_step=PASSES):
    """Returns `(tensor, nodes of its graph)` for the tensor whose graph spans many steps; `None` without one. The graph
    of one step passes some parameter less often than `most_of_a_step` times.

    If several do (a carried state, and all tensors computed from it), the smallest graph wins: the others contain it.
    Stops when the thread's CPU time reaches `until`.
    """
    function = base.__dict__["grad_fn"].__get__
    sized, left = [], _MOST_IN_ALL
    for it in _some(tensors, base):
        size, passes = _size(read_attribute(function, it), min(left, _MOST_NODES))
        left -= size
        sized.append((size, passes, it))
        if left <= 0 or thread_time() > until:
            break
    if not sized:
        return None
    least = min(size for size, _, _ in sized)
    # A long step's graph may have more nodes than the short graphs of many steps.
    several = [it for it in sized if it[1] >= most_of_a_step] or sized
    most = max(size for size, _, _ in several)
    size, passes, tensor = min((it for it in several if 2 * it[0] >= most), key=lambda it: it[0])
    if passes < most_of_a_step and _TIMES * least > size:
        return None
    return tensor, size


def _some(tensors, base):
    """Chooses a few tensors of each shape: the latest ones, and the oldest one, to which each step adds in place."""
    counts, chosen, oldest = {}, [], {}
    for it in reversed(tensors):
        kind = shape_of(it, base) or type_name(it)
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] > _OF_A_KIND:
            oldest[kind] = it
        elif len(chosen) < _MOST_TENSORS:
            chosen.append(it)
    return chosen + list(oldest.values())[:_MOST_TENSORS]


def _size(function, most):
    """Returns the number of a graph's nodes, and its fewest passes through any parameter."""
    if function is None:
        return 0, 0
    # Keep the nodes alive while ids are compared: the Python objects of C++ nodes are temporary.
    met, order, passes = {id(function)}, [function], {}
    for node in order:
        for following, _ in getattr(node, "next_functions", ()):
            at = id(following)
            if following is None:
                continue
            if at not in met and len(order) < most:
                met.add(at)
                order.append(following)
            if type_name(following) == "AccumulateGrad":
                passes[at] = passes.get(at, 0) + 1
    return len(order), min(passes.values(), default=0)


def read_attribute(get, tensor):
    """Reads an attribute of a tensor's graph; `None` if PyTorch raises, as for some views whose base was modified."""
    try:
        return get(tensor)
    except RuntimeError as error:
        # An error of the job's signal handler comes from further down.
        if error.__traceback__.tb_next is not None:
            raise
        return None


def shape_of(tensor, base):
    """Returns the shape of a tensor; `None` if its class may override it, as nested tensors do."""
    answers = (it["__torch_dispatch__"] for it in namespaces(type(tensor)) if "__torch_dispatch__" in it)
    if type(next(answers, None)) not in (BuiltinFunctionType, type(None)):
        return None
    return tuple(map(int, base.__dict__["shape"].__get__(tensor)))
