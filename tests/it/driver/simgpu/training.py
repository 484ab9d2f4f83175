"""Training loops: memory is the same every step, twice over, and evaluation keeps nothing."""

import gc

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

V, D, H, T = 1000, 128, 4, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D), nn.Dropout(0.1))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, t, 3, H, D // H).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, D))
        return x + self.mlp(self.second(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(V, D), nn.Embedding(T, D)
        self.blocks = nn.Sequential(Block(), Block(), Block())
        self.norm, self.head = nn.LayerNorm(D), nn.Linear(D, V, bias=False)

    def forward(self, ids):
        x = self.token(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.through(x)))

    def through(self, x):
        return self.blocks(x)


class Checkpointed(GPT):
    """Keeps what goes into each block, and runs the block again in backward."""

    def through(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def mlp():
    return nn.Sequential(nn.Linear(256, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, V))


def batch(kind):
    x = torch.randn(32, 256) if kind is mlp else torch.randint(0, V, (4, T))
    y = torch.randint(0, V, (32,) if kind is mlp else (4, T))
    return x.cuda(non_blocking=True), y.cuda(non_blocking=True)


def train(kind, optimizer, dtype=None, accumulate=1, steps=8, **options):
    torch.manual_seed(0)
    model = kind().cuda()
    optimizer = optimizer(model.parameters(), lr=1e-3, **options)
    scaler = torch.amp.GradScaler("cuda", enabled=dtype is torch.float16)
    figures = []
    for _ in range(steps):
        for _ in range(accumulate):
            x, y = batch(kind)
            with torch.autocast("cuda", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
                z = model(x)
                loss = F.cross_entropy(z.view(-1, V), y.view(-1)) / accumulate
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        del x, y, z, loss
        torch.cuda.synchronize()
        figures.append((torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()))
    before = torch.cuda.memory_allocated()
    model.eval()
    with torch.no_grad():
        model(batch(kind)[0])
    assert torch.cuda.memory_allocated() == before, "evaluation keeps nothing"
    assert optimizer.state, "the optimizer stepped: no found_inf skipped it"
    assert len({it for it, _ in figures[2:]}) == 1, figures
    return figures


LOOPS = {
    "mlp sgd": lambda: train(mlp, torch.optim.SGD, momentum=0.9),
    "mlp adam": lambda: train(mlp, torch.optim.Adam),
    "mlp adamw loop": lambda: train(mlp, torch.optim.AdamW, foreach=False),
    "gpt adamw": lambda: train(GPT, torch.optim.AdamW),
    "gpt checkpointed": lambda: train(Checkpointed, torch.optim.AdamW),
    "gpt fused fp16 scaler accumulate": lambda: train(GPT, torch.optim.AdamW, torch.float16, 3, fused=True),
    "gpt bf16": lambda: train(GPT, torch.optim.AdamW, torch.bfloat16),
}
peaks = {}
for name, loop in LOOPS.items():
    seen = []
    for _ in range(2):
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        seen.append(loop())
    assert seen[0][1:] == seen[1][1:], (name, seen)
    peaks[name] = seen[1][-1][1]
    print(name)
assert peaks["gpt checkpointed"] < peaks["gpt adamw"], peaks
