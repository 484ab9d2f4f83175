"""gpuwatch's probe for JAX: to be copied beside a training script, together with gpuwatch_wire.py.

    import jax_probe

    jax_probe.start()
    for batch in batches:
        state = train_step(state, batch)
        jax_probe.step()

XLA's allocator says what it has given out (`bytes_in_use`) and what it holds (`pool_bytes`: with preallocation, nearly
all of the device at once). It does not say what was asked for, in how many blocks, or what waits for a stream: gpuwatch
shows that as unknown. The probe calls nothing of JAX before the first `step()` or `tick()`, because the
first call takes the devices; after that it also calls it between steps.
"""

import jax

from gpuwatch_wire import Probe

COUNTERS = {
    "allocated": "bytes_in_use",
    "allocated_peak": "peak_bytes_in_use",
    "reserved": "pool_bytes",
    "reserved_peak": "peak_pool_bytes",
}


def read():
    for device in jax.local_devices():
        if device.platform in ("gpu", "cuda"):
            stats = device.memory_stats() or {}
            yield device.local_hardware_id, {ours: stats.get(theirs) for ours, theirs in COUNTERS.items()}


def about():
    return {"rank": jax.process_index(), "world_size": jax.process_count()}


probe = Probe("jax", jax.__version__, read, about, ticks=True)
start, step, tick, stop = probe.start, probe.step, probe.tick, probe.stop
