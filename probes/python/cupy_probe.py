"""gpuwatch's probe for CuPy: one file of plain Python, to be copied beside a script.

    import cupy_probe

    cupy_probe.start()
    for batch in batches:
        ...
        cupy_probe.step()

The memory pool says what arrays use of it (`used_bytes()`) and what it holds (`total_bytes()`), of the current device.
It keeps no peaks and does not say what was asked for, in how many blocks, or what waits for a stream: gpuwatch shows
that as unknown. Nothing here waits for a device, or for a viewer; the lines are gpuwatch's wire, version 1.
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

import cupy

_viewers, _steps, _last = [], 0, {}


def start():
    """Starts the probe of this process, once; `GPUWATCH=off` forbids it."""
    listener = None if os.environ.get("GPUWATCH") == "off" else _listen()
    if listener:
        threading.Thread(target=_serve, args=(listener,), name="gpuwatch", daemon=True).start()


def step():
    """Ends a step of the current device."""
    global _steps
    _steps += 1
    _tell("call")


def tick():
    """Tells how things stand where there are no steps; about once a second is enough."""
    _tell("tick")


def _tell(edge):
    # Read here, in the job's thread: to make a device current in another one could create a context.
    try:
        pool, device = cupy.get_default_memory_pool(), cupy.cuda.runtime.getDevice()
        known = {"allocated": pool.used_bytes(), "reserved": pool.total_bytes()}
    except Exception:
        return
    row = {"type": "sample", "device": device, "at_us": time.monotonic_ns() // 1000, "edge": edge}
    row.update({"step": _steps} if _steps else {}, **known)
    is_new = device not in _last
    _last[device] = row
    _say([_hello(), row] if is_new else [row], _viewers)


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
    while True:
        viewer = listener.accept()[0]
        viewer.setblocking(False)
        _say([_hello(), *list(_last.values()), {"type": "live"}], [viewer])
        _viewers.append(viewer)


def _end(path, pid):
    # A forked child is not the job's end.
    if os.getpid() == pid and os.path.exists(path):
        _say([{"type": "bye", "at_us": time.monotonic_ns() // 1000, "reason": "exit"}], _viewers)
        os.unlink(path)


def _say(lines, viewers):
    """To every viewer that reads; one that has stopped, or has gone, is left behind."""
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


def _hello():
    return {
        "type": "hello",
        "protocol": 1,
        "probe": "cupy_probe/1",
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "argv": sys.argv,
        "framework": "cupy",
        "framework_version": cupy.__version__,
        "run": os.environ.get("GPUWATCH_RUN"),
        "devices": [{"ordinal": it, "uuid": _uuid(it)} for it in list(_last)],
        "monotonic_us": time.monotonic_ns() // 1000,
        "unix_us": time.time_ns() // 1000,
    }


def _uuid(device):
    """The name that drivers know it by, and viewers too; asked of the driver that CuPy has loaded."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None
    handle, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    if cuda.cuDeviceGet(ctypes.byref(handle), device) or cuda.cuDeviceGetUuid_v2(raw, handle):
        return None
    return "GPU-%s" % uuid.UUID(bytes=bytes(raw))
