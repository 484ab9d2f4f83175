"""A small training between several ranks: `job.py STRATEGY`."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

WIDTH, LAYERS, WORDS, HEADS = 256, 4, 1000, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.second_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.wq, self.wk, self.wv = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.wo = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, x):
        batch, length, _ = x.shape
        q, k, v = (it(x).view(batch, length, -1, WIDTH // HEADS).transpose(1, 2) for it in (self.wq, self.wk, self.wv))
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(x.transpose(1, 2).reshape(batch, length, -1))

    def forward(self, x):
        x = x + self.attend(self.norm(x))
        return x + self.down(F.gelu(self.up(self.second_norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for it in self.blocks:
            x = it(x)
        return self.head(self.norm(x))


def loss_of(model, length=64, batch=4):
    tokens = torch.randint(WORDS, (batch, length), device="cuda")
    return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def train(model, optimizer, step=loss_of):
    for _ in range(5):
        step(model).backward()
        if hasattr(model, "clip_grad_norm_"):
            model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()


def adam(model):
    return torch.optim.AdamW(model.parameters())


def mesh(shape, names):
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cuda", shape, mesh_dim_names=names)


def shard(model, **named):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    named["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for it in model.blocks:
        fully_shard(it, **named)
    return fully_shard(model, **named)


def split(model, of):
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    columns, rows = ColwiseParallel(), RowwiseParallel()
    for it in model.blocks:
        parts = {"wq": columns, "wk": columns, "wv": columns, "wo": rows, "up": columns, "down": rows}
        parallelize_module(it, of, parts)
    return model


def ddp():
    model = nn.parallel.DistributedDataParallel(Model().cuda(), device_ids=[torch.cuda.current_device()])
    train(model, adam(model))


def zero():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(Model().cuda(), device_ids=[torch.cuda.current_device()])
    train(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW))


def fsdp1():
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    model = FullyShardedDataParallel(
        Model(), auto_wrap_policy=ModuleWrapPolicy([Block]), device_id=torch.cuda.current_device(), use_orig_params=True
    )
    train(model, adam(model))


def fsdp2():
    with torch.device("meta"):
        model = Model()
    model = shard(model)
    model.to_empty(device="cuda")
    train(model, adam(model))


def hsdp():
    world = dist.get_world_size()
    model = shard(Model().cuda(), mesh=mesh((world // 2, 2), ("replicas", "shards")))
    train(model, adam(model))


def tp():
    model = split(Model().cuda(), mesh((dist.get_world_size(),), ("tp",)))
    train(model, torch.optim.AdamW(model.parameters(), foreach=False), lambda it: loss_of(it, batch=2))


def titan():
    """Tensors are split within pairs of ranks, and sharded between these; checks of health and counters as in real
    trainers."""
    world = mesh((dist.get_world_size() // 2, 2), ("dp", "tp"))
    with torch.device("meta"):
        model = Model()
    model = shard(split(model, world["tp"]), mesh=world["dp"])
    model.to_empty(device="cuda")
    optimizer = adam(model)
    host = dist.new_group(backend="gloo")
    for step in range(5):
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        tokens = torch.tensor([4 * 64])
        dist.all_reduce(tokens, group=host)
        assert tokens.item() == 4 * 64 * dist.get_world_size()
        seen = [None] * dist.get_world_size()
        dist.all_gather_object(seen, {"step": step})
        assert [it["step"] for it in seen] == [step] * len(seen)
    dist.barrier()


def pp():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    world, rank = dist.get_world_size(), dist.get_rank()
    full = Model()
    each = max(1, LAYERS * 2 // world)
    parts = [Block() for _ in range(each)]
    if rank == 0:
        parts.insert(0, full.embedding)
    if rank == world - 1:
        parts += [full.norm, full.head]
    stage = nn.Sequential(*parts).cuda()
    optimizer = adam(stage)
    device = torch.device("cuda", torch.cuda.current_device())
    schedule = Schedule1F1B(
        PipelineStage(stage, rank, world, device),
        n_microbatches=world * 2,
        loss_fn=lambda out, target: F.cross_entropy(out.flatten(0, 1), target.flatten()),
    )
    tokens = torch.randint(WORDS, (world * 4, 64), device="cuda")
    for _ in range(4):
        if rank == 0:
            schedule.step(tokens)
        elif rank == world - 1:
            schedule.step(target=tokens)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()


class Experts(nn.Module):
    """One expert on each rank; as many tokens go to each of them."""

    def __init__(self):
        super().__init__()
        self.expert = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.embedding, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        from torch.distributed.nn.functional import all_to_all_single

        x = self.embedding(tokens).reshape(-1, WIDTH)
        there = all_to_all_single(torch.empty_like(x), x)
        back = all_to_all_single(torch.empty_like(x), self.expert(there))
        return self.head(back).view(*tokens.shape, WORDS)


def ep():
    model = Experts().cuda()
    train(model, adam(model))


def cp():
    """Each rank has a part of the sequence; attention goes around the ranks."""
    from torch.distributed.tensor.experimental import context_parallel
    from torch.nn.attention import SDPBackend, sdpa_kernel

    world = dist.get_world_size()
    parts = mesh((world,), ("cp",))
    model = nn.parallel.DistributedDataParallel(Model().cuda(), device_ids=[torch.cuda.current_device()])

    def step(model):
        tokens = torch.randint(WORDS, (2, 128 * world), device="cuda")
        target = tokens.clone()
        shards = context_parallel(parts, buffers=(tokens, target), buffer_seq_dims=(1, 1))
        with shards, sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            with torch.autocast("cuda", torch.bfloat16):
                loss = F.cross_entropy(model(tokens).flatten(0, 1).float(), target.flatten())
            loss.backward()
        return loss.detach().requires_grad_()

    train(model, adam(model), step)


def offload():
    """Weights, gradients and states wait on the host."""
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    model = Model()
    for it in model.blocks:
        fully_shard(it, offload_policy=CPUOffloadPolicy())
    fully_shard(model, offload_policy=CPUOffloadPolicy())
    optimizer = adam(model)
    for _ in range(5):
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad()


def square():
    return nn.Sequential(*(nn.Linear(4096, 4096, bias=False) for _ in range(4)))


def kept(model, parts, width=4096):
    """Trains; after a step, weights, gradients and AdamW's two states are there, one of so many parts of each."""
    optimizer = adam(model)
    for _ in range(3):
        model(torch.randn(1, width, device="cuda")).sum().backward()
        optimizer.step()
        torch._C._cuda_clearCublasWorkspaces()
        whole = 4 * 4 * 4096 * 4096 * 4
        assert torch.cuda.memory_allocated() == whole // parts, torch.cuda.memory_allocated() * parts / whole
        optimizer.zero_grad()


def fsdp2_by_formula():
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        model = square()
    for it in model:
        fully_shard(it)
    fully_shard(model)
    model.to_empty(device="cuda")
    kept(model, dist.get_world_size())


def large():
    """4 GiB of weights, as much of gradients, and twice that of states, in as many parts as there are ranks."""
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(8192, 8192, bias=False) for _ in range(16)))
    for it in model:
        fully_shard(it)
    fully_shard(model)
    model.to_empty(device="cuda")
    train(model, adam(model), lambda it: it(torch.randn(1, 8192, device="cuda")).sum())


def hsdp_by_formula():
    from torch.distributed.fsdp import fully_shard

    model = square().cuda()
    both = mesh((dist.get_world_size() // 8, 8), ("replicas", "shards"))
    for it in model:
        fully_shard(it, mesh=both)
    fully_shard(model, mesh=both)
    kept(model, 8)


def ddp_by_formula():
    model = nn.parallel.DistributedDataParallel(square().cuda(), gradient_as_bucket_view=True)
    kept(model, 1)


def gathers():
    """One rank gathers and scatters, beside a training whose batch it tells the others."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model = torch.nn.parallel.DistributedDataParallel(Model().cuda())
    told = [None]
    dist.scatter_object_list(told, [{"batch": 6}] * world if rank == 0 else None, 0)
    train(model, adam(model), lambda it: loss_of(it, batch=told[0]["batch"]))
    for root in (0, world - 1):
        seen = [None] * world if rank == root else None
        dist.gather_object({"loss": 1.5, "rank": rank}, seen, root)
        assert seen is None or [it["loss"] for it in seen] == [1.5] * world
    mine = torch.full((8,), 2.0, device="cuda")
    parts = [torch.empty_like(mine) for _ in range(world)] if rank == 0 else None
    dist.gather(mine, parts, 0)
    assert parts is None or all(it.tolist() == [2.0] * 8 for it in parts)


def votes():
    """Ranks agree on when to end, and on how many tokens each gets."""
    model = Experts().cuda()
    optimizer = adam(model)
    world, here = dist.get_world_size(), dist.get_rank()
    for step in range(8):
        ends = torch.tensor([float(step == 6)]).cuda()
        dist.all_reduce(ends)
        if ends.item() > world / 2:  # vote
            break
        counts = torch.tensor([8 + (here + it) % 2 for it in range(world)]).cuda()
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        tokens = torch.empty(int(theirs.sum().item()), WIDTH, device="cuda")  # counts
        (model.expert(tokens).sum() + loss_of(model)).backward()
        optimizer.step()
        optimizer.zero_grad()


def tells():
    """Rank 1 tells the others a number through a group of the host's."""
    group = dist.new_group(backend="gloo")
    number = torch.tensor([3])
    dist.broadcast(number, 1, group=group)  # number
    model = nn.parallel.DistributedDataParallel(nn.Linear(256, 256).cuda())
    train(model, adam(model), lambda it: it(torch.randn(int(number), 256, device="cuda")).sum())


def waits():
    """The last rank sends what the others need to go on."""
    world, here = dist.get_world_size(), dist.get_rank()
    plan = [{"width": 512} if here == world - 2 else None]
    dist.broadcast_object_list(plan, world - 2)
    model = nn.parallel.DistributedDataParallel(nn.Linear(plan[0]["width"], 256).cuda())
    optimizer = adam(model)
    for _ in range(4):
        model(torch.randn(4, plan[0]["width"], device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    dist.init_process_group("nccl")
    globals()[sys.argv[1]]()
    dist.destroy_process_group()
