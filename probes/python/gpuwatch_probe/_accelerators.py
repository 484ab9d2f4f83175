"""What a job's PyTorch allocates on: CUDA's devices, ROCm's under the same names, Intel's (XPU), or those of another
accelerator.

Each class tells when its devices are initialised, which there are, and what their allocator counts. Nothing here
initialises a device or imports a module.
"""

import os


def found(torch):
    """Returns the accelerator that this PyTorch was built for; `None` for one without."""
    inner = getattr(torch, "_C", None)
    for name, kind in (("_cuda_memoryStats", Cuda), ("_xpu_memoryStats", Xpu)):
        if hasattr(inner, name):
            return kind(torch)
    if hasattr(inner, "_accelerator_getDeviceStats"):
        # A backend that is a package of its own; PyTorch imports it at the end of its own import.
        device = torch.accelerator.current_accelerator()
        if device is not None and hasattr(getattr(torch, device.type, None), "device_count"):
            return Other(torch, device.type)
    return None


class _Lazy:
    """What PyTorch's own modules of devices have alike: they are initialised at their first use."""

    # Whether nothing tells when it is initialised, so that the probe has to ask.
    is_polled = False

    def __init__(self, torch, kind):
        self._torch, self._inner, self.kind = torch, torch._C, kind
        self._module = getattr(torch, kind)
        # Returns the free and total bytes of a device.
        self._memory = None

    def is_initialized(self):
        """Returns whether the job has initialised it."""
        return self._module.is_initialized()

    def when_initialized(self, call):
        """Calls a function at its initialisation."""
        self._module._lazy_call(call)

    def is_in_bad_fork(self):
        """Returns whether this process was forked from one that had initialised it."""
        return self._module._is_in_bad_fork()

    def in_use(self, device):
        """Returns whether the process has reserved memory of a device."""
        return self.stats(device)["reserved_bytes"]["all"]["peak"] > 0

    def reports_errors_by(self, _backend):
        """Returns what tells of an error for lack of memory: `observer`, which the allocator calls, or the `message` of
        the error; `None` if nothing does."""
        return "message"

    @property
    def host_stats(self):
        """The counters of pinned memory; `None` without them."""
        return None

    @property
    def error(self):
        """The class of errors for lack of memory."""
        return self._torch.OutOfMemoryError

    def memory(self, device):
        """Returns the free and total bytes of a device, where the library does not know them."""
        try:
            return (None, None) if self._memory is None else self._memory(device)
        except RuntimeError:
            # This device does not tell, or not to this user.
            self._memory = None
            return None, None


class Cuda(_Lazy):
    """CUDA and ROCm. The library asks the driver's own library for the names of devices and for what is free."""

    def __init__(self, torch):
        super().__init__(torch, "cuda")

    def backend(self):
        """Returns the allocator's name."""
        return self._module.get_allocator_backend()

    @property
    def stats(self):
        """The function that returns a device's counters."""
        return self._inner._cuda_memoryStats

    @property
    def host_stats(self):
        return getattr(self._inner, "_cuda_hostMemoryStats", None)

    @property
    def error(self):
        return self._module.OutOfMemoryError

    def count(self):
        """Returns the number of devices."""
        return self._inner._cuda_getDeviceCount()

    def in_use(self, device):
        return self._inner._cuda_hasPrimaryContext(device)

    def described(self, _device):
        """Returns a device's name for drivers, its product name and its bytes, where the library does not know them."""
        return None, None, 0

    def reports_errors_by(self, backend):
        return {"native": "observer", "cudaMallocAsync": "message"}.get(backend)

    def observe(self, call):
        """Lets the allocator call a function before it raises an error."""
        self._inner._cuda_attach_out_of_memory_observer(call)


class Xpu(_Lazy):
    """Intel's devices."""

    def __init__(self, torch):
        super().__init__(torch, "xpu")
        self._memory = getattr(self._inner, "_xpu_getMemoryInfo", None)

    def backend(self):
        return self.kind

    @property
    def stats(self):
        return self._inner._xpu_memoryStats

    def count(self):
        return self._inner._xpu_getDeviceCount()

    def described(self, device):
        properties = self._module.get_device_properties(device)
        address = _address(getattr(properties, "uuid", None))
        if address is None and self.count() == 1:
            address = _only_address()
        return address and "PCI-" + address, properties.name, properties.total_memory


class Other(_Lazy):
    """An accelerator of which only `torch.accelerator` is known. Its allocator need not keep every counter, and fills
    the others with zeros."""

    def __init__(self, torch, kind):
        super().__init__(torch, kind)
        self.is_polled = not hasattr(self._module, "_lazy_call")
        self._memory = getattr(self._inner, "_accelerator_getMemoryInfo", None)

    def is_initialized(self):
        return self._inner._accelerator_isAllocatorInitialized()

    def is_in_bad_fork(self):
        return getattr(self._module, "_is_in_bad_fork", bool)()

    def backend(self):
        return self.kind

    @property
    def stats(self):
        return self._inner._accelerator_getDeviceStats

    def count(self):
        return self._module.device_count()

    def described(self, device):
        named = getattr(self._module, "get_device_name", None)
        return None, named and named(device), 0


def _address(uuid):
    """Returns the place on the bus that an Intel device's UUID has: maker, kind, revision and domain with two bytes each,
    then bus, device and function; `None` for one that is made otherwise."""
    try:
        made = bytes.fromhex(str(uuid).replace("-", ""))
    except ValueError:
        return None
    if len(made) != 16 or made[:2] != b"\x86\x80":
        return None
    return "%04x:%02x:%02x.%x" % (int.from_bytes(made[6:8], "little"), *made[8:11])


def _only_address(process="/proc/self"):
    """Returns the place on the bus of the one device of graphics that a process has open; `None` for several."""
    found = set()
    for number in os.listdir(process + "/fd"):
        try:
            if os.readlink(process + "/fd/" + number).startswith("/dev/dri/"):
                with open(process + "/fdinfo/" + number) as file:
                    found.update(line.split()[1] for line in file if line.startswith("drm-pdev:"))
        except (OSError, IndexError):
            continue
    return found.pop() if len(found) == 1 else None
