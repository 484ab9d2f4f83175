"""Memory of the simulated device, for stand-ins of libraries that allocate on one: through the driver, as they do."""

import ctypes

driver = ctypes.CDLL("libcuda.so.1")


def check(result):
    assert result == 0, result


check(driver.cuInit(0))


class Device:
    """One device, its context, and what was taken on it."""

    def __init__(self, number):
        context = ctypes.c_void_p()
        check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number))
        self.context = context

    def take(self, size):
        held = ctypes.c_uint64()
        check(driver.cuCtxSetCurrent(self.context))
        check(driver.cuMemAlloc_v2(ctypes.byref(held), ctypes.c_size_t(size)))
        return held
