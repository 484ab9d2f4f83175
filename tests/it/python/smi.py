"""As much of nvidia-smi as tests/gpu asks for, out of NVML: the simulated driver brings no such program."""

import ctypes
import sys


class Memory(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [(it, ctypes.c_ulonglong) for it in ("total", "reserved", "free", "used")]


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


def call(name, *arguments):
    code = getattr(lib, name)(*arguments)
    assert code == 0, (name, code)


def text(name, *arguments):
    held = ctypes.create_string_buffer(96)
    call(name, *arguments, held, 96)
    return held.value.decode()


lib = ctypes.CDLL("libnvidia-ml.so.1")
call("nvmlInit_v2")
count = ctypes.c_uint()
call("nvmlDeviceGetCount_v2", ctypes.byref(count))
for index in range(count.value):
    device = ctypes.c_void_p()
    call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device))
    if sys.argv[1].startswith("--query-gpu="):
        memory = Memory(ctypes.sizeof(Memory) | 2 << 24)
        call("nvmlDeviceGetMemoryInfo_v2", device, ctypes.byref(memory))
        sizes = [str(it >> 20) for it in (memory.total, memory.reserved, memory.used)]
        print(", ".join([text("nvmlDeviceGetUUID", device), *sizes, text("nvmlSystemGetDriverVersion")]))
    else:
        found, several = (Process * 64)(), ctypes.c_uint(64)
        call("nvmlDeviceGetComputeRunningProcesses_v3", device, ctypes.byref(several), found)
        for it in found[: several.value]:
            print("%d, %d" % (it.pid, it.used >> 20))
