"""Stream-ordered allocation: torch's three figures are the pool's, and the pool releases memory when it is trimmed."""

import ctypes
import os

import torch

import nvml

MIB = 1 << 20
CONTEXT = 512 * MIB
THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH = 4, 5, 6, 7, 8

assert torch.cuda.get_allocator_backend() == "cudaMallocAsync"
torch.empty(1, device="cuda")
runtime = ctypes.CDLL("libcudart.so." + torch.version.cuda.split(".")[0])
pool, word = ctypes.c_void_p(), ctypes.c_uint64
assert runtime.cudaDeviceGetDefaultMemPool(ctypes.byref(pool), 0) == 0


def charged():
    return nvml.processes()[1][os.getpid()] - CONTEXT


def figure(attribute):
    value = word()
    assert runtime.cudaMemPoolGetAttribute(pool, attribute, ctypes.byref(value)) == 0
    return value.value


def stated(name, moment="current"):
    return torch.cuda.memory_stats()[f"{name}_bytes.all.{moment}"]


assert figure(THRESHOLD) == 2**64 - 1, "torch keeps what it has"
x = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
assert stated("allocated") == stated("active") == figure(USED) == 100 * MIB
assert stated("reserved") == figure(RESERVED) == charged() >= 100 * MIB
x = None
torch.cuda.synchronize()
assert figure(USED) == stated("allocated") == 0
assert stated("reserved") == charged() >= 100 * MIB, "freed, and kept"
assert stated("allocated", "peak") == figure(USED_HIGH) == 100 * MIB
torch.cuda.reset_peak_memory_stats()
assert stated("allocated", "peak") == 0 and stated("reserved", "peak") == figure(RESERVED_HIGH) == charged()
assert runtime.cudaMemPoolSetAttribute(pool, USED_HIGH, ctypes.byref(word(5))) == 1, "only to zero"
torch.cuda.empty_cache()
assert stated("reserved") == charged() == 0

# With a threshold of its own, the pool gives back at the next synchronisation, and not before.
assert runtime.cudaMemPoolSetAttribute(pool, THRESHOLD, ctypes.byref(word(0))) == 0
at = ctypes.c_void_p()
for free in (lambda: runtime.cudaFreeAsync(at, None), lambda: runtime.cudaFree(at)):
    assert runtime.cudaMallocAsync(ctypes.byref(at), ctypes.c_size_t(64 * MIB), None) == 0
    assert figure(USED) == figure(RESERVED) == charged() == 64 * MIB
    assert free() == 0
    assert figure(USED) == 0 and figure(RESERVED) == charged() == 64 * MIB
    assert runtime.cudaStreamSynchronize(None) == 0
    assert figure(RESERVED) == charged() == 0
    assert free() == 1, "freed twice"

# The refusals above are the thread's last error, which torch would take for its own.
assert runtime.cudaGetLastError() == 1

# A full device raises this backend's own message, and the process continues.
try:
    torch.empty(64 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    assert "Allocation on device" in str(error), error
else:
    raise AssertionError("it was larger than the device")
model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.Adam(model.parameters())
seen = set()
for step in range(8):
    model(torch.randn(64, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    seen |= {torch.cuda.memory_allocated()} if step > 1 else set()
    assert torch.cuda.memory_reserved() == charged()
assert len(seen) == 1, seen
print("ok")
