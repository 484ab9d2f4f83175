"""A child forked before CUDA began trains; one forked after is refused, and takes none of its parent's account."""

import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset

import nvml


class Numbers(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, at):
        return torch.full((16,), float(at))


def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert pid not in nvml.processes()[1], "nobody who is gone has memory"


def trains():
    model = torch.nn.Linear(64, 64).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(8, 64).cuda()).sum().backward()
    optimizer.step()
    torch.cuda.synchronize()
    assert nvml.processes()[1][os.getpid()] == torch.cuda.memory_reserved() + (512 << 20)


def is_refused():
    assert os.getpid() not in nvml.processes()[1]
    try:
        torch.zeros(1, device="cuda")
    except RuntimeError as error:
        assert "re-initialize" in str(error), error
    else:
        raise AssertionError("CUDA worked in a forked child")
    # The runtime's own error there, without torch's check before it.
    import ctypes

    runtime = ctypes.CDLL("libcudart.so." + torch.version.cuda.split(".")[0])
    assert runtime.cudaFree(0) == 3, "cudaErrorInitializationError"
    assert os.getpid() not in nvml.processes()[1]


if __name__ == "__main__":
    child(trains)
    held = torch.zeros(1 << 20, device="cuda")
    child(is_refused)
    for start in ("fork", "spawn"):
        loader = DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context=start)
        total = 0
        for it in loader:
            assert it.is_pinned()
            total += len(it.cuda(non_blocking=True))
            assert len(nvml.processes()[1]) == 1, "workers have no context"
        assert total == 64
    assert nvml.processes()[1] == {os.getpid(): torch.cuda.memory_reserved() + (512 << 20)}
    torch.cuda.synchronize()
    print("ok")
