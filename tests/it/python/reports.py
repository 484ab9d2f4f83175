"""Programs after public reports of memory that grows, or only seems to: `reports.py NAME` runs one of them."""

import copy
import gc
import sys
import time

import torch
from torch import nn

KIB, MIB = 1 << 10, 1 << 20


def network(*widths):
    return nn.Sequential(*(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))).cuda()


class Recordings:
    """How often gpuwatch recorded stacks, up to now."""

    def __init__(self):
        self.ended, self._is_on = 0, False

    def look(self):
        is_on = torch._C._cuda_isHistoryEnabled()
        self.ended += self._is_on and not is_on
        self._is_on = is_on
        return self.ended


RECORDINGS = Recordings()


def steps(net, optimizer, count, rows=64):
    """Trains for some steps, and yields the number of each after it."""
    width = next(net.parameters()).shape[1]
    for step in range(count):
        net(torch.zeros(rows, width, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        RECORDINGS.look()
        yield step
        time.sleep(0.01)


def steps_until_captured(net, optimizer):
    """Trains until gpuwatch has captured stacks, and searched the holders in the steps after that."""
    after = 0
    for step in steps(net, optimizer, 3000):
        yield step
        after += RECORDINGS.ended > 0
        if after > 24:
            return


def trained(*widths, make=torch.optim.SGD):
    net = network(*widths)
    return net, make(net.parameters(), lr=1e-3)


def streams():
    """Weights are sent on a stream that is made for it."""
    net, optimizer = trained(512, 512)
    for step in steps(net, optimizer, 200):
        if step % 8 == 7:
            with torch.cuda.stream(torch.cuda.Stream()) as stream:
                torch.zeros(96 * MIB, dtype=torch.uint8, device="cuda")


class Node:
    """Knows its parent, which knows it."""

    def __init__(self, parent, value):
        self.parent, self.value = parent, value


class Tree:
    def __init__(self, x):
        self.root = Node(self, torch.tanh(x))  # made: by_hand


def by_hand():
    """The collector is off, as trainers do that run it themselves, and the heap is large."""
    gc.disable()
    net, optimizer = trained(512, 512)
    heap = [{"row": row, "text": str(row)} for row in range(120_000)]
    for step in steps_until_captured(net, optimizer):
        Tree(torch.zeros(512, 512 + len(heap) % 2, device="cuda"))
        if step % 500 == 499:
            gc.collect(1)


class Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.answer = x * 2  # made: rarely
        return ctx.answer

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def rarely():
    """The collector runs rarely, as servers set it, and a function keeps its own output."""
    gc.set_threshold(5_000_000, 50, 50)
    net, optimizer = trained(512, 512)
    for _ in steps_until_captured(net, optimizer):
        x = torch.zeros(1024, 512, device="cuda", requires_grad=True)
        Keeps.apply(x).mean().backward()


class Adapted(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.branches = base, nn.ModuleDict()

    def add(self, name):
        self.branches[name] = network(512, 64, 512)  # made: adapters, kept: adapters


def adapters():
    """Each task gets a branch and an optimizer, and no branch goes."""
    net = Adapted(network(512, 512))
    for task in range(400):
        if RECORDINGS.ended > 2:
            break
        net.add("task%d" % task)
        branch = net.branches["task%d" % task]
        for _ in steps(branch, torch.optim.AdamW(branch.parameters()), 6):
            pass


def prepared(scores, marks):
    """What is kept is made here, and kept by its caller."""
    scores = scores.softmax(-1)  # made: states
    if scores.shape[0] == 1:
        scores[0] = 0
    return scores, marks


class Curve:
    def __init__(self, bins=None):
        self.bins, self.scores, self.table = bins, [], 0

    def update(self, scores, marks):
        scores, marks = prepared(scores, marks)
        if self.bins:
            scores[0] = scores[1]
            self.table += scores.sum()
        else:
            self.scores.append(scores)  # kept: states


def states():
    """A metric keeps the scores of each step."""
    net, optimizer = trained(512, 512)
    curve = Curve()
    for _ in steps_until_captured(net, optimizer):
        curve.update(torch.zeros(1024, 64, device="cuda"), None)


class Watcher:
    def __init__(self):
        self.history = {}

    def look(self, net):
        for name, it in net.named_parameters():
            self.history.setdefault(name, []).append(it.grad)  # kept: gradients


def gradients():
    """A watcher keeps the gradients, which backward's own thread allocates."""
    net, optimizer = trained(768, 512)
    watcher = Watcher()
    optimizer.register_step_pre_hook(lambda *_: watcher.look(net))
    for _ in steps_until_captured(net, optimizer):
        pass


def fold(rate):
    net = network(1024, 2048, 1024)  # made: folds
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate)
    for _ in steps(net, optimizer, 24):
        pass
    return {"rate": rate, "weights": net.state_dict()}


def folds():
    """Each fold's weights are kept, and not its optimizer."""
    results = []
    for number in range(100):
        if RECORDINGS.ended > 3:
            break
        results.append(fold(0.1 / (1 + number)))  # kept: folds


def casts():
    """Autocast is entered once for the whole loop, and each step makes new weights."""
    net, optimizer = trained(768, 768)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        for _ in steps_until_captured(net, optimizer):
            fast = [it.detach().clone().requires_grad_() for it in net.parameters()]
            loss = nn.functional.linear(torch.zeros(64, 768, device="cuda"), *fast).float().mean()  # made: casts
            torch.autograd.grad(loss, fast)


def lengths():
    """A CUDA graph is captured for each new length."""
    net, optimizer = trained(512, 512)
    graphs = {}
    for step in steps(net, optimizer, 160):
        if step < 20:
            continue
        graph, still = torch.cuda.CUDAGraph(), torch.zeros(64 + 8 * step, 512, device="cuda")
        with torch.no_grad():
            net(still)
            with torch.cuda.graph(graph):
                out = net(still)
        graphs[step] = graph, still, out


def thawed():
    """Healthy: layers are thawed one by one, and an average of all begins late."""
    layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(7)).cuda()
    layers[:-1].requires_grad_(False)
    optimizer = torch.optim.Adam(layers[-1].parameters(), lr=1e-4)
    average = None
    for step in range(320):
        if step % 24 == 0 and 0 < step <= 144:
            layers[6 - step // 24].requires_grad_(True)
            optimizer.add_param_group({"params": list(layers[6 - step // 24].parameters())})
        if step == 170:
            average = copy.deepcopy(layers)
        x = torch.zeros(32, 512, device="cuda")
        for layer in layers:
            x = torch.relu(layer(x))
        x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.01)
    return average


def curriculum():
    """Healthy: sequences get longer by plan, and then no more."""
    net, optimizer = trained(256, 256, 256)
    for step in range(360):
        length = 256 + 64 * (min(step, 200) // 8)
        net(torch.zeros(length * 32, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.01)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
