"""Attention by PyTorch's fused kernels instead of a written-out softmax, where it is recognised."""

import functools
import sys

from ._advise_attention_source import CALL, Rewriter
from ._advise_technique import Refused, Technique, of_all
from ._fit_source import functions_of


class FusedAttention(Technique):
    """Models with a switch, modules of PyTorch whose attention weights nobody uses, and functions of the job that write
    attention out."""

    name = "sdpa"

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        # What was found, and what was changed: models, modules and functions.
        self._found, self._done = set(), set()
        self._kind = "attention"
        # Functions that call a softmax in training: (file, first line, name).
        self._functions = set(map(tuple, (advise.notes.get(self.name) or {}).get("functions", ())))
        # How often the call that replaces attention ran.
        self._calls = 0

    def install(self):
        self.advise.calls.on_first(self._begin)
        self._follow_modules()
        if self.is_active:
            return
        torch, functional = self.torch, self.torch.nn.functional
        for owner in (functional, torch, torch.Tensor):
            owner.softmax = self._seen(owner.softmax)

    def _begin(self, root):
        for module in root.modules():
            config = getattr(module, "config", None)
            change = getattr(module, "set_attn_implementation", None)
            if callable(change) and getattr(config, "_attn_implementation", None) == "eager":
                self._kind = "model"
                self._found.add(id(module))
                self.edit = [(None, 'from_pretrained(…, attn_implementation="sdpa")')]
                if self.is_active:
                    change("sdpa")
                    if config._attn_implementation == "sdpa":
                        self._done.add(id(module))
                break
        if self.is_active and self._kind != "model":
            for file, line, name in sorted(self._functions):
                self._replace(file, line, name)

    # Modules of PyTorch

    def _follow_modules(self):
        cls, technique = self.torch.nn.MultiheadAttention, self
        original = cls.forward

        @functools.wraps(original)
        def forward(module, query, key, value, key_padding_mask=None, need_weights=True, *arguments, **named):
            if need_weights and technique.torch.is_grad_enabled() and technique._is_unused():
                technique._found.add(id(module))
                if technique.is_active:
                    need_weights = False
                    technique._done.add(id(module))
            return original(module, query, key, value, key_padding_mask, need_weights, *arguments, **named)

        cls.forward = forward

    def _is_unused(self):
        """Whether the line that calls the module takes only the first of its results."""
        frame = sys._getframe(2)
        while frame is not None and not self.advise.unknowns.is_own(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            return False
        import linecache

        text = "".join(linecache.getline(frame.f_code.co_filename, frame.f_lineno).split())
        is_unused = ")[0]" in text or ",_=" in text
        if is_unused and not self.edit:
            self.edit = [(self.advise.unknowns.line(frame), "…(…, need_weights=False)")]
        return is_unused

    # Functions of the job

    def _seen(self, original):
        technique = self

        @functools.wraps(original)
        def softmax(*arguments, **named):
            if technique.torch.is_grad_enabled():
                frame = sys._getframe(1)
                while frame is not None and "/torch/nn/" in frame.f_code.co_filename:
                    frame = frame.f_back
                if frame is not None and len(technique._functions) < 100:
                    code = frame.f_code
                    technique._functions.add((code.co_filename, code.co_firstlineno, code.co_name))
            return original(*arguments, **named)

        return softmax

    def _written(self):
        """Returns the functions that write attention out, as they would be rewritten."""
        found = {}
        for file, line, name in sorted(self._functions):
            try:
                with open(file) as source:
                    statements = Rewriter(source.read()).rewrite(line)
            except Exception:
                continue
            if statements:
                found[file, line, name] = statements
        return found

    def _replace(self, file, line, name):
        with open(file) as source:
            rewriter = Rewriter(source.read())
        if not rewriter.rewrite(line):
            return
        for function in functions_of(file):
            code = function.__code__
            if (code.co_firstlineno, code.co_name) == (line, name):
                if rewriter.replace(function, CALL, self._attention):
                    self._done.add((file, line, name))

    def _attention(self, *arguments, **named):
        self._calls += 1
        return self.torch.nn.functional.scaled_dot_product_attention(*arguments, **named)

    def applied(self):
        if self._kind != "model":
            import os

            for key, statements in self._written().items():
                self._found.add(key)
                for line, text in statements:
                    place = "%s:%d" % (os.path.basename(key[0]), line)
                    self.edit.append((place, text.replace(CALL, "F.scaled_dot_product_attention")))
            self.notes = {"functions": sorted(it for it in self._found if isinstance(it, tuple))}
        if not self._found:
            raise Refused("no attention with a written-out softmax was recognised")
        if self.is_active and any(isinstance(it, tuple) for it in self._done) and not self._calls:
            raise Refused("the attention was not called")
        count = len(self._found)
        return of_all(len(self._done & self._found) if self.is_active else count, count, self._kind)
