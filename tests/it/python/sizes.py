"""Trainings whose steps differ in size, by the name of a function. Each prints, when it is over, the most bytes that were
allocated and reserved."""

import os
import random
import sys

import numpy
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset

# The largest of each of these sizes is drawn by a run to its end.
random.seed(2)
torch.manual_seed(2)
# Made before CUDA is used for the first time.
GENERATOR, STATE = numpy.random.default_rng(2), numpy.random.RandomState(2)
VOCABULARY, WIDTH, LONGEST = 3000, 192, 700


class Texts(Dataset):
    def __init__(self, count):
        drawn = random.Random(7)
        self.lengths = [min(LONGEST, max(16, int(drawn.lognormvariate(4.6, 0.8)))) for _ in range(count)]
        # One of them is far longer than the others.
        self.lengths[count // 2] = LONGEST

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, at):
        return torch.ones(self.lengths[at], dtype=torch.long)


class Stream(IterableDataset):
    def __iter__(self):
        drawn = random.Random(3)
        for _ in range(1200):
            yield torch.ones(drawn.randint(5, 300), dtype=torch.long)


def pad(items):
    return nn.utils.rnn.pad_sequence(items, batch_first=True)


def language_model():
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
    return nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), layer, nn.Linear(WIDTH, VOCABULARY)).cuda()


def train(model, batches, every=1):
    optimizer = torch.optim.AdamW(model.parameters())
    for at, x in enumerate(batches):
        y = model(x.cuda())
        (y.float().square().mean() / every).backward()
        if (at + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad()


def texts():
    train(language_model(), DataLoader(Texts(1200), batch_size=8, shuffle=True, collate_fn=pad))


def workers():
    loader = DataLoader(Texts(2400), batch_size=4, shuffle=True, collate_fn=pad, num_workers=2)
    train(language_model(), loader, every=4)


def stream():
    train(language_model(), DataLoader(Stream(), batch_size=8, collate_fn=pad))


def pick():
    return random.choice([64, 96, 128, 192, 256, 384, 512])


def made(count, length):
    return torch.ones(count, length, dtype=torch.long)


def drawn():
    train(language_model(), (made(8, pick()) for _ in range(150)))


def pictures(side):
    layers = [nn.Conv2d(3, 32, 3, 2, 1), nn.SiLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.SiLU(), nn.Conv2d(64, 8, 1)]
    train(nn.Sequential(*layers).cuda(), (F.interpolate(torch.ones(4, 3, 32, 32), size=(it, it)) for it in side))


def scales():
    """Another size at every tenth step."""
    size = 0
    for step in range(150):
        if step % 10 == 0:
            size = random.randrange(192, 448 + 1, 32)
        yield size


def numbers():
    numpy.random.seed(2)
    for _ in range(150):
        yield int(numpy.random.choice([160, 192, 256, 352])) + 32 * numpy.random.randint(0, 4)


def generators():
    for _ in range(150):
        drawn = GENERATOR.integers(0, 4, endpoint=True) + int(GENERATOR.random() * 3) + STATE.randint(2)
        yield 160 + 32 * int(drawn)


def tensors():
    for _ in range(150):
        yield torch.randint(128, 449, (1,)).item()


def boxes():
    """Corners that must differ, of pictures whose size is drawn too."""
    for _ in range(150):
        size = random.randint(128, 384)
        left = right = 0
        while left >= right:
            left, right = random.randint(0, size), random.randint(0, size)
        assert left < right
        yield len(torch.empty(size)[:right]) + size - right


def constant():
    train(language_model(), (made(8, 256) for _ in range(60)))


def offsets():
    """Parts of one size from places that are drawn, in a function that is compiled as a whole."""
    layer, data = nn.Linear(64, 64).cuda(), torch.ones(100_000, 64)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    @torch.compile(fullgraph=True, backend="eager")
    def loss(x):
        noise = torch.randint(0, 1000, (x.shape[0],), device=x.device)
        return (layer(x) * noise[:, None]).mean()

    for _ in range(60):
        at = random.randint(0, len(data) - 256)
        places = torch.randint(len(data) - 32, (8,))
        x = torch.cat([data[at : at + 256]] + [data[it : it + 32] for it in places])
        loss(x.cuda()).backward()
        optimizer.step()
        optimizer.zero_grad()


{
    "texts": texts,
    "workers": workers,
    "stream": stream,
    "drawn": drawn,
    "scales": lambda: pictures(scales()),
    "numbers": lambda: pictures(numbers()),
    "generators": lambda: pictures(generators()),
    "tensors": lambda: pictures(tensors()),
    "boxes": lambda: pictures(boxes()),
    "constant": constant,
    "offsets": offsets,
}[sys.argv[1]]()
print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
if "gpuwatch_probe" not in sys.modules:
    # The threads of PyTorch's backward sometimes abort a process that ends at once.
    os._exit(0)
