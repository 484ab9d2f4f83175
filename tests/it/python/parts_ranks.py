"""Counts the parts of models on two ranks, as each rank counts its own: DistributedDataParallel with gradients in
buckets, and parameters that are shards."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from gpuwatch_probe._parts import Parts

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
DEVICE = torch.cuda.current_device()


def rounded(tensors):
    """The bytes of storages, each once, as the allocator rounds them."""
    storages = {it.untyped_storage().data_ptr(): it.untyped_storage().nbytes() for it in tensors}
    return sum(-(-it // 512) * 512 for it in storages.values())


def local(it):
    return it.to_local() if hasattr(it, "to_local") else it


def check(name, net, optimizer):
    parts = Parts(torch)
    for _ in range(3):
        net(torch.ones(8, 256, device="cuda")).sum().backward()
        optimizer.step()
        parts.see(optimizer)
    found, number = None, 0
    while found is None:
        number += 1
        assert number < 10_000, "the walk does not end"
        found = parts.turn(number, True, lambda: [0])
    parameters = list(net.parameters())
    states = [it for state in optimizer.state.values() for it in state.values() if isinstance(it, torch.Tensor)]
    expected = (
        rounded(local(it) for it in parameters),
        rounded(local(it.grad) for it in parameters),
        rounded(local(it) for it in states if it.is_cuda),
    )
    assert found == {DEVICE: expected}, (name, found, expected)
    return expected


def layers():
    return nn.Sequential(*[nn.Linear(256, 256) for _ in range(4)]).cuda()


replica = layers()
whole = check("ddp", DistributedDataParallel(replica, gradient_as_bucket_view=True), torch.optim.AdamW(replica.parameters()))
sharded = layers()
for layer in sharded:
    fully_shard(layer)
fully_shard(sharded)
shards = check("fully_shard", sharded, torch.optim.AdamW(sharded.parameters()))
assert shards[0] < whole[0] and shards[2] < whole[2], (shards, whole)
dist.barrier()
if dist.get_rank() == 0:
    print("shards are right", flush=True)
dist.destroy_process_group()
