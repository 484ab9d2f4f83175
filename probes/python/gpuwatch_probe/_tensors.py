"""Which tensors lie in blocks of device memory, and what of the process hangs together in ways known beforehand."""

import gc
from bisect import bisect_right
from itertools import compress
from types import TracebackType

from ._edges import is_a, namespace
from ._graphs import growing

# Tensors of each group that the search begins from.
_SAMPLES = 3

# Frames of one exception's traceback.
_MOST_FRAMES = 200

_PLACES = ("_parameters", "_buffers", "_modules")


class Tensors:
    """One look over all that the collector knows.

    `groups` are the answers about each group so far, with `samples` of its tensors. `known` says of objects, by
    identity, who holds them: what is inside of a `torch.nn.Module`, frames of tracebacks, gradients. `places` are the
    attributes of all `torch.nn.Module`s. Where blocks belong to no tensor, `graph` is the one whose graph may keep
    them, and how many nodes that has.
    """

    def __init__(self, torch, groups):
        self.known, self.places = {}, []
        tensors = _kinds_under(torch.Tensor)
        networks = _kinds_under(torch.nn.Module)
        errors = _kinds_under(BaseException)
        found, self.objects = _of_kinds(tensors.keys() | networks.keys() | errors.keys())
        blocks, attached = _Blocks(groups), []
        with torch._C.DisableTorchFunction():
            storage, address = torch._C.TensorBase.untyped_storage, torch._C.StorageBase.data_ptr
            own = {name: torch._C.TensorBase.__dict__[name].__get__ for name in ("is_leaf", "requires_grad", "grad")}
            for it in found:
                kind = id(type(it))
                if kind in tensors:
                    blocks.claim(it, storage, address)
                    if not own["is_leaf"](it):
                        attached.append(it)
                    elif own["requires_grad"](it):
                        self._gradient(it, own["grad"](it), blocks, storage, address)
                elif kind in networks:
                    self._network(it)
                else:
                    self._traceback(it)
            self.groups = blocks.told(torch._C.TensorBase)
            self.graph = None
            # A tensor that is kept with its graph grows itself.
            kept = any(owner["grad"] for it in self.groups for owner in it["owners"])
            if not kept and any(it["autograd"] and not it["owners"] for it in self.groups):
                self.graph = growing(attached, torch._C.TensorBase)

    def _gradient(self, parameter, gradient, blocks, storage, address):
        if gradient is not None and blocks.claim(gradient, storage, address):
            self.known[id(gradient)] = parameter

    def _network(self, module):
        mapping = namespace(module)
        if mapping is None:
            return
        self.places.append(mapping)
        self.known[id(mapping)] = module
        for name, inner in list(dict.items(mapping)):
            if type(name) is str and (name in _PLACES or name.endswith("_hooks")):
                self.known[id(inner)] = mapping
        inner = dict.get(mapping, "_modules")
        if is_a(inner, dict):
            for child in dict.values(inner):
                if child is not None:
                    self.known.setdefault(id(child), inner)

    def _traceback(self, error):
        holder, trace = error, BaseException.__dict__["__traceback__"].__get__(error)
        for _ in range(_MOST_FRAMES):
            if type(trace) is not TracebackType:
                return
            self.known[id(trace)] = holder
            self.known[id(trace.tb_frame)] = trace
            holder, trace = trace, trace.tb_next

    def clear(self):
        """Lets go of everything."""
        self.known.clear()
        self.places.clear()
        self.graph = None
        for it in self.groups:
            it.pop("samples", None)


class _Blocks:
    """Blocks of all groups by address, and the tensors that lie in them."""

    def __init__(self, groups):
        blocks = sorted((address, address + size, group) for group, it in enumerate(groups) for address, size in it)
        self.starts = [it[0] for it in blocks]
        self.blocks = blocks
        self.sizes = [len(it) for it in groups]
        self.owned = [set() for _ in groups]
        self.owners = [{} for _ in groups]

    def claim(self, tensor, storage, address):
        """Notes a tensor that lies in one of the blocks; whether it does."""
        try:
            begins = address(storage(tensor))
        except Exception as error:
            # Fake, sparse and functional tensors, and those of subclasses, may have no storage.
            if error.__traceback__.tb_next is not None:
                raise
            return False
        at = bisect_right(self.starts, begins) - 1
        if at < 0 or not begins or begins >= self.blocks[at][1]:
            return False
        group = self.blocks[at][2]
        self.owned[group].add(at)
        self.owners[group][id(tensor)] = at, tensor
        return True

    def told(self, base):
        """The answer about each group, so far."""
        told = []
        for size, owned, owners in zip(self.sizes, self.owned, self.owners):
            mine = [it for _, it in sorted(owners.values(), key=lambda it: it[0])]
            spread = sorted({0, len(mine) // 2, len(mine) - 1}) if mine else ()
            samples = [mine[it] for it in spread][:_SAMPLES]
            answer = {"owners": _kinds_of(mine, base), "autograd": 2 * len(owned) < size, "samples": samples}
            told.append(answer)
        for it in self.owners:
            it.clear()
        return told


def _kinds_of(tensors, base):
    """How many tensors there are of each shape and dtype, in a graph and not."""
    shape, dtype, leaf = (base.__dict__[name].__get__ for name in ("shape", "dtype", "is_leaf"))
    counts = {}
    for it in tensors:
        kind = tuple(map(int, shape(it))), str(dtype(it)).rpartition(".")[2], not leaf(it)
        counts[kind] = counts.get(kind, 0) + 1
    by_count = sorted(counts.items(), key=lambda it: -it[1])
    return [
        {"shape": list(size), "dtype": kind, "grad": grad, "count": count} for (size, kind, grad), count in by_count[:8]
    ]


def _kinds_under(base):
    """This type and all that derive from it, by identity: hashing a type may be the job's own code."""
    kinds, left = {}, [base]
    while left:
        kind = left.pop()
        if id(kind) not in kinds:
            kinds[id(kind)] = kind
            left.extend(type.__subclasses__(kind))
    return kinds


def _of_kinds(ids):
    """Every live object of these types, and how many objects there are in all: a few calls into C."""
    everything = gc.get_objects()
    found = list(compress(everything, map(ids.__contains__, map(id, map(type, everything)))))
    return found, len(everything)
