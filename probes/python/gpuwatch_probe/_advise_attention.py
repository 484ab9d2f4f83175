"""Attention by PyTorch's fused kernels instead of a written-out softmax, where it is recognised."""

import functools
import sys

from ._advise_technique import Refused, Technique, of_all


class FusedAttention(Technique):
    """Models that have a switch, and modules of PyTorch whose attention weights nobody uses."""

    name = "sdpa"

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        self._models = 0
        self._modules = {}
        self._done = set()
        self._line = None
        self._used = False

    def install(self):
        self.advise.calls.on_first(self._begin)
        cls, technique = self.torch.nn.MultiheadAttention, self
        original = cls.forward

        @functools.wraps(original)
        def forward(module, query, key, value, key_padding_mask=None, need_weights=True, *arguments, **named):
            if need_weights and technique.torch.is_grad_enabled() and technique._is_unused(module):
                technique._modules[id(module)] = module
                if technique.is_active:
                    need_weights = False
                    technique._done.add(id(module))
            return original(module, query, key, value, key_padding_mask, need_weights, *arguments, **named)

        cls.forward = forward

    def _begin(self, root):
        for module in root.modules():
            config = getattr(module, "config", None)
            change = getattr(module, "set_attn_implementation", None)
            if callable(change) and getattr(config, "_attn_implementation", None) == "eager":
                self._models += 1
                if self.is_active:
                    change("sdpa")
                    if config._attn_implementation == "sdpa":
                        self._done.add(id(module))
                return

    def _is_unused(self, module):
        """Whether the line that calls the module takes only the first of its results."""
        frame = sys._getframe(2)
        while frame is not None and not self.advise.unknowns.is_own(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            return False
        import linecache

        text = "".join(linecache.getline(frame.f_code.co_filename, frame.f_lineno).split())
        is_unused = text.endswith(")[0]") or ")[0]" in text or ",_=" in text
        if is_unused and self._line is None:
            self._line = self.advise.unknowns.line(frame)
        return is_unused

    def applied(self):
        count = self._models + len(self._modules)
        if not count:
            raise Refused("no attention with a written-out softmax was recognised")
        if self._models:
            self.edit = [(None, 'from_pretrained(…, attn_implementation="sdpa")')]
        else:
            self.edit = [(self._line, "MultiheadAttention's call with need_weights=False")]
        what = "model" if self._models else "attention"
        return of_all(len(self._done) if self.is_active else count, count, what)
