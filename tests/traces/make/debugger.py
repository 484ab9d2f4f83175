"""Stops one thread of another process, as a debugger does, until this program is ended."""

import ctypes
import os
import sys
import time

SEIZE, INTERRUPT, ALL_CHILDREN = 0x4206, 0x4207, 0x40000000

libc = ctypes.CDLL(None, use_errno=True)
thread = ctypes.c_int(int(sys.argv[1]))
for request in (SEIZE, INTERRUPT):
    if libc.ptrace(request, thread, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace: root or kernel.yama.ptrace_scope=0 is needed")
os.waitpid(thread.value, ALL_CHILDREN)
print("stopped", flush=True)
time.sleep(600)
