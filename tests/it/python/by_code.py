"""Starts the probe by code, in children forked before CUDA's initialisation so that one import of torch serves all."""

import json
import os
import socket
import sys

import torch

import gpuwatch_probe

FOLDER = os.environ["GPUWATCH_SOCKET_DIR"]


def train(steps):
    parameter = torch.ones(4, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for _ in range(steps):
        parameter.sum().backward()
        optimizer.step()
    torch.cuda.synchronize()


def sockets():
    return [it for it in os.listdir(FOLDER) if it.endswith(".sock")] if os.path.isdir(FOLDER) else []


def received(last):
    """Returns the probe's lines up to that step; waits for those that its own thread still has to send."""
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(os.path.join(FOLDER, "%d.sock" % os.getpid()))
    stream.sendall(b"since seq=0\n")
    lines = []
    for line in stream.makefile():
        lines.append(json.loads(line))
        if lines[-1].get("step") == last:
            return lines


def child(what, body):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        facts = body()
        print(json.dumps({"what": what, "pid": os.getpid(), **facts}), flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, what


def not_asked():
    gpuwatch_probe.mark("nothing")
    gpuwatch_probe.step()
    train(2)
    return {"sockets": sockets()}


def before_cuda():
    gpuwatch_probe.start()
    gpuwatch_probe.start()
    asked = sockets()
    train(2)
    running = sockets()
    gpuwatch_probe.stop()
    gpuwatch_probe.stop()
    gpuwatch_probe.start()
    train(2)
    return {"asked": asked, "sockets": running, "stopped": gpuwatch_probe._probe.off}


def after_cuda():
    train(2)
    gpuwatch_probe.start()
    asked = sockets()
    train(3)
    # `os._exit` sends no bye.
    gpuwatch_probe.stop()
    return {"sockets": asked, "steps": gpuwatch_probe._probe.number()}


def off():
    os.environ["GPUWATCH"] = "off"
    gpuwatch_probe.start()
    train(2)
    return {"sockets": sockets()}


def no_library():
    os.environ["GPUWATCH_PROBE_SO"] = "/nowhere/libgpuwatch_probe.so"
    gpuwatch_probe.start()
    train(2)
    gpuwatch_probe.mark("nothing")
    gpuwatch_probe.step()
    gpuwatch_probe.stop()
    return {"log": open(os.path.join(FOLDER, "%d.log" % os.getpid())).read()}


def no_room():
    os.environ["GPUWATCH_SOCKET_DIR"] = "/proc/nowhere"
    gpuwatch_probe.start()
    train(2)
    return {}


def wrong_marks():
    gpuwatch_probe.start()
    train(1)
    for value in ("text", 2**70, float("nan"), [], object()):
        gpuwatch_probe.mark(value, value)
    gpuwatch_probe.mark("\udcff\0x", True)
    gpuwatch_probe.mark("x" * 3_000_000)
    return {"off": gpuwatch_probe._probe.off}


def async_backend():
    gpuwatch_probe.start()
    train(2)
    lines = received(2)
    return {"hello": lines[0], "row": lines[-1]}


if os.environ.get("PYTORCH_CUDA_ALLOC_CONF"):
    child("async_backend", async_backend)
else:
    for body in (not_asked, before_cuda, after_cuda, off, no_library, no_room, wrong_marks):
        child(body.__name__, body)
