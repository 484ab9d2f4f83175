"""DataParallel over the devices of one process, and objects that ranks exchange: sizes are summed and compared on the
device before anybody can decide by them."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn


def replicas():
    model = nn.DataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    held = []
    for _ in range(4):
        model(torch.randn(16, 64).cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        held.append([torch.cuda.memory_allocated(it) for it in range(2)])
    assert held[2] == held[3], held
    assert torch.cuda.max_memory_allocated(1) > 64 * 256 * 4, "a replica, for as long as it is needed"
    torch.cuda.synchronize()


def exchange(rank):
    found = [None] * 2
    dist.all_gather_object(found, {"rank": rank, "text": "x" * (rank * 300)})
    assert found == [{"rank": 0, "text": ""}, {"rank": 1, "text": "x" * 300}], found
    reported = [{"path": "a/b"}] if rank == 0 else [None]
    dist.broadcast_object_list(reported, 0)
    assert reported == [{"path": "a/b"}]
    gathered = [None] * 2 if rank == 0 else None
    dist.gather_object(("from", rank), gathered, 0)
    assert gathered == ([("from", 0), ("from", 1)] if rank == 0 else None)
    dist.destroy_process_group()


if __name__ == "__main__":
    children = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            try:
                torch.cuda.set_device(rank)
                dist.init_process_group("nccl", init_method=f"file://{os.getcwd()}/meet", rank=rank, world_size=2)
                exchange(rank)
                os._exit(0)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        children.append(child)
    assert [os.waitpid(it, 0)[1] for it in children] == [0, 0]
    replicas()
    print("ok")
