"""Batches of data loaders under `gpuwatch fit`: the longest comes first and again among others, and a job that is led on
gets few.

A loader ends early once further batches do not raise the memory any more, so that an evaluation that gathers its
results is seen wholly. Its last, smaller batch is not left out.
"""

import ast
import dis
import itertools
import random
import sys
import time
import weakref

from ._fit_varied import AGAIN

# Batches after which a loader of training ends, and batches without a rise of memory after which any other one does.
# From the third round on, a loader gives one batch.
_TRAINING, _STEADY, _ROUNDS = 2, 8, 2
# The most batches that are put in order, and the most items whose sizes are looked at.
_BATCHES, _ITEMS = 200_000, 20_000
# Items that show whether sizes differ at all; and the seconds that looking takes at most, which the answer says.
_FIRST, _SECONDS = 64, 20.0
# Depth of an item's containers.
_DEPTH = 4


class Batches:
    """The loaders of one process."""

    def __init__(self, torch, unknowns, trees, memory):
        self._torch = torch
        self._unknowns = unknowns
        self._trees = trees
        # Returns the allocated bytes now, and the highest reserved ones.
        self._memory = memory
        self._states = weakref.WeakKeyDictionary()
        self._sizes = weakref.WeakKeyDictionary()
        # Loaders of training; how often one was begun since the job is led.
        self._training = weakref.WeakSet()
        self._rounds = weakref.WeakKeyDictionary()
        # Optimizer steps so far.
        self._number = 0
        self._is_led = False
        # Returns whether more batches are wanted where a frame takes one than would do otherwise.
        self.is_wanted = lambda frame: False
        # Called as a loader of training begins again.
        self.begins = lambda: None
        # Whether there is no time left.
        self.is_over = False
        # Whether a loader's items differ in size.
        self.is_varied = False
        # The most batches of a loader with which optimizer steps are made.
        self.round = 0
        # Loaders that ended although memory rose: [line, bytes of a batch, batches, all batches].
        self.unfinished = []
        # Datasets of which too few items were looked at: [items, all items].
        self.looked = []

    def install(self):
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        begin, again = _BaseDataLoaderIter.__init__, _BaseDataLoaderIter._reset
        following = _BaseDataLoaderIter.__next__

        def begun(iterator, loader, *arguments, **named):
            begin(iterator, loader, *arguments, **named)
            try:
                self._begin(iterator, loader)
                self._put_longest_first(iterator, loader)
            except Exception:
                pass

        def begun_again(iterator, loader, first_iter=False):
            again(iterator, loader, first_iter)
            # An iterator of workers that stay has another round.
            if not first_iter:
                self._begin(iterator, loader)

        def given(iterator):
            state = self._states.get(iterator)
            if state is not None and self._is_led:
                if state.is_ending:
                    state.is_ending = False
                    raise StopIteration
                if self._ends(state, sys._getframe(1)):
                    last = None if state.is_known else self._last(state)
                    if last is None:
                        raise StopIteration
                    state.is_ending = state.is_used = True
                    return last
            batch = following(iterator)
            if state is not None:
                state.count += 1
                state.is_used = True
            return batch

        _BaseDataLoaderIter.__init__, _BaseDataLoaderIter._reset = begun, begun_again
        _BaseDataLoaderIter.__next__ = given

    def _begin(self, iterator, loader):
        if loader in self._training:
            self.begins()
        self._rounds[loader] = self._rounds.get(loader, 0) + self._is_led
        state = self._states[iterator] = _Iterator(weakref.ref(loader), self._is_led)
        # A loader may be gone before its iterator.
        state.length = _length(loader)
        state.is_known = self._rounds[loader] > _ROUNDS

    def step(self, number):
        """An optimizer step has ended. Returns whether a loader that can end has given something since the last one."""
        self._number = number
        used = [it for it in list(self._states.values()) if it.is_used]
        for it in used:
            if not it.trains:
                self.round = max(self.round, it.length)
                if it.loader() is not None:
                    self._training.add(it.loader())
            it.is_used, it.trains = False, True
        return any(it.is_endable is not False for it in used)

    def lead(self):
        """From now on, loaders end early."""
        self._is_led = True

    def is_repeating(self):
        """Whether a loader of training gives nothing new any more."""
        return any(it.trains and it.is_known for it in list(self._states.values()))

    def _ends(self, state, frame):
        """Whether an iterator ends here."""
        if state.is_endable is None:
            state.is_endable = self._is_endable(frame)
        if not state.is_endable:
            return False
        now = self._memory()
        if any(a > b for a, b in zip(now, state.memory)):
            state.quiet = 0
            if state.count:
                state.rises += 1
        else:
            state.quiet += 1
        if state.first is None:
            state.first = now[0]
        state.memory = tuple(max(a, b) for a, b in zip(now, state.memory))
        if self.is_over and state.rises > _TRAINING and not state.quiet:
            self._leave_unfinished(state, frame, now[0])
        # A round has a batch in any case: what follows may need one.
        trains = state.trains or state.loader() in self._training
        if trains and not self.is_over and self.is_wanted(frame):
            return False
        if not state.is_new or (state.count and (self.is_over or state.is_known)):
            return True
        return state.count >= _TRAINING if state.trains else state.quiet >= _STEADY

    def _leave_unfinished(self, state, frame, allocated):
        of = state.length
        grown = max(allocated - state.first, 0) // max(state.count, 1)
        if grown and of > state.count:
            self.unfinished.append([self._unknowns.line(frame), grown, state.count, of])

    def _is_endable(self, frame):
        """Whether the job expects the end of an iterator here: in a loop over it, or where an error is handled."""
        while frame is not None and not self._unknowns.is_own(frame.f_code.co_filename):
            # Libraries know that loaders end.
            if not frame.f_code.co_filename.startswith("<") and "/torch/utils/data/" not in frame.f_code.co_filename:
                return True
            frame = frame.f_back
        if frame is None:
            return True
        at = frame.f_lasti
        name = next((it.opname for it in dis.get_instructions(frame.f_code) if it.offset == at), "")
        if "FOR_ITER" in name or "YIELD" in name:
            return True
        handlers = self._trees.around(frame, ast.Try)
        kinds = [it.type for one in handlers for it in one.handlers]
        return any(kind is None or "StopIteration" in ast.dump(kind) for kind in kinds)

    def _last(self, state):
        """Returns the smaller batch at the end of a loader; `None` where there is none."""
        loader = state.loader()
        try:
            sampler = loader.batch_sampler
            rest = len(sampler.sampler) % sampler.batch_size
            if not rest or sampler.drop_last or len(sampler.sampler) < sampler.batch_size:
                return None
            return loader.collate_fn([loader.dataset[it] for it in range(rest)])
        except Exception:
            return None

    # The longest first

    def _put_longest_first(self, iterator, loader):
        if getattr(loader, "batch_sampler", None) is None or not hasattr(loader.dataset, "__getitem__"):
            return
        sizes = self._sizes.get(loader)
        if sizes is None:
            sizes = self._sizes[loader] = self._measured(loader.dataset)
        if not sizes:
            return
        self.is_varied = True
        iterator._index_sampler = _LongestFirst(iterator._index_sampler, sizes, lambda: self._number)
        iterator._sampler_iter = iter(iterator._index_sampler)

    def _measured(self, dataset):
        """Returns the sizes of items by index; nothing where all that were looked at are equal."""
        count = len(dataset)
        if count < 2:
            return {}
        states = self._random()
        until = time.monotonic() + _SECONDS
        sizes = {}
        try:
            for most in (_FIRST, _ITEMS):
                step = max(count // most, 1)
                for at in range(0, count, step):
                    if at not in sizes:
                        sizes[at] = _size(dataset[at])
                    if time.monotonic() > until:
                        self.looked.append([len(sizes), count])
                        return sizes
                if len(set(sizes.values())) < 2:
                    return {}
            return sizes
        except Exception:
            # Not every dataset counts its items from 0.
            return {}
        finally:
            self._restore(*states)

    def _random(self):
        numpy = sys.modules.get("numpy")
        return self._torch.get_rng_state(), random.getstate(), numpy and numpy.random.get_state()

    def _restore(self, torchs, pythons, numpys):
        self._torch.set_rng_state(torchs)
        random.setstate(pythons)
        if numpys is not None:
            sys.modules["numpy"].random.set_state(numpys)


class _Iterator:
    """How far an iterator of a loader is."""

    def __init__(self, loader, is_new):
        self.loader = loader
        # Whether it was made after the job began to be led on.
        self.is_new = is_new
        self.count = self.quiet = self.rises = self.length = 0
        self.is_used = self.is_ending = False
        # Whether optimizer steps were made with what it gave.
        self.trains = False
        # Whether its loader has been seen often enough.
        self.is_known = False
        self.is_endable = self.first = None
        self.memory = (0, 0)


class _LongestFirst:
    """The batches of a sampler, the largest one first, and again instead of others where steps are made."""

    def __init__(self, sampler, sizes, steps):
        self._sampler, self._sizes = sampler, sizes
        # Returns how many steps were made so far.
        self._steps = steps
        self._is_done = False

    def __len__(self):
        return len(self._sampler)

    def __getattr__(self, name):
        return getattr(self._sampler, name)

    def __iter__(self):
        rest = iter(self._sampler)
        if not self._is_done:
            self._is_done = True
            batches = list(itertools.islice(rest, _BATCHES))
            if batches:
                largest = max(range(len(batches)), key=lambda at: (self._cost(batches[at]), -at))
                batches.insert(0, batches.pop(largest))
            yield from self._with_longest_again(batches)
        yield from rest

    def _with_longest_again(self, batches):
        # Twice each time: of several batches for one step, the second one finds gradients.
        due, repeats = [it for it in AGAIN if it > self._steps()], 1
        for at, batch in enumerate(batches):
            if due and due[0] <= self._steps():
                due, repeats = [it for it in due if it > self._steps()], 2
            # The last one stays, and with it what is special about it.
            if at and repeats and at + 1 < len(batches):
                batch, repeats = batches[0], repeats - 1
            yield batch

    def _cost(self, batch):
        # Items of a batch are made equally long.
        try:
            return max(self._sizes.get(it, 0) for it in batch) * len(batch)
        except Exception:
            return 0


def _length(loader):
    """Returns how many batches a loader has; 0 where that is not known."""
    try:
        return len(loader)
    except Exception:
        return 0


def _size(item, depth=_DEPTH):
    """Returns how many numbers or letters an item has."""
    count = getattr(item, "numel", None)
    if callable(count):
        return count()
    count = getattr(item, "size", None)
    if isinstance(count, int):
        return count
    if isinstance(item, (str, bytes)) or not depth:
        return len(item) if hasattr(item, "__len__") else 1
    if hasattr(item, "values") and callable(item.values):
        item = list(item.values())
    if isinstance(item, (list, tuple)):
        return len(item) if item and isinstance(item[0], (int, float)) else sum(_size(it, depth - 1) for it in item)
    return 1
