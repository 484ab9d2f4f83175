"""One of two devices is visible; the driver's own API reports the same for it as torch and NVML, without a context."""

import ctypes
import os
import re
from importlib.metadata import requires

import torch

import nvml

loaded = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_LAZY)
assert loaded.cuInit(0) == 0


def one(name, kind, *arguments):
    out = kind()
    assert getattr(loaded, name)(ctypes.byref(out), *arguments) == 0, name
    return out


assert torch.cuda.device_count() == 1
assert one("cuDeviceGetCount", ctypes.c_int).value == 1
uuid = bytes(one("cuDeviceGetUuid_v2", ctypes.c_ubyte * 16, 0)).hex()
total = one("cuDeviceTotalMem_v2", ctypes.c_size_t, 0).value
name = ctypes.create_string_buffer(64)
assert loaded.cuDeviceGetName(name, 64, 0) == 0 and name.value == b"NVIDIA A100"
assert one("cuCtxGetCurrent", ctypes.c_void_p).value is None, "nothing of this made a context"
free = ctypes.c_size_t()
assert loaded.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(ctypes.c_size_t())) == 201
assert not torch.cuda.is_initialized()

x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
context = one("cuCtxGetCurrent", ctypes.c_void_p).value
assert context is not None and one("cuCtxGetDevice", ctypes.c_int).value == 0
assert loaded.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(ctypes.c_size_t())) == 0
assert free.value == torch.cuda.mem_get_info()[0] == total - torch.cuda.memory_reserved() - (512 << 20)
base, size = ctypes.c_void_p(), ctypes.c_size_t()
assert loaded.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_void_p(x.data_ptr() + 5)) == 0
assert (base.value, size.value) == (x.data_ptr(), 1 << 30)

properties = torch.cuda.get_device_properties(0)
assert properties.total_memory == total and (properties.major, properties.minor) == (8, 0)
assert str(properties.uuid).replace("-", "") == uuid
assert nvml.processes() == (0, {}), "device 0 is not ours"
device = ctypes.c_void_p()
assert nvml.lib.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}".encode(), ctypes.byref(device)) == 0
nvml.device = device
assert nvml.processes() == (0, {os.getpid(): torch.cuda.memory_reserved() + (512 << 20)})
text = ctypes.create_string_buffer(96)
assert nvml.lib.nvmlDeviceGetName(device, text, 96) == 0 and text.value == b"NVIDIA A100"
assert nvml.lib.nvmlDeviceGetName(device, text, 4) == 7, "insufficient size"
assert nvml.lib.nvmlDeviceGetSerial(device, text, 96) == 3, "not supported"


def wanted(package):
    """The version of a library that the wheel was built with."""
    line = next(it for it in requires("torch") if it.startswith(package))
    return tuple(map(int, re.search(r"==(\d+)\.(\d+)\.(\d+)", line).groups()))


assert torch.cuda.nccl.version() == wanted("nvidia-nccl-")
major, minor, patch = wanted("nvidia-cudnn-")
assert torch.backends.cudnn.version() == major * 10000 + minor * 100 + patch
torch.cuda.synchronize()
print("ok")
