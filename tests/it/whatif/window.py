# Ten loops that fragment the cache, each in its own way; SNAPSHOT names the file for a trace of the later half alone.
import json
import os
import random
import sys

import torch

MIB = 1 << 20
number, steps = int(sys.argv[1]), 60
random.seed(number)


def block(mib):
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")


def lengths(step, kept):
    """Batches of any length, through layers."""
    length = random.uniform(0.1, 1)
    layers = [block(40 * length) for _ in range(12)]
    del layers[::2]
    kept[:] = [block(3 * length)] + kept[:6]


def growing(step, kept):
    """A cache that is copied into a larger one."""
    kept[:] = [block(8 + 2 * step)]
    [block(random.uniform(2, 30)) for _ in range(8)]


def turns(step, kept):
    """Large and small batches take turns, and something small stays."""
    size = 90 if step % 2 else 33
    held = [block(size * random.uniform(0.8, 1.2)) for _ in range(6)]
    kept[:] = [block(1.5)] + kept[:9]
    del held


def evaluation(step, kept):
    """An evaluation with other sizes every ten steps."""
    sizes = (17, 55, 130) if step % 10 == 9 else (24, 48, 70)
    held = [block(it * random.uniform(0.9, 1.1)) for it in sizes for _ in range(3)]
    kept[:] = [block(2.2)] + kept[:5]
    del held


def images(step, kept):
    """Images of any width and height."""
    held = [block(random.randint(3, 12) * random.randint(3, 12)) for _ in range(10)]
    kept[:] = held[::5] + kept[:2]


def buckets(step, kept):
    """Sequences in buckets that rise."""
    held = [block((20 + 3 * (step % 15)) * it) for it in (1, 1.5, 2, 0.7)]
    kept[:] = [block(4 + step % 7)] + kept[:4]
    del held


def queue(step, kept):
    """A queue of samples of different sizes."""
    kept.append(block(random.uniform(1, 60)))
    while sum(it.numel() for it in kept) > 400 * MIB:
        kept.pop(random.randrange(len(kept)))


def experts(step, kept):
    """Experts that get different shares of the tokens."""
    shares = [random.random() for _ in range(8)]
    held = [block(1 + 200 * it / sum(shares)) for it in shares]
    out = [block(1 + 150 * it / sum(shares)) for it in shares]
    kept[:] = [out[0]] + kept[:3]
    del held


def decoding(step, kept):
    """Requests whose caches grow token by token and that end at any time."""
    kept[:] = [block(it.numel() / MIB + 2.5) for it in kept if random.random() > 0.08]
    if len(kept) < 10:
        kept.append(block(random.uniform(2, 20)))


def schedule(step, kept):
    """A resolution that rises over the run."""
    side = 1 + step / 20
    held = [block(9 * side * it * random.uniform(0.95, 1.05)) for it in (1, 2, 4, 2, 1)]
    kept[:] = [held[1]] + kept[:1]


loop = [lengths, growing, turns, evaluation, images, buckets, queue, experts, decoding, schedule][number]
kept = []
for step in range(steps):
    if step == steps // 2 and os.environ.get("SNAPSHOT"):
        torch.cuda.memory._record_memory_history("all", context=None, max_entries=1 << 20)
    loop(step, kept)
if os.environ.get("SNAPSHOT"):
    torch.cuda.memory._dump_snapshot(os.environ["SNAPSHOT"])
print(json.dumps({"peak_reserved": torch.cuda.memory_stats()["reserved_bytes.all.peak"]}))
