"""gpuwatch's probe for JAX: to be copied beside a training script, together with gpuwatch_wire.py.

    import jax_probe

    jax_probe.start()
    for batch in batches:
        state = train_step(state, batch)
        jax_probe.step()

XLA's allocator reports the bytes that it has handed out (`bytes_in_use`) and those it holds (`pool_bytes`: with
preallocation, nearly all of the device at once). It reports no requested bytes, no number of blocks, and nothing about
memory that waits for a stream: gpuwatch shows these as unknown. The probe does not call JAX before the first `step()`
or `tick()`, because the first call takes the devices; after that it also reads between steps.
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
