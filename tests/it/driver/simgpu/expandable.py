"""Expandable segments: addresses cost nothing, mapped memory is what NVML sees, and freed pages go back."""

import ctypes
import os

import torch

import nvml

MIB = 1 << 20
CONTEXT = 512 * MIB


def charged():
    return nvml.processes()[1][os.getpid()] - CONTEXT


# A block that grows where it stands: the native backend would need a second segment for each size.
for size in range(20, 400, 20):
    x = torch.empty(size * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_reserved() == charged() == size * MIB, (size, charged())
    del x
stats = torch.cuda.memory_stats()
assert stats["segment.all.current"] == 0 and stats["inactive_split_bytes.all.current"] == 0, "not counted, by design"
assert stats["num_device_alloc"] == 19
(segment,) = torch.cuda.memory_snapshot()
assert segment["is_expandable"] and segment["total_size"] == 380 * MIB

# Pages in the middle go back although pages on both sides are held.
held = [torch.empty(20 * MIB, dtype=torch.uint8, device="cuda") for _ in range(5)]
del held[1:4]
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == charged() == 40 * MIB, charged()
del held
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == charged() == 0

# The driver refuses pieces of pieces, pages that are taken, and addresses that are still in use.
cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_LAZY)
size, number, word = ctypes.c_size_t, ctypes.c_ulonglong, ctypes.c_uint64
at, handle = word(), word()
pinned_on_device_0 = (ctypes.c_int * 8)(1, 0, 1, 0)
assert cuda.cuMemAddressReserve(ctypes.byref(at), size(8 * MIB), size(0), word(0), number(0)) == 0
assert charged() == 0
assert cuda.cuMemCreate(ctypes.byref(handle), size(2 * MIB), pinned_on_device_0, number(0)) == 0
assert charged() == 2 * MIB
assert cuda.cuMemMap(at, size(4 * MIB), size(0), handle, number(0)) == 1, "larger than the piece"
assert cuda.cuMemMap(word(at.value + 7 * MIB), size(2 * MIB), size(0), handle, number(0)) == 1, "beyond the addresses"
assert cuda.cuMemMap(at, size(2 * MIB), size(0), handle, number(0)) == 0
assert cuda.cuMemMap(at, size(2 * MIB), size(0), handle, number(0)) == 1, "taken"
assert cuda.cuMemSetAccess(at, size(4 * MIB), None, size(0)) == 1, "not all of it is mapped"
assert cuda.cuMemAddressFree(at, size(8 * MIB)) == 1, "still in use"
assert cuda.cuMemRelease(handle) == 0 and charged() == 2 * MIB, "the mapping holds it"
assert cuda.cuMemUnmap(at, size(2 * MIB)) == 0 and charged() == 0
assert cuda.cuMemUnmap(at, size(2 * MIB)) == 1, "nothing is mapped"
assert cuda.cuMemAddressFree(at, size(4 * MIB)) == 1, "not what was reserved"
assert cuda.cuMemAddressFree(at, size(8 * MIB)) == 0
torch.cuda.synchronize()
print("ok")
