"""NVML by ctypes, as much of it as the tests ask: the processes and the memory of device 0."""

import ctypes

lib = ctypes.CDLL("libnvidia-ml.so.1")


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


class Memory(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [
        (name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")
    ]


assert lib.nvmlInit_v2() == 0
device = ctypes.c_void_p()
assert lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0


def processes():
    """Status, {pid: bytes}."""
    count, list_ = ctypes.c_uint(64), (Process * 64)()
    status = lib.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), list_)
    return status, {it.pid: it.used for it in list_[: count.value]} if status == 0 else {}


def memory():
    """Status, the second version's figures."""
    it = Memory(version=2 << 24 | ctypes.sizeof(Memory))
    return lib.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(it)), it
