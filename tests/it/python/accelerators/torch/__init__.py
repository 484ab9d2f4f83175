"""A stand-in for PyTorch on devices that no test has: ROCm's, Intel's, and those of a backend of its own.

`STANDIN` is `cuda`, `xpu` or `npu`, and `STANDIN_DEVICES` lists the bytes of the devices. Their allocators count as
PyTorch's do. Whatever touches a device before the job itself has is in `touched`.
"""

import ctypes
import os
import sys
import types

kind = os.environ["STANDIN"]
touched, initialized, queued = [], [], []
__version__ = "2.9.0+" + kind
version = types.SimpleNamespace(cuda=None, hip="6.4" if kind == "cuda" else None, xpu=None)


class OutOfMemoryError(RuntimeError):
    pass


class Device:
    """An allocator's device: what is reserved grows by whole segments and is never given back."""

    def __init__(self, number, capacity):
        self.number, self.capacity = number, capacity
        self.figures = dict.fromkeys(("requested", "allocated", "reserved", "blocks"), 0)
        self.peaks = dict(self.figures)
        self.live = {}

    def change(self, **more):
        for name, value in more.items():
            self.figures[name] += value
            self.peaks[name] = max(self.peaks[name], self.figures[name])

    def allocate(self, size, block):
        rounded = -(-size // 512) * 512
        grows = max(0, self.figures["allocated"] + rounded - self.figures["reserved"])
        grows = -(-grows // (2 << 20)) * (2 << 20)
        free = self.capacity - self.figures["reserved"]
        if grows > free:
            for call in observers:
                call(self.number, rounded, self.capacity, free)
            words = {"cuda": "HIP", "xpu": "XPU", "npu": "NPU"}[kind]
            raise OutOfMemoryError(
                "%s out of memory. Tried to allocate %.2f GiB. GPU %d has a total capacity of %.2f GiB of which %.2f GiB "
                "is free. Of the allocated memory" % (words, rounded / 2**30, self.number, self.capacity / 2**30, free / 2**30)
            )
        self.change(requested=size, allocated=rounded, reserved=grows, blocks=1)
        self.live[block] = size, rounded

    def release(self, block):
        size, rounded = self.live.pop(block)
        self.change(requested=-size, allocated=-rounded, blocks=-1)

    def stats(self):
        def gauge(name):
            return {"all": {"current": self.figures[name], "peak": self.peaks[name], "allocated": 0, "freed": 0}}

        found = {it + "_bytes": gauge(it) for it in ("requested", "allocated", "reserved")}
        found["active_bytes"] = gauge("allocated")
        if kind != "xpu":
            nothing = {"all": dict.fromkeys(("current", "peak", "allocated", "freed"), 0)}
            is_whole = kind == "cuda"
            found["allocation"] = gauge("blocks") if is_whole else nothing
            found.update(segment=nothing, inactive_split=nothing, inactive_split_bytes=nothing)
            found.update(num_alloc_retries=0, num_ooms=0, num_device_alloc=0, num_device_free=0)
            if not is_whole:
                found["requested_bytes"] = nothing
        return found


devices = [Device(at, int(it)) for at, it in enumerate(os.environ["STANDIN_DEVICES"].split(","))]
observers = []


def _touch(what):
    if not initialized:
        touched.append(what)


def _stats(number):
    _touch("counters")
    return devices[number].stats()


def _memory(number):
    _touch("free memory")
    if os.environ.get("STANDIN_NO_FREE"):
        raise RuntimeError("The device doesn't support querying the available free memory.")
    it = devices[number]
    return it.capacity - it.figures["reserved"] - (512 << 20), it.capacity


def _properties(number):
    _touch("properties")
    names = os.environ.get("STANDIN_UUIDS", "").split(",")
    uuid = {"uuid": names[number]} if len(names) == len(devices) else {}
    return types.SimpleNamespace(name="Intel(R) Arc(TM) B580", total_memory=devices[number].capacity, **uuid)


def _lazy_init():
    """The first use of a device, by the job."""
    if not initialized:
        library = os.environ.get("STANDIN_LIBRARY")
        if library:
            ctypes.CDLL(library)
        initialized.append(True)
        for call in queued:
            call()


class StorageBase:
    def __init__(self, size, device):
        _lazy_init()
        self._device, self._size = devices[device], size
        self._device.allocate(size, id(self))

    def __del__(self):
        if id(self) in self._device.live:
            self._device.release(id(self))

    def nbytes(self):
        return self._size

    def data_ptr(self):
        return id(self)

    _cdata = property(id)


class TensorBase:
    grad = property(lambda self: self.__dict__.get("its_grad"), lambda self, it: self.__dict__.update(its_grad=it))
    nbytes = property(lambda self: self.storage.nbytes())
    is_sparse = property(lambda self: False)

    def __init__(self, size, number):
        self.storage, self.number = StorageBase(size, number), number
        self.device = types.SimpleNamespace(type=kind, index=number)

    def get_device(self):
        return self.number

    def untyped_storage(self):
        return self.storage

    def _indices(self):
        raise AssertionError("it is not sparse")

    _values = _indices


class Tensor(TensorBase):
    def __hash__(self):
        return id(self)


class Parameter(Tensor):
    pass


class Module:
    pass


def is_grad_enabled():
    return True


nn = types.SimpleNamespace(Module=Module, Parameter=Parameter)
_C = types.SimpleNamespace(TensorBase=TensorBase, StorageBase=StorageBase)
_C._dynamo = types.SimpleNamespace(eval_frame=types.SimpleNamespace(set_eval_frame=lambda _: None))
module = types.ModuleType("torch." + kind)
module.device_count = lambda: len(devices)
if kind == "npu":
    _C._accelerator_getDeviceStats, _C._accelerator_getMemoryInfo = _stats, _memory
    _C._accelerator_isAllocatorInitialized = lambda: bool(initialized)
    module.get_device_name = lambda number: _touch("name") or "Accelerator %d" % number
    accelerator = types.SimpleNamespace(current_accelerator=lambda: types.SimpleNamespace(type=kind))
else:
    module.is_initialized = lambda: bool(initialized)
    module._is_in_bad_fork = bool
    module._lazy_call = queued.append
if kind == "xpu":
    _C._xpu_memoryStats, _C._xpu_getMemoryInfo = _stats, _memory
    _C._xpu_getDeviceCount = module.device_count
    module.get_device_properties = _properties
elif kind == "cuda":
    _C._cuda_memoryStats, _C._cuda_getDeviceCount = _stats, module.device_count
    _C._cuda_hasPrimaryContext = lambda number: devices[number].peaks["reserved"] > 0
    _C._cuda_attach_out_of_memory_observer = observers.append
    _C._cuda_isCurrentStreamCapturing = bool
    _C._cuda_memorySnapshot = lambda: {"segments": []}
    module.OutOfMemoryError = OutOfMemoryError
    module.get_allocator_backend = lambda: "native"
    module.memory_snapshot = lambda: None
    module.memory = types.SimpleNamespace()
setattr(sys.modules[__name__], kind, module)
