"""A training between several ranks: `ranks.py WRAPPER [EDIT…]`, where an edit is what somebody would write by hand."""

import sys

import torch
import torch.distributed as dist
from torch import nn

WRAPPER, EDITS = sys.argv[1], set(sys.argv[2:])
WIDTH = 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(64, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(6))
        self.leave = nn.Linear(WIDTH, 64, bias=False)

    def forward(self, x):
        x = self.enter(x)
        for it in self.blocks:
            x = it(x)
        return self.leave(x)


def data_parallel(model):
    from torch.distributed.fsdp import fully_shard

    options = {"reshard_after_forward": False} if "zero:2" in EDITS else {}
    if not options and "zero:3" not in EDITS:
        return nn.parallel.DistributedDataParallel(model)
    for it in model.blocks:
        fully_shard(it, **options)
    return fully_shard(model, **options)


def second(model):
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    options = {} if "reshard" in EDITS else {"reshard_after_forward": False}
    if "offload" in EDITS:
        options["offload_policy"] = CPUOffloadPolicy()
    for it in model.blocks:
        fully_shard(it, **options)
    return fully_shard(model, **options)


def first(model):
    from torch.distributed.fsdp import CPUOffload, FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    strategy = ShardingStrategy.FULL_SHARD if "reshard" in EDITS else ShardingStrategy.SHARD_GRAD_OP
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy([Block]),
        device_id=torch.cuda.current_device(),
        sharding_strategy=strategy,
        cpu_offload=CPUOffload(offload_params="offload" in EDITS),
    )


def adam(model):
    if "zero:1" in EDITS:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-4)
    return torch.optim.Adam(model.parameters(), lr=1e-4)


def train():
    model = Model().cuda()
    optimizer = adam(model) if WRAPPER == "early" else None
    model = {"fsdp1": first, "fsdp2": second}.get(WRAPPER, data_parallel)(model)
    optimizer = optimizer or adam(model)
    for at in range(5):
        if WRAPPER == "ddp":
            # Gradients of two batches.
            with model.no_sync() if hasattr(model, "no_sync") else not_synced(model):
                model(torch.randn(128, 64, device="cuda")).square().mean().backward()
        model(torch.randn(128, 64, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


class not_synced:
    def __init__(self, model):
        self.model = model

    def __enter__(self):
        self.model.set_requires_gradient_sync(False)

    def __exit__(self, *_):
        self.model.set_requires_gradient_sync(True)


def deepspeed():
    import deepspeed

    stage = next((int(it[-1]) for it in EDITS if it.startswith("zero:")), 1 if "offload" in EDITS else 0)
    zero = {"stage": stage}
    config = {"train_micro_batch_size_per_gpu": 128, "bf16": {"enabled": True}, "zero_optimization": zero}
    if "offload" in EDITS:
        zero["offload_optimizer"] = {"device": "cpu"}
        config["zero_force_ds_cpu_optimizer"] = False
    if "staged" in EDITS:
        zero["stage"] = max(stage, 1)
    model = Model().cuda()
    engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=config)
    for _ in range(5):
        x = torch.randn(128, 64, device="cuda", dtype=torch.bfloat16)
        engine.backward(engine(x).square().mean())
        engine.step()


if WRAPPER == "deepspeed":
    import deepspeed as library

    library.init_distributed("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    deepspeed()
else:
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    train()
