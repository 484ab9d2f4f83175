"""The allocator's record of who allocates: when a job can be asked, and how it is switched on and off again."""

import inspect
import os
import sys

from ._captures import is_recorded, segments


def refusal(torch, backend):
    """Returns why a job's sites cannot be captured, or `None`."""
    if "nosites" in os.environ.get("GPUWATCH", "").split(","):
        return "GPUWATCH=nosites forbids it in this job"
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return "this Python runs without its global lock: objects would change while they are looked into"
    if backend != "native":
        return "the allocator %s records no stacks" % backend
    if "stacks" not in parameters(torch):
        return "PyTorch %s records no stacks that can be switched on in a running job: 2.1 does" % torch.__version__
    return None


def parameters(torch):
    """Returns the parameters of the function that switches the history; the public one passes its own on."""
    function = getattr(torch.cuda.memory, "_record_memory_history_impl", None)
    if function is None:
        return ()
    code = inspect.unwrap(function).__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


# The functions that switch the history: one for each of the two signatures of `_record_memory_history`.
SWITCHES = ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy")


class History:
    """The allocator's history of allocations: switched on and off again, unless it is the job's own."""

    def __init__(self, torch):
        self._torch = torch
        # PyTorch's functions by name, and their replacements.
        self._watched = {}
        self.is_ours = False
        # Whether the job itself switched it meanwhile.
        self.was_taken = False

    def begin(self):
        """Switches it on; returns false if that would show nothing. Leaves a history of the job's own as it is."""
        torch = self._torch
        # End a history that a signal handler of the job left on when it interrupted the probe.
        self.end()
        self.was_taken = False
        if is_recorded(torch):
            return segments(torch) is not None
        more = {}
        if "global_record_annotations" in parameters(torch):
            # Otherwise only the thread that switched it on could switch it off without a warning of PyTorch's.
            more["global_record_annotations"] = True
        switch_on = torch.cuda.memory._record_memory_history
        # Set this first: a signal handler of the job's may raise in between.
        self.is_ours = True
        switch_on(enabled="state", context="state", stacks="python", max_entries=1, **more)
        # If the job switches it meanwhile, it is the job's from then on.
        for name in SWITCHES:
            real = getattr(torch._C, name, None)
            if real is not None:
                self._watched[name] = real, self._watching(real)
                setattr(torch._C, name, self._watched[name][1])
        return True

    def _watching(self, real):
        def switch(*arguments, **named):
            self.was_taken, self.is_ours = True, False
            return real(*arguments, **named)

        return switch

    def end(self):
        """Switches off what was switched on here."""
        torch = self._torch
        while self._watched:
            name, (real, watching) = self._watched.popitem()
            if getattr(torch._C, name) is watching:
                setattr(torch._C, name, real)
        if self.is_ours:
            torch.cuda.memory._record_memory_history(enabled=None)
            self.is_ours = False
