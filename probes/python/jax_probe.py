"""gpuwatch's probe for JAX: one file of plain Python, to be copied beside a training script.

    import jax_probe

    jax_probe.start()
    for batch in batches:
        state = train_step(state, batch)
        jax_probe.step()

XLA's allocator says what it has given out (`bytes_in_use`) and what it holds (`pool_bytes`: with preallocation, nearly
all of the device at once). It does not say what was asked for, in how many blocks, or what waits for a stream: gpuwatch
shows that as unknown. Nothing here waits for a device, or for a viewer; the lines are gpuwatch's wire, version 1.
"""

import atexit
import ctypes
import json
import os
import socket
import sys
import threading
import time
import uuid

import jax

COUNTERS = {
    "allocated": "bytes_in_use",
    "allocated_peak": "peak_bytes_in_use",
    "reserved": "pool_bytes",
    "reserved_peak": "peak_pool_bytes",
}

_viewers, _steps, _spoke = [], 0, 0.0


def start():
    """Starts the probe of this process, once; `GPUWATCH=off` forbids it."""
    listener = None if os.environ.get("GPUWATCH") == "off" else _listen()
    if listener:
        threading.Thread(target=_serve, args=(listener,), name="gpuwatch", daemon=True).start()


def step():
    """Ends a training step."""
    global _steps
    _steps += 1
    _say(_rows("call"), _viewers)


def _listen():
    """The socket where viewers look for it; none where that cannot be, as the job goes on without."""
    folder = os.environ.get("GPUWATCH_SOCKET_DIR") or "/tmp/gpuwatch-%d" % os.geteuid()
    path = "%s/%d.sock" % (folder, os.getpid())
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        found = os.lstat(folder)
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            return None
        listener = socket.socket(socket.AF_UNIX)
        # Under its own name only once somebody answers there.
        listener.bind(path + ".new")
        listener.listen()
        os.rename(path + ".new", path)
    except OSError:
        return None
    os.register_at_fork(after_in_child=listener.close)
    atexit.register(_end, path, os.getpid())
    return listener


def _serve(listener):
    listener.settimeout(1)
    while True:
        try:
            viewer = listener.accept()[0]
            viewer.setblocking(False)
            _say([_hello(), *_rows("tick"), {"type": "live"}], [viewer])
            _viewers.append(viewer)
        except TimeoutError:
            if time.monotonic() - _spoke >= 1:
                _say(_rows("tick"), _viewers)


def _end(path, pid):
    # A forked child is not the job's end.
    if os.getpid() == pid and os.path.exists(path):
        _say([{"type": "bye", "at_us": time.monotonic_ns() // 1000, "reason": "exit"}], _viewers)
        os.unlink(path)


def _say(lines, viewers):
    """To every viewer that reads; one that has stopped, or has gone, is left behind."""
    global _spoke
    _spoke = time.monotonic()
    text = "".join(json.dumps(it) + "\n" for it in lines).encode()
    for viewer in list(viewers):
        try:
            taken = viewer.send(text)
        except OSError:
            taken = None
        if taken != len(text):
            viewer.close()
            if viewer in _viewers:
                _viewers.remove(viewer)


def _rows(edge):
    at = {"at_us": time.monotonic_ns() // 1000, "edge": edge, **({"step": _steps} if _steps else {})}
    for device in _devices():
        try:
            stats = device.memory_stats() or {}
        except Exception:
            continue
        # What a backend does not count is missing, or negative.
        known = {ours: stats[theirs] for ours, theirs in COUNTERS.items() if stats.get(theirs, -1) >= 0}
        yield {"type": "sample", "device": device.local_hardware_id, **at, **known}


def _hello():
    devices = [{"ordinal": it.local_hardware_id, "uuid": _uuid(it), "name": it.device_kind} for it in _devices()]
    return {
        "type": "hello",
        "protocol": 1,
        "probe": "jax_probe/1",
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "argv": sys.argv,
        "framework": "jax",
        "framework_version": jax.__version__,
        "run": os.environ.get("GPUWATCH_RUN"),
        "rank": jax.process_index(),
        "world_size": jax.process_count(),
        "devices": devices,
        "monotonic_us": time.monotonic_ns() // 1000,
        "unix_us": time.time_ns() // 1000,
    }


def _devices():
    return [it for it in jax.local_devices() if it.platform in ("gpu", "cuda")]


def _uuid(device):
    """The name that drivers know it by, and viewers too; asked of the driver that JAX has loaded."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None
    handle, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if cuda.cuDeviceGet(ctypes.byref(handle), device.local_hardware_id) or cuda.cuDeviceGetUuid_v2(raw, handle):
        return None
    return "GPU-%s" % uuid.UUID(bytes=bytes(raw))
