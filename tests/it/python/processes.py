"""Starts every kind of child that training scripts start, and reports after each which probes there are."""

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, at):
        # Returns this worker's pid and the probes that exist meanwhile; the tensor goes through shared memory.
        return json.dumps([os.getpid(), sockets()]), torch.zeros(4)


def sockets():
    folder = os.environ["GPUWATCH_SOCKET_DIR"]
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def report(what, **facts):
    print(json.dumps({"what": what, "sockets": sockets(), **facts}), flush=True)


def train(steps):
    parameter = torch.ones(4, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for _ in range(steps):
        parameter.sum().backward()
        optimizer.step()
    torch.cuda.synchronize()
    return optimizer


def load(context):
    received = DataLoader(Numbers(), num_workers=2, batch_size=1, multiprocessing_context=context)
    received = [json.loads(reported[0]) for reported, _ in received]
    return {"workers": len({pid for pid, _ in received}), "during": sorted({it for _, all_of in received for it in all_of})}


def rank(queue):
    train(3)
    queue.put([os.getpid(), sockets()])


def bad_fork(queue):
    parameter = torch.ones(1, requires_grad=True)
    parameter.grad = torch.ones(1)
    torch.optim.SGD([parameter], lr=0.1).step()
    queue.put([os.getpid(), sockets()])


def child(context, target):
    queue = context.Queue()
    process = context.Process(target=target, args=(queue,))
    process.start()
    received = queue.get()
    process.join()
    return {"child": received[0], "during": received[1], "code": process.exitcode}


if __name__ == "__main__":
    fork, spawn = multiprocessing.get_context("fork"), multiprocessing.get_context("spawn")
    report("imported", threads=threading.active_count(), initialized=torch.cuda.is_initialized())
    report("cpu", trained=bool(bad_fork(fork.SimpleQueue()) or True))
    report("fork workers", **load(fork))
    report("spawn workers", **load(spawn))
    # Under this strategy PyTorch starts a process that owns the memory; `spawn` has started Python's own before.
    torch.multiprocessing.set_sharing_strategy("file_system")
    report("helpers", shared=torch.zeros(4).share_memory_().is_shared())
    code = "import os, torch; print(os.listdir(os.environ['GPUWATCH_SOCKET_DIR']) if os.path.isdir(os.environ['GPUWATCH_SOCKET_DIR']) else [])"
    report("subprocess", printed=subprocess.check_output([sys.executable, "-c", code], text=True).strip())
    report("forked before CUDA", **child(fork, rank))
    report("spawned", **child(spawn, rank))
    optimizer = train(3)
    report("trained", pid=os.getpid(), threads=threading.active_count(), mask=repr(sorted(map(int, __import__("signal").pthread_sigmask(0, [])))))
    report("fork workers after CUDA", **load(fork))
    report("forked after CUDA", **child(fork, bad_fork))
    import gpuwatch_probe

    gpuwatch_probe.mark("epoch \x1b[31m", 3)
    gpuwatch_probe.mark("phase")
    gpuwatch_probe.step()
    gpuwatch_probe.step()
    optimizer.step()
    report("marked")
    sys.stdin.readline()
    torch.cuda.synchronize()
    gpuwatch_probe.stop()
    for _ in range(100):
        if not sockets():
            break
        time.sleep(0.05)
    optimizer.step()
    report("stopped")
