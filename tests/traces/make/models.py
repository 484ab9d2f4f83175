"""Small models and their batches: as many kinds as make steps differ, none larger than it must be."""

import torch
import torch.nn.functional as F
from torch import nn


class Vision(nn.Module):
    """Convolutions without the library's: unfolded, so that images of any size pass."""

    def __init__(self, channels=8, classes=10):
        super().__init__()
        self.first, self.second = nn.Linear(27, channels), nn.Linear(9 * channels, 2 * channels)
        self.norm, self.head = nn.LayerNorm(2 * channels), nn.Linear(2 * channels, classes)

    @staticmethod
    def convolve(x, layer):
        b, _, h, w = x.shape
        return layer(F.unfold(x, 3, padding=1).transpose(1, 2)).transpose(1, 2).reshape(b, -1, h, w)

    def features(self, x):
        x = F.max_pool2d(F.relu(self.convolve(x, self.first)), 2)
        x = F.relu(self.convolve(x, self.second))
        return self.norm(x.mean((2, 3)))

    def forward(self, x):
        return self.head(self.features(x))


class Encoder(nn.Module):
    """A transformer's encoder over token ids."""

    def __init__(self, words=500, width=64, layers=2, heads=4):
        super().__init__()
        self.words, self.token = words, nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, ids):
        return self.head(self.layers(self.token(ids)))

    def loss(self, ids):
        return F.cross_entropy(self(ids).flatten(0, 1), ids.flatten())


class Recurrent(nn.Module):
    """A GRU's cell, unrolled by hand."""

    def __init__(self, width=32, hidden=64):
        super().__init__()
        self.cell, self.head = nn.GRUCell(width, hidden), nn.Linear(hidden, 1)

    def forward(self, x, state):
        for at in range(x.shape[1]):
            state = self.cell(x[:, at], state)
        return self.head(state), state


def dense(*widths):
    """Linear layers with activations between them."""
    layers = []
    for at in range(len(widths) - 1):
        layers += [nn.Linear(widths[at], widths[at + 1]), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


def ids(batch, length, words=500):
    return torch.randint(0, words, (batch, length)).cuda()


def images(batch, side):
    return torch.randn(batch, 3, side, side).cuda()


def lengths(run, mean, most):
    """A sentence's length: log-normal, as lengths are."""
    return max(4, min(most, int(run.random.lognormvariate(0, 0.6) * mean)))


def descend(loss, optimizer):
    """The end of a plain training step."""
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
