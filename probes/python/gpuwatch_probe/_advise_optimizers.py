"""Techniques of optimizers: how their kernels run, what states they keep, and gradients between steps."""

import functools
import inspect
import sys

from ._advise_technique import Refused, Technique, of_all

# bitsandbytes keeps 8 bits of tensors with at least so many elements, and a scale for each block of so many.
_LEAST_8BIT, _BLOCK = 4096, 256


class _Kernels(Technique):
    """A switch of an optimizer's `__init__` that selects its kernels."""

    is_outside_functions = True
    switch = ""

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        # Optimizers that were made, and those of them that have the switch, can use it, and got it.
        self._made = self._able = self._done = 0
        self._why = None
        # The first one's class, and where it was made.
        self.cls, self.line = "optimizer", None

    def install(self):
        base = self.torch.optim.Optimizer
        original = base.__init__
        technique = self

        @functools.wraps(original)
        def made(optimizer, params, defaults, *arguments, **named):
            technique._see(optimizer, defaults, sys._getframe(1))
            original(optimizer, params, defaults, *arguments, **named)
            technique.made(optimizer)

        base.__init__ = made

    def _see(self, optimizer, defaults, frame):
        self._made += 1
        if self.line is None:
            self.line = self.advise.unknowns.line(frame)
            self.cls = type(optimizer).__name__
        if self.switch not in defaults:
            self._why = "%s has no switch `%s`" % (type(optimizer).__name__, self.switch)
            return
        why = self.refuses(defaults)
        if why is not None:
            self._why = why
            return
        self._able += 1
        if self.is_active:
            self._done += self.set(optimizer, defaults)

    def refuses(self, defaults):
        """Returns why these settings cannot be changed."""
        raise NotImplementedError

    def set(self, optimizer, defaults):
        """Changes the settings before the optimizer takes them; returns whether it could."""
        raise NotImplementedError

    def made(self, optimizer):
        """The optimizer is made."""

    def applied(self):
        if not self._made:
            raise Refused("no optimizer of PyTorch was made")
        if not self._able:
            raise Refused(self._why)
        return of_all(self._done if self.is_active else self._able, self._able, "optimizer")


class Foreach(_Kernels):
    """One kernel for each parameter instead of one for all, whose temporaries add up."""

    name = "foreach"
    switch = "foreach"

    def refuses(self, defaults):
        if defaults.get("fused"):
            return "the optimizer is fused, which takes no temporaries"
        if defaults["foreach"] is False:
            return "the optimizer has foreach=False already"
        return None

    def set(self, optimizer, defaults):
        defaults["foreach"] = False
        return True

    def applied(self):
        self.edit = [(self.line, "%s(…, foreach=False)" % self.cls)]
        return super().applied()


class Fused(_Kernels):
    """One kernel that reads and writes each value once."""

    name = "fused"
    switch = "fused"

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        # Optimizers whose `__init__` was asked for it.
        self._asked = set()

    def install(self):
        super().install()
        if not self.is_active:
            return
        # A fused optimizer prepares itself where it gets its arguments.
        for cls in _subclasses(self.torch.optim.Optimizer):
            if "fused" in inspect.signature(cls.__init__).parameters:
                self._ask(cls)

    def _ask(self, cls):
        original = cls.__init__
        signature = inspect.signature(original)

        @functools.wraps(original)
        def made(optimizer, *arguments, **named):
            try:
                values = signature.bind(optimizer, *arguments, **named).arguments
                is_free = not values.get("fused") and not values.get("foreach")
            except TypeError:
                is_free = False
            if is_free:
                named["fused"] = True
                self._asked.add(id(optimizer))
            return original(optimizer, *arguments, **named)

        cls.__init__ = made

    def _see(self, optimizer, defaults, frame):
        is_mine = self.is_active and defaults.get("fused") and id(optimizer) in self._asked
        # What was asked for above is judged as it was.
        super()._see(optimizer, {**defaults, "fused": None} if is_mine else defaults, frame)

    def refuses(self, defaults):
        if defaults["fused"]:
            return "the optimizer is fused already"
        if defaults.get("foreach"):
            return "the optimizer has foreach=True, which excludes fused"
        if defaults.get("differentiable"):
            return "a differentiable optimizer cannot be fused"
        return None

    def set(self, optimizer, defaults):
        return id(optimizer) in self._asked

    def applied(self):
        self.edit = [(self.line, "%s(…, fused=True)" % self.cls)]
        return super().applied()


class GradientsToNone(Technique):
    """Gradients are freed between steps, not filled with zeros."""

    name = "set-to-none"
    is_outside_functions = True

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        self._count = 0
        self._line = None

    def install(self):
        for owner in (self.torch.optim.Optimizer, self.torch.nn.Module):
            owner.zero_grad = self._of(owner.zero_grad)

    def _of(self, original):
        technique = self

        @functools.wraps(original)
        def zero_grad(owner, set_to_none=True):
            if not set_to_none:
                technique._count += 1
                if technique._line is None:
                    technique._line = technique.advise.unknowns.line(sys._getframe(1))
                set_to_none = technique.is_active
            return original(owner, set_to_none)

        return zero_grad

    def applied(self):
        self.edit = [(self._line, "zero_grad()  # without set_to_none=False")]
        if not self._count:
            raise Refused("the job does not fill gradients with zeros")
        return "%d calls of zero_grad" % self._count


class _Other(Technique):
    """Another optimizer in the place of Adam or AdamW."""

    is_outside_functions = True

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        self._count = self._done = 0
        self._line = None
        self._others = set()

    def install(self):
        optim, technique = self.torch.optim, self
        base = optim.Optimizer.__init__

        @functools.wraps(base)
        def made(optimizer, *arguments, **named):
            if type(optimizer) in (optim.Adam, optim.AdamW):
                technique._seen(sys._getframe(1))
            else:
                technique._others.add(type(optimizer).__name__)
            base(optimizer, *arguments, **named)

        optim.Optimizer.__init__ = made
        if not self.is_active:
            return
        for cls in (optim.Adam, optim.AdamW):

            def new(kind, *arguments, _of=cls, **named):
                if kind is not _of:
                    return object.__new__(kind)
                technique._seen(sys._getframe(1))
                technique._done += 1
                values = inspect.signature(_of.__init__).bind(None, *arguments, **named).arguments
                return technique.other(values["params"], values)

            cls.__new__ = new

    def _seen(self, frame):
        self._count += 1
        if self._line is None:
            self._line = self.advise.unknowns.line(frame)

    def other(self, params, values):
        """Returns the other optimizer for parameters and the arguments of Adam."""
        raise NotImplementedError

    def applied(self):
        self.edit = [(self._line, self.line)]
        if not self._count:
            raise Refused("the job uses %s, not Adam" % (", ".join(sorted(self._others)) or "no optimizer"))
        done = self._done if self.is_active else self._count
        return of_all(done, self._count, "optimizer")


class Adam8bit(_Other):
    """Adam's states in 8 bits, with the shapes that bitsandbytes keeps."""

    name = "adam8bit"
    line = "bitsandbytes.optim.AdamW8bit(…)"

    def other(self, params, values):
        return _adam8bit(self.torch)(params, values.get("lr", 1e-3))


class Adafactor(_Other):
    """Adafactor, whose state is a row and a column of each matrix."""

    name = "adafactor"
    line = "torch.optim.Adafactor(…)"

    def other(self, params, values):
        cls = getattr(self.torch.optim, "Adafactor", None)
        if cls is None:
            raise Refused("this PyTorch has no Adafactor")
        return cls(params, lr=values.get("lr", 1e-3))


class Sgd(_Other):
    """SGD without momentum, which keeps no state."""

    name = "sgd"
    line = "torch.optim.SGD(…)"

    def other(self, params, values):
        return self.torch.optim.SGD(params, lr=values.get("lr", 1e-3))


def _adam8bit(torch):
    class Adam8bit(torch.optim.Optimizer):
        """The blocks of bitsandbytes' Adam; it computes nothing."""

        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})
            self._maps = {}

        def _map(self, device):
            if device not in self._maps:
                self._maps[device] = [torch.empty(256, device=device) for _ in range(2)]
            return self._maps[device]

        @torch.no_grad()
        def step(self, closure=None):
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                for it in group["params"]:
                    if it.grad is not None and not self.state[it]:
                        self._keep(it, self.state[it])
            return loss

        def _keep(self, it, state):
            if it.numel() < _LEAST_8BIT:
                state["state1"], state["state2"] = (torch.zeros_like(it, dtype=torch.float32) for _ in range(2))
                return
            state["qmap1"], state["qmap2"] = self._map(it.device)
            blocks = -(-it.numel() // _BLOCK)
            for at in "12":
                state["state" + at] = torch.zeros_like(it, dtype=torch.uint8)
                state["absmax" + at] = torch.zeros(blocks, dtype=torch.float32, device=it.device)

    return Adam8bit


def _subclasses(cls):
    for it in cls.__subclasses__():
        yield it
        yield from _subclasses(it)
