"""Tests gpuwatch_wire.py except for its figures: its socket, its viewers, forks and faults."""

import json
import os
import socket
import sys
import tempfile

import gpuwatch_wire

FOLDER = tempfile.mkdtemp()
os.environ["GPUWATCH_SOCKET_DIR"] = FOLDER
COUNTERS = {"allocated": 1 << 20, "reserved": None, "active": -1}


class Viewer:
    all = []

    def __init__(self, name):
        self.all.append(self)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(os.path.join(FOLDER, name))
        self.socket.settimeout(10)
        self.lines = self.socket.makefile("r")

    @classmethod
    def close(cls):
        """Ends all: without the lock, Python complains of files that are open at its end."""
        for it in cls.all:
            it.lines.close()
            it.socket.close()

    def line(self):
        return json.loads(self.lines.readline() or '{"type": "the end"}')

    def lines_until(self, kind):
        lines = [self.line()]
        while lines[-1]["type"] not in (kind, "the end"):
            lines.append(self.line())
        return lines


def probe(read=lambda: [(0, COUNTERS)], **more):
    made = gpuwatch_wire.Probe("mine", "1", read, **more)
    made.start()
    return made


def kinds(lines):
    return [it["type"] for it in lines]


def sockets():
    return sorted(os.listdir(FOLDER))


own = "%d.sock" % os.getpid()

# The probe does not listen in a folder that others may enter; the job continues.
os.chmod(FOLDER, 0o755)
refused = probe()
refused.step()
assert isinstance(refused.trouble, PermissionError) and FOLDER in str(refused.trouble), refused.trouble
os.chmod(FOLDER, 0o700)
assert sockets() == []

# A dead socket of the same name is in nobody's way.
dead = socket.socket(socket.AF_UNIX)
dead.bind(os.path.join(FOLDER, own))
dead.close()
first = probe(about=lambda: {"rank": 7})
assert first.trouble is None and sockets() == [own], (first.trouble, sockets())
assert os.stat(os.path.join(FOLDER, own)).st_mode & 0o777 == 0o600

# Missing counters are left out, and another device causes another hello.
viewer = Viewer(own)
greeting = viewer.lines_until("live")
assert kinds(greeting) == ["hello", "live"] and greeting[0]["devices"] == [], greeting
first.step()
hello, row = viewer.line(), viewer.line()
assert hello["devices"] == [{"ordinal": 0}] and hello["rank"] == 7, hello
assert hello["protocol"] == 1 and hello["pid"] == os.getpid(), hello
del row["at_us"]
assert row == {"type": "sample", "device": 0, "edge": "call", "step": 1, "allocated": 1 << 20}, row
first.tick()
assert viewer.line()["edge"] == "tick"

# A second probe of the process has a name of its own.
second = probe()
assert sockets() == sorted([own, "%d.1.sock" % os.getpid()]), sockets()
second.step()
assert kinds(Viewer("%d.1.sock" % os.getpid()).lines_until("live")) == ["hello", "sample", "live"]

# A viewer that stops reading is dropped, one that reads misses nothing, and the job never waits.
stopped = Viewer(own)
stopped.line()
for _ in range(5000):
    first.step()
    viewer.line()
behind = stopped.lines.read().splitlines()
assert 100 < len(behind) < 5000, len(behind)
assert first.trouble is None, first.trouble

# A failed reading affects only itself.
faults = [ValueError("no figures")]


def read():
    if faults:
        raise faults[0]
    return [(0, COUNTERS)]


third = probe(read)
third.step()
assert third.trouble is faults[0]
faults.clear()
third.step()
assert Viewer("%d.2.sock" % os.getpid()).lines_until("live")[1]["step"] == 2

# A forked child is neither the job nor its end, and may have a probe of its own.
child = os.fork()
if not child:
    first.step()
    assert "%d.sock" % os.getpid() not in sockets()
    first.start()
    first.step()
    assert "%d.sock" % os.getpid() in sockets(), sockets()
    assert Viewer("%d.sock" % os.getpid()).lines_until("live")[1]["step"] == 2
    Viewer.close()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert own in sockets() and "%d.sock" % child not in sockets(), sockets()
first.step()
assert viewer.line()["step"] == 5002

# The end is sent, and leaves nothing behind.
for it in (first, second, third):
    it.stop()
assert kinds(viewer.lines_until("bye")) == ["bye"] and viewer.lines.read() == ""
assert sockets() == [], sockets()
os.rmdir(FOLDER)
Viewer.close()
print("the wire is right")
