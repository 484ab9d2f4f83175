"""Watches the steps of PyTorch's optimizers, so that neither the job nor its tools notice.

PyTorch wraps the `step` of a class once, when the first optimizer of that class is made. The library can watch the
function inside of that wrapper without a hook (gpuwatch_probe.h), so that Dynamo compiles what it would compile
without a probe, tracers and profilers see no other calls, and PyTorch's lists of hooks stay empty.

PyTorch's own hooks remain for a Python that cannot do this, and for a `step` that is not a function of Python. A compiled
step is one graph there no more, because Dynamo cannot compile the hooks.
"""

import functools
import sys

from ._references import namespaces
from ._steps import hooks

# Decorators around a step. Dynamo puts one of them around those that it does not compile.
_LAYERS = 8


class Watch:
    """Calls `other_step(optimizer, answer)` after each outermost step that `end_step` did not end, until `remove`.

    `fault(error)` returns whether it handled an error.
    """

    def __init__(self, torch, builtin, other_step, fault):
        from torch.optim import optimizer

        self._module = optimizer
        self._optimizer = optimizer.Optimizer
        self._end_step, self._other_step, self._fault = builtin("end_step"), other_step, fault
        self._watch, self._end = builtin("watch"), builtin("end_watching")
        self._handles = []
        self.wrapper = self._optimizer.profile_hook_step(lambda: None).__code__

        def found(wrapper, _):
            try:
                self._found(wrapper)
            except Exception as error:
                if not fault(error):
                    raise

        def other(optimizer, answer):
            try:
                other_step(optimizer, answer)
            except Exception as error:
                if not fault(error):
                    raise

        evaluate = torch._C._dynamo.eval_frame.set_eval_frame
        if builtin("begin_watching")(functools.update_wrapper, self.wrapper, found, other, evaluate):
            self._hook()
        self.search()

    def remove(self):
        """Ends it, and leaves everything as it was."""
        self._end()
        for handle in self._handles:
            handle.remove()

    def search(self):
        """Watches the classes that PyTorch has wrapped already, or that it wraps in an unknown way."""
        kinds, known = [self._optimizer], set()
        while kinds and not self._handles:
            kind = kinds.pop()
            if id(kind) in known:
                continue
            known.add(id(kind))
            kinds += type.__subclasses__(kind)
            step = next(namespaces(kind)).get("step")
            for _ in range(_LAYERS):
                if type(step) is not type(hooks):
                    break
                if step.__code__ is self.wrapper:
                    self._found(step)
                    break
                step = step.__dict__.get("__wrapped__")

    def _found(self, wrapper):
        step = wrapper.__closure__[self.wrapper.co_freevars.index("func")].cell_contents
        if not self._handles and self._watch(step):
            self._end()
            self._hook()

    def _hook(self):
        def true_depth():
            depth, frame = 0, sys._getframe(2)
            while frame is not None:
                depth += frame.f_code is self.wrapper
                frame = frame.f_back
            return depth

        pre, post = hooks(true_depth, self._end_step, self._other_step, self._fault)
        # Dynamo must call these as they are: it must not compile them.
        pre._torchdynamo_disable = post._torchdynamo_disable = True
        torch = self._module
        self._handles = [
            torch.register_optimizer_step_pre_hook(pre),
            torch.register_optimizer_step_post_hook(post),
        ]
