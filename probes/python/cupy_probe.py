"""gpuwatch's probe for CuPy: to be copied beside a script, together with gpuwatch_wire.py.

    import cupy_probe

    cupy_probe.start()
    for batch in batches:
        ...
        cupy_probe.step()

The memory pool reports the bytes that arrays use (`used_bytes()`) and those it holds (`total_bytes()`), on the current
device. It has no peaks, no requested bytes, no number of blocks, and nothing about memory that waits for a stream:
gpuwatch shows these as unknown. The probe reads the pool in the job's thread only, because making a device current in
another thread could create a context.
"""

import cupy

from gpuwatch_wire import Probe


def read():
    pool, device = cupy.get_default_memory_pool(), cupy.cuda.runtime.getDevice()
    yield device, {"allocated": pool.used_bytes(), "reserved": pool.total_bytes()}


probe = Probe("cupy", cupy.__version__, read)
start, step, tick, stop = probe.start, probe.step, probe.tick, probe.stop
