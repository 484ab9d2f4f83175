"""Has PyTorch write down what its allocator holds and its latest events, as a pickle in memory."""

import ctypes
import os
import pickle

from ._captures import Resting

# `std::string torch::cuda::_memory_snapshot_pickled()`. Wheels of the old ABI of C++ have another name for it, and
# return another structure.
NAME = "_ZN5torch4cuda24_memory_snapshot_pickledB5cxx11Ev"


class _String(ctypes.Structure):
    """A `std::string` of the new ABI."""

    _fields_ = [("at", ctypes.c_void_p), ("length", ctypes.c_size_t), ("rest", ctypes.c_char * 16)]


def native(torch):
    """Returns what writes a snapshot without the GIL and hands its bytes to a function, whose result it returns.

    `None` where this PyTorch has no such function. With Python stacks in the history it must not be called.
    """
    path = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cuda.so")
    try:
        library = ctypes.CDLL(path)
        snapshot, delete = library[NAME], library._ZdlPv
    except (OSError, AttributeError):
        return None
    snapshot.restype, snapshot.argtypes = _String, ()
    delete.restype, delete.argtypes = None, (ctypes.c_void_p,)

    def take(use):
        string = snapshot()
        try:
            return use((ctypes.c_char * string.length).from_address(string.at))
        finally:
            # Shorter strings would lie within the structure, and no snapshot is as short.
            delete(string.at)

    return take


def in_python(torch):
    """Returns the same with the GIL held."""

    def take(use):
        with Resting():
            held = torch.cuda.memory._snapshot()
        return use(pickle.dumps(held, 4))

    return take
