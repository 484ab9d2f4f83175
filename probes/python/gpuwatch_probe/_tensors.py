"""Which tensors lie in blocks of device memory, and what of the process hangs together in ways known beforehand."""

import gc
from bisect import bisect_right
from itertools import compress
from types import TracebackType

from ._edges import is_a, name_of, namespace_of
from ._graphs import asked, growing, shape_of

_WITHOUT_MEMORY = ("FakeTensor", "FunctionalTensor")

# Tensors of one block that the search begins from.
_OF_A_BLOCK = 2

# Frames of one exception's traceback.
_MOST_FRAMES = 200

# Where a `torch.nn.Module` has what is not simply an attribute.
_PLACES = (
    "_modules",
    "_parameters",
    "_buffers",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
)


class Tensors:
    """One look over all that the collector knows.

    `groups` are the answers about each group so far, with `samples` of its tensors, block by block. `known` says of
    objects, by identity, who holds them: what is inside of a `torch.nn.Module`, frames of tracebacks, gradients.
    `places` are the attributes of all `torch.nn.Module`s. `graph` is the tensor whose graph goes back over many steps,
    if there is one, and how many nodes that has.
    """

    def __init__(self, torch, groups):
        self.known, self.places = {}, []
        # How networks of each type are asked for their attributes.
        self._namespaces = {}
        tensors = _kinds_under(torch.Tensor)
        for kind in list(tensors.values()):
            # To ask one of these for its address is answered with a warning.
            if name_of(kind) in _WITHOUT_MEMORY:
                del tensors[id(kind)]
        networks = _kinds_under(torch.nn.Module)
        errors = _kinds_under(BaseException)
        found, self.objects = _of_kinds(tensors.keys() | networks.keys() | errors.keys())
        blocks, attached = _Blocks(groups), []
        with torch._C.DisableTorchFunction():
            base = torch._C.TensorBase
            claim = blocks.claimer(base.untyped_storage, torch._C.StorageBase.data_ptr)
            is_leaf, requires_grad, grad = (base.__dict__[it].__get__ for it in ("is_leaf", "requires_grad", "grad"))
            for it in found:
                kind = id(type(it))
                if kind in tensors:
                    claim(it)
                    leaf = asked(is_leaf, it)
                    if leaf is False:
                        attached.append(it)
                    elif leaf and requires_grad(it):
                        gradient = grad(it)
                        if gradient is not None and claim(gradient):
                            self.known[id(gradient)] = it
                elif kind in networks:
                    self._network(it)
                else:
                    self._traceback(it)
            self.groups = blocks.told(base)
            self.graph = growing(attached, base) if groups else None

    def _network(self, module):
        kind = id(type(module))
        if kind not in self._namespaces:
            self._namespaces[kind] = namespace_of(type(module))
        get = self._namespaces[kind]
        mapping = get(module) if get is not None else None
        if not is_a(mapping, dict):
            return
        self.places.append(mapping)
        self.known[id(mapping)] = module
        for name in _PLACES:
            inner = dict.get(mapping, name)
            # Most places are empty.
            if inner is not None and is_a(inner, dict) and dict.__len__(inner):
                self.known[id(inner)] = mapping
                if name == "_modules":
                    for child in list(dict.values(inner)):
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

    def claimer(self, storage, address):
        """Makes `claim(tensor)`, which notes a tensor that lies in one of the blocks, and says whether it does.

        It is asked of every tensor that there is, so all that it needs are variables of this call.
        """
        starts, blocks, owned, owners = self.starts, self.blocks, self.owned, self.owners

        def claim(tensor):
            try:
                begins = address(storage(tensor))
            except Exception as error:
                # Fake, sparse and functional tensors, and those of subclasses, may have no storage.
                if error.__traceback__.tb_next is not None:
                    raise
                return False
            at = bisect_right(starts, begins) - 1
            if at < 0 or not begins or begins >= blocks[at][1]:
                return False
            group = blocks[at][2]
            owned[group].add(at)
            owners[group][id(tensor)] = at, tensor
            return True

        return claim

    def told(self, base):
        """The answer about each group, so far."""
        told = []
        for size, owned, owners in zip(self.sizes, self.owned, self.owners):
            by_block = {}
            for at, it in owners.values():
                by_block.setdefault(at, []).append(it)
            mine = [by_block[it] for it in sorted(by_block)]
            spread = sorted({0, len(mine) // 2, len(mine) - 1}) if mine else ()
            # Of several tensors in one block one may be held by others alone, as the base of a view is.
            samples = [mine[at][:_OF_A_BLOCK] for at in spread]
            answer = {"owners": _kinds_of(mine, base), "autograd": 2 * len(owned) < size, "samples": samples}
            told.append(answer)
        for it in self.owners:
            it.clear()
        return told


def _kinds_of(blocks, base):
    """How many blocks there are with tensors of each shape and dtype, in a graph and not."""
    dtype, leaf = (base.__dict__[name].__get__ for name in ("dtype", "is_leaf"))
    counts = {}
    for block in blocks:
        plain = [(shape_of(it, base), it) for it in block]
        for kind in {
            (size, str(dtype(it)).rpartition(".")[2], asked(leaf, it) is False) for size, it in plain if size is not None
        }:
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
