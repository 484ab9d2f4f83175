"""Writes pieces of a trace on a disk with faults, and checks that the file has every piece that the disk took."""

import errno
import gzip
import json
import os
import types

from gpuwatch_probe._trace import Trace

FAULT, NAME = os.environ["FAULTS"], os.path.join(os.environ["FAULTS_IN"], "7_1.trace")

notes, made = [], []
devices = types.SimpleNamespace(_cuda_getDeviceCount=lambda: 0)
cuda = types.SimpleNamespace(memory=types.SimpleNamespace())
torch = types.SimpleNamespace(__file__="/nowhere/torch.py", __version__="0", cuda=cuda, _C=devices)
trace = Trace(torch, notes.append)


def taken(use):
    made.append(b"%d " % len(made) + os.urandom(5000))
    return use(made[-1])


def fault(words):
    with open(FAULT + ".new", "w") as file:
        file.write(words)
    os.replace(FAULT + ".new", FAULT)


def pieces():
    """The numbers of the pieces in the file."""
    found = []
    with open(NAME, "rb") as file:
        assert json.loads(file.readline())["gpuwatch_trace"] == 1
        for line in file:
            packed = file.read(json.loads(line)["bytes"])
            found.append(made.index(gzip.decompress(packed)))
    return found


trace._take = taken
trace._make(NAME, 1 << 30)
trace._next_piece()
expected = [0]
for error in (errno.EIO, errno.EDQUOT, errno.EROFS, errno.ENOSPC):
    fault("write %d" % error)
    trace._next_piece()
    trace._next_piece()
    assert len(notes) == 1 and os.strerror(error) in notes.pop(), notes
    os.remove(FAULT)
    trace._next_piece()
    expected.append(len(made) - 1)
    assert pieces() == expected

# Another file system is there now, with another file of the name.
os.rename(NAME, NAME + ".own")
with open(NAME, "w") as file:
    file.write("another's")
fault("stale")
trace._next_piece()
assert "another file has the place" in notes.pop(), notes
with open(NAME) as file:
    assert file.read() == "another's"
os.rename(NAME + ".own", NAME)
trace._next_piece()
os.remove(FAULT)
trace._next_piece()
expected += [len(made) - 2, len(made) - 1]
assert pieces() == expected and not notes, (pieces(), expected, notes)
