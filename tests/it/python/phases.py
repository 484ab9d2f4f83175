"""Trainings whose later phases need memory that training does not, each with a healthy twin (`case`, then `bad` or
`good`)."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

CASE, IS_BAD = sys.argv[1], sys.argv[2] == "bad"
WIDTH = 1024


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4096))

    def forward(self, x):
        return self.layers(x)

    @torch.no_grad()
    def generate(self, rows, count):
        kept = None
        for _ in range(count):
            out = self(torch.randn(rows, 256, device="cuda"))[:, :1024].clone()
            kept = out if kept is None or not IS_BAD else torch.cat([kept, out])  # generate
        return kept


class Words(Dataset):
    """Items of different lengths; one is long."""

    def __len__(self):
        return 301

    def __getitem__(self, place):
        return torch.randn(512 if IS_BAD and place == 297 else 8 + place % 5, 256)


def padded(items):
    return nn.utils.rnn.pad_sequence(items, batch_first=True)


def data(rows, batch):
    return DataLoader(TensorDataset(torch.randn(rows, 256)), batch_size=batch)


def step(net, optimizer, x):
    net(x.cuda()).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def evaluate(net, loader=None):
    """Keeps what it computes on the device, or takes it to the host."""
    net.eval()
    kept = []
    with torch.no_grad():
        for (x,) in loader or data(64 * 256, 256):
            out = net(x.cuda())
            kept.append(out if IS_BAD else out.cpu())
    net.train()
    return torch.cat(kept)  # together


def epochs(net, optimizer):
    loader = data(10_000, 64)
    for _ in range(50):
        for (x,) in loader:
            step(net, optimizer, x)
        evaluate(net)


def workers(net, optimizer):
    """Evaluates with workers that stay, also before the first step."""
    rows = TensorDataset(torch.randn(64 * 256, 256))
    loader = DataLoader(rows, batch_size=256, num_workers=1, persistent_workers=True)
    with torch.no_grad():
        for (x,) in loader:
            net(x.cuda())
    for _ in range(50):
        for (x,) in data(10_000, 64):
            step(net, optimizer, x)
        evaluate(net, loader)


def intervals(net, optimizer):
    for number in range(1_000_000):
        step(net, optimizer, torch.randn(64, 256))
        if (number + 1) % 5000 == 0:
            evaluate(net)


def at_a_step(net, optimizer):
    number = 0
    while number < 90_000:
        number += 1
        if number == 40_000:
            big = torch.zeros(200 << 20 if IS_BAD else 1, device="cuda")  # late
            del big
        step(net, optimizer, torch.randn(64, 256))


def saves(net, optimizer):
    for number in range(1_000_000):
        step(net, optimizer, torch.randn(64, 256))
    state = net.state_dict()
    if IS_BAD:
        state = {name: torch.cat([it] * 32) for name, it in state.items()}  # copy
    torch.save(state, sys.argv[3])


def resumes(net, optimizer):
    torch.save([torch.zeros(150 << 20), net.state_dict()], sys.argv[3])
    _, state = torch.load(sys.argv[3], map_location="cuda" if IS_BAD else "cpu")  # load
    net.load_state_dict(state)
    epochs_of_training(net, optimizer)


def epochs_of_training(net, optimizer):
    for _ in range(3):
        for (x,) in data(640, 64):
            step(net, optimizer, x)


def generates(net, optimizer):
    epochs_of_training(net, optimizer)
    net.generate(256, 300)


def lengths(net, optimizer):
    for _ in range(20):
        for x in DataLoader(Words(), batch_size=16, shuffle=True, collate_fn=padded):
            step(net, optimizer, x)  # long


def modes(net, optimizer):
    """Evaluates with gradients, and keeps the graphs of all batches."""
    epochs_of_training(net, optimizer)
    net.eval()
    total = 0
    for (x,) in data(128 * 256, 256):
        loss = net(x.cuda()).pow(2).mean()
        total = total + (loss if IS_BAD else loss.detach())  # graph


class Counts:
    """A trainer of one's own, whose evaluation makes its buffers before it calls the module."""

    def __init__(self):
        self.steps = 0

    def fit(self, net, optimizer):
        for _ in range(1000):
            for (x,) in data(64_000, 64):
                step(net, optimizer, x)
                self.steps += 1
                if self.steps % 7000 == 0:
                    self.evaluate(net)

    @torch.inference_mode()
    def evaluate(self, net):
        buffers = torch.zeros(200 << 20 if IS_BAD else 1, device="cuda")
        return net(torch.randn(4, 256, device="cuda")), buffers


def counts(net, optimizer):
    Counts().fit(net, optimizer)


def longer(net, optimizer):
    rows = 64
    for number in range(10_000):
        if number == 5000:
            rows *= 256 if IS_BAD else 1
        step(net, optimizer, torch.randn(rows, 256))


def never(net, optimizer):
    """What no step enters is not entered."""
    debugs = False
    for number in range(3000):
        step(net, optimizer, torch.randn(64, 256))
        if debugs and number % 100 == 0:
            torch.zeros(1 << 30, device="cuda")
        if number % 5000 == 4999:
            torch.zeros(1 << 30, device="cuda")
        if number < 0:
            torch.zeros(1 << 30, device="cuda")


def fails(net, optimizer):
    """Fails after training; its answer is that of training."""
    epochs_of_training(net, optimizer)
    raise ValueError("no place to write to")  # fails


ALL = epochs, workers, intervals, at_a_step, saves, resumes, generates, lengths, modes, counts, longer, never, fails
JOBS = {it.__name__: it for it in ALL}
net = Net().cuda()
JOBS[CASE](net, torch.optim.SGD(net.parameters(), 0.1))
