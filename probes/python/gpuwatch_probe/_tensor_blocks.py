"""Blocks of device memory in groups, and the tensors in them."""

from bisect import bisect_right

from ._autograd_graphs import read_attribute, shape_of
from ._references import name_of

# Reading the address of one of these raises a warning.
_WITHOUT_MEMORY = ("FakeTensor", "FunctionalTensor")


class Blocks:
    """The blocks of all groups by address, with facts about the tensors in them; it keeps no reference to a tensor.

    `groups` are lists of `(address, size)`, and so is `others`: of the latter it notes only whether they have tensors.
    Blocks have numbers, in the order of their addresses.
    """

    def __init__(self, torch, groups, others=()):
        wanted = {it for of in groups for it in of}
        known = [*groups, [it for of in others for it in of if it not in wanted]]
        blocks = sorted((address, address + size, group) for group, it in enumerate(known) for address, size in it)
        self._starts, self._blocks = [it[0] for it in blocks], blocks
        self.groups = len(groups)
        self.sizes = [len(it) for it in groups]
        # The kinds of tensors in each block that has some, as `(shape, dtype, whether a graph hangs on them)`.
        self.kinds = {}
        self._base = base = torch._C.TensorBase
        self._storage, self._address = base.untyped_storage, torch._C.StorageBase.data_ptr
        self._dtype, self._leaf = (base.__dict__[name].__get__ for name in ("dtype", "is_leaf"))
        self._without = {}

    def of(self, tensor, is_noted=True):
        """Returns the number of the block that contains a tensor, or `None`; notes the tensor's kind by default."""
        kind = type(tensor)
        if self._without.setdefault(id(kind), None) is None:
            self._without[id(kind)] = name_of(kind) in _WITHOUT_MEMORY
        if self._without[id(kind)]:
            return None
        try:
            begins = self._address(self._storage(tensor))
        except Exception as error:
            # Fake, sparse and functional tensors, and those of subclasses, may have no storage.
            if error.__traceback__.tb_next is not None:
                raise
            return None
        at = bisect_right(self._starts, begins) - 1
        if at < 0 or not begins or begins >= self._blocks[at][1]:
            return None
        if is_noted:
            self._note(at, tensor)
        return at

    def is_wanted(self, at):
        """Returns whether the holders of a block are searched for."""
        return self._blocks[at][2] < self.groups

    def _note(self, at, tensor):
        size = shape_of(tensor, self._base)
        kinds = self.kinds.setdefault(at, set())
        if size is not None:
            kind = size, str(self._dtype(tensor)).rpartition(".")[2], read_attribute(self._leaf, tensor) is False
            kinds.add(kind)

    def group(self, at):
        """Returns the group of a block."""
        return self._blocks[at][2]

    def owned(self, group):
        """Returns the blocks of a group in which the search found tensors."""
        return [it for it in self.kinds if self._blocks[it][2] == group]

    def count(self, blocks, more=()):
        """Counts those of the blocks `(address, size)` in which the search found tensors, or whose number is among
        `more`."""
        found = [bisect_right(self._starts, address) - 1 for address, _ in blocks]
        return sum(at in self.kinds or at in more for at in found)

    def owners(self, group):
        """Counts the blocks of a group by the kind of their tensors, the most frequent kind first."""
        counts = {}
        for at in self.owned(group):
            for kind in self.kinds[at]:
                counts[kind] = counts.get(kind, 0) + 1
        by_count = sorted(counts.items(), key=lambda it: -it[1])
        return [
            {"shape": list(size), "dtype": kind, "grad": grad, "count": count}
            for (size, kind, grad), count in by_count[:8]
        ]
