"""The job's lines that make parameters, buffers and optimizers: what these hold is theirs, wherever it is allocated."""

import functools
import sys
import weakref


class Makers:
    """Where modules got their parameters and buffers, and where optimizers were made."""

    def __init__(self, unknowns):
        self._unknowns = unknowns
        # {id of a tensor or an optimizer: (weak reference to it, (file, line, function))}
        self._lines = {}
        # {device: {address: (file, line, function)}}
        self.addresses = {}

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

    def note(self, tensor, line):
        """Notes a line for the memory of a tensor."""
        if line is not None and tensor.is_cuda:
            self.addresses.setdefault(tensor.device.index, {})[tensor.untyped_storage().data_ptr()] = line
