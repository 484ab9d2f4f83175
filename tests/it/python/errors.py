"""Jobs that run out of memory in different ways, each in a forked child that has its own probe; prints their pids."""

import json
import multiprocessing
import sys

import torch

MIB = 1 << 20


def tensor(mib):
    return torch.empty(mib, 256, 1024, device="cuda")


class Encoder(torch.nn.Module):
    """Keeps one block of its input's size for each layer until backward has passed it."""

    def __init__(self, width=256, layers=6):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=False) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = torch.sigmoid(layer(x))
        return x


def make():
    net = Encoder().cuda()
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


def learn(net, rows):
    # 1 MiB a thousand rows, for each layer twice.
    net(torch.zeros(rows, 256, device="cuda")).mean().backward()


def train(net, optimizer, steps, rows=16_000):
    for _ in range(steps):
        learn(net, rows)
        optimizer.step()
        optimizer.zero_grad()


def fallback(net, rows):
    """A retry within the block that handles the error, which has no name here."""
    try:
        learn(net, rows)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        for _ in range(2):
            learn(net, rows // 2)  # RETRY


def retry_inside():
    net, optimizer = make()
    train(net, optimizer, 20)
    fallback(net, 600_000)


def retry_kept():
    """The block has ended, and a list keeps the error."""
    net, optimizer = make()
    train(net, optimizer, 20)
    failures = []
    for rows in (600_000, 300_000):
        try:
            learn(net, rows)
            break
        except torch.OutOfMemoryError as error:
            failures.append(error)
    else:
        raise failures[-1]


def retry_after():
    """Nothing is kept, and the second attempt is too large itself."""
    net, optimizer = make()
    train(net, optimizer, 20)
    for rows in (900_000, 800_000):
        try:
            learn(net, rows)
            fits = True
        except torch.OutOfMemoryError:
            fits = False
    if not fits:
        learn(net, 700_000)  # AFTER


class Judge:
    """An evaluation that keeps the outputs of each batch."""

    def __init__(self):
        self.answers = {"scores": []}

    def evaluate(self, net, batches):
        with torch.no_grad():
            for _ in range(batches):
                self.answers["scores"].append(net(torch.zeros(24_000, 256, device="cuda")))  # SCORES


def evaluation():
    net, optimizer = make()
    train(net, optimizer, 25)
    Judge().evaluate(net, 1000)


def joined():
    """One tensor that each batch makes longer."""
    net, optimizer = make()
    train(net, optimizer, 25)
    with torch.inference_mode():
        every = torch.empty(0, 256, device="cuda")
        for _ in range(1000):
            every = torch.cat([every, net(torch.zeros(24_000, 256, device="cuda"))])  # JOINED


class Collected:
    """As trainers collect: outputs come without gradients, and are joined outside of `no_grad`."""

    def __init__(self):
        self.rows = None

    def add(self, rows):
        self.rows = rows if self.rows is None else torch.cat((self.rows, rows))  # COLLECTED


def collected():
    net, optimizer = make()
    train(net, optimizer, 25)
    outputs = Collected()
    for _ in range(1000):
        with torch.no_grad():
            rows = net(torch.zeros(48_000, 256, device="cuda"))
        outputs.add(rows)


def stairs():
    net, optimizer = make()
    history = []
    for _ in range(40):
        train(net, optimizer, 15)
        history.append((tensor(220), tensor(220), tensor(220)))  # STAIR


def cache():
    """A job without an optimizer that remembers an answer for each question."""
    net = Encoder().cuda().eval()
    known = {}
    with torch.inference_mode():
        for question in range(4000):
            known[question] = net(torch.zeros(3000, 256, device="cuda"))  # KNOWN


def longer():
    net, optimizer = make()
    train(net, optimizer, 30)
    train(net, optimizer, 1, rows=600_000)


def first():
    net, optimizer = make()
    train(net, optimizer, 1, rows=600_000)  # FIRST


def weights():
    """The network itself is too large."""
    torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(4)]).cuda()
    big = torch.nn.Sequential(*[torch.nn.Linear(8192, 8192, device="meta") for _ in range(40)])
    big.to_empty(device="cuda")  # WEIGHTS


def trial(rows):
    """One attempt of a search."""
    net, optimizer = make()
    train(net, optimizer, 40, rows)
    return rows


def search():
    rows = 2_000_000
    while True:
        try:
            trial(rows)
            return
        except torch.OutOfMemoryError:
            rows //= 2


def tuner():
    """Doubles the size, a few steps with each, until it does not fit; then trains with the last that did."""
    rows = 20_000
    while True:
        try:
            net, optimizer = make()
            train(net, optimizer, 3, rows)
        except torch.OutOfMemoryError:
            break
        rows *= 2
    net, optimizer = make()
    train(net, optimizer, 120, rows // 4)


def run(how):
    try:
        globals()[how]()
    except torch.OutOfMemoryError:
        sys.exit(1)


if __name__ == "__main__":
    for how in sys.argv[sys.argv.index("--how") + 1 :]:
        child = multiprocessing.get_context("fork").Process(target=run, args=(how,))
        child.start()
        print(json.dumps({"how": how, "pid": child.pid}), flush=True)
        child.join()
