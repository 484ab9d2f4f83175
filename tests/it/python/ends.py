"""Ends and interrupts a training process in every possible way, each in a child forked before CUDA's initialisation.

Prints the status and the output of each child, which must be the same with and without the probe.
"""

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading

import torch

PROBED = "GPUWATCH_RUN" in os.environ


def trainer():
    parameter = torch.ones(4, device="cuda", requires_grad=True)
    parameter.grad = torch.ones(4, device="cuda")
    return torch.optim.SGD([parameter], lr=0.1, foreach=False)


def train(steps=3):
    optimizer = trainer()
    for _ in range(steps):
        optimizer.step()
    torch.cuda.synchronize()
    if PROBED and not os.path.exists("%s/%d.sock" % (os.environ["GPUWATCH_SOCKET_DIR"], os.getpid())):
        print("there is no probe")
    return optimizer


def returns():
    atexit.register(print, "at exit")
    train()
    print(subprocess.check_output([sys.executable, "-c", "import sys; print(len(sys.argv))"], text=True))
    print("there are", threading.active_count(), "threads")


def leaves_at_once():
    atexit.register(print, "never said")
    train()
    os._exit(3)


def raises():
    def hook(kind, error, trace):
        print("hook", error)
        sys.__excepthook__(kind, error, trace)

    sys.excepthook = hook
    atexit.register(print, "at exit")
    train()
    raise SystemError("the end")


def exits_in_a_thread():
    thread = threading.Thread(target=lambda: (train(), sys.exit(5)))
    thread.start()
    thread.join()
    thread = threading.Thread(target=lambda: (train(), 1 / 0))
    thread.start()
    thread.join()
    sys.exit(4)


def is_killed():
    train()
    os.kill(os.getpid(), signal.SIGTERM)


def is_interrupted():
    train()
    os.kill(os.getpid(), signal.SIGINT)


def handles_a_signal():
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))
    optimizer = train()
    os.kill(os.getpid(), signal.SIGTERM)
    while True:
        optimizer.step()


def blocks_a_signal():
    """Only now, when the threads are there already: none of them may take it instead."""
    train()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    for _ in range(20):
        os.kill(os.getpid(), signal.SIGUSR1)
        print(signal.sigwait([signal.SIGUSR1]))


class Alarm(Exception):
    pass


def is_alarmed():
    """A handler's exception reaches the job wherever in a step it is raised."""

    def ring(number, frame):
        raise Alarm

    signal.signal(signal.SIGALRM, ring)
    optimizer = train()
    received = 0
    for n in range(300):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + n % 11 * 0.0001)
            for _ in range(50_000):
                optimizer.step()
            print("an alarm was not heard")
        except Alarm:
            received += 1
    print("heard", received)


def forks_meanwhile():
    """A thread forks while training and the probe's own threads continue."""
    codes = []

    def fork():
        for n in range(20):
            pid = os.fork()
            if pid == 0:
                torch.ones(3).sum()
                os._exit(n)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))

    optimizer = train()
    thread = threading.Thread(target=fork)
    thread.start()
    while thread.is_alive():
        optimizer.step()
    print(codes)


def resets_its_peaks():
    optimizer = train()
    for n in range(4):
        torch.empty(n << 20, dtype=torch.uint8, device="cuda")
        optimizer.step()
        print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
        torch.cuda.reset_peak_memory_stats()
        print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
        torch.cuda.reset_accumulated_memory_stats()
        print(torch.cuda.memory_stats()["allocation.all.allocated"])


WAYS = [
    returns, leaves_at_once, raises, exits_in_a_thread, is_killed, is_interrupted, handles_a_signal, blocks_a_signal,
    is_alarmed, forks_meanwhile, resets_its_peaks,
]  # fmt: skip

# The imports of the first optimizer take seconds; once is enough.
torch.optim.SGD([torch.zeros(1)])
# Else each child copies the whole heap when it ends, object by object.
gc.freeze()
for way in WAYS:
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    pid = os.fork()
    if pid == 0:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        way()
        sys.exit()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    reported = [(it.seek(0), it.read().decode())[1] for it in (out, err)]
    print(json.dumps({"what": way.__name__, "status": status, "out": reported[0], "err": reported[1]}), flush=True)
