"""Activation checkpointing of repeated blocks: siblings of one class that have modules of their own.

A model with a switch for it is asked by that switch, as a reader of its documents would.
"""

import functools
import os
import sys

from ._advise_technique import Refused, Technique, of_all

_NORMS = "BatchNorm", "SyncBatchNorm"
# Methods by which models switch it on, with their arguments, and lines that do so.
_METHODS = {
    "gradient_checkpointing_enable": ({"gradient_checkpointing_kwargs": {"use_reentrant": False}}, "{}()"),
    "set_grad_checkpointing": ({}, "{}()"),
    "enable_gradient_checkpointing": ({}, "{}()"),
}


# Where modules are called.
_CALLS = os.path.join("nn", "modules", "module.py"), "_advise_calls.py"


class _Block:
    """A block's calls."""

    def __init__(self, module, container):
        self.module = module
        # What holds it.
        self.container = container
        self.forward = module.forward
        # Its calls in training, and calls of modules in it during a backward.
        self.calls = self.again = 0
        # The job's line that called it, or from which a library did.
        self.line, self.is_called_by_library = None, False


class Checkpoint(Technique):
    """Every block."""

    name = "checkpoint"
    # Of so many blocks, one is checkpointed.
    every = 1

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        self._blocks = []
        self._is_in_use = False
        self._switch = None
        # Whether the framework's own switch was set.
        self._arguments = None

    def install(self):
        from torch.utils import checkpoint

        if self.every == 1:
            switches = self.advise.switches
            switches.on_made("transformers.training_args", "TrainingArguments", self._trainer, "__post_init__")
        self._checkpoint = original = checkpoint.checkpoint

        @functools.wraps(original)
        def used(*arguments, **named):
            self._is_in_use = True
            return original(*arguments, **named)

        checkpoint.checkpoint = used
        self.advise.calls.on_first(self._begin)

    def _trainer(self, arguments):
        if arguments.gradient_checkpointing:
            self._is_in_use = True
            return
        self._arguments = type(arguments).__name__
        if self.is_active:
            arguments.gradient_checkpointing = True
            if arguments.gradient_checkpointing_kwargs is None:
                arguments.gradient_checkpointing_kwargs = {"use_reentrant": False}

    def _begin(self, root):
        for container, group in repeated(root):
            for at, module in enumerate(group):
                if at % self.every == 0:
                    self._blocks.append(self._follow(module, container))
        if self._arguments is None and self.every == 1:
            self._use_switch(root)

    def _use_switch(self, root):
        for module in root.modules():
            for name, (arguments, _) in _METHODS.items():
                method = getattr(module, name, None)
                if callable(method) and getattr(module, "supports_gradient_checkpointing", True):
                    self._switch = name
                    if self.is_active:
                        method(**arguments)
                    return

    def _follow(self, module, container):
        block, calls, torch = _Block(module, container), self.advise.calls, self.torch
        original = block.forward

        @functools.wraps(original)
        def forward(*arguments, **named):
            if not calls.is_backward and torch.is_grad_enabled() and module.training:
                block.calls += 1
                if block.line is None:
                    block.line, block.is_called_by_library = self._line()
                if self.is_active and self._switch is None and self._arguments is None:
                    return self._checkpoint(original, *arguments, use_reentrant=False, **named)
            return original(*arguments, **named)

        module.forward = forward
        # A model's own checkpoint may be within the block's forward, so what the block calls shows that it runs again.
        for inner in module.modules():
            if inner is not module:
                self._count(block, inner)
        return block

    def _count(self, block, inner):
        original, calls = inner.forward, self.advise.calls

        @functools.wraps(original)
        def forward(*arguments, **named):
            if calls.is_backward:
                block.again += 1
            return original(*arguments, **named)

        inner.forward = forward

    def _line(self):
        unknowns = self.advise.unknowns
        frame = caller = sys._getframe(2)
        while caller is not None and caller.f_code.co_filename.endswith(_CALLS):
            caller = caller.f_back
        return unknowns.line(frame), caller is not None and not unknowns.is_own(caller.f_code.co_filename)

    def applied(self):
        used = [it for it in self._blocks if it.calls]
        self._write(used)
        if not self.is_active:
            if self._is_in_use:
                raise Refused("the job checkpoints already")
            if not used:
                raise Refused("the model has no repeated blocks")
            return "%d blocks" % len(used)
        if not used:
            raise Refused("no block was called in training")
        self.price = {"recomputed_blocks": sum(it.again > 0 for it in used)}
        if any(type(it).__name__.startswith(_NORMS) for one in used for it in one.module.modules()):
            self.price["class"] = "other numerics"
        done = sum(it.again > 0 for it in used)
        if done and (self._switch is not None or self._arguments is not None):
            # The model's own switch decides which blocks it checkpoints.
            return "%d of %d blocks" % (done, len(used))
        return of_all(done, len(used), "block")

    def _write(self, used):
        calls, name = self.advise.calls, type(used[0].module).__name__ if used else "block"
        if self._arguments is not None:
            self.edit = [(None, "%s(…, gradient_checkpointing=True)" % self._arguments)]
            return
        if self._switch is not None:
            self.edit = [(calls.line, "model.%s()  # before the first step" % self._switch)]
            return
        which = "" if self.every == 1 else "[::%d]" % self.every
        is_sequential = bool(used) and isinstance(used[0].container, self.torch.nn.Sequential)
        by_library = bool(used) and used[0].is_called_by_library and not is_sequential
        if is_sequential or by_library:
            # The job calls the container, and no line of its own calls a block.
            is_one = 'type(it).__name__ == "%s"' % name if by_library else "type(it) is %s" % name
            blocks = "[it for it in model.modules() if %s]%s" % (is_one, which)
            self.edit = [
                (None, "from functools import partial"),
                (None, "from torch.utils.checkpoint import checkpoint"),
                (None, "for block in %s:  # before the first step" % blocks),
                (None, "    block.forward = partial(checkpoint, block.forward, use_reentrant=False)"),
            ]
        else:
            line = used[0].line if used else None
            self.edit = [
                (None, "from torch.utils.checkpoint import checkpoint"),
                (line, "checkpoint(block, …, use_reentrant=False) instead of block(…), for each %s%s" % (name, which)),
            ]


class CheckpointEverySecond(Checkpoint):
    """Every second block."""

    name = "checkpoint:2"
    every = 2


def repeated(root):
    """Returns the outermost groups of blocks, each with the container that holds them: two or more of one class, with
    parameters, which have modules of their own."""
    from torch import nn

    containers = (nn.ModuleList, nn.Sequential, nn.ModuleDict)
    groups, seen = [], set()

    def is_block(module):
        if type(module) in (nn.ModuleList, nn.ModuleDict):
            return False
        return any(True for _ in module.children()) and any(True for _ in module.parameters())

    def visit(module):
        if id(module) in seen:
            return
        seen.add(id(module))
        children = list(module.children())
        if isinstance(module, containers):
            by_class = {}
            for it in children:
                if is_block(it):
                    by_class.setdefault(type(it), []).append(it)
            for group in by_class.values():
                if len(group) > 1:
                    groups.append((module, group))
                    seen.update(map(id, group))
        for it in children:
            visit(it)

    visit(root)
    return groups
