"""gpuwatch's probe for CuPy: to be copied beside a script, together with gpuwatch_wire.py.

    import cupy_probe

    cupy_probe.start()
    for batch in batches:
        ...
        cupy_probe.step()

The memory pool says what arrays use of it (`used_bytes()`) and what it holds (`total_bytes()`), of the current device.
It keeps no peaks and does not say what was asked for, in how many blocks, or what waits for a stream: gpuwatch shows
that as unknown. It is read in the job's thread alone, as to make a device current in another could create a context.
"""

import cupy

from gpuwatch_wire import Probe


def read():
    pool, device = cupy.get_default_memory_pool(), cupy.cuda.runtime.getDevice()
    yield device, {"allocated": pool.used_bytes(), "reserved": pool.total_bytes()}


probe = Probe("cupy", cupy.__version__, read)
start, step, tick, stop = probe.start, probe.step, probe.tick, probe.stop
