"""Runs a program, and kills it at one of its system calls that touch another process.

    killed_at.py N PROGRAM ARGUMENT...

N counts the stops before and after each call of `ptrace` and each write to another process's memory, from 0. The last
line is `killed`, or `ended` where the program made fewer calls.
"""

import ctypes
import os
import signal
import sys

TRACEME, SYSCALL, SETOPTIONS = 0, 24, 0x4200
# Mark stops at system calls, and end the program with this one.
OPTIONS = 0x1 | 0x100000
# ptrace and pwrite64.
CALLS = {"x86_64": {101, 18}, "aarch64": {117, 68}}[os.uname().machine]

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4

wanted = int(sys.argv[1])
pid = os.fork()
if pid == 0:
    libc.ptrace(TRACEME, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os.execv(sys.argv[2], sys.argv[2:])
os.waitpid(pid, 0)
libc.ptrace(SETOPTIONS, pid, 0, OPTIONS)
seen = deliver = 0
while True:
    libc.ptrace(SYSCALL, pid, 0, deliver)
    deliver = 0
    _, status = os.waitpid(pid, 0)
    if not os.WIFSTOPPED(status):
        print("ended", flush=True)
        break
    stopped_by = os.WSTOPSIG(status)
    if stopped_by != signal.SIGTRAP | 0x80:
        deliver = stopped_by if stopped_by not in (signal.SIGTRAP, signal.SIGSTOP) else 0
        continue
    with open("/proc/%d/syscall" % pid) as file:
        number = file.read().split()[0]
    if number.isdigit() and int(number) in CALLS:
        if seen == wanted:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            print("killed", flush=True)
            break
        seen += 1
