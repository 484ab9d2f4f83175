"""Techniques that last from a model's call to its backward, or change the model as a whole."""

import functools
import sys

from ._advise_technique import Refused, Technique, of_all

_HALF = "bfloat16", "float16"


class Autocast(Technique):
    """Forward and loss in bfloat16 where autocast allows it; by the framework's switch where there is one."""

    name = "bf16"

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        # The edit in terms of a framework, where its switch was set.
        self._switch = None
        self._already = None
        self._entered = 0
        self._is_mine = False

    def install(self):
        switches = self.advise.switches
        switches.on_made("transformers.training_args", "TrainingArguments", self._trainer, "__post_init__")
        switches.on_made("accelerate.accelerator", "Accelerator", self._accelerator)
        for module in ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"):
            switches.on_made(module, "Trainer", self._lightning)
        cls = self.torch.autocast
        enter = cls.__enter__

        @functools.wraps(enter)
        def entered(context):
            # Checkpointed blocks enter it again in backward, as it was in forward.
            is_repeated = sys._getframe(1).f_globals.get("__name__") == "torch.utils.checkpoint"
            if context.device == "cuda" and context._enabled and not self._is_mine and not is_repeated:
                if self._switch is not None and self.is_active:
                    self._entered += 1
                elif not self.is_active or self._switch is None:
                    self._already = "the job uses autocast already"
            return enter(context)

        cls.__enter__ = entered
        self.advise.calls.on_first(self._begin)
        self.advise.calls.during_forward(self._context)

    def _trainer(self, arguments):
        if arguments.bf16 or arguments.fp16:
            self._already = "%s has bf16 or fp16 already" % type(arguments).__name__
            return
        self._switch = "%s(…, bf16=True)" % type(arguments).__name__
        if self.is_active:
            arguments.bf16 = True

    def _accelerator(self, values):
        precision = values.get("mixed_precision")
        if self._switch is not None or self._already is not None:
            # A trainer makes it.
            return
        if precision is not None and str(precision) != "no":
            self._already = "Accelerator has mixed_precision already"
            return
        self._switch = 'Accelerator(…, mixed_precision="bf16")'
        if self.is_active:
            values["mixed_precision"] = "bf16"

    def _lightning(self, values):
        if values.get("precision") not in (None, 32, "32", "32-true"):
            self._already = "Trainer has a precision already"
            return
        self._switch = 'Trainer(…, precision="bf16-mixed")'
        if self.is_active:
            values["precision"] = "bf16-mixed"

    def _begin(self, root):
        for it in root.parameters():
            if str(it.dtype).endswith(_HALF):
                self._already = "its weights are %s already" % str(it.dtype).replace("torch.", "")
                return

    def _context(self):
        if self._switch is not None or not self.is_active:
            if self.torch.is_autocast_enabled("cuda") and not self._entered:
                self._already = "the job uses autocast already"
            return None
        context = self.torch.autocast("cuda", dtype=self.torch.bfloat16)
        return _Mine(self, context)

    def entering(self, context):
        """Enters this technique's own context."""
        self._is_mine = True
        try:
            context.__enter__()
        finally:
            self._is_mine = False
        self._entered += 1

    def applied(self):
        calls = self.advise.calls
        if self._switch is not None:
            self.edit = [(None, self._switch)]
        else:
            line = 'with torch.autocast("cuda", dtype=torch.bfloat16):  # around the call and the loss'
            self.edit = [(calls.forward_lines(), line)]
        if self._already is not None:
            raise Refused(self._already)
        if calls.line is None:
            raise Refused("no module is called for training")
        if self.is_active and not self._entered:
            raise Refused("no forward ran under autocast")
        return "forward and loss"


class _Mine:
    """A context of the technique, which must not be taken for one of the job's."""

    def __init__(self, technique, context):
        self._technique = technique
        self._context = context

    def __enter__(self):
        self._technique.entering(self._context)

    def __exit__(self, *error):
        self._context.__exit__(*error)


class HalfWeights(Technique):
    """Weights, gradients and optimizer state in bfloat16."""

    name = "weights-bf16"

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        self._count = self._left = 0
        self._already = False
        # Whether the model is called with float32.
        self._is_cast = False

    def install(self):
        calls = self.advise.calls
        calls.on_first(self._begin)
        calls.on_arguments(self._cast)

    def _begin(self, root):
        floats = [it for it in root.parameters() if it.dtype is self.torch.float32]
        self._already |= any(str(it.dtype).endswith(_HALF) for it in root.parameters())
        self._count += len(floats)
        if self.is_active:
            root.to(self.torch.bfloat16)
            self._left += sum(it.dtype is self.torch.float32 for it in root.parameters())

    def _cast(self, arguments, named):
        arguments = tuple(self._half(it) for it in arguments)
        return arguments, {name: self._half(it) for name, it in named.items()}

    def _half(self, it):
        is_float = isinstance(it, self.torch.Tensor) and it.dtype is self.torch.float32
        self._is_cast |= is_float
        return it.to(self.torch.bfloat16) if is_float and self.is_active else it

    def applied(self):
        self.edit = [(None, "model.to(torch.bfloat16)  # before the optimizer is made")]
        if self._is_cast:
            self.edit.append((self.advise.calls.line, "model(inputs.to(torch.bfloat16), …)  # inputs of float32"))
        if self._already:
            raise Refused("some of its weights are of half precision already")
        if not self._count:
            raise Refused("the model has no float32 weights")
        done = self._count - self._left
        if self.is_active and self._left:
            raise Refused("%d of %d weights stayed float32" % (self._left, self._count))
        return "%d of %d weights" % (done, self._count)


class SaveOnCpu(Technique):
    """Activations in the host's memory until the backward."""

    name = "save-on-cpu"

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        self._bytes = self._most = 0
        self._count = 0

    def install(self):
        if self.is_active:
            self.advise.calls.during_forward(self._context)

    def _context(self):
        self._bytes = 0
        return self.torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    def _pack(self, tensor):
        # As `save_on_cpu` does; nothing has to reach the host, because no values are computed.
        if not tensor.is_cuda:
            return tensor, None
        self._count += 1
        self._bytes += tensor.numel() * tensor.element_size()
        self._most = max(self._most, self._bytes)
        return None, (tensor.device, tensor.size(), tensor.dtype, tensor.layout)

    def _unpack(self, packed):
        tensor, of = packed
        if of is None:
            return tensor
        device, size, dtype, layout = of
        return self.torch.empty(size, dtype=dtype, layout=layout, device=device)

    def applied(self):
        line = "with torch.autograd.graph.save_on_cpu(pin_memory=True):  # around the call and the loss"
        self.edit = [(self.advise.calls.forward_lines(), line)]
        if self.advise.calls.line is None:
            raise Refused("no module is called for training")
        if not self.is_active:
            return "forward and loss"
        if not self._count:
            raise Refused("nothing was saved for a backward")
        self.price = {"host_bytes": self._most}
        return "forward and loss"


class ChannelsLast(Technique):
    """Pictures, weights of convolutions and what lies between them with channels as the last dimension in memory."""

    name = "channels-last"

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        # Weights of four dimensions, those of them that are in that form, and pictures that models got.
        self._count = self._done = self._pictures = 0
        self._is_already = False

    def install(self):
        self.advise.calls.on_first(self._begin)
        self.advise.calls.on_arguments(self._pass)

    def _is_last(self, it):
        return it.is_contiguous(memory_format=self.torch.channels_last)

    def _begin(self, root):
        if not any(isinstance(it, (self.torch.nn.Conv2d, self.torch.nn.ConvTranspose2d)) for it in root.modules()):
            return
        weights = [it for it in root.parameters() if it.dim() == 4]
        self._count += len(weights)
        # One channel, or a kernel of one value, is in both forms.
        self._is_already |= any(self._is_last(it) and not it.is_contiguous() for it in weights)
        if self.is_active:
            root.to(memory_format=self.torch.channels_last)
            self._done += sum(self._is_last(it) for it in root.parameters() if it.dim() == 4)

    def _pass(self, arguments, named):
        if not self._count:
            return arguments, named
        return tuple(map(self._picture, arguments)), {name: self._picture(it) for name, it in named.items()}

    def _picture(self, it):
        if not isinstance(it, self.torch.Tensor) or it.dim() != 4 or not it.is_floating_point():
            return it
        self._pictures += 1
        return it.to(memory_format=self.torch.channels_last) if self.is_active else it

    def applied(self):
        form = "memory_format=torch.channels_last"
        self.edit = [
            (self.advise.calls.line, "model.to(%s)  # before the first call" % form),
            (self.advise.calls.line, "model(inputs.to(%s), …)" % form),
        ]
        if not self._count:
            raise Refused("the model has no convolutions of pictures")
        if self._is_already:
            raise Refused("its weights have channels as the last dimension already")
        if not self._pictures:
            raise Refused("the model gets no pictures as tensors of their own")
        return of_all(self._done if self.is_active else self._count, self._count, "weight")
