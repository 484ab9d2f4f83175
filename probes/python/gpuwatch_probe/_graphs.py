"""Which tensor keeps a graph that grows: blocks that only autograd holds have no owner to begin a search from."""

from time import thread_time
from types import BuiltinFunctionType

from ._edges import namespaces, type_name

# Tensors whose graphs are looked at, so many of each kind, and nodes of them: a node takes a microsecond.
_OF_A_KIND = 2
_MOST_TENSORS = 24
_MOST_NODES = 4_000
_MOST_IN_ALL = 20_000

# A graph that goes through every parameter so often is of more than one step, as far as one can tell.
_PASSES = 16

# It is so much larger than that of another tensor, one step's.
_TIMES = 8


def growing(tensors, base, until):
    """`(tensor, nodes of its graph)` of the one whose graph goes back over many steps; `None` without one.

    Where several do (a state that is carried on, and all that was made out of it), the smallest: the others have
    their graph through it. Ends when the thread has computed `until` then, with what is known.
    """
    function = base.__dict__["grad_fn"].__get__
    sized, left = [], _MOST_IN_ALL
    for it in _some(tensors, base):
        size, passes = _size(asked(function, it), min(left, _MOST_NODES))
        left -= size
        sized.append((size, passes, it))
        if left <= 0 or thread_time() > until:
            break
    if not sized:
        return None
    sizes = [size for size, _, _ in sized]
    large = [it for it in sized if 2 * it[0] >= max(sizes)]
    size, passes, tensor = min(large, key=lambda it: it[0])
    if passes < _PASSES and _TIMES * min(sizes) > size:
        return None
    return tensor, size


def _some(tensors, base):
    """A few of each shape."""
    counts, chosen = {}, []
    for it in reversed(tensors):
        kind = shape_of(it, base) or type_name(it)
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= _OF_A_KIND and len(chosen) < _MOST_TENSORS:
            chosen.append(it)
    return chosen


def _size(function, most):
    """Nodes of a graph, and how often it goes through the parameter that it goes through least."""
    if function is None:
        return 0, 0
    # Nodes are held while they are told apart: those of C++ are objects only for so long.
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


def asked(get, tensor):
    """What a tensor says of its graph; `None` where PyTorch raises, as of some views whose base was written to."""
    try:
        return get(tensor)
    except RuntimeError as error:
        # A signal handler's of the job's comes from further down.
        if error.__traceback__.tb_next is not None:
            raise
        return None


def shape_of(tensor, base):
    """The shape of a tensor; `None` where a class of its own may answer for it, as nested tensors do."""
    answers = (it["__torch_dispatch__"] for it in namespaces(type(tensor)) if "__torch_dispatch__" in it)
    if type(next(answers, None)) not in (BuiltinFunctionType, type(None)):
        return None
    return tuple(map(int, base.__dict__["shape"].__get__(tensor)))
