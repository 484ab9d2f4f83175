"""The job's lines that make parameters, buffers and optimizers: what these hold is theirs, wherever it is allocated;
and the paths of modules in their model."""

import functools
import gc
import math
import os
import sys
import weakref

from ._peak_window import common, forward_functions, within


class Makers:
    """Where modules got their parameters and buffers, and where optimizers were made."""

    def __init__(self, unknowns):
        self._unknowns = unknowns
        # {id of a tensor or an optimizer: (weak reference to it, (file, line, function))}
        self._lines = {}
        # The paths of what is made at lines, and forward functions with the paths of their modules (`_peak_window.py`):
        # of all modules so far.
        self._paths, self._functions = {}, {}

    def install(self):
        """Notes each registration from now on."""
        from torch.nn.modules import module

        for name in ("register_module_parameter_registration_hook", "register_module_buffer_registration_hook"):
            register = getattr(module, name, None)
            if register is not None:
                register(lambda module, name, tensor: self._made(tensor, sys._getframe(1)))
        optimizer = sys.modules["torch.optim.optimizer"].Optimizer
        begin = optimizer.__init__

        @functools.wraps(begin)
        def begins(optimizer, *arguments, **named):
            self._made(optimizer, sys._getframe(1))
            return begin(optimizer, *arguments, **named)

        optimizer.__init__ = begins

    def _made(self, it, frame):
        try:
            if it is not None and self.line(it) is None:
                line = self._unknowns.place(frame)
                if line is not None:
                    self._lines[id(it)] = weakref.ref(it), line
        except Exception:
            pass

    def line(self, it):
        """Returns the line that made a parameter, a buffer or an optimizer, as (file, line, function), or `None`."""
        reference, line = self._lines.get(id(it), (None, None))
        return line if reference is not None and reference() is it else None

    @property
    def paths(self):
        """What is made at lines, as `[file, line, path]`."""
        return [[*line, path] for line, path in self._paths.items()]

    @property
    def functions(self):
        """Forward functions, as `[file, first line, function, path]`."""
        return [[*function, path] for function, path in self._functions.items()]

    def look(self, torch):
        """Returns all modules, and finds the paths of what they have."""
        modules = [it for it in gc.get_objects() if issubclass(type(it), torch.nn.Module)]
        try:
            inner = {id(below) for it in modules for _, below in within(it, "_modules")}
            roots = [it for it in modules if id(it) not in inner]
            found = forward_functions(roots, os.path.dirname(torch.__file__) + os.sep, math.inf)
            self._functions.update((tuple(it[:3]), it[3]) for it in found)
            paths = {}
            for root in roots:
                for path, module in self._below(root):
                    for place in ("_parameters", "_buffers"):
                        for name, tensor in within(module, place):
                            line = self.line(tensor)
                            if line is not None:
                                own = path or name
                                paths[line[:2]] = common(paths.get(line[:2], own), own)
            self._paths.update(paths)
        except Exception:
            pass
        return modules

    def _below(self, root):
        """Yields a module and all that it has, with their paths; each once."""
        left, seen = [("", root)], set()
        while left:
            path, module = left.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield path, module
            left += [(path + "." + name if path else name, it) for name, it in within(module, "_modules")]
