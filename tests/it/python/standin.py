"""The part of PyTorch that the search for holders reads, for Pythons without PyTorch."""

import ctypes
import types


class StorageBase:
    def __init__(self, size):
        self.bytes = ctypes.create_string_buffer(size)

    def data_ptr(self):
        return ctypes.addressof(self.bytes)

    def nbytes(self):
        return len(self.bytes)


class TensorBase:
    shape = property(lambda self: self.size)
    dtype = property(lambda self: "torch.float32")
    is_leaf = property(lambda self: True)
    requires_grad = property(lambda self: False)
    grad = grad_fn = property(lambda self: None)

    def untyped_storage(self):
        return self.storage


class Tensor(TensorBase):
    pass


def zeros(*size):
    it = Tensor()
    it.size, count = size, 4
    for side in size:
        count *= side
    it.storage = StorageBase(count)
    return it


class Guard:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


class Module:
    def __init__(self):
        self.__dict__.update(_parameters={}, _buffers={}, _modules={}, _forward_hooks={})

    def __setattr__(self, name, it):
        places = {Module: self._modules, Tensor: self._buffers}
        place = next((place for kind, place in places.items() if isinstance(it, kind)), self.__dict__)
        place[name] = it

    def __getattr__(self, name):
        return self._modules[name]

    def register_buffer(self, name, it):
        self._buffers[name] = it

    def register_forward_hook(self, hook):
        self._forward_hooks[len(self._forward_hooks)] = hook

    def forward(self, x):
        return x

    def __call__(self, x):
        y = self.forward(x)
        for hook in self._forward_hooks.values():
            hook(self, (x,), y)
        return y


class Linear(Module):
    def __init__(self, *_):
        super().__init__()


class Sequential(Module):
    def __init__(self, *modules):
        super().__init__()
        self._modules.update((str(at), it) for at, it in enumerate(modules))

    def forward(self, x):
        for it in self._modules.values():
            x = it(x)
        return x


_C = types.SimpleNamespace(TensorBase=TensorBase, StorageBase=StorageBase, DisableTorchFunction=Guard)
nn = types.SimpleNamespace(Module=Module, Linear=Linear, Sequential=Sequential)
