"""Searches the collector's young generations for the owners of recent blocks, and for cycles among them.

A tensor from the latest steps is in a young generation, and these are small however large the heap is. So it is cheap
to find that nothing in Python owns a recent block, because autograd holds it. Only this search finds cycles that wait
for the collector, because no variable leads to them.
"""

import gc
import sys

from types import ModuleType

from ._native import young
from ._references import is_a, items, module_dict

# The most young objects to search, the latest first: each takes some microseconds. Where the job rarely runs the collector,
# there are many more; then only the library lists the latest of them.
_MOST, _LISTED = 4_000, 40_000

# The most objects of the second generation to list and to search, and of a container to read.
_SECOND, _SEARCHED, _LONG = 40_000, 16_000, 2_048

# The generations whose collections move their survivors out of the young ones.
_OLDER = (1,) if sys.version_info < (3, 14) else (0, 1)


def collections():
    """Counts the collections after which survivors are no longer young."""
    stats = gc.get_stats()
    return [it["collections"] for it in stats[min(_OLDER) :]] + [gc.get_freeze_count()]


def is_small():
    """Returns whether the youngest objects can be listed in little time."""
    return gc.get_count()[0] <= _LISTED or bool(young(1))


def _first():
    """Returns the latest objects of the first generation, one more than are searched if there are more."""
    if gc.get_count()[0] > _LISTED:
        return young(_MOST + 1)
    return gc.get_objects(generation=0)


def _second():
    """Returns the objects of the second generation; `None` if it may be large."""
    if sys.version_info >= (3, 14) or not gc.get_count()[1]:
        # In Python 3.14 it may hold everything. Before, it is empty until a collection of the first one.
        return []
    first, second = gc.get_threshold()[:2]
    return gc.get_objects(generation=1) if first * max(second, 1) <= _SECOND else None


def _refers_from_cpp(torch):
    """Returns whether the Python object of a tensor has one reference for all uses in C++, as from PyTorch 2.10 on.
    Before, it has that reference only once nothing in Python refers to it, which looks the same as one variable."""
    if not hasattr(torch._C.TensorBase, "_use_count"):
        return False
    version = [int(it) for it in torch.__version__.split(".")[:2] if it.isdigit()]
    return version >= [2, 10]


class Young:
    """The young objects, and how they hold each other; the slice that makes it also clears it."""

    def __init__(self, torch, blocks):
        self.nodes, self.up, self.ends = {}, {}, {}
        found = _first()
        second = _second() if len(found) <= _MOST else None
        # Whether these are all that may be young.
        self.is_whole = second is not None and len(second) <= _SEARCHED
        del found[:-_MOST]
        found[:0] = (second or [])[-_SEARCHED:]
        del second
        self.nodes = dict(zip(map(id, found), found))
        own = id(found)
        del found
        # This call made the list itself.
        self.nodes.pop(own, None)
        self.samples = [[] for _ in range(blocks.groups)]
        # Blocks with a tensor that perhaps only C++ refers to.
        self.doubtful = set()
        self._torch, self._blocks = torch, blocks
        self._uses = torch._C.TensorBase._use_count if _refers_from_cpp(torch) else None

    def _is_in_python(self, at):
        """Returns whether anything in Python refers to a tensor. A graph keeps the object of a saved tensor, because it
        may come back to Python."""
        # The dictionary of nodes, and the argument.
        references = sys.getrefcount(self.nodes[at]) - 2
        if self._uses is not None:
            # One for all of C++.
            return references > (self._uses(self.nodes[at]) > 1)
        # The only reference may be that of C++.
        return references > 1 or at in self.up

    @property
    def asked(self):
        """Returns the objects whose holders among the young objects are all known."""
        return self.nodes

    def references(self, at):
        """Returns the number of this search's own references to an object."""
        return 1

    def climb(self):
        """Notes the young holders of every young object, and the tensors of each group that Python holds."""
        young = self.nodes.keys()
        # Leave out the variables of modules: every function refers to them.
        for module in list(sys.modules.values()):
            if is_a(module, ModuleType):
                self.nodes.pop(id(module_dict(module)), None)
        for at, it in list(self.nodes.items()):
            if (items(it) or 0) > _LONG:
                continue
            for child in young & set(map(id, gc.get_referents(it))):
                self.up.setdefault(child, []).append(at)
        self.up = {child: holders for child, holders in self.up.items() if child in young}
        for at in [at for at, it in self.nodes.items() if is_a(it, self._torch.Tensor)]:
            is_owned = self._is_in_python(at)
            block = self._blocks.of(self.nodes[at], is_owned)
            if block is not None and is_owned and self._blocks.is_wanted(block):
                self.samples[self._blocks.group(block)].append(at)
            elif block is not None and not is_owned and self._uses is None:
                self.doubtful.add(block)

    def clear(self):
        """Drops all references."""
        self.nodes.clear()
