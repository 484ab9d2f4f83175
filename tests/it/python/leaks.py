"""Training loops that each leak in a way of its own, and some that do not, one after the other in one process.

First it prints the right answer for each, as JSON: the lines marked `# made: NAME` and `# kept: NAME`, and the path of
holders. Then it reads lines `NAME STEPS` and runs that loop for that many steps.
"""

import collections
import functools
import gc
import json
import os
import queue
import sys
import threading

import torch
from torch import nn

LEAKS, HEALTHY = {}, {}


def leak(*holders):
    """A loop that leaks; its path as `by name`, the name left out where it has none."""

    def noted(loop):
        LEAKS[loop.__name__] = loop, holders
        return loop

    return noted


def healthy(loop):
    HEALTHY[loop.__name__] = loop
    return loop


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, 8)
        self.seen = []

    def forward(self, x):
        return self.head(self.body(x))


model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters())


def batches(count, size=256):
    for _ in range(count):
        yield torch.zeros(size, 64, device="cuda")


def update(loss=None):
    """Ends a step, at which the probe captures."""
    if loss is None:
        loss = model(next(batches(1))).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


@leak("item", "local losses")
def scalar_list(steps):
    losses = []
    for x in batches(steps):
        loss = model(x).sum()  # made: scalar_list
        losses.append(loss)  # kept: scalar_list
        update(loss)


OUTPUTS = {}


@leak("key", "global OUTPUTS")
def outputs_in_a_dictionary(steps):
    for step, x in enumerate(batches(steps)):
        out = model(x) * 2  # made: outputs_in_a_dictionary
        OUTPUTS["out", step] = out  # kept: outputs_in_a_dictionary
        update(out.sum())
    OUTPUTS.clear()


def remembering():
    kept = []

    def remember(x):
        doubled = x * 2  # made: closure
        kept.append(doubled)  # kept: closure
        return doubled

    return remember


@leak("item", "cell kept", "local remember")
def closure(steps):
    remember = remembering()
    for x in batches(steps):
        update(model(remember(x)).sum())


@leak("item", "cell seen", "hook head._forward_hooks", "global model")
def forward_hook(steps):
    def watching():
        seen = []

        def hook(module, arguments, out):
            seen.append(out.detach().clone())  # made: forward_hook # kept: forward_hook

        return hook

    handle = model.head.register_forward_hook(watching())
    for x in batches(steps):
        update(model(x).sum())
    handle.remove()


@leak("item", "attribute seen", "global model")
def module_attribute(steps):
    for x in batches(steps):
        out = model(x).exp()  # made: module_attribute
        model.seen.append(out)  # kept: module_attribute
        update(out.sum())
    model.seen.clear()


class Meter:
    history = []

    def add(self, it):
        self.history.append(it)  # kept: class_attribute


@leak("item", "class history")
def class_attribute(steps):
    meter = Meter()
    for x in batches(steps):
        out = model(x).tanh()  # made: class_attribute
        meter.add(out.detach())
        update(out.sum())
    Meter.history.clear()


ERRORS = []


def checked(x):
    activations = x.sigmoid()  # made: exception_traceback
    raise ValueError(activations.shape)


@leak("traceback activations", "item", "global ERRORS")
def exception_traceback(steps):
    for x in batches(steps):
        try:
            checked(x)
        except ValueError as error:
            ERRORS.append(error)  # kept: exception_traceback
        update()
    ERRORS.clear()


class Node:
    def __init__(self, value):
        self.value = value  # kept: reference_cycle
        self.owner = self


@leak("attribute value", "attribute owner", "cycle Node.owner")
def reference_cycle(steps):
    # The collector would free them at moments of its own.
    gc.disable()
    for x in batches(steps):
        Node(x + 1)  # made: reference_cycle
        update()
    gc.enable()
    gc.collect()


@leak("local whole")
def growing_cat(steps):
    whole = torch.zeros(1, 256, device="cuda")
    for x in batches(steps):
        new = model(x).detach().mean().expand(1024, 256)
        whole = torch.cat([whole, new])  # made: growing_cat # kept: growing_cat
        update()


@leak("graph", "local total")
def retained_graph(steps):
    total = 0
    for x in batches(steps):
        out = model(x).exp()  # made: retained_graph
        total = total + out.sum()  # kept: retained_graph
        update()


class Accuracy:
    def __init__(self):
        self.state = collections.defaultdict(list)

    def update(self, out):
        self.state["right"].append(out.argmax(1))  # made: metric_state # kept: metric_state


@leak("item", "key right", "attribute state", "local accuracy")
def metric_state(steps):
    accuracy = Accuracy()
    for x in batches(steps):
        out = model(x)
        accuracy.update(out)
        update(out.sum())


def losses_of(steps):
    kept = []
    for x in batches(steps):
        kept.append(model(x).sum().detach())  # made: generator_frame # kept: generator_frame
        yield kept[-1]


@leak("item", "generator kept")
def generator_frame(steps):
    for _ in losses_of(steps):
        update()


CACHE = {}


@leak("key", "global CACHE")
def keyed_by_id(steps):
    for x in batches(steps):
        features = model.body(x).detach().clone()  # made: keyed_by_id
        CACHE[id(features)] = features  # kept: keyed_by_id
        update()
    CACHE.clear()


LIBRARY = """
_shelf = []


def keep(x):
    y = x.relu()  # inside
    _shelf.append(y)  # kept
    return y
"""


@leak("item", "global _shelf")
def library_file(steps):
    folder = os.path.join(os.getcwd(), "site-packages")
    os.makedirs(folder)
    with open(os.path.join(folder, "shelf.py"), "w") as file:
        file.write(LIBRARY)
    # As a library is that was installed before the job began.
    os.utime(file.name, (0, 0))
    sys.path.insert(0, folder)
    import shelf

    for x in batches(steps):
        y = shelf.keep(x)  # made: library_file
        update(model(y).sum())
    shelf._shelf.clear()


@leak("item", "local mine")
def second_thread(steps):
    asked, done = queue.Queue(), queue.Queue()

    def work():
        mine = []
        for x in iter(asked.get, None):
            y = x * 3  # made: second_thread
            mine.append(y)  # kept: second_thread
            done.put(None)

    thread = threading.Thread(target=work)
    thread.start()
    for x in batches(steps):
        asked.put(x)
        done.get()
        update()
    asked.put(None)
    thread.join()


class Slotted:
    __slots__ = ("rows",)


@leak("item", "slot rows", "local table")
def slots(steps):
    table = Slotted()
    table.rows = []
    for x in batches(steps):
        row = x.abs()  # made: slots
        table.rows.append(row)  # kept: slots
        update()


@leak("item", "local recent")
def endless_deque(steps):
    recent = collections.deque(maxlen=100_000)
    for x in batches(steps):
        recent.appendleft(x.neg())  # made: endless_deque # kept: endless_deque
        update()


@leak("item", "attribute args", "item", "local callbacks")
def partials(steps):
    callbacks = []
    for x in batches(steps):
        y = x.cos()  # made: partials
        callbacks.append(functools.partial(print, y))  # kept: partials
        update()


@functools.lru_cache(maxsize=None)
def features(step):
    return torch.ones(300, 64, device="cuda")  # made: memoised


@leak("item", "global features")
def memoised(steps):
    for step in range(steps):
        features(step)
        update()
    features.cache_clear()


def put(box, it):
    box.append(it)


@leak("item", "local shelf")
def through_a_parameter(steps):
    shelf = []
    for x in batches(steps):
        y = x.exp()  # made: through_a_parameter
        put(shelf, y)  # kept: through_a_parameter
        update()


@leak("item", "local drawer")
def another_name(steps):
    drawer = []
    for x in batches(steps):
        y = x.floor()  # made: another_name
        (it := drawer).append(y)  # kept: another_name
        update()


class Trainer:
    def __init__(self):
        self.outputs = []

    def fit(self, steps):
        for x in batches(steps):
            out = model(x).sin()  # made: instance_attribute
            self.outputs += [out]  # kept: instance_attribute
            update(out.sum())


@leak("item", "attribute outputs", "local self")
def instance_attribute(steps):
    Trainer().fit(steps)


@healthy
def plain(steps):
    for x in batches(steps):
        update(model(x).sum())


@healthy
def bounded(steps):
    """Keeps the same amount in every step, under varying lengths."""
    recent, best = collections.deque(maxlen=2), {}
    for step in range(steps):
        x = next(batches(1, 32 * (1 + step % 5)))
        out = model(x)
        recent.append(out.detach())
        best["last"] = out
        update(out.sum())


@healthy
def evaluating(steps):
    """Outputs are collected within a step, and let go at its end."""
    for x in batches(steps):
        update(model(x).sum())
        with torch.no_grad():
            outputs = [model(it) for it in batches(4)]
        model.seen = outputs[-1:]
    model.seen = []


def marked(mark, text):
    return next((at for at, it in enumerate(text.split("\n"), 1) if "# " + mark in it), None)


with open(__file__) as file:
    own = file.read()
# Optimizer state and workspaces do not count.
plain(3)
right = {}
for name, (_, holders) in LEAKS.items():
    file = os.path.basename(__file__)
    made, kept = marked("made: " + name, own), marked("kept: " + name, own)
    right[name] = {"made": [file, made], "kept": kept and [file, kept], "library": None, "holders": holders}
library = {"kept": ["shelf.py", marked("kept", LIBRARY)], "library": ["shelf.py", marked("inside", LIBRARY)]}
right["library_file"].update(library)
print(json.dumps({"leaks": right, "healthy": list(HEALTHY)}), flush=True)
for line in iter(sys.stdin.readline, "go on\n"):
    name, steps = line.split()
    loop = HEALTHY.get(name) or LEAKS[name][0]
    loop(int(steps))
    gc.collect()
    print(json.dumps({"done": name}), flush=True)
