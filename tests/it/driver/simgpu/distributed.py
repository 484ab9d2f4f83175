"""NCCL between two processes with a device each: collectives carry what was copied in, DDP and FSDP train, buffers
count on the driver's account, and no rank waits for one that died."""

import ctypes
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import nvml

MIB = 1 << 20
CONTEXT, BUFFERS = 512 * MIB, 256 * MIB


def outside():
    """Bytes that the driver counts for this process beyond what PyTorch has."""
    return nvml.processes()[1][os.getpid()] - torch.cuda.memory_reserved() - CONTEXT


def collectives(rank):
    ours = lambda *values: torch.tensor(values).cuda()
    x = ours(rank + 1.5)
    dist.all_reduce(x)
    assert x.item() == 4.0
    x = ours(rank, 7 - rank)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    assert x.tolist() == [1, 7]
    x = torch.tensor([1.0 + rank, 5.0], dtype=torch.bfloat16).cuda()
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert x.cpu().tolist() == [1.5, 5.0]
    x = ours(*range(10)) if rank == 1 else torch.empty(10, dtype=torch.int64, device="cuda")
    dist.broadcast(x, 1)
    assert x.tolist() == list(range(10))
    parts = [torch.empty(3, dtype=torch.int64, device="cuda") for _ in range(2)]
    dist.all_gather(parts, ours(rank, 10 * rank, 100 * rank))
    assert [it.tolist() for it in parts] == [[0, 0, 0], [1, 10, 100]]
    half = torch.empty(3, dtype=torch.int64, device="cuda")
    dist.reduce_scatter_tensor(half, ours(*range(6)))
    assert half.tolist() == [2 * (3 * rank + at) for at in range(3)]
    swapped = torch.empty(4, dtype=torch.int64, device="cuda")
    dist.all_to_all_single(swapped, ours(*[10 * rank + at for at in range(4)]))
    assert swapped.tolist() == [2 * rank, 2 * rank + 1, 10 + 2 * rank, 11 + 2 * rank]
    x = torch.empty(5, dtype=torch.int64, device="cuda")
    if rank == 0:
        dist.send(ours(1, 2, 3, 4, 5), 1)
    else:
        dist.recv(x, 0)
        assert x.tolist() == [1, 2, 3, 4, 5]
    large = torch.zeros(64 * MIB, device="cuda")
    dist.all_reduce(large)
    dist.barrier()


def trains(model):
    optimizer = torch.optim.AdamW(model.parameters())
    figures = []
    for _ in range(4):
        loss = model(torch.randn(16, 64).cuda()).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        figures.append(torch.cuda.memory_allocated())
    assert len(set(figures[1:])) == 1, figures
    return figures[-1]


def layers():
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 8)).cuda()


def sharded(model):
    for layer in (model[0], model[2], model[4]):
        fully_shard(layer)
    fully_shard(model)
    return model


def works(rank):
    collectives(rank)
    # One communicator of both, and one of sender and receiver.
    assert outside() in (BUFFERS, 2 * BUFFERS), outside() / MIB
    whole = trains(DistributedDataParallel(layers(), device_ids=[rank]))
    assert trains(sharded(layers())) < whole
    trains(FullyShardedDataParallel(layers(), device_id=rank))
    before = outside()
    both = dist.new_group([0, 1])
    dist.barrier(both)
    assert outside() == before + BUFFERS
    dist.destroy_process_group(both)
    assert outside() == before
    dist.destroy_process_group()
    assert torch.cuda.memory_reserved() + CONTEXT == nvml.processes()[1][os.getpid()]


def dies(rank):
    dist.all_reduce(torch.ones(1, device="cuda"))
    if rank == 1:
        os._exit(0)
    try:
        dist.all_reduce(torch.ones(1, device="cuda"))
    except RuntimeError as error:
        assert "remote process exited" in str(error), error
        os._exit(0)
    raise AssertionError("the other rank was gone")


def ranks(work, name):
    children = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            try:
                torch.cuda.set_device(rank)
                assert nvml.lib.nvmlDeviceGetHandleByIndex_v2(rank, ctypes.byref(nvml.device)) == 0
                dist.init_process_group("nccl", init_method=f"file://{os.getcwd()}/{name}", rank=rank, world_size=2)
                work(rank)
                torch.cuda.synchronize()
                os._exit(0)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
        children.append(child)
    assert [os.waitpid(it, 0)[1] for it in children] == [0, 0]


if __name__ == "__main__":
    ranks(works, "works")
    ranks(dies, "dies")
    print("ok")
