"""Searches for the holders of tensors: from a block of device memory to the variable that keeps it alive, in slices.

Python has no cheap way from an object to its holders: one `gc.get_referrers` searches the whole heap. So the young
generations, which are small however large the heap is, show whether anything in Python owns the latest blocks
(`_young_generations`), and walks go down from variables, the most promising first (`_heap_walk`). A
walk stops after `WALK_S` of CPU time, the whole search after `TOTAL_S`. If the time ends before a holder is found, the
answer has none.

Blocks that nothing in Python owns belong to a graph; if the graph of one tensor goes back over many steps, the answer
names that tensor (`_autograd_graphs`). `_source` then searches the statement that keeps the tensor by name.

Between two slices the search keeps numbers and strings only, no objects of the job. None of the job's code runs.
"""

import atexit
import gc
import sys
import time
from collections import namedtuple
from types import ModuleType

from ._autograd_graphs import PASSES, growing
from ._frames import running
from ._heap_walk import ENOUGH, Walk
from ._holder_paths import CYCLE, ROOTED, elected, path, rooted
from ._references import is_a, module_dict, step, text_in
from ._stacks import LIBRARY, MACHINERY, OWN
from ._tensor_blocks import Blocks
from ._young_generations import Young, collections, is_small

# CPU seconds: of one walk, of describing its result, after which a slice begins no more walks, and of all slices.
WALK_S, WORDS_S, BEGIN_S, TOTAL_S = 0.014, 0.008, 0.006, 0.12

# How many times as long a search may take, and the passes of a graph through a parameter that show several steps.
Terms = namedtuple("Terms", "patience passes")
BETWEEN_STEPS = Terms(1, PASSES)

# Python keeps the functions of `atexit` where no search comes, and tells only how many there are.
_callbacks = getattr(atexit, "_ncallbacks", int)
_earlier = _callbacks()

# Modules of libraries that one walk searches.
_MODULES = 80

# The places to search, the most promising first: young objects; variables of functions and of the user's modules; the
# same without networks, if networks took all the time; modules of libraries; modules of PyTorch and Python.
_YOUNG, _OWN, _APART, _LIBRARIES, _MACHINERY, _OVER = range(6)


class Search:
    """A search for the holders of blocks of device memory, in slices.

    `groups` are lists of `(address, size)`: blocks that have something in common. `recent` has, by group, the blocks
    whose owners are among the young objects if they have any, or `None` if these may have grown old meanwhile; those
    that are in no group are searched for tensors, and not for holders.
    `rank(file)` returns whose code a file is (`_stacks.Stacks`).
    """

    def __init__(self, torch, groups, rank, recent=None, terms=BETWEEN_STEPS):
        self._torch, self._rank = torch, rank
        self._patience, self._passes = terms
        self._blocks = Blocks(torch, groups, recent[1] if recent else ())
        self._recent = recent
        self._left = TOTAL_S * terms.patience
        self._next = _YOUNG
        # For each group `(steps, certainty)`: paths through objects, variables that hold a tensor directly, and paths
        # among young objects; then the number of blocks that the first two found.
        self._paths, self._direct, self._partial = ([[] for _ in groups] for _ in range(3))
        self._held = [0] * len(groups)
        # Whether the young generations show that nothing in Python owns the blocks.
        self._ownerless = [False] * len(groups)
        self._graph = None
        # Whether the job's step ends within autocast, which then keeps what it casts.
        is_cast, is_kept = (getattr(torch, "is_autocast_%s" % it, bool) for it in ("enabled", "cache_enabled"))
        self._casts = bool(is_cast() and is_kept())
        self._is_cut = False
        # The rank of each module, the modules already searched, by identity, and whether more of that rank are left.
        self._ranks, self._done, self._is_left = {}, set(), False
        self.objects = 0

    def slice(self):
        """Runs one slice; returns whether the search is over."""
        begun = time.thread_time()
        collects = gc.isenabled()
        # A collection here would double the cost, and free the objects of the search.
        gc.disable()
        try:
            self._go_on(begun)
        finally:
            if collects:
                gc.enable()
            self._left -= time.thread_time() - begun
        if self._left < (WALK_S + WORDS_S) * self._patience and self._next != _OVER:
            self._is_cut, self._next = True, _OVER
        return self._next == _OVER

    def _go_on(self, begun):
        if not any(self._blocks.sizes):
            self._next = _OVER
        if self._next == _YOUNG:
            self._next = _OWN
            self._search_young()
        while self._next != _OVER and time.thread_time() - begun < BEGIN_S * self._patience:
            place = self._next
            is_whole = self._walk(place)
            # A walk that ended early may have missed a holder that no other walk reaches.
            self._is_cut |= not is_whole
            self._next = self._following(place, is_whole)

    def _following(self, place, is_whole):
        if self._is_answered():
            return _OVER
        if place == _OWN and is_whole:
            return _LIBRARIES
        # Another walk would not have more time for the same libraries.
        return place if place >= _LIBRARIES and self._is_left else place + 1

    def _is_answered(self):
        """Whether every group has a path or provably none; the walk of the user's variables then finds the graph."""
        groups = range(self._blocks.groups)
        return all(self._known(it) or self._ownerless[it] or not self._blocks.sizes[it] for it in groups)

    def _known(self, group):
        """Returns the paths of a group that explain most of its blocks, not only the latest."""
        held, size = self._held[group], self._blocks.sizes[group]
        if self._paths[group] and not (self._ownerless[group] and held < min(2, size)):
            return self._paths[group]
        return self._direct[group] if 2 * held >= size else []

    def _search_young(self):
        if not is_small():
            return
        young = Young(self._torch, self._blocks)
        try:
            young.climb()
            for group, samples in enumerate(young.samples):
                held = [path(young, it) for it in samples[:ENOUGH]]
                for steps, sure in held:
                    # No variable holds the generator of a loop.
                    is_whole = sure == CYCLE or bool(steps and steps[-1]["by"] == "generator")
                    (self._paths if is_whole else self._partial)[group].append((steps, sure))
                    self._held[group] += is_whole
            doubtful = young.doubtful
        finally:
            young.clear()
        if self._recent is not None and young.is_whole:
            before, recent = self._recent
            if before == collections():
                for group, blocks in enumerate(recent):
                    owned = self._blocks.count(blocks, doubtful)
                    self._ownerless[group] = bool(blocks) and 2 * owned < len(blocks)

    def _walk(self, place):
        walk = Walk(self._torch, self._blocks, place != _APART)
        with self._torch._C.DisableTorchFunction():
            if place in (_OWN, _APART):
                walk.begin(self._frames(), self._modules(), OWN)
            else:
                walk.begin([], self._part(self._modules(), LIBRARY if place == _LIBRARIES else MACHINERY), None)
            until = time.thread_time() + WALK_S * self._patience
            end = until + WORDS_S * self._patience
            is_whole = walk.run(until)
            self.objects += walk.objects
            # Collect all chains first: naming an attribute creates a `__dict__` for some instances, which would join
            # the chains.
            chains = [
                (group, chain)
                for group, tensors in enumerate(walk.found())
                for at in _spread(tensors)
                for chain in walk.chains(at)
            ]
            for group, (chain, named) in chains:
                if time.thread_time() > end:
                    return False
                kept = self._paths if len(chain) > 1 else self._direct
                kept[group].append((rooted(chain, named), ROOTED))
                self._held[group] = max(self._held[group], walk.held(group))
            if self._graph is None and not all(map(self._known, range(self._blocks.groups))):
                found = growing(walk.attached, self._torch._C.TensorBase, end, self._passes)
                if found is not None:
                    tensor, nodes = found
                    self._graph = [step("graph", kind="Tensor", count=nodes)] + rooted(*walk.chain(tensor))
        return is_whole

    def _frames(self):
        """Returns running frames, the user's first: if several variables hold an object, the user's name it best."""
        found = [(it, min(self._rank(it.f_code.co_filename), MACHINERY)) for it in running()]
        return sorted(found, key=lambda it: it[1])

    def _modules(self):
        """Returns `(dictionary, rank)` of all modules, the latest import first."""
        found = []
        for module in reversed(list(sys.modules.values())):
            if is_a(module, ModuleType):
                mapping = module_dict(module)
                rank = self._ranks.get(id(mapping))
                if rank is None:
                    file = text_in(mapping, "__file__")
                    # Without a file: interactive code, or a module built into Python.
                    typed = OWN if dict.get(mapping, "__name__") == "__main__" else MACHINERY
                    rank = self._ranks[id(mapping)] = min(self._rank(file), MACHINERY) if file else typed
                found.append((mapping, rank))
        return found

    def _part(self, modules, rank):
        """Returns the modules with the rank of the next ones to search set to `None`."""
        left = [id(it) for it, whose in modules if whose == rank and id(it) not in self._done]
        self._is_left = len(left) > _MODULES
        self._done.update(left[:_MODULES])
        part = set(left[:_MODULES])
        return [(it, None if id(it) in part else whose) for it, whose in modules]

    @property
    def is_cut(self):
        """Whether the time ended before some holder was found."""
        return self._is_cut and not all(it["holders"] or it["autograd"] for it in self.result())

    def result(self):
        """Returns the answer for each group:

        - `owners`: its tensors by shape, dtype and whether they belong to a graph, the most frequent first
        - `autograd`: whether nothing in Python owns its blocks: they are what a graph saved, or buckets of DDP
        - `holders`: the path outwards, innermost first; empty where none was found. Of blocks without a tensor it
          begins with the graph that keeps them, where one tensor's stands out (`_autograd_graphs.growing`), or with autocast,
          whose cache keeps them where it lasts beyond the step and no tensor that grows has a graph
        """
        held = [self._group(it) for it in range(self._blocks.groups)]
        if not self._is_cut and any(it["autograd"] or any(of["grad"] for of in it["owners"]) for it in held):
            # What no search met is what the same graph saved, such as the input of its first operation.
            for it in held:
                it["autograd"] |= not it["holders"] and not it["owners"]
        if self._casts and self._graph is None and not any(it["grad"] for of in held for it in of["owners"]):
            cast = {"owners": [], "autograd": False, "holders": [step("autocast")]}
            held = [cast if it["autograd"] else it for it in held]
        return held

    def _group(self, group):
        paths = self._known(group)
        # The few owned blocks of a graph are the current step's.
        is_graphs = self._graph is not None and 2 * len(self._blocks.owned(group)) < self._blocks.sizes[group]
        if not paths and (self._ownerless[group] or is_graphs):
            return {"owners": [], "autograd": True, "holders": self._graph or []}
        holders = elected(paths or self._partial[group], self._rank)
        size = self._blocks.sizes[group]
        # Libraries register some functions, too; those that keep what grows are as many.
        if holders and not paths and size >= ENOUGH and _callbacks() - _earlier >= size:
            holders.append(step("atexit"))
        return {"owners": self._blocks.owners(group), "autograd": False, "holders": holders}


def _spread(tensors):
    """Returns the first, the middle and the last of them."""
    return [tensors[at] for at in sorted({0, len(tensors) // 2, len(tensors) - 1})] if tensors else []


def steps_begin():
    """Notes that the steps begin whose blocks a search will be about."""
    global _earlier
    _earlier = _callbacks()


def collect():
    """Runs one collection; returns the number of freed objects and the duration in microseconds."""
    begun = time.perf_counter()
    freed = gc.collect()
    return freed, int((time.perf_counter() - begun) * 1e6)
