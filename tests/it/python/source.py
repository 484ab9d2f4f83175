"""Which line keeps a tensor: small programs, each with the line that is right marked `# here`, or none."""

import json
import linecache
import os
import time

from gpuwatch_probe._sites_report import excerpts
from gpuwatch_probe._source import Sources, is_newer, kept_at, lines


def step(by, name=None, kind=None, items=None, function=None, file=None, line=None):
    return {"by": by, "name": name, "type": kind, "items": items, "function": function, "file": file, "line": line}


ITEM = step("item", kind="list", items=9)
CASES = []


def case(text, *holders, function="train", file="job.py"):
    """The line that allocates is marked `# made`."""
    CASES.append((text, holders, function, file))


case(
    """
losses = []
def train(model):
    # losses.append(nothing)
    name = "losses.append(nothing)"
    for batch in model:
        loss = model(batch)  # made
        print(losses[-1], len(losses))
        losses.append(loss)  # here
    losses.append(None)
def other():
    losses.append(1)
""",
    ITEM,
    step("global", "losses", "module"),
)
case(
    """
class Cell:
    def look(self):
        self.state = self.cell(self.state)
def grow(net):
    net.heads.append(1)
optimizer = Adam()
for step in range(9):
    grow(optimizer)  # made
    if step:
        optimizer.state.update(new())  # here
""",
    step("key", kind="dict", items=3),
    step("attribute", "state", "Adam"),
    step("global", "optimizer", "module"),
    function="<module>",
)
case(
    """
class Net:
    def __init__(self):
        self.down = Linear(512, 64)
averages = []
def train(net):
    for batch in range(9):
        averages.append(copy.deepcopy(net))  # made, here
""",
    step("attribute", "down.weight", "Net"),
    ITEM,
    step("global", "averages", "module"),
)
case(
    """
class Net:
    def __init__(self):
        self.bank = zeros(9)
    def forward(self, x):
        self.bank = cat([self.bank, x])  # made, here
models = [Net(), Net()]
""",
    step("attribute", "bank", "Net"),
    step("item", kind="list", items=2),
    step("global", "models", "module"),
    function="forward",
)
case(
    """
net = Net()
def train(model):
    out = model(9)  # made
    net.register_buffer("slot_%d" % next(steps), out.detach())  # here
""",
    step("attribute", "slot_*", "Net"),
    step("global", "net", "module"),
)
case(
    """
class Trainer:
    def train(self):
        out = self.model(x)  # made
        self.outputs = list(self.outputs)
        self.outputs["last"].append(  # here
            out
        )
    def other(self):
        self.outputs = []
""",
    ITEM,
    step("attribute", "outputs", "Trainer"),
    step("local", "trainer", "frame"),
)
case(
    """
def train(model):
    whole = start()
    for batch in model:
        whole = torch.cat([whole, model(batch)])  # made, here
        whole_other = 3
    return whole
""",
    step("local", "whole", "frame", function="train"),
)
case(
    """
def train(model):
    total = 0
    for batch in model:
        loss = model(batch)  # made
        total += loss  # here
""",
    step("local", "total", "frame", function="train"),
)
case(
    """
CACHE = {}
def train(model):
    out = model()  # made
    if CACHE[1] == out: pass
    CACHE[id(out)] = out  # here
""",
    step("key", kind="dict", items=3),
    step("global", "CACHE", "module"),
)
case(
    """
def train(model):
    return model()  # made
class Metric:
    def __init__(self):
        self.values = []
    def update(self, it):
        self.values += [it]  # here
class Other:
    def update(self, it):
        self.values.append(it)
""",
    ITEM,
    step("attribute", "values", "Metric", file="job.py"),
)
case(
    """
def train(model):
    out = model()  # made
    errors = errors + [out]  # here
    queue = errors
""",
    ITEM,
    step("local", "errors", "frame", function="train"),
)
case(
    """
def train(model):
    out = model()  # made
    (a, self.last) = 1, out  # here
""",
    step("attribute", "last", "Trainer"),
)
case(
    """
def train(model):
    out = model()  # made
def one():
    kept.append(1)
def two():
    kept.append(2)
""",
    ITEM,
    step("global", "kept", "module"),
)
case(
    """
def train(model):
    out = model()  # made
    seen = [out]
""",
    ITEM,
    step("local", "seen", "frame", function="train"),
)
case(
    """
def train(model):
    text = '''
    kept.append(
    '''
    out = model()  # made
    heapq.heappush(kept, out)  # here
""",
    step("item", kind="tuple", items=2),
    ITEM,
    step("local", "kept", "frame", function="train"),
)
case(
    """
def train(model):
    callbacks = []
    out = model()  # made
    callbacks.append(partial(print, out))  # here
""",
    step("item", kind="tuple", items=1),
    step("attribute", "args", "partial"),
    ITEM,
    step("local", "callbacks", "frame", function="train"),
)
case(
    """
def train(model):
    for x in model:
        y = x.loss()  # made
def other():
    x = 1
""",
    step("local", "x", "frame", function="train", file="job.py", line=4),
)
case(
    """
def train(model):
    trainer = Trainer()
    trainer.fit(model)  # made
""",
    step("attribute", "last", "Trainer"),
    step("local", "trainer", "frame", function="train", file="job.py", line=4),
)
case("\ndef train(model):\n    out = model()  # made\n", ITEM)
case(
    """
def batches(model):
    kept = []
    for it in model:
        kept.append(it)  # here
        yield it
def train(model):
    return model()  # made
""",
    ITEM,
    step("generator", "kept", "generator", function="batches", file="job.py", line=5),
)


case(
    """
def train(model):
    losses = []
    for x in model:
        loss = x()  # made
        if DEBUG:
            losses.append(loss)  # here
        else:
            losses.append(loss * 2)  # here
        losses.append(None)
""",
    ITEM,
    step("local", "losses", "frame", function="train"),
)
case(
    """
def train(model):  # graph
    losses = []
    for x in model:
        with autocast():
            loss = x()  # made
        if DEBUG:
            losses.append(loss.item())
        elif DETACHED:
            losses.append(loss.detach())
        else:
            losses.append(loss)  # here
""",
    ITEM,
    step("local", "losses", "frame", function="train"),
)
case(
    """
def train(model):
    for x in model:
        with autocast():
            loss = x()  # made
        losses.append(loss)  # here
    if DEBUG:
        losses.append(loss)
""",
    ITEM,
    step("global", "losses", "module"),
)
case(
    """
def train(model):
    total = 0
    for x in model:
        loss = helper(x)
        total = total + loss  # here
def helper(x):
    return x()  # made
""",
    step("graph", "Tensor"),
    step("local", "total", "frame", function="train", file="job.py", line=4),
    function="helper",
)
case(
    """
class Recorder:
    def hook(self, module, inputs, output):
        if module.training:
            self.acts[self.step] = output.detach()  # here
        else:
            self.acts["eval", self.step] = output.clone()  # here
def train(model):
    return model()  # made
""",
    step("key", kind="dict", items=9),
    step("attribute", "acts", "Recorder", file="job.py"),
)
case(
    """
class Metric:
    def update(self, x):
        self.values.append(x)
    def merge(self, x):
        self.values.append(x)
def train(model):
    return model()  # made
""",
    ITEM,
    step("attribute", "values", "Metric", file="job.py"),
)
case(
    """
class Curve:
    def update(self, preds, marks):
        preds, marks = prepared(preds), marks[marks != 0]  # made
        if self.bins:
            preds[0] = preds[1]
            self.table += binned(preds)
        else:
            self.preds.append(preds)  # here
""",
    ITEM,
    step("attribute", "preds", "Curve", file="job.py"),
    step("global", "curve", "module", file="job.py"),
    function="update",
)
case(
    """
def train(x):
    queue = pending(x)  # made
    self.queue.append(queue)
    for it in queue:
        queue = queue + [it]  # here
""",
    ITEM,
    step("local", "queue", "frame", function="train", file="job.py", line=3),
)
case(
    """
class Adapted:
    def update(self, name):
        self.branches[name] = linear()  # here
        if self.orthogonal:
            self.branches[name].weight = orthogonal(self.branches[name].weight)
        self.moved(name)  # made
""",
    step("key"),
    step("attribute", "layers.*.branches", "Model"),
    step("global", "model", "module", file="job.py"),
    function="update",
)
case(
    """
def wrapper(self, *args):
    self = cast(Optimizer, self)
    out = func(self, *args)
    self.state[1] = out
""",
    ITEM,
    step("local", "self", "frame", function="wrapper", file="job.py", line=3),
    function="step",
)
case(
    """
class Trainer:
    def train(self):
        out = self.model(x)  # made
        add = self.outputs.append
        for it in out:
            add(it)  # here
    def other(self):
        other = list(self.outputs)
        other.append(1)
""",
    ITEM,
    step("attribute", "outputs", "Trainer"),
    step("local", "trainer", "frame"),
)
case(
    """
store = {"losses": []}
def note(loss):
    into = store.setdefault("losses", [])
    into += [loss]  # here
def train(model):
    loss = model()  # made
    note(loss)
""",
    ITEM,
    step("key", "losses", kind="dict", items=1),
    step("global", "store", "module"),
)
case(
    """
class Net:
    def look(self, x):
        kept = self.kept
        kept.append(x)
kept = []
def train(model):
    some = kept[:]
    some.append(model())  # made
    put = kept.append
    put(some)  # here
""",
    ITEM,
    step("global", "kept", "module"),
)
case(
    """
class Net:
    def forward(self, x, seen=[]):
        x = self.up(x)  # made
        seen.append(3)
def note(x, seen=[]):
    seen.append(x)  # here
""",
    ITEM,
    step("default", "seen", "function", function="note", file="job.py", line=6),
    function="forward",
)
case(
    """
def note(x):
    atexit.register(print, x)  # here
def train(model):
    note(model())  # made
    register(note)
""",
    step("item", kind="tuple", items=1),
    step("atexit"),
)
case(
    """
def note(x):
    atexit.register(print, x)
@atexit.register
def train(model):
    note(model())  # made
""",
    step("item", kind="tuple", items=1),
    step("atexit"),
)
for call, also in (
    ("put(kept, x)", ""),
    ("put(x=x, box=kept)", ""),
    ("box = put(\n            kept, x\n        )", ""),
    ("pass_on(x, kept)", ""),
    ("tools.put(kept, x)", ""),
    ("tools.hold(kept, x)", ""),
    ("by_key(kept.setdefault(1, []), x)", ""),
    ("(k := kept).append(x)", ""),
    ("if (k := kept) is not None:\n            k.append(x)", "k.append"),
    ("put(kept, x); look(kept); put(others, x)", ""),
):
    at = [it for it in call.split("\n") if also in it][0]
    case(
        """
def put(box, x): box.append(x)
def pass_on(x, into, *more):
    put(into, x)
def look(box, /):
    print(len(box), box[0])
def by_key(box: list = None, x=None):
    box.append(x)
class Tools:
    def hold(self, box, x):
        add = box.append
        add(x)
def train(model):
    kept, others = [], []
    for batch in model:
        x = model(batch)  # made
        look(kept)
        %s
"""
        % call.replace(at, at + "  # here", 1),
        ITEM,
        step("local", "kept", "frame", function="train", file="job.py", line=20),
    )
case(
    """
def put(box, x):
    box = box + [x]
    del box[0]
def train(model):
    kept = []
    put(kept, model(batch))  # made
""",
    ITEM,
    step("local", "kept", "frame", function="train", file="job.py", line=6),
)
case(
    """
def put(box, x):
    box.append(x)
kept = []
for batch in range(9):
    x = model(batch)  # made
    put(kept, x)  # here
""",
    ITEM,
    step("global", "kept", "module"),
    function="<module>",
)
case(
    """
def put(box, x):
    box.append(x)
class Trainer:
    def train(self):
        x = self.model(9)  # made
        put(self.outputs, x)  # here
""",
    ITEM,
    step("attribute", "outputs", "Trainer"),
    step("local", "self", "frame"),
)


# Statements on the lines of their tests: which of them ran is not known.
case(
    """
kept = []
def train(model, way):
    for step in range(9):
        value = model(step)  # made
        if way == "debug": kept[len(kept):] = [value]  # here
        elif way == "first": kept.insert(0, value)  # here
        else: kept.append(value)  # here
""",
    ITEM,
    step("global", "kept", "module"),
)
# The second statement of the line only reads what the first one makes.
case(
    """
net = Linear(); optimizer = SGD(net.parameters())
for step in range(9):
    value = net(step)  # made
    setattr(net, "v%d" % step, value)  # here
""",
    step("attribute", "v*", "Linear"),
    step("global", "net", "module"),
    function="<module>",
)


def marked(text, mark):
    return next((at for at, it in enumerate(text.split("\n"), 1) if mark in it), None)


# An attribute with another name in each step, by how the name is made.
for name, sets in (
    ("view_*", ['self.register_buffer(f"view_{at}", x)  # made, here', 'self.register_buffer("mean", x)']),
    ("inner.view_*", ['setattr(self.inner, "view_%d" % at, x)  # made, here', "setattr(self, other, x)"]),
    ("view_*", ['name = "view_" + str(at)  # made', "setattr(self, name, x)  # here"]),
    ("view_*", ["setattr(self, name, x)  # made", "setattr(self, other, x)"]),
    ("view_*", ['self.register_buffer("mean", x)  # made', 'print("view_", at)']),
    ("view_*", ["self.register_parameter(  # made, here", "    'view_' + str(at),", "    x,", ")"]),
    ("*", ["setattr(self, 'view', x)  # made"]),
):
    body = "".join("        %s\n" % it for it in sets)
    text = "class Net:\n    def __init__(self):\n        self.inner = Inner()\n    def look(self, at, x):\n" + body
    case("\n" + text, step("attribute", name, "Net"), function="look")

for text, holders, function, file in CASES:
    with open(file, "w") as out:
        out.write(text)
    frames = [{"file": file, "line": marked(text, "made"), "function": function}]
    found = kept_at(list(holders), frames, has_graph="# graph" in text, rises=8)
    want = [at for at, it in enumerate(text.split("\n"), 1) if "# here" in it or "made, here" in it]
    assert sorted(it["line"] for it in found) == want, (text, found, want)
    assert all(it["file"] == file and it["text"] == text.split("\n")[it["line"] - 1].strip() for it in found)

# Another file of the stack, and functions that are not there.
with open("library.py", "w") as out:
    out.write("def make():\n    return 1\n")
with open("job.py", "w") as out:
    out.write("kept = []\ndef train():\n    kept.append(make())\n")
stack = [{"file": "library.py", "line": 2, "function": "make"}, {"file": "job.py", "line": 3, "function": "train"}]
kept = [ITEM, step("global", "kept", "module", file="job.py")]
assert kept_at(kept, stack) == [{"file": "job.py", "line": 3, "text": "kept.append(make())"}]
assert kept_at(kept, stack[:1])[0]["line"] == 3, "where the holder is"
assert kept_at(kept, [dict(it, function="gone") for it in stack])[0]["line"] == 3
assert kept_at(kept, [{"file": "nowhere.py", "line": 1, "function": "f"}])[0]["line"] == 3
assert kept_at([], stack) == []
assert kept_at([step("global", "no name")], stack) == []
assert kept_at([step("attribute", "0", "Net")], stack) == []

# The file of an attribute's class, or of a class that it extends, where no function of the stack is.
with open("base.py", "w") as out:
    out.write("class Base:\n    def __init__(self):\n        self.seen = []\n    def put(self, x):\n        self.seen.append(x)\n")
with open("job.py", "w") as out:
    out.write("net = Net()\ndef train():\n    x = make()\n    net.put(x)\n")
stack = [{"file": "job.py", "line": 3, "function": "train"}]
held = [ITEM, step("attribute", "seen", "Net", file="base.py", line=2), step("global", "net", "module", file="job.py")]
assert kept_at(held, stack) == [{"file": "base.py", "line": 5, "text": "self.seen.append(x)"}]
for line in (0, 99):
    assert kept_at([ITEM, dict(held[1], line=line)], stack) == [], "no such line"
assert kept_at([ITEM, dict(held[1], file="nowhere.py")], stack) == []
with open("job.py", "w") as out:
    out.write("kept = []\ndef train():\n    kept.append(make())\n")

# The lines around both places, those of another file last; places that overlap are shown once.
found = excerpts(Sources(), "library.py", 2, kept_at(kept, stack)[0])
assert [(it.get("file"), it["line"]) for it in found] == [(None, 1), (None, 2)] + [("job.py", at) for at in (1, 2, 3)]
with open("long.py", "w") as out:
    out.write("".join("it = %d\n" % at for at in range(1, 30)))
far = excerpts(Sources(), "long.py", 20, {"file": "long.py", "line": 5})
assert [it["line"] for it in far] == [3, 4, 5, 6, 7, 18, 19, 20, 21, 22] and not any("file" in it for it in far)
near = excerpts(Sources(), "long.py", 8, {"file": "long.py", "line": 6})
assert [it["line"] for it in near] == [4, 5, 6, 7, 8, 9, 10] and near[0]["text"] == "it = 4"

# A file written after the job began is not the code that runs.
assert not is_newer("job.py", time.time() + 60) and is_newer("job.py", time.time() - 60)
old = Sources(time.time() - 60)
assert kept_at(kept, stack, old) == [] and lines("job.py", 3, sources=old) == []
assert not is_newer("nowhere.py", 0) and not is_newer("a\0b", 0)

# A line that could be read in many ways takes no longer than others.
with open("wide.py", "w") as out:
    out.write("def train():\n    " + "kept, " + " " * 280 + "kept, " + " " * 280 + "\n")
    out.write("    kept" + "[] kept" * 1000 + "\n    kept.append(it)\n")
begun = time.thread_time()
wide = [ITEM, step("local", "kept", "frame", function="train", file="wide.py", line=2)]
assert kept_at(wide, [{"file": "wide.py", "line": 2, "function": "train"}])[0]["line"] == 4
assert time.thread_time() - begun < 5, "it takes milliseconds, and hours where it tries all ways"

# Lines, and files that do not exist.
assert lines("job.py", 2, 1) == [(1, "kept = []"), (2, "def train():"), (3, "    kept.append(make())")]
assert lines("job.py", 1) == lines("job.py", 1, 2) == lines("job.py", 2, 1)
assert lines("job.py", 99) == [] and lines("nowhere.py", 1) == [] and lines(".", 1) == []
os.mkfifo("pipe")
assert lines("pipe", 1) == [] and lines("/dev/zero", 1) == [] and lines("a\0b", 1) == []
with open("long.py", "wb") as out:
    out.write(b"x" * 500 + b"\n\xff\xfe\n")
assert lines("long.py", 1) == [(1, "x" * 200), (2, "\ufffd\ufffd")]
with open("large.py", "wb") as out:
    out.truncate((1 << 20) + 1)
assert lines("large.py", 1) == []
assert lines("<cell 3>", 1) == []
linecache.cache["<cell 3>"] = (9, None, ["a = 1\n", "b = 2\n"], "<cell 3>")
linecache.cache["<lazy>"] = (lambda: 1 / 0,)
assert lines("<cell 3>", 1) == [(1, "a = 1"), (2, "b = 2")] and lines("<lazy>", 1) == []
print(json.dumps({"cases": len(CASES)}))
