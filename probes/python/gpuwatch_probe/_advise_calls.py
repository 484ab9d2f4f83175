"""The job's outermost calls of modules, and the time from such a call of training to its backward."""

import functools
import sys
import threading


class Calls:
    """Where techniques join the job's calls."""

    def __init__(self, torch, unknowns):
        self._torch = torch
        self._unknowns = unknowns
        self._local = threading.local()
        self._known = set()
        # Functions of a module that is called outermost for the first time in training.
        self._first = []
        # Functions that return a context for the time from a module's call to the backward, or `None`.
        self._contexts = []
        # Functions that may replace the arguments of an outermost call.
        self._arguments = []
        self._open = []
        self._is_open = False
        # Whether a backward runs, and how many there were.
        self.is_backward = False
        self.backwards = 0
        # The job's own lines: of the first outermost call in training, and of the backward after it.
        self.line = self.backward_line = None
        self.roots = []

    def on_first(self, function):
        """Calls a function with each module that training calls outermost, before its first call."""
        self._first.append(function)

    def during_forward(self, function):
        """Asks a function for a context at each outermost call of training; it lasts until the backward begins."""
        self._contexts.append(function)

    def on_arguments(self, function):
        """Lets a function replace (arguments, named) of outermost calls."""
        self._arguments.append(function)

    def install(self):
        torch, calls, local = self._torch, self, self._local
        original = torch.nn.Module.__call__

        @functools.wraps(original)
        def call(module, *arguments, **named):
            if getattr(local, "depth", 0):
                return original(module, *arguments, **named)
            arguments, named = calls._begin(module, arguments, named)
            local.depth = 1
            try:
                return original(module, *arguments, **named)
            finally:
                local.depth = 0

        torch.nn.Module.__call__ = call
        for name in ("backward", "grad"):
            setattr(torch.autograd, name, self._backward(getattr(torch.autograd, name)))

    def _begin(self, module, arguments, named):
        torch = self._torch
        if not torch.is_grad_enabled() or not module.training or self.is_backward:
            return arguments, named
        if id(module) not in self._known:
            if not any(it.requires_grad for it in module.parameters()):
                return arguments, named
            self._known.add(id(module))
            # It stays, so that no other module gets its number.
            self.roots.append(module)
            if self.line is None:
                self.line = self._unknowns.line(sys._getframe(2))
            for function in self._first:
                function(module)
        for function in self._arguments:
            arguments, named = function(arguments, named)
        if not self._is_open:
            self._is_open = True
            for function in self._contexts:
                context = function()
                if context is not None:
                    context.__enter__()
                    self._open.append(context)
        return arguments, named

    def close(self):
        """Ends the time that began with the outermost call."""
        self._is_open = False
        while self._open:
            self._open.pop().__exit__(None, None, None)

    def _backward(self, function):
        @functools.wraps(function)
        def backward(*arguments, **named):
            self.close()
            if self.backward_line is None and self.line is not None:
                self.backward_line = self._unknowns.line(sys._getframe(1))
            self.is_backward = True
            self.backwards += 1
            try:
                return function(*arguments, **named)
            finally:
                self.is_backward = False

        return backward

    def forward_lines(self):
        """Returns the lines from the module's call to the one before the backward, as `train.py:41-43`."""
        if self.line is None or self.backward_line is None:
            return self.line
        (file, first), (other, last) = (it.rsplit(":", 1) for it in (self.line, self.backward_line))
        if file != other or int(last) - 1 <= int(first):
            return self.line
        return "%s-%d" % (self.line, int(last) - 1)
