"""Spares the tests' PyTorch the import of `torch._dynamo`, which takes longer than that of `torch`.

Every optimizer imports it only to tell the compiler to leave it alone. Where nothing else has imported the compiler, there is
nothing to tell. The two functions below replace PyTorch's own, in its files, so that stacks have the same files and functions.
In the full tier, and in a PyTorch without these functions, everything stays as it is.
"""

import importlib.machinery
import os
import sys

# The compiler loads it too, and a test of attaching expects that no module is loaded besides the job's.
import sysconfig  # noqa: F401

REPLACED = {
    "torch._compile": """
def _disable_dynamo(fn=None, recursive=True, whole=_disable_dynamo):
    if fn is None:
        return functools.partial(_disable_dynamo, recursive=recursive)
    disabled = whole(fn, recursive)

    @functools.wraps(fn)
    def inner(*args, **kwargs):
        return (disabled if "torch._dynamo" in sys.modules else fn)(*args, **kwargs)

    return inner
""",
    "torch.optim.optimizer": """
def _use_grad_for_differentiable(func, whole=_use_grad_for_differentiable):
    breaks = whole(func)

    def _use_grad(*args, **kwargs):
        if "torch._dynamo" in sys.modules:
            return breaks(*args, **kwargs)
        before = torch.is_grad_enabled()
        try:
            torch.set_grad_enabled(args[0].defaults["differentiable"])
            return func(*args, **kwargs)
        finally:
            torch.set_grad_enabled(before)

    functools.update_wrapper(_use_grad, func)
    return _use_grad
""",
}


class Finder:
    """Finds the two modules as Python does, and replaces a function of each once it is loaded."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in REPLACED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            source = REPLACED[name]
            if source.split("whole=")[1].split(")")[0] in vars(module):
                vars(module).setdefault("sys", sys)
                exec(compile(source, module.__file__, "exec"), vars(module))

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("GPUWATCH_TESTS") != "full":
    sys.meta_path.insert(0, Finder)
