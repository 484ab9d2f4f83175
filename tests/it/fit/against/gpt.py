"""A GPT trainer: a file of tokens, micro-batches, a schedule of the rate, estimates of the loss, checkpoints."""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    block: int = 64
    vocabulary: int = 2048
    layers: int = 3
    heads: int = 4
    width: int = 128
    dropout: float = 0.0


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).split(width, dim=2)
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = q.view(shape).transpose(1, 2), k.view(shape).transpose(1, 2), v.view(shape).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.first = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.second = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, 4 * config.width, bias=False)
        self.down = nn.Linear(4 * config.width, config.width, bias=False)

    def forward(self, x):
        x = x + self.attention(self.first(x))
        hidden = F.gelu(self.up(self.second(x)))
        return x + self.down(hidden)


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.places = nn.Embedding(config.block, config.width)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.tokens.weight = self.head.weight

    def forward(self, ids, targets=None):
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.tokens(ids) + self.places(places)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        if targets is None:
            return self.head(x[:, [-1], :]), None
        logits = self.head(x)
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return logits, loss


def get_batch(data, config, size):
    at = torch.randint(len(data) - config.block - 1, (size,)).tolist()
    ids = torch.stack([data[it : it + config.block] for it in at])
    targets = torch.stack([data[it + 1 : it + 1 + config.block] for it in at])
    return ids.cuda(), targets.cuda()


@torch.no_grad()
def estimate(model, data, config):
    model.eval()
    losses = torch.zeros(4)
    for number in range(4):
        ids, targets = get_batch(data, config, 8)
        logits, loss = model(ids, targets)
        losses[number] = loss.item()
    model.train()
    return losses.mean()


def rate_at(step, warmup=5, most=1e-3, steps=40):
    if step < warmup:
        return most * (step + 1) / warmup
    return most * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def main():
    config = Config()
    data = torch.randint(0, config.vocabulary, (20_000,))
    model = GPT(config).cuda()
    decayed = [it for it in model.parameters() if it.dim() > 1]
    others = [it for it in model.parameters() if it.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))
    for step in range(40):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step)
        for micro in range(2):
            ids, targets = get_batch(data, config, 8)
            with torch.autocast("cuda", torch.bfloat16):
                logits, loss = model(ids, targets)
            (loss / 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 20 == 0:
            estimate(model, data, config)


main()
