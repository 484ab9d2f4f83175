"""Optimizers that step one parameter at a time: as its gradient arrives, or with their state in the host's memory.

Either replaces what is inside of PyTorch's wrapper of `step`, so that hooks of steps run as often as without it.
"""

import functools
import sys

from ._advise_technique import Refused, Technique, of_all
from ._frames import is_library
from ._references import text_in


class _OneByOne(Technique):
    """A technique whose optimizer works on one parameter at a time."""

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        # The steps of classes, as they were.
        self._inner = {}
        # Whether such a step runs.
        self._is_within = False
        self._why = None
        self._steps = 0
        # The first optimizer's class, and where it was made and stepped.
        self.cls, self.line, self.step_line = "optimizer", None, None

    def install(self):
        base, technique = self.torch.optim.Optimizer, self
        make, patch = base.__init__, base._patch_step_function

        @functools.wraps(make)
        def made(optimizer, *arguments, **named):
            if technique.line is None:
                technique.line = technique.advise.unknowns.line(sys._getframe(1))
                technique.cls = type(optimizer).__name__
            technique.made(optimizer)
            make(optimizer, *arguments, **named)

        @functools.wraps(patch)
        def patched(optimizer):
            technique._follow(type(optimizer))
            patch(optimizer)

        base.__init__, base._patch_step_function = made, patched

    def _follow(self, cls):
        inner, technique = cls.step, self
        if getattr(inner, "hooked", None):
            return
        self._inner[cls] = inner

        @functools.wraps(inner)
        def step(optimizer, *arguments, **named):
            if technique._is_within:
                return inner(optimizer, *arguments, **named)
            technique._steps += 1
            if technique.step_line is None:
                technique.step_line = technique.advise.unknowns.line(sys._getframe(1))
                technique._why = technique._why or _loop_of_a_library(sys._getframe(1))
            # A wrapper of an optimizer may pass `None` on.
            if any(it is not None for it in (*arguments, named.get("closure"))):
                technique._why = "the optimizer's step gets a closure"
            elif technique.is_active:
                return technique.step(optimizer)
            answer = inner(optimizer, *arguments, **named)
            technique.seen(optimizer)
            return answer

        cls.step = step

    def alone(self, optimizer, parameter):
        """Steps with one parameter."""
        # Looked for each time: a state that is loaded has new groups.
        group = next(it for it in optimizer.param_groups if any(parameter is own for own in it["params"]))
        inner = next(self._inner[cls] for cls in type(optimizer).__mro__ if cls in self._inner)
        groups, parameters = optimizer.param_groups, group["params"]
        # The group stays the same object: an optimizer may count in it.
        group["params"], optimizer.param_groups = [parameter], [group]
        self._is_within = True
        try:
            inner(optimizer)
        finally:
            self._is_within = False
            group["params"], optimizer.param_groups = parameters, groups

    def made(self, optimizer):
        """An optimizer is made."""

    def step(self, optimizer):
        """Takes the place of an outermost step."""
        raise NotImplementedError

    def seen(self, optimizer):
        """An outermost step has ended that is as it was."""


def _loop_of_a_library(frame):
    """Returns why there is no line to change: a library's own loop makes the steps. Wrappers of a step are no loop."""
    while frame is not None:
        is_torch = (text_in(frame.f_globals, "__name__") or "").partition(".")[0] == "torch"
        if not is_torch and frame.f_code.co_name != "step":
            break
        frame = frame.f_back
    if frame is None or not is_library(frame.f_code.co_filename):
        return None
    library = (text_in(frame.f_globals, "__name__") or "").partition(".")[0]
    return "the loop is that of %s, which steps one optimizer" % library


class InBackward(_OneByOne):
    """Each parameter is updated as soon as its gradient is there, which is freed then."""

    name = "optimizer-in-backward"

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        # Optimizers, and backward passes since the last step.
        self._made = self._backwards = 0
        # Numbers of parameters that were updated since the last step, and the most; and gradients that were left.
        self._updated = set()
        self._most = self._left = 0

    def install(self):
        super().install()
        utils, amp = self.torch.nn.utils, self.torch.amp.grad_scaler.GradScaler
        clipping = "the job clips all gradients before a step"
        for name in ("clip_grad_norm_", "clip_grad_value_", "get_total_norm", "clip_grads_with_norm_"):
            for module in (utils, utils.clip_grad):
                if hasattr(module, name):
                    setattr(module, name, self._refusing(getattr(module, name), clipping))
        scaling = "the job scales its loss, and looks at all gradients before a step"
        amp.step = self._refusing(amp.step, scaling, lambda it, *rest: it.is_enabled())
        self._count_backwards()
        if not self.is_active:
            return
        base, technique = self.torch.optim.Optimizer, self
        add = base.add_param_group

        @functools.wraps(add)
        def added(optimizer, group):
            add(optimizer, group)
            technique._hook(optimizer, optimizer.param_groups[-1]["params"])

        base.add_param_group = added

    def _refusing(self, function, why, when=lambda *arguments: True):
        @functools.wraps(function)
        def noted(*arguments, **named):
            if when(*arguments):
                self._why = why
            return function(*arguments, **named)

        return noted

    def _count_backwards(self):
        autograd, technique = self.torch.autograd, self
        backward = autograd.backward

        @functools.wraps(backward)
        def counted(*arguments, **named):
            # A checkpoint that is reentrant has backward passes of its own within the one of the job.
            technique._backwards += not technique.advise.calls.is_backward
            return backward(*arguments, **named)

        autograd.backward = counted

    def made(self, optimizer):
        self._made += 1
        if self._made > 1:
            self._why = "the job has several optimizers"

    def _hook(self, optimizer, parameters):
        def arrived(parameter):
            if id(parameter) in self._updated:
                self._why = "a parameter gets more than one gradient before a step"
            self._updated.add(id(parameter))
            self.alone(optimizer, parameter)
            parameter.grad = None

        for it in parameters:
            if it.requires_grad and it.is_leaf:
                it.register_post_accumulate_grad_hook(arrived)

    def step(self, optimizer):
        self._left += sum(it.grad is not None for group in optimizer.param_groups for it in group["params"])
        self._most = max(self._most, len(self._updated))
        self._updated.clear()
        self.seen(optimizer)

    def seen(self, optimizer):
        distributed = self.torch.distributed
        if self._backwards > 1:
            self._why = "the job adds gradients of several backward passes up"
        elif optimizer._optimizer_step_pre_hooks:
            self._why = "the job has a hook before the optimizer's steps"
        elif distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            self._why = "gradients are summed over several devices before a step"
        self._backwards = 0
        if not self.is_active:
            all_ = [it for group in optimizer.param_groups for it in group["params"]]
            self._most = max(self._most, sum(it.grad is not None for it in all_))

    def applied(self):
        each = "for p in own: p.register_post_accumulate_grad_hook(done)  # def done(p): own[p].step(); p.grad = None"
        self.edit = [
            (self.line, "own = {p: %s([p], …) for p in model.parameters()}" % self.cls),
            (self.line, each),
            (self.step_line, "without step and zero_grad"),
        ]
        if self._why is not None:
            raise Refused(self._why)
        if not self._steps:
            raise Refused("no optimizer of PyTorch stepped")
        if not self._most:
            raise Refused("no gradient was there at a step")
        return of_all(self._most, self._most + self._left, "parameter")


class OnHost(_OneByOne):
    """The optimizer's state is in the host's memory, but for that of the parameter which is updated."""

    name = "optimizer-on-host"

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        # Of each optimizer's latest step, by its number: tensors that are on the device after it, and those that left
        # it; their bytes. It counts also once the optimizer is gone.
        self._there, self._moved, self._bytes = {}, {}, {}

    def _on_device(self, state):
        """The names of what is moved: a count of steps stays where it is."""
        return [name for name, it in state.items() if self.torch.is_tensor(it) and it.is_cuda and it.dim()]

    def step(self, optimizer):
        with_gradients = [it for group in optimizer.param_groups for it in group["params"] if it.grad is not None]
        if with_gradients:
            self._moved[id(optimizer)] = self._bytes[id(optimizer)] = 0
        for it in with_gradients:
            self._to_device(optimizer.state.get(it, {}), it.device)
            self.alone(optimizer, it)
            self._to_host(optimizer, optimizer.state.get(it, {}))
        self.seen(optimizer)

    def _to_host(self, optimizer, state):
        for name in self._on_device(state):
            it = state[name]
            self._moved[id(optimizer)] += 1
            self._bytes[id(optimizer)] += it.numel() * it.element_size()
            # Nothing has to reach the host, because no values are computed: it only has the shape.
            kept = self.torch.zeros((), dtype=it.dtype, device="cpu").expand(it.shape)
            kept.gpuwatch_stride = it.stride()
            state[name] = kept

    def _to_device(self, state, device):
        for name, it in state.items():
            stride = getattr(it, "gpuwatch_stride", None)
            if stride is not None:
                state[name] = self.torch.empty_strided(it.shape, stride, dtype=it.dtype, device=device)

    def seen(self, optimizer):
        states = [it for it in optimizer.state.values() if isinstance(it, dict)]
        self._there[id(optimizer)] = sum(len(self._on_device(it)) for it in states)

    def applied(self):
        self.edit = [
            (None, "def move(optimizer, device):"),
            (None, "    for state in optimizer.state.values():"),
            (None, "        state.update({k: v.to(device) for k, v in state.items() if torch.is_tensor(v) and v.dim()})"),
            (self.line, "own = [%s([p], …) for p in model.parameters()]  # step and zero_grad of each" % self.cls),
            (self.line, 'for it in own: it.register_step_pre_hook(lambda it, *_: move(it, "cuda"))'),
            (self.line, 'for it in own: it.register_step_post_hook(lambda it, *_: move(it, "cpu"))'),
        ]
        if self._why is not None:
            raise Refused(self._why)
        if not self._steps:
            raise Refused("no optimizer of PyTorch stepped")
        there, moved = sum(self._there.values()), sum(self._moved.values())
        if not there and not moved:
            raise Refused("%s keeps no state on the device" % self.cls)
        if not self.is_active:
            return of_all(there, there, "state")
        self.price = {"host_bytes": sum(self._bytes.values())}
        return of_all(moved, moved + there, "state")
