"""What the collector's young generations say of blocks that were made lately: who owns them, and whether it is a cycle.

A tensor that was made in the latest steps is in a young generation of the collector's, and these are small however
large the heap is. So it is cheap to say that nothing in Python owns a recent block: autograd has it. And only there can
be found what no variable leads to, cycles that wait for the collector.
"""

import gc
import sys

from types import ModuleType

from ._edges import is_a, module_dict

# Objects in young generations that are looked through: each takes about a microsecond.
_MOST = 20_000

# What the collector ran, of the generations whose survivors are no longer young.
_OLDER = (1,) if sys.version_info < (3, 14) else (0, 1)


def collections():
    """How often objects have ceased to be young."""
    stats = gc.get_stats()
    return [it["collections"] for it in stats[min(_OLDER) :]] + [gc.get_freeze_count()]


def is_small():
    """Whether the young generations are probably small enough to search."""
    first, second = gc.get_threshold()[:2]
    # Of 3.14 the second generation may be everything.
    older = first * max(second, 1) if sys.version_info < (3, 14) else 0
    return gc.get_count()[0] + older <= 2 * _MOST


def _refers_from_cpp(torch):
    """Whether an object of a tensor that C++ uses has one reference for that, as from PyTorch 2.10 on. Before, it has
    one only once nothing in Python refers to it any more, which looks the same as one variable."""
    if not hasattr(torch._C.TensorBase, "_use_count"):
        return False
    version = [int(it) for it in torch.__version__.split(".")[:2] if it.isdigit()]
    return version >= [2, 10]


class Young:
    """The young objects, and how they hold each other; to be let go of within the slice in which it was made."""

    def __init__(self, torch, blocks):
        self.nodes, self.up, self.ends = {}, {}, {}
        found = gc.get_objects(generation=0)
        if sys.version_info < (3, 14):
            found += gc.get_objects(generation=1)
        if len(found) > _MOST:
            del found[:-_MOST]
        self.nodes = dict(zip(map(id, found), found))
        own = id(found)
        del found
        # Made by this very call.
        self.nodes.pop(own, None)
        self.samples = [[] for _ in range(blocks.groups)]
        # Blocks in which a tensor lies that perhaps only C++ refers to.
        self.doubtful = set()
        self._torch, self._blocks = torch, blocks
        self._uses = torch._C.TensorBase._use_count if _refers_from_cpp(torch) else None

    def _is_in_python(self, at):
        """Whether anything in Python refers to a tensor: what a graph saved keeps its object, for it may come back."""
        # The dictionary of nodes, and the argument.
        references = sys.getrefcount(self.nodes[at]) - 2
        if self._uses is not None:
            # One for all of C++.
            return references > (self._uses(self.nodes[at]) > 1)
        # The only one may be that of C++.
        return references > 1 or at in self.up

    @property
    def asked(self):
        """What is known to have no other holder among the young."""
        return self.nodes

    def references(self, at):
        """How many references to an object are ours."""
        return 1

    def climb(self):
        """Notes of every young object which young objects hold it, and of each group the tensors that Python holds."""
        young = self.nodes.keys()
        # Variables of modules are not what this is about, and every function has them.
        for module in list(sys.modules.values()):
            if is_a(module, ModuleType):
                self.nodes.pop(id(module_dict(module)), None)
        for at, it in list(self.nodes.items()):
            for child in young & set(map(id, gc.get_referents(it))):
                self.up.setdefault(child, []).append(at)
        self.up = {child: holders for child, holders in self.up.items() if child in young}
        for at in [at for at, it in self.nodes.items() if is_a(it, self._torch.Tensor)]:
            is_owned = self._is_in_python(at)
            block = self._blocks.of(self.nodes[at], is_owned)
            if block is not None and is_owned:
                self.samples[self._blocks.group(block)].append(at)
            elif block is not None and self._uses is None:
                self.doubtful.add(block)

    def clear(self):
        """Lets go of everything."""
        self.nodes.clear()
