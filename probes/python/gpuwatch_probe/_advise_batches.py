"""Gradient accumulation: batches of half the size, and an optimizer step after every second one."""

import functools
import sys
import weakref

from ._advise_technique import Refused, Technique

_PARTS = 2


class Accumulation(Technique):
    """Half of the batch, two backward passes a step; by the framework's switch where there is one."""

    name = "accumulate"
    is_outside_functions = True

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        notes = advise.notes.get(self.name) or {}
        # Lines where loaders of training are made.
        self._lines = set(notes.get("lines", ()))
        self._made = weakref.WeakKeyDictionary()
        # Line and size of the loader that was begun last.
        self._latest = None, None
        self._trained = {}
        self._halved = {}
        self._edits = {}
        self._why = None
        self._steps = self._skipped = 0
        # The edit in terms of a framework, where its switch was set.
        self._switch = None
        self._is_skipping = False

    def install(self):
        from torch.utils.data import DataLoader

        switches = self.advise.switches
        switches.on_made("transformers.training_args", "TrainingArguments", self._trainer, "__post_init__")
        for module in ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"):
            switches.on_made(module, "Trainer", self._lightning)
        self._follow_loaders(DataLoader)
        self._follow_steps()

    # Frameworks

    def _trainer(self, arguments):
        size = arguments.per_device_train_batch_size
        if size % _PARTS:
            self._why = "the batch of %d cannot be halved" % size
            return
        self._switch = "%s(…, per_device_train_batch_size=%d, gradient_accumulation_steps=%d)" % (
            type(arguments).__name__,
            size // _PARTS,
            arguments.gradient_accumulation_steps * _PARTS,
        )
        if self.is_active:
            arguments.per_device_train_batch_size = size // _PARTS
            arguments.gradient_accumulation_steps *= _PARTS

    def _lightning(self, values):
        count = values.get("accumulate_grad_batches") or 1
        self._switch = "Trainer(…, accumulate_grad_batches=%d)" % (count * _PARTS)
        if self.is_active:
            values["accumulate_grad_batches"] = count * _PARTS

    # The job's own loop

    def _follow_loaders(self, cls):
        technique, make, iterate = self, cls.__init__, cls.__iter__

        @functools.wraps(make)
        def made(loader, *arguments, **named):
            line = technique.advise.unknowns.line(sys._getframe(1))
            make(loader, *arguments, **named)
            technique._made[loader] = line
            if technique.is_active and line in technique._lines:
                technique._halve(loader, line)

        @functools.wraps(iterate)
        def iterated(loader):
            # A loader that only a loop names may be gone while its iterator gives batches.
            technique._latest = technique._made.get(loader), loader.batch_size
            return iterate(loader)

        cls.__init__, cls.__iter__ = made, iterated

    def _halve(self, loader, line):
        sampler = loader.batch_sampler
        size = loader.batch_size
        sampler.batch_size = size // _PARTS
        # The loader refuses another size after it is made.
        loader.__dict__["batch_size"] = size // _PARTS
        self._halved[line] = size // _PARTS

    def _follow_steps(self):
        technique, optimizer = self, self.torch.optim.Optimizer
        patch = optimizer._patch_step_function
        self._counts = weakref.WeakKeyDictionary()

        @functools.wraps(patch)
        def patched(it):
            patch(it)
            technique._follow_step(type(it))

        optimizer._patch_step_function = patched
        if not self.is_active:
            return
        for owner in (optimizer, self.torch.nn.Module):
            owner.zero_grad = self._unless_skipping(owner.zero_grad)
        autograd = self.torch.autograd
        backward = autograd.backward

        @functools.wraps(backward)
        def halved(tensors, grad_tensors=None, *arguments, **named):
            if technique._switch is None and technique._halved and grad_tensors is None:
                tensors = technique._scaled(tensors)
            return backward(tensors, grad_tensors, *arguments, **named)

        autograd.backward = halved

    def _scaled(self, tensors):
        one = isinstance(tensors, self.torch.Tensor)
        scaled = tuple(it / _PARTS if it.numel() == 1 else it for it in ((tensors,) if one else tensors))
        return scaled[0] if one else scaled

    def _follow_step(self, cls):
        step, technique = cls.step, self
        if getattr(step, "halves", False):
            return

        @functools.wraps(step)
        def stepped(optimizer, *arguments, **named):
            technique._note()
            if technique.is_active and technique._switch is None and technique._halved:
                count = technique._counts[optimizer] = technique._counts.get(optimizer, 0) + 1
                technique._is_skipping = bool(count % _PARTS)
                if technique._is_skipping:
                    technique._skipped += 1
                    return None
            technique._steps += 1
            return step(optimizer, *arguments, **named)

        stepped.hooked = stepped.halves = True
        cls.step = stepped

    def _unless_skipping(self, original):
        technique = self

        @functools.wraps(original)
        def zero_grad(owner, *arguments, **named):
            if technique._is_skipping:
                return None
            return original(owner, *arguments, **named)

        return zero_grad

    def _note(self):
        """An optimizer steps: the loader that gave something last is one of training."""
        line, size = self._latest
        if line is not None:
            self._trained[line] = size

    def applied(self):
        if self._why is not None:
            raise Refused(self._why)
        if self._switch is not None and "Trainer(" not in self._switch:
            self.edit = [(None, self._switch)]
            return "half the batch, twice a step"
        if not self._trained:
            raise Refused("the job makes its batches without a DataLoader: halve them, and step after every second")
        odd = [it for it in self._trained.values() if it is None or it % _PARTS]
        if odd and not self.is_active:
            raise Refused("a batch of %s cannot be halved" % odd[0])
        self.notes = {"lines": sorted(self._trained)}
        for line, size in sorted(self._trained.items()):
            size = self._halved.get(line) or size // _PARTS
            self.edit.append((line, "DataLoader(…, batch_size=%d)" % size))
        if self._switch is not None:
            self.edit.append((None, self._switch))
        else:
            loop = self.advise.calls.backward_line
            self.edit.append((loop, "(loss / %d).backward(); step and zero_grad after every second batch" % _PARTS))
        if not self.is_active:
            return "%d loaders" % len(self._trained)
        if set(self._trained) - set(self._halved) or not self._halved:
            raise Refused("took effect in some of the loaders only")
        if self._switch is None and not self._skipped:
            raise Refused("no step was left out")
        return "half the batch, twice a step"
