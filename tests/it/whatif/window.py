# Loops that use the cache, each in its own way. For each named loop, and each of the settings, a child runs it; the one
# with the first settings writes a trace of the later half alone. Prints the peaks.
import json
import os
import random
import sys

import torch

MIB, STEPS = 1 << 20, 60


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


def streams(step, kept):
    """Streams with little on each: larger pages are wasted."""
    for stream in STREAMS:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream) if stream else torch.cuda.default_stream()):
            held = [block(10.5), block(random.uniform(0.5, 0.9))]
            del held


def steady(step, kept):
    """The same sizes in every step."""
    held = [block(it) for it in (40, 20, 60, 20, 100, 40)]
    kept[:] = held[:1]


def small(step, kept):
    """Many small blocks that come and go together."""
    held = [block(random.choice((0.125, 0.25, 0.5))) for _ in range(200)]
    kept[:] = held[::20]


def whole(step, kept):
    """Blocks of whole pages that are freed in the order in which they came."""
    kept.append(block(20 * random.choice((1, 2, 3))))
    while sum(it.numel() for it in kept) > 300 * MIB:
        kept.pop(0)


def resized(step, kept):
    """One size that varies a little, many times at once: rounding makes the blocks equal."""
    kept[:] = [block(random.uniform(13, 16)) for _ in range(12)] + kept[:12:2]


def pinned(step, kept):
    """Large blocks that grow, each with a small one that stays behind it."""
    held = block(60 + 4 * (step % 20))
    kept[:] = [block(1.2)] + kept[:12]
    del held


def alternating(step, kept):
    """Two sizes in turn on several streams: rounding makes them one, and larger pages waste a part."""
    for stream in STREAMS:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream) if stream else torch.cuda.default_stream()):
            block(47 if step % 2 else 42)


def mixed(step, kept):
    """Blocks of about one size that go in any order."""
    kept += [block(random.uniform(9, 12)) for _ in range(6)]
    while len(kept) > 24:
        kept.pop(random.randrange(len(kept)))


STREAMS = (0,)
LOOPS = [lengths, growing, turns, evaluation, images, buckets, queue, experts, decoding, schedule]
LOOPS += [streams, steady, small, whole, resized, pinned, alternating, mixed]


def run(number, snapshot):
    """Returns the peak of reserved memory."""
    random.seed(number)
    kept = []
    for step in range(STEPS):
        if step == STEPS // 2 and snapshot:
            torch.cuda.memory._record_memory_history("all", context=None, max_entries=1 << 20)
        LOOPS[number](step, kept)
    if snapshot:
        torch.cuda.memory._dump_snapshot(snapshot)
    return torch.cuda.memory_stats()["reserved_bytes.all.peak"]


def in_child(number, settings, snapshot):
    reading, writing = os.pipe()
    if not os.fork():
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = settings
        global STREAMS
        if LOOPS[number] in (streams, alternating):
            STREAMS = tuple(torch.cuda.Stream().cuda_stream for _ in range(8))
        os.write(writing, str(run(number, snapshot)).encode())
        os._exit(0)
    os.wait()
    return int(os.read(reading, 99))


folder, numbers, settings = sys.argv[1], map(int, sys.argv[2].split(",")), sys.argv[3:]
for number in numbers:
    snapshot = "%s/%d.pickle" % (folder, number)
    peaks = [in_child(number, it, snapshot if it == settings[0] else None) for it in settings]
    print(json.dumps({"number": number, "name": LOOPS[number].__name__, "peaks": peaks}))
