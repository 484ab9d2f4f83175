# Writes a snapshot of each kind into the working directory, and prints their names.
import ctypes
import glob
import os
import pathlib

import torch

MIB = 1 << 20
names = []


def dump(name):
    torch.cuda.memory._dump_snapshot(name)
    names.append(name)


def tensor(mib, device=0):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device=device)


def churn(keep):
    for length in range(1, 40):
        big, small = tensor(length % 7 + 0.3), tensor(0.001 * length)
        if length % 5 == 0:
            keep.append(big)
        del big, small


keep = []
churn(keep)
dump("off.pickle")

torch.cuda.memory._record_memory_history(enabled="state")
keep.append(tensor(3))
dump("state.pickle")

torch.cuda.memory._record_memory_history(enabled="all", context=None)
churn(keep)
dump("no_stacks.pickle")

torch.cuda.memory._record_memory_history(enabled="all", context="all")
churn(keep)
other = torch.cuda.Stream()
with torch.cuda.stream(other):
    lent = tensor(12)
    lent.record_stream(torch.cuda.default_stream())
    keep.append(tensor(5))
del lent, keep[::3]
keep.append(tensor(2, device=1))
torch.cuda.empty_cache()
try:
    tensor(1 << 16)
except torch.OutOfMemoryError:
    pass
with torch.profiler.record_function("step 7"):
    keep.append(tensor(1))
dump("all.pickle")

graph = torch.cuda.CUDAGraph()
static = tensor(1)
with torch.cuda.graph(graph):
    inside = static + 1
dump("graph.pickle")

# The C++ pickler, by its name in the library.
library = glob.glob(os.path.join(torch.__path__[0], "lib", "libtorch_cuda.so"))[0]
write = getattr(ctypes.CDLL(library), "_ZN5torch4cuda24_memory_snapshot_pickledB5cxx11Ev", None)
if write:
    write.argtypes, write.restype = [ctypes.c_void_p], ctypes.c_void_p
    text = (ctypes.c_size_t * 4)()
    write(ctypes.addressof(text))
    pathlib.Path("native.pickle").write_bytes(ctypes.string_at(text[0], text[1]))
    names.append("native.pickle")

print(*names)
