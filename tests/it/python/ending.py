"""A job that looks like one with PyTorch. It stops at a given point of its end; its exit status is 7.

It prints `ready` there, and goes on at a line of its standard input:

`thread`    waits for a thread, after its main module
`atexit`    runs a function of `atexit`
`teardown`  deletes what its modules hold
`exit`      runs the C library's functions at exit: its Python has shut down
"""

import atexit
import ctypes
import mmap
import os
import select
import sys
import tempfile
import threading


def hold(os=os, select=select):
    """Returns to Python again and again, for what is queued."""
    os.write(1, b"ready\n")
    while not select.select([0], [], [], 0.001)[0]:
        pass
    os.read(0, 1)


class Held:
    """Holds when it is deleted."""

    def __del__(self, hold=hold):
        hold()


def at_exit():
    """Prints and reads as C alone does: what is registered last runs first."""
    libc = ctypes.CDLL(None)
    libc.strdup.restype = ctypes.c_void_p
    ready = libc.strdup(b"ready")
    for function, argument in ((libc.getchar, None), (libc.fflush, None), (libc.puts, ready)):
        libc.__cxa_atexit(function, ctypes.c_void_p(argument), None)


def wait():
    """Waits as the main thread does for a thread, in one call."""
    threading.main_thread().join()
    os.write(1, b"ready\n")
    os.read(0, 1)


# Libraries stay mapped when Python has shut down.
with tempfile.TemporaryDirectory() as own:
    for name in ("libtorch_python.so", "libcuda.so.1"):
        with open(os.path.join(own, name), "wb+") as file:
            file.truncate(4096)
            held_for_good = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(held_for_good))

where = sys.argv[1]
if where == "thread":
    threading.Thread(target=wait).start()
elif where == "atexit":
    atexit.register(hold)
elif where == "teardown":
    held = Held()
else:
    at_exit()
sys.exit(7)
