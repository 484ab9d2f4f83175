"""Who holds tensors: from a block of device memory to the variable that keeps it alive.

One look over everything that the collector knows finds the tensors. From some of them the search climbs, level by
level, to what refers to them. The collector answers that for a whole level at once, and slowly (some 70 ms with a
million objects); what can be looked up from above without it is looked up first: variables of running functions and
of modules, the places of `torch.nn.Module`s, frames of exceptions.

None of the job's code runs here, objects are told apart by identity alone, and nothing is kept.
"""

import gc
import sys
import time
from itertools import repeat, zip_longest
from types import FrameType, ModuleType

from ._edges import is_a, key_of, module_dict, of_global, of_local, step
from ._frames import is_library, is_own, running, variables
from ._paths import elected, path
from ._tensors import Tensors

# Objects of one level that are asked about at once: each of them costs, and so does each thing that refers to them.
_WIDE = 48
_MOST_HOLDERS = 200
_LEVELS = 16

# Python 3.12 freezes some hundred objects of its own.
_FROZEN_AT_START = 1000


def find(torch, groups, limit_s=0.45):
    """Who holds blocks of device memory.

    `groups` are lists of `(address, size)`, blocks that have something in common. No further level of the search
    begins where, as long as the one before took, it would not end within `limit_s` seconds of computing; the first
    one always does. The answer: `groups`, with for each of them

    - `owners`: its tensors by shape, dtype and whether they belong to a graph, the most frequent first
    - `autograd`: whether most of its blocks belong to no tensor that something in Python refers to: what a graph saved,
      buckets of DDP; nothing is told of the others then
    - `holders`: the path outwards, innermost first; empty where nothing is known to hold them. Of blocks without a
      tensor it begins with the graph that keeps them, where one tensor's stands out (`_graphs.growing`)

    and `objects` (how many were looked at), `cut` (whether time or width ended the search), `hidden` (whether
    `gc.freeze` keeps objects from being seen), `us` (how long the job was held).
    """
    begun = time.perf_counter()
    # What other programs take of the machine meanwhile does not count.
    until = time.thread_time() + limit_s
    collects = gc.isenabled()
    # A collection in the middle of this would cost as much again, and free what is looked for.
    gc.disable()
    search = None
    try:
        search = _Search(Tensors(torch, groups), until)
        search.climb()
        answer = search.told()
    finally:
        if search is not None:
            search.clear()
        if collects:
            gc.enable()
    answer["us"] = int((time.perf_counter() - begun) * 1e6)
    return answer


def collect():
    """Runs one collection; how many objects it freed, and how long it took in microseconds."""
    begun = time.perf_counter()
    freed = gc.collect()
    return freed, int((time.perf_counter() - begun) * 1e6)


class _Search:
    """What was met on the way up, and how it hangs together; all by identity."""

    def __init__(self, tensors, until):
        self.until = until
        self.cut = False
        self.hidden = gc.get_freeze_count() > _FROZEN_AT_START
        self.tensors = tensors
        # Everything met, held while identities are compared. Of what refers to objects of the job, this dictionary,
        # those two of `tensors` and `globals` are ours, and are passed over.
        self.nodes = {}
        # Who holds whom, from the inside out.
        self.up = {}
        # Where a path ends: the step that names it; `None` for what needs no name (a class, a module).
        self.ends = {}
        # What was asked about.
        self.asked = set()
        self.samples = []
        for group in tensors.groups:
            samples = group.pop("samples")
            self.nodes.update((id(it), it) for block in samples for it in block)
            self.samples.append([[id(it) for it in block] for block in samples])
        self.graph = None
        if tensors.graph is not None:
            tensor, nodes = tensors.graph
            tensors.graph = None
            self.nodes[id(tensor)] = tensor
            self.graph = id(tensor), step("graph", kind="Tensor", count=nodes)
        # The first block of every group before the second of any.
        rows = zip_longest(*self.samples, fillvalue=())
        self.targets = [it for row in rows for block in row for it in block]
        self.targets += self.graph[:1] if self.graph else ()
        self.globals = {id(module_dict(it)): it for it in list(sys.modules.values()) if is_a(it, ModuleType)}
        # What modules have as variables, each with the first module that has it; made once, for it takes as long as
        # one look through all of them.
        self.variables = {}
        for module in reversed(list(self.globals.values())):
            mapping = module_dict(module)
            self.variables.update(zip(map(id, dict.values(mapping)), repeat(mapping)))
        self.ours = {id(it) for it in (self.nodes, self.globals, self.variables, tensors.known, tensors.places)}

    def clear(self):
        """Lets go of everything."""
        self.tensors.clear()
        self.nodes.clear()
        self.globals.clear()
        self.variables.clear()

    def told(self):
        """The answer."""
        groups = self.tensors.groups
        for group, samples in zip(groups, self.samples):
            alone = sum(not any(map(self._is_held, block)) for block in samples)
            # Tensors that Python knows, and that only C++ has any more, are as good as none.
            group["autograd"] = group["autograd"] or (2 * alone > len(samples) and not self.hidden)
            if not group["autograd"]:
                group["holders"] = elected([path(self, it) for block in samples for it in block])
                continue
            # What little has an owner is the current step's.
            group.update(owners=[], holders=[])
            if self.graph and self._is_rooted(self.graph[0]):
                group["holders"] = [self.graph[1]] + path(self, self.graph[0])[0]
        return {"groups": groups, "objects": self.tensors.objects, "cut": self.cut, "hidden": self.hidden}

    def _is_held(self, tensor):
        """Whether something in Python refers to it, as far as anybody has looked."""
        return tensor not in self.asked or tensor in self.up or tensor in self.ends

    def references(self, at):
        """How many references to an object are ours: `nodes`, and what was known beforehand."""
        it, known = self.nodes[at], self.tensors.known
        return 1 + sum(other is it for other in known.values()) + sum(other is it for other in self.tensors.places)

    def climb(self):
        """Goes up until every path has an end, nothing is left to ask about, or the time is over."""
        fresh, took = list(self.targets), 0
        for level in range(_LEVELS):
            self._look_from_above(fresh)
            # What a variable holds directly is asked about once nevertheless: the current step's variables hold
            # what a list keeps.
            goals = [it for it in self.targets if not level or not self._is_rooted(it)]
            fresh = [it for it in self._above(goals) if it not in self.asked and (not level or it not in self.ends)]
            if not fresh:
                return
            begun = time.thread_time()
            if level and begun + took > self.until:
                break
            if len(fresh) > _WIDE:
                self.cut = True
            fresh = self._ask(fresh[:_WIDE])
            took = time.thread_time() - begun
        self.cut = True

    def _ask(self, level):
        """What refers to these objects; those of it that are new."""
        self.asked.update(level)
        ids, fresh = set(level), []
        objects = tuple(map(self.nodes.__getitem__, level))
        holders = gc.get_referrers(*objects)
        if len(holders) > _MOST_HOLDERS:
            self.cut = True
            del holders[_MOST_HOLDERS:]
        for holder in holders:
            if holder is objects or id(holder) in self.ours or (type(holder) is FrameType and is_own(holder)):
                continue
            for child in ids.intersection(map(id, gc.get_referents(holder))):
                fresh += self._link(child, holder)
        return fresh

    def _link(self, child, holder):
        """Notes that one holds the other, and whatever is known of the holder without asking; what of it is new."""
        at, fresh = id(holder), []
        while at not in self.up.setdefault(child, []):
            self.up[child].append(at)
            if at in self.nodes:
                break
            self.nodes[at] = holder
            fresh.append(at)
            if at in self.globals:
                self.ends.setdefault(child, of_global(holder, key_of(holder, {child})[1]))
            if at in self.globals or is_a(holder, (type, ModuleType)):
                self.ends[at] = None
                break
            if at not in self.tensors.known:
                break
            self.asked.add(at)
            child, holder = at, self.tensors.known[at]
            at = id(holder)
        return fresh

    def _look_from_above(self, fresh):
        """Finds what networks have of these, and names what variables of running functions and of modules hold."""
        ids = set(fresh)
        for at in fresh:
            if at in self.tensors.known and at not in self.asked:
                ids.update(self._link(at, self.tensors.known[at]))
        for mapping in self.tensors.places:
            for at in ids.intersection(map(id, dict.values(mapping))):
                ids.update(self._link(at, mapping))
        self._name_locals(ids)
        for at in ids.intersection(self.variables):
            mapping = self.variables[at]
            found, key = key_of(mapping, {at})
            if found:
                self.ends.setdefault(at, of_global(mapping, key))

    def _name_locals(self, ids):
        frames = running()
        # Of several variables that hold the same thing, one of the job's own program says more.
        frames.sort(key=lambda it: is_library(it.f_code.co_filename))
        for frame in frames:
            for name, at in variables(frame) or ():
                if at in ids:
                    self.ends.setdefault(at, of_local(frame, name))

    def _above(self, ids):
        """These and everything that holds them, directly or not; the nearest first."""
        met, order = set(ids), list(ids)
        for at in order:
            for holder in self.up.get(at, ()):
                if holder not in met:
                    met.add(holder)
                    order.append(holder)
        return order

    def _is_rooted(self, target):
        """Whether some path from it ends in a variable."""
        return any(it in self.ends for it in self._above([target]))
