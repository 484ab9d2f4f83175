"""The job's lines that make parameters and buffers: memory that belongs to these is theirs, wherever it is allocated."""

import weakref


class Makers:
    """Where modules got their parameters and buffers."""

    def __init__(self, unknowns):
        self._unknowns = unknowns
        # {id of a tensor: (weak reference to it, file, line, function)}
        self._lines = {}
        # {device: {address: (file, line, function)}}
        self.addresses = {}

    def install(self):
        """Notes each registration from now on."""
        from torch.nn.modules import module

        for name in ("register_module_parameter_registration_hook", "register_module_buffer_registration_hook"):
            register = getattr(module, name, None)
            if register is not None:
                register(self._registered)

    def _registered(self, module, name, tensor):
        try:
            import sys

            if tensor is not None and id(tensor) not in self._lines:
                line = self._unknowns.place(sys._getframe(1))
                if line is not None:
                    self._lines[id(tensor)] = weakref.ref(tensor), line
        except Exception:
            pass

    def line(self, tensor):
        """Returns the line that made a parameter, as (file, line, function); `None` where that is unknown."""
        reference, line = self._lines.get(id(tensor), (None, None))
        return line if reference is not None and reference() is tensor else None

    def note(self, tensor, line):
        """Notes a line for the memory of a tensor."""
        if line is not None and tensor.is_cuda:
            self.addresses.setdefault(tensor.device.index, {})[tensor.untyped_storage().data_ptr()] = line
