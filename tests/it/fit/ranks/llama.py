"""A Llama 3.1 of 8 billion parameters, sharded by FSDP2, with half of its products kept for backward: the training whose
memory torchtitan published (December 2024)."""

import os
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

LAYERS, WIDTH, HIDDEN, HEADS, GROUPS, WORDS = 32, 4096, 14336, 32, 8, 128256
LENGTH, BATCH, EACH = 8192, 2, WIDTH // HEADS
ATEN = torch.ops.aten
KEPT = {
    ATEN.mm.default,
    ATEN._scaled_dot_product_efficient_attention.default,
    ATEN._scaled_dot_product_flash_attention.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
}


def linear(into, out):
    return nn.Linear(into, out, bias=False)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        wide = x.float()
        scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-5)
        return (wide * scale).type_as(x) * self.weight


def rotated(x, angles):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * angles[: x.shape[1], None]).flatten(3).type_as(x)


def repeated(x):
    batch, length, groups, each = x.shape
    many = x[:, :, :, None].expand(batch, length, groups, HEADS // GROUPS, each)
    return many.reshape(batch, length, HEADS, each)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.second_norm = Norm(), Norm()
        self.q, self.o = linear(WIDTH, WIDTH), linear(WIDTH, WIDTH)
        self.k, self.v = linear(WIDTH, GROUPS * EACH), linear(WIDTH, GROUPS * EACH)
        self.gate, self.up, self.down = linear(WIDTH, HIDDEN), linear(WIDTH, HIDDEN), linear(HIDDEN, WIDTH)

    def attend(self, x, angles):
        batch, length, _ = x.shape
        q, k, v = (it(x).view(batch, length, -1, EACH) for it in (self.q, self.k, self.v))
        q, k = rotated(q, angles), rotated(k, angles)
        q, k, v = (it.transpose(1, 2) for it in (q, repeated(k), repeated(v)))
        x = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(x.transpose(1, 2).contiguous().view(batch, length, -1))

    def forward(self, x, angles):
        x = x + self.attend(self.norm(x), angles)
        y = self.second_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = Norm(), linear(WIDTH, WORDS)
        self.register_buffer("angles", torch.zeros(2 * LENGTH, EACH // 2, dtype=torch.complex64))

    def forward(self, tokens):
        x = self.embedding(tokens)
        for it in self.blocks:
            x = it(x, self.angles)
        return self.head(self.norm(x))


def contexts():
    products = defaultdict(int)

    def policy(context, function, *arguments, **named):
        is_product = function == ATEN.mm.default
        products[context.is_recompute] += is_product
        keeps = function in KEPT and not (is_product and products[context.is_recompute] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    # PyTorch of that time took flash attention.
    torch.backends.cuda.enable_cudnn_sdp(False)
    with torch.device("meta"):
        model = Llama()
    precision = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    for at, block in enumerate(model.blocks):
        block = checkpoint_wrapper(block, context_fn=contexts, preserve_rng_state=False)
        model.blocks[at] = fully_shard(block, mp_policy=precision, reshard_after_forward=at < LAYERS - 1)
    fully_shard(model, mp_policy=precision)
    model.to_empty(device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    for _ in range(5):
        tokens = torch.randint(WORDS, (BATCH, LENGTH), device="cuda")
        optimizer.zero_grad()
        out = model(tokens)
        loss = F.cross_entropy(out.flatten(0, 1).float(), tokens.flatten())
        del out
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()


main()
