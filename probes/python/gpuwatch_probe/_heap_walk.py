"""Searches from the variables of a program down to the tensors in some blocks of memory, the nearest objects first.

A search down can stop at any object, so its cost is bounded. Each object has a cost, the number of hops from a
variable; the cheapest come first. Of a large container both ends come first, where the latest additions are, and the
rest late.

A walk lives within one slice of time and holds references only for that long. None of the job's code runs.
"""

import gc
from collections import deque
from contextvars import ContextVar
from itertools import compress, islice
from time import thread_time
from types import FrameType, FunctionType, ModuleType
from weakref import ref

from ._autograd_graphs import read_attribute
from ._frames import is_own, values
from ._opaque import array_items, array_length, array_type, context_items
from ._references import is_a, key_of, namespaces, of_global, of_local

# Objects expanded between two readings of the clock, and modules of libraries that begin together: each has many names, and
# what the first ones lead to comes before the names of the rest.
_CHUNK, _TOGETHER = 128, 8

# Containers with more items are large: this many at each end come first, and the rest in parts.
_FEW, _ENDS, _PART = 128, 64, 2048

# Additional costs of the rest of a large container, of tensors, and of functions and classes.
_REST, _TENSOR, _CODE = 4, 2, 3

# Costs of functions' variables by rank: the user's, a library's, PyTorch's or Python's, native.
_RANKS = (0, 3, 6, 6)

# Each part of a dictionary, set or deque is read from its start: parts further in would take too long.
_FARTHEST = 200_000

# The most paths to one tensor, and tensors with a graph, to remember.
_WAYS, _ATTACHED = 4, 2048

# How many blocks of each group need a known holder.
ENOUGH = 3

_IGNORED, _PLAIN, _LIST, _DICT, _SET, _DEQUE, _TENSORS, _NETWORK, _FUNCTION, _TYPE, _FRAME, _ARRAY, _CONTEXT = range(13)
_BASES = ((dict, _DICT), (list, _LIST), (tuple, _LIST), (set, _SET), (frozenset, _SET), (deque, _DEQUE))
_LENGTHS = {_DICT: dict.__len__, _DEQUE: deque.__len__}
_EXACT = {FunctionType: _FUNCTION, FrameType: _FRAME, ContextVar: _CONTEXT}


class Kinds(dict):
    """The kind of each type, by the type's identity: hashing a type may run the job's code."""

    def __init__(self, torch):
        super().__init__()
        self._first = ((torch.Tensor, _TENSORS), (torch.nn.Module, _NETWORK), (type, _TYPE))
        self._ignored = (ModuleType, ref)
        arrays = array_type()
        self._last = () if arrays is None else ((arrays, _ARRAY),)
        # Types whose instances the collector does not track, and that may hold objects.
        self.untracked = {id(ContextVar), *(id(it) for it, _ in self._last)}

    def of(self, objects):
        """The kind of each of these."""
        types = list(map(type, objects))
        ids = list(map(id, types))
        unknown = set(ids).difference(self)
        if unknown:
            for kind in types:
                if id(kind) in unknown:
                    self[id(kind)] = self._kind(kind)
        return map(self.__getitem__, ids)

    def _kind(self, kind):
        for base, found in self._first + _BASES + self._last:
            if issubclass(kind, base):
                return found
        if issubclass(kind, self._ignored):
            return _IGNORED
        return next((found for known, found in _EXACT.items() if known is kind), _PLAIN)


class Part:
    """A queued part of a large container: both ends, or the items from a position on."""

    def __init__(self, container, kind, begin=None):
        self.container, self.kind, self.begin = container, kind, begin

    def items(self):
        """Returns this part's items, and the next part."""
        it, kind, begin = self.container, self.kind, self.begin
        if kind == _CONTEXT:
            return context_items(it), None
        if kind == _ARRAY:
            if begin is None:
                return array_items(it, -_ENDS, _ENDS) + array_items(it, 0, _ENDS), Part(it, kind, _ENDS)
            found = array_items(it, begin, _PART)
            return found, Part(it, kind, begin + _PART) if len(found) == _PART and begin < _FARTHEST else None
        if kind == _LIST:
            get = (tuple if is_a(it, tuple) else list).__getitem__
            if begin is None:
                return [*get(it, slice(-_ENDS, None)), *get(it, slice(0, _ENDS))], Part(it, kind, _ENDS)
            # From the end: the latest additions first.
            found = get(it, slice(-begin - _PART, -begin))
            return found, Part(it, kind, begin + _PART) if len(found) == _PART else None
        forwards, backwards = _iterators(it, kind)
        if begin is None:
            ends = list(islice(backwards(), _ENDS)) if backwards else []
            return ends + list(islice(forwards(), _ENDS)), Part(it, kind, _ENDS)
        found = list(islice(forwards(), begin, begin + _PART))
        return found, Part(it, kind, begin + _PART) if len(found) == _PART and begin < _FARTHEST else None


def _iterators(it, kind):
    if kind == _DICT:
        # The order of an `OrderedDict` is unknown to its base class.
        return lambda: iter(dict.values(it)), lambda: reversed(dict.values(it))
    if kind == _DEQUE:
        return lambda: deque.__iter__(it), lambda: deque.__reversed__(it)
    own = frozenset if is_a(it, frozenset) else set
    return lambda: own.__iter__(it), None


def _length(it, kind):
    if kind == _LIST:
        return (tuple if is_a(it, tuple) else list).__len__(it)
    if kind == _SET:
        return (frozenset if is_a(it, frozenset) else set).__len__(it)
    return _LENGTHS[kind](it)


class Walk:
    """One walk: the objects it met, and the paths to them.

    `blocks` are the blocks to find. If `networks` is false, the walk leaves out `torch.nn.Module`s.
    """

    def __init__(self, torch, blocks, networks=True):
        self._blocks, self._networks = blocks, networks
        self._kinds = Kinds(torch)
        base = torch._C.TensorBase.__dict__
        self._is_leaf, self._requires_grad, self._grad = (
            base[it].__get__ for it in ("is_leaf", "requires_grad", "grad")
        )
        # Queued objects by cost.
        self._queue = {}
        # Objects expanded together, and for each object met the chunk that led to it.
        self._chunks, self._origin, self._seen = [], {}, set()
        # Variables of functions, and dictionaries of modules, where paths begin.
        self._locals, self._modules = {}, {}
        # The modules that the walk searches, and their names.
        self._gone_through, self._names = set(), set()
        # Tensors in the blocks by identity: `(block, tensor)`; the chunks in which each was met.
        self._claimed, self._ways = {}, {}
        # For each group, the blocks with a tensor found inside of an object.
        self._held = [set() for _ in range(blocks.groups)]
        # Tensors that belong to a graph.
        self.attached = []
        # The rank of the modules that the walk searches.
        self._rank = 0
        # How many objects were met.
        self.objects = 0

    def begin(self, frames, modules, rank):
        """Queues the starting points: variables of running functions (`(frame, rank)`), and modules (`(dictionary,
        rank)`) of this rank, with their classes and functions."""
        self._rank = rank
        together = _TOGETHER if rank is None else len(modules)
        for mapping, whose in modules:
            self._modules[id(mapping)] = mapping
            self._seen.add(id(mapping))
            if whose == rank:
                self._queue.setdefault(len(self._gone_through) // together, []).append(mapping)
                self._gone_through.add(id(mapping))
                name = dict.get(mapping, "__name__")
                if type(name) is str:
                    self._names.add(name)
        self._seen.update(id(frame) for frame, _ in frames)
        for frame, whose in frames:
            for name, value in values(frame):
                self._locals.setdefault(id(value), (frame, name, whose))
                self._admit((value,), _RANKS[whose], None)

    def run(self, until):
        """Walks until all objects are met, the thread's CPU time reaches `until`, or enough is known; returns whether
        all objects were met."""
        while self._queue:
            cost = min(self._queue)
            level = self._queue.pop(cost)
            for at in range(0, len(level), _CHUNK):
                if thread_time() > until or self.is_enough():
                    return False
                self._search_chunk(level[at : at + _CHUNK], cost)
        return True

    def is_enough(self):
        """Whether the holders of some tensors of each group are known."""
        return all(len(held) >= min(ENOUGH, size) for held, size in zip(self._held, self._blocks.sizes))

    def _search_chunk(self, chunk, cost):
        whole = [it for it in chunk if type(it) is not Part]
        if whole:
            self._chunks.append(whole)
            self._admit(gc.get_referents(*whole), cost, len(self._chunks) - 1)
        for part in chunk:
            if type(part) is Part:
                found, following = part.items()
                self._chunks.append([part.container])
                self._admit(found, cost, len(self._chunks) - 1)
                if following is not None:
                    later = cost + _REST if part.begin is None else cost
                    # The current level is no longer in the queue.
                    self._queue.setdefault(later + (later == cost), []).append(following)

    def _admit(self, found, cost, chunk):
        """Records the objects that a chunk led to, and queues those that may lead further."""
        # The collector does not track numbers, strings, and containers of them alone.
        kept = list(compress(found, map(gc.is_tracked, found)))
        kept += compress(found, map(self._kinds.untracked.__contains__, map(id, map(type, found))))
        seen, origin = self._seen, self._origin
        waiting = self._queue.setdefault(cost + 1, [])
        for it, kind in zip(kept, self._kinds.of(kept)):
            if kind == _TENSORS:
                self._meet(it, cost, chunk)
                continue
            at = id(it)
            if kind == _IGNORED or at in seen:
                continue
            seen.add(at)
            if _LIST <= kind <= _DEQUE:
                length = _length(it, kind)
                if not length:
                    continue
                if length > _FEW:
                    it, origin[at] = Part(it, kind), chunk
            elif not self._leads_on(it, kind):
                continue
            elif kind >= _ARRAY:
                it, origin[at] = Part(it, kind), chunk
            origin[at] = chunk
            if self._rank and (kind == _FUNCTION or kind == _TYPE):
                self._queue.setdefault(cost + 1 + _CODE, []).append(it)
            else:
                waiting.append(it)
        self.objects += len(kept)

    def _leads_on(self, it, kind):
        if kind == _FUNCTION:
            return bool(it.__closure__ or it.__defaults__) or id(it.__globals__) in self._gone_through
        if kind == _TYPE:
            return _home(it) in self._names
        if kind == _NETWORK:
            return self._networks
        if kind == _ARRAY:
            return bool(array_length(it))
        return kind != _FRAME or not is_own(it)

    def _meet(self, tensor, cost, chunk):
        at = id(tensor)
        if at in self._claimed:
            ways = self._ways[at]
            if len(ways) < _WAYS and chunk not in ways:
                ways.append(chunk)
                self._note(at, chunk)
            return
        if at in self._seen:
            return
        self._seen.add(at)
        self._origin[at] = chunk
        self._queue.setdefault(cost + _TENSOR, []).append(tensor)
        self._claim(tensor, chunk)
        leaf = read_attribute(self._is_leaf, tensor)
        if leaf is False:
            if len(self.attached) < _ATTACHED:
                self.attached.append(tensor)
        elif leaf and self._requires_grad(tensor):
            gradient = self._grad(tensor)
            if gradient is not None and id(gradient) not in self._claimed:
                self._chunks.append([tensor])
                self._claim(gradient, len(self._chunks) - 1)

    def _claim(self, tensor, chunk):
        block = self._blocks.of(tensor)
        if block is not None and self._blocks.is_wanted(block):
            at = id(tensor)
            self._claimed[at] = block, tensor
            self._ways[at] = [chunk]
            self._note(at, chunk)

    def _note(self, at, chunk):
        if chunk is not None:
            block = self._claimed[at][0]
            self._held[self._blocks.group(block)].add(block)

    def held(self, group):
        """Counts the blocks of a group that were met."""
        return len({block for block, _ in self._claimed.values() if self._blocks.group(block) == group})

    def found(self):
        """Returns for each group the identities of its tensors, at most two per block."""
        groups, chosen = [[] for _ in self._held], {}
        for at, (block, _) in self._claimed.items():
            # If several tensors share a block, only others of them may hold one, as for the base of a view.
            if chosen.setdefault(block, 0) < 2:
                chosen[block] += 1
                groups[self._blocks.group(block)].append(at)
        return groups

    def chains(self, at):
        """Returns the chains to a tensor: `(objects from the tensor outwards, the final step)`."""
        tensor = self._claimed[at][1]
        return [self._chain(tensor, chunk) for chunk in self._ways[at]]

    def chain(self, it):
        """Returns the chain to any object that was met."""
        return self._chain(it, self._origin[id(it)])

    def _chain(self, it, chunk):
        chain = [it]
        while chunk is not None:
            holder = _holder(chain[-1], self._chunks[chunk])
            if id(holder) in self._modules:
                return chain, of_global(holder, key_of(holder, {id(chain[-1])})[1])
            chain.append(holder)
            if is_a(holder, type):
                return chain, None
            chunk = self._origin[id(holder)]
        frame, name, whose = self._locals[id(chain[-1])]
        home = self._global(chain[-1]) if whose else None
        return chain, home or of_local(frame, name)

    def _global(self, it):
        """Returns the variable of a searched module that has an object: it says more than a library function's."""
        for at, mapping in self._modules.items():
            if at in self._gone_through:
                name = next((key for key, value in dict.items(mapping) if value is it and type(key) is str), None)
                if name is not None:
                    return of_global(mapping, name)
        return None


def _holder(child, holders):
    """Finds the object among these that refers to the child."""
    at = id(child)
    while len(holders) > 1:
        half = holders[: len(holders) // 2]
        holders = half if at in set(map(id, gc.get_referents(*half))) else holders[len(half) :]
    return holders[0]


def _home(kind):
    """Returns the name of the module that defines a class."""
    home = next(iter(namespaces(kind))).get("__module__")
    return home if type(home) is str else None
