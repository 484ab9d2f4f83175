"""Tensors on a device that processes share: one sees what the other stores, and the owner alone is charged."""

import os

import torch
import torch.multiprocessing as mp

import nvml

CONTEXT = 512 << 20


def other(there, back):
    x = there.get()
    assert x.is_cuda and x.cpu().tolist() == list(range(100))
    assert nvml.processes()[1][os.getpid()] == CONTEXT + torch.cuda.memory_reserved()
    x.copy_(torch.arange(100) * 2)
    torch.cuda.synchronize()
    back.put(True)
    there.get()
    del x
    back.put(True)


if __name__ == "__main__":
    mp.set_start_method("spawn")
    there, back = mp.Queue(), mp.Queue()
    child = mp.Process(target=other, args=(there, back))
    child.start()
    x = torch.arange(100).cuda()
    there.put(x)
    assert back.get()
    assert x.cpu().tolist() == [2 * it for it in range(100)], "the other process stored it"
    assert nvml.processes()[1] == {os.getpid(): CONTEXT + torch.cuda.memory_reserved(), child.pid: CONTEXT}
    there.put(None)
    assert back.get()
    child.join()
    assert child.exitcode == 0
    torch.cuda.synchronize()
    print("ok")
