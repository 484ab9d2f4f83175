"""Implements gpuwatch's wire, version 1, for any program in Python: one file of plain Python to copy next to a script.

    import gpuwatch_wire

    def read():
        yield 0, {"allocated": pool.used, "reserved": pool.held}

    probe = gpuwatch_wire.Probe("mine", "1.0", read)
    probe.start()
    for batch in batches:
        ...
        probe.step()

`read` yields the number of each device of the job and its counters, under the wire's names
(docs/reference/counters.md). gpuwatch shows a counter that is missing, `None` or negative as unknown. Viewers connect
to a socket. The probe never waits for a device or a viewer, prints or raises: it keeps an error in `trouble`.
"""

import atexit
import ctypes
import errno
import json
import os
import socket
import stat
import sys
import threading
import time
import uuid

VIEWERS_MAX = 32
NAMES_MAX = 64

# Facts about a process that launchers set, with the variables they use.
LAUNCHED = {
    "restart": ("TORCHELASTIC_RESTART_COUNT",),
    "rank": ("RANK", "OMPI_COMM_WORLD_RANK"),
    "local_rank": ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    "world_size": ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"),
}


class Probe:
    """A probe of this process. There may be several, one for each allocator: each has a socket of its own."""

    _listener, _viewers = None, []

    def __init__(self, framework, version, read, about=dict, ticks=False):
        """`about` returns more fields for the hello, such as `{"rank": 0}`. With `ticks`, another thread also calls
        `read` once a second between steps, after the job itself has caused the first call."""
        self.trouble = None
        self._hello_fields = {"framework": framework, "framework_version": version}
        self._read, self._about, self._ticks = read, about, ticks
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def start(self):
        """Starts it, once; `GPUWATCH=off` forbids it. A forked child may start its own."""
        if self._listener or "off" in _variable("GPUWATCH").split(","):
            return
        try:
            self._listener, self._path = _listen()
            self._inode = os.lstat(self._path).st_ino
            threading.Thread(target=self._serve, args=(self._listener,), name="gpuwatch", daemon=True).start()
            atexit.register(self.stop)
        except Exception as trouble:
            self.trouble = trouble

    def step(self):
        """Ends a step."""
        self._steps += 1
        self._report_if_due("call")

    def tick(self):
        """Sends the current figures in a program without steps; about once a second is enough."""
        self._report_if_due("tick")

    def stop(self):
        """Sends the bye. The end of the program does so too."""
        with self._lock:
            if self._listener:
                self._send([{"type": "bye", "at_us": _now_us(), "reason": "exit"}])
                try:
                    # Another program may have created something else there.
                    if os.lstat(self._path).st_ino == self._inode and stat.S_ISSOCK(os.lstat(self._path).st_mode):
                        os.unlink(self._path)
                except OSError as trouble:
                    self.trouble = trouble
                self._begin()

    def _begin(self):
        """Resets to the state before the start; also in a forked child, which is not the job."""
        for it in (self._listener, *self._viewers):
            if it:
                it.close()
        self._listener, self._viewers, self._lock = None, [], threading.RLock()
        self._steps, self._rows, self._devices, self._sent_at = 0, {}, {}, 0.0
        # The same at every socket.
        self._instance = uuid.uuid4().hex

    def _report_if_due(self, edge):
        if not self._listener:
            return
        try:
            row = {"type": "sample", "at_us": _now_us(), "edge": edge, **({"step": self._steps} if self._steps else {})}
            rows = {device: {**row, "device": device, **_known(counters)} for device, counters in self._read()}
            devices = {**self._devices, **{it: self._devices.get(it) or _device(it) for it in rows}}
            is_news = devices != self._devices
            if is_news:
                self._hello_fields.update(self._about())
            with self._lock:
                self._devices = devices
                self._rows.update(rows)
                self._send([*([self._hello()] if is_news else []), *rows.values()])
        except Exception as trouble:
            self.trouble = trouble

    def _serve(self, listener):
        while listener is self._listener:
            try:
                self._greet(listener.accept()[0])
            except socket.timeout:
                if self._ticks and self._rows and time.monotonic() - self._sent_at >= 1:
                    self._report_if_due("tick")
            except Exception as trouble:
                self.trouble = trouble
                time.sleep(1)

    def _greet(self, viewer):
        viewer.setblocking(False)
        with self._lock:
            greeting = _text([self._hello(), *self._rows.values(), {"type": "live"}])
            if len(self._viewers) < VIEWERS_MAX and _takes(viewer, greeting):
                self._viewers.append(viewer)
            else:
                viewer.close()

    def _send(self, lines):
        """Sends lines to every viewer that reads; drops a viewer that has stopped or gone."""
        self._sent_at = time.monotonic()
        text = _text(lines) if self._viewers else b""
        for viewer in list(self._viewers):
            if not _takes(viewer, text):
                self._viewers.remove(viewer)
                viewer.close()

    def _hello(self):
        master = _variable("MASTER_ADDR"), _variable("MASTER_PORT")
        launched = {ours: next(filter(str.isdigit, map(_variable, theirs)), None) for ours, theirs in LAUNCHED.items()}
        return {
            "type": "hello",
            "protocol": 1,
            "probe": "gpuwatch_wire/1",
            "instance": self._instance,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            # Readers hide what looks like a secret.
            "argv": getattr(sys, "orig_argv", sys.argv)[: 1 if "noargs" in _variable("GPUWATCH").split(",") else None],
            "run": _variable("GPUWATCH_RUN") or None,
            "master": "%s:%s" % master if all(master) else None,
            **{name: int(value) for name, value in launched.items() if value},
            **self._hello_fields,
            "devices": [{"ordinal": ordinal, **known} for ordinal, known in self._devices.items()],
            "monotonic_us": _now_us(),
            "unix_us": time.time_ns() // 1000,
        }


def _listen():
    """Returns a socket where viewers search for it, and its path: in the first folder that is this user's alone."""
    chosen, runtime, home = map(_variable, ("GPUWATCH_SOCKET_DIR", "XDG_RUNTIME_DIR", "HOME"))
    folders = [chosen] if chosen else ["/tmp/gpuwatch-%d" % os.geteuid()]
    if runtime and not chosen:
        folders.append(runtime + "/gpuwatch")
    if home and not chosen:
        folders.append("%s/.local/state/gpuwatch/sock-%s" % (home, socket.gethostname()))
    for folder in folders:
        try:
            return _listen_in(folder)
        except OSError as error:
            trouble = error
    raise trouble


def _listen_in(folder):
    os.makedirs(folder, 0o700, exist_ok=True)
    # The descriptor names exactly the folder that was checked, and keeps the path short enough for an address.
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found, own = os.fstat(place), "/proc/self/fd/%d/" % place
        if found.st_uid != os.geteuid() or found.st_mode & 0o777 != 0o700:
            raise PermissionError(errno.EPERM, "not this user's alone, mode 0700", folder)
        names = ["%d%s.sock" % (os.getpid(), ".%d" % it if it else "") for it in range(NAMES_MAX)]
        name = next((it for it in names if _is_free(own + it)), None)
        if name is None:
            raise OSError(errno.EADDRINUSE, "every name for this process is taken", folder)
        # Renamed to its final name only once it is listening.
        new, listener = ".%d.%d.tmp" % (os.getpid(), _now_us()), socket.socket(socket.AF_UNIX)
        listener.settimeout(1)
        listener.bind(own + new)
        listener.listen()
        os.chmod(own + new, 0o600)
        os.rename(own + new, own + name)
        return listener, os.path.join(folder, name)
    finally:
        os.close(place)


def _is_free(path):
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return False
    except FileNotFoundError:
        return True
    # Connecting a socket of the wrong type finds out whether the other one is alive without disturbing it.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        return asking.connect_ex(path) in (errno.ENOENT, errno.ECONNREFUSED)


def _device(ordinal):
    """Returns the driver's name for a device, which viewers use too, from the driver that the job itself has loaded."""
    device, raw, name = ctypes.c_int(), (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(256)
    try:
        cuda = ctypes.PyDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        asked = cuda.cuDeviceGet(ctypes.byref(device), ordinal), cuda.cuDeviceGetUuid_v2(raw, device)
        if any((*asked, cuda.cuDeviceGetName(name, 255, device))):
            return {}
    except (OSError, AttributeError):
        return {}
    name = name.value.decode(errors="replace")
    kind = "MIG" if " MIG " in name else "GPU"
    return {"uuid": "%s-%s" % (kind, uuid.UUID(bytes=bytes(raw))), "name": name}


def _known(counters):
    return {name: int(value) for name, value in counters.items() if value is not None and value >= 0}


def _takes(viewer, text):
    try:
        return viewer.send(text, socket.MSG_NOSIGNAL) == len(text)
    except OSError:
        return False


def _text(lines):
    # Arguments may contain bytes that are not text, which Python holds as characters that UTF-8 cannot encode.
    return "".join(json.dumps(it, ensure_ascii=False) + "\n" for it in lines).encode("utf-8", "replace")


def _variable(name):
    return os.environ.get(name) or ""


def _now_us():
    return time.monotonic_ns() // 1000
