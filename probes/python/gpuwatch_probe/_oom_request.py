"""Describes an allocation that fails: the lines that asked for it, what the job was doing, and errors that it handles.

All of it is read from frames: nothing is imported, allocated on the device or kept.
"""

import os
import sys
import time

from ._frames import function_name, has_lock, is_own, running, values
from ._stacks import LIBRARY, MACHINERY, OWN

# The most frames to send, errors of one chain, frames of one traceback, and values of one container to read.
_FRAMES, _CHAIN, _TRACEBACK, _VALUES = 12, 8, 200, 64

# The fields of an error, whatever its class overrides.
_TRACE, _CAUSE, _CONTEXT = (BaseException.__dict__["__%s__" % it].__get__ for it in ("traceback", "cause", "context"))

# Seconds after which the search of a traceback's frames ends.
_SEARCH_S = 0.02


class Request:
    """The call stack of a failing allocation, innermost frame first, and the phase of the job.

    `stack` has the frames, and `frames` are `(file, line, function)` of each. If autograd's own thread asks, they are
    those of the thread that waits for it.
    `phase` is `backward`, `optimizer`, `placement` (a module is moved), `inference` (no gradients are recorded),
    `forward` (of a module or a function of networks), or `outside` of these.
    """

    def __init__(self, torch):
        home = os.path.dirname(torch.__file__)
        autograd, optim = (os.path.join(home, it, "") for it in ("autograd", "optim"))
        networks = os.path.join(home, "nn", "")
        module = os.path.join(networks, "modules", "module.py")
        own = frames_from(sys._getframe(1))
        waiting = [] if own else _waiting(autograd)
        self.stack = own + waiting
        self.frames = [(it.f_code.co_filename, it.f_lineno, function_name(it.f_code)) for it in self.stack]
        files = {it[0] for it in self.frames}
        if waiting or any(it.startswith(autograd) and not it.endswith("grad_mode.py") for it in files):
            self.phase = "backward"
        elif any(it.startswith(optim) for it in files):
            self.phase = "optimizer"
        elif any(it.f_code.co_name == "_apply" and it.f_code.co_filename == module for it in own):
            self.phase = "placement"
        elif not torch.is_grad_enabled():
            self.phase = "inference"
        else:
            self.phase = "forward" if any(it.startswith(networks) for it in files) else "outside"

    def lines(self, stacks):
        """Returns the frames from the innermost one of the user outwards, and the innermost frame of a library that it
        called; `None` without one."""
        stack = [it for it in self.frames if stacks.rank(it[0]) < MACHINERY] or self.frames
        best = min((stacks.rank(it[0]) for it in stack), default=OWN)
        first = next((at for at, it in enumerate(stack) if stacks.rank(it[0]) == best), 0)
        library = stack[0] if first and stacks.rank(stack[0][0]) == LIBRARY else None
        return stack[first : first + _FRAMES], library


def frames_from(frame):
    """Returns a frame and those that called it, without the probe's own."""
    found = []
    while frame is not None:
        if not is_own(frame):
            found.append(frame)
        frame = frame.f_back
    return found


def _waiting(autograd):
    """Returns the frames of the thread that waits for autograd's threads; empty if none or several do."""
    tops = [it for it in sys._current_frames().values() if it.f_code.co_filename.startswith(autograd)]
    return frames_from(tops[0]) if len(tops) == 1 else []


def keeps_tensors(torch, alive):
    """Returns whether an error that the job handles right now, or one of `alive`, which it keeps otherwise, keeps tensors:
    in the variables of calls that have ended, which its traceback keeps."""
    until = time.monotonic() + _SEARCH_S
    base = torch._C.TensorBase
    errors = _handled() + (alive if has_lock() else [])
    if not errors:
        return False
    alive = {id(it) for it in running()}
    for error in errors:
        trace, left = _TRACE(error), _TRACEBACK
        while trace is not None and left and time.monotonic() < until:
            left -= 1
            if id(trace.tb_frame) not in alive and any(_has_tensor(it, base) for _, it in values(trace.tb_frame)):
                return True
            trace = trace.tb_next
    return False


def _handled():
    """Returns the errors that are being handled, with those that they came from."""
    # Python 3.10 and 3.11 have triples.
    current = getattr(sys, "_current_exceptions", dict)() if has_lock() else {}
    found = [it[1] if type(it) is tuple else it for it in current.values()]
    found.append(sys.exc_info()[1])
    chain = []
    for error in found:
        while error is not None and len(chain) < _CHAIN and not any(it is error for it in chain):
            chain.append(error)
            cause = _CAUSE(error)
            error = _CONTEXT(error) if cause is None else cause
    return chain


def _has_tensor(it, base):
    kind = type(it)
    if issubclass(kind, base):
        return True
    if kind is dict:
        return any(issubclass(type(value), base) for value in list(it.values())[:_VALUES])
    return kind in (list, tuple) and any(issubclass(type(value), base) for value in it[:_VALUES])
