"""Compares live blocks without torch: what grew, what was only replaced, and which frame a stack is named after."""

import gc
import json
import os
import sys
import sysconfig
import tempfile
import types

from gpuwatch_probe import _sites_report, _sites
from gpuwatch_probe._memory_history import refusal
from gpuwatch_probe._captures import NOWHERE, Capture, Resting, before_rise, blocks_of, grown, replacing, risen, was_there
from gpuwatch_probe._native import INVALID
from gpuwatch_probe._capture_plan import plan
from gpuwatch_probe._sites import Sites
from gpuwatch_probe._stacks import Stacks

OWN = [{"filename": "/home/ada/train.py", "line": 8, "name": "step"}]
OTHER = [{"filename": "/home/ada/net.py", "line": 3, "name": "forward"}] + OWN
LEAK = [{"filename": "/home/ada/train.py", "line": 9, "name": "step"}]
STEP, FORWARD = (("/home/ada/train.py", 8, "step"),), (("/home/ada/net.py", 3, "forward"), ("/home/ada/train.py", 8, "step"))


def capture(*blocks, device=0):
    """A comparison of blocks of (size, frames)."""
    made = [
        {"address": 4096 * at, "size": size, "state": "active_allocated", "frames": frames}
        for at, (size, frames) in enumerate(blocks)
    ]
    free = {"address": 1, "size": 9, "state": "inactive", "frames": OWN}
    return Capture([{"device": device, "stream": 0, "blocks": [free, *made]}])


def captures(*counts):
    return [capture(*([(512, OWN)] * it + [(1024, OTHER)] * 3)) for it in counts]


# Blocks that rise and stay are growth; blocks that exist in every step are not.
assert grown(captures(1, 2, 3, 4, 5)) == {(0, STEP): (2048, 4)}
assert grown(captures(3, 3, 3, 3, 3)) == {}
# One rise is a cache that fills, and what falls back is a level that moves.
assert grown(captures(3, 4, 4, 4, 4)) == {}
assert grown(captures(3, 6, 2, 7, 4)) == {}
# A collection in between takes something back.
assert grown(captures(1, 3, 5, 4, 6, 8)) == {(0, STEP): (512 * 7, 7)}
# One step allows only two captures.
assert grown(captures(1, 2)) == {(0, STEP): (512, 1)}
# A group that comes after the first capture.
assert grown([capture(), capture((512, OWN)), capture((512, OWN), (512, OWN))]) == {(0, STEP): (1024, 2)}


def ring(size, *, varies=False):
    """A queue of eight that was full before stacks were recorded: each step one block replaces one without a stack."""
    out = []
    for step in range(6):
        sizes = [512 * (1 + (7 * at) % 5) if varies else size for at in range(step, step + 8)]
        out.append(capture(*[(it, OWN if at + step >= 8 else []) for at, it in enumerate(sizes)]))
    return out


def ring_and_leak():
    """The same, beside two places that keep a block of its size in each step."""
    out = []
    for step in range(6):
        queue = [(512, OWN if at >= 8 else []) for at in range(step, step + 8)]
        out.append(capture(*queue, *[(512, LEAK)] * step, *[(512, [OTHER[0], *LEAK])] * step))
    return out


# Which of them replaces the blocks that go is open, but not that more come than go.
assert len(grown(ring_and_leak())) == 3 and all(it == (512 * 5, 5) for it in grown(ring_and_leak()).values())
assert {it: gone for it, (gone, _) in replacing(ring_and_leak(), grown(ring_and_leak())).items()} == {(0, 512): 5}
assert replacing(ring(512), [(0, STEP)]) == {}
assert grown(ring(512)) == {}, "what replaces something of its size grows nothing"
assert grown(ring(512, varies=True)) == {}, "nor what replaces something of another size"

# One block that is reallocated, larger each time.
assert grown([capture((4096 * it, OWN)) for it in range(1, 7)]) == {(0, STEP): (4096 * 5, 0)}
assert grown([capture((4096 * it, OWN)) for it in (3, 1, 4, 1, 5, 9)]) == {}, "lengths that come and go"
# Backward's own threads have no stack.
assert grown([capture(*[(512, [])] * it) for it in range(2, 7)]) == {(0, NOWHERE): (2048, 4)}
# Two devices are two places.
two = grown([capture(*[(512, OWN)] * it, device=it % 1 + 1) for it in range(1, 5)])
assert two == {(1, STEP): (1536, 3)}, two

# What a rise brought is not what was there before it; two looks after it see no further one.
rises = [capture(*[(size, OWN) for size in of]) for of in ((512,), (512, 512, 4096), (512, 512, 4096), (512, 512, 4096))]
assert risen(rises, (0, STEP)) == {512, 4096}
assert before_rise(rises, (0, STEP), {512}) is rises[0] and before_rise(rises, (0, STEP), {64}) is rises[2]
known = next(iter(rises[0].made))
assert was_there((known, 512), (0, STEP), rises[0]) and not was_there((known + 1, 512), (0, STEP), rises[0])

both = [{"device": 0, "stream": 7, "segment_pool_id": (1, 0), "blocks": [
    {"address": 64, "size": 512, "state": "active_allocated", "frames": OWN},
    {"address": 1024, "size": 512, "state": "active_pending_free", "frames": OTHER},
]}]
assert blocks_of(both, {(0, STEP): None}) == ({(0, STEP): [(64, 512)]}, {(0, STEP): (7, (1, 0))})

# The collector rests during captures, and is as before afterwards.
with Resting():
    assert not gc.isenabled()
assert gc.isenabled()
# A child that another thread forks meanwhile has no thread to restart the collector.
with Resting():
    child = os.fork()
    if not child:
        Resting.end()
        os._exit(not gc.isenabled())
assert os.waitpid(child, 0)[1] == 0
gc.disable()
with Resting():
    pass
assert not gc.isenabled()
gc.enable()

torch = types.SimpleNamespace(__file__="/env/lib/python3/site-packages/torch/__init__.py")
stacks = Stacks(torch)
functional = ("/env/lib/python3/site-packages/torch/nn/functional.py", 10, "linear")
library = ("/env/lib/python3/site-packages/metrics/state.py", 5, "update")
standard = (sys.modules["contextlib"].__file__ if "contextlib" in sys.modules else __import__("contextlib").__file__, 1, "inner")
compiled = ("/tmp/torchinductor_ada/ab/cab.py", 7, "call")
own = ("/home/ada/train.py", 8, "step")
assert [stacks.rank(it[0]) for it in (functional, library, standard, compiled, own)] == [2, 1, 2, 2, 0]
assert stacks.rank("<string>") == 2
native = ("/usr/lib/libc10_cuda.so", 77, "malloc")
assert [stacks.rank(it) for it in (native[0], "/lib/libc.so.6", "??", "/src/a.cpp", sys.executable)] == [3] * 5
assert stacks.site((native, functional, own)) == own
assert [it["function"] for it in stacks.frames((native, functional, own))] == ["linear", "step"]
assert len(stacks.frames((native,))) == 1
assert stacks.site((functional, library, own)) == own
assert stacks.site((functional, library)) == library
assert stacks.site((functional,)) == functional
assert stacks.site(NOWHERE) is None
# The library's frame comes after the user's own.
assert stacks.library((functional, library, own)) == library
assert stacks.library((functional, library)) is None and stacks.library((functional, own, library)) is None
assert stacks.near((functional, library, own, standard, own)) == [own, own, library]
# An environment beside the program, an editable install and an archive are the user's own.
mine = ("/home/ada/venv/train.py", "/home/ada/venv/src/net.py", "/srv/checkout/mylib/loss.py", "/opt/job.pyz/train.py")
assert [stacks.rank(it) for it in (*mine, "<stdin>", "<ipython-input-1-ab>")] == [0] * 6

# Packages may be in any folder (`pip install --target`); one that has only PyTorch's sources is no such folder.
with tempfile.TemporaryDirectory() as packages:
    metrics, beside = packages + "/metrics/state.py", types.SimpleNamespace(__file__=packages + "/torch/__init__.py")
    assert Stacks(beside).rank(metrics) == 0
    os.mkdir(packages + "/torch-2.15.0.dist-info")
    assert [Stacks(beside).rank(it) for it in (metrics, own[0], packages + "/torch/nn/functional.py")] == [1, 0, 2]


def program(name=None, file=None, functions=()):
    """The ranks of an installed program's package and of a library, where such a program runs."""
    for package in ("mytrain", "metrics"):
        sys.modules[package] = types.ModuleType(package)
        sys.modules[package].__file__ = "/env/lib/python3/site-packages/%s/__init__.py" % package
    main = types.ModuleType("__main__")
    main.__spec__, main.__file__ = name and types.SimpleNamespace(name=name), file
    for home in functions:
        made = types.FunctionType((lambda: None).__code__, {"__name__": home})
        made.__module__ = home
        vars(main)[home] = made
    before, sys.modules["__main__"] = sys.modules["__main__"], main
    try:
        files = ["/env/lib/python3/site-packages/%s/a.py" % it for it in ("mytrain", "metrics")] + [str(file)]
        return [Stacks(torch).rank(it) for it in files]
    finally:
        sys.modules["__main__"] = before


scripts = sysconfig.get_paths()["scripts"]
assert program("mytrain.__main__")[:2] == [0, 1]
assert program("mytrain")[:2] == [0, 1]
assert program(file=scripts + "/mytrain", functions=["mytrain.cli"]) == [0, 1, 2]
# A script with its own functions is not an installer's.
assert program(file=scripts + "/train", functions=["mytrain.cli", "__main__"]) == [1, 1, 0]
assert program(file="/home/ada/train.py", functions=["mytrain.cli"]) == [1, 1, 0]
long = stacks.frames((functional,) * 30 + (own,) * 3)
assert [it["file"] for it in long] == [own[0]] * 3
assert len(stacks.frames((own,) * 100)) == 24


# An unavailable capture reports the reason.
def history(enabled="all", context="all", stacks="all", max_entries=0):
    """As PyTorch has it from 2.1 on."""


memory = types.SimpleNamespace(_record_memory_history_impl=history)
torch = types.SimpleNamespace(cuda=types.SimpleNamespace(memory=memory), __version__="2.15")
assert refusal(torch, "native") is None
assert "cudaMallocAsync records no stacks" in refusal(torch, "cudaMallocAsync")
sys._is_gil_enabled = lambda: False
assert "without its global lock" in refusal(torch, "native")
sys._is_gil_enabled = lambda: True
os.environ["GPUWATCH"] = "nosites"
assert "GPUWATCH=nosites" in refusal(torch, "native")
del os.environ["GPUWATCH"]
memory._record_memory_history_impl = lambda enabled: None
assert "PyTorch 2.15 records no stacks" in refusal(torch, "native")


class Library:
    """The compiled probe, as far as an answer goes: no line is longer than this."""

    def __init__(self, longest):
        self.longest, self.lines = longest, []

    def sites(self, line, is_answer):
        if len(line) > self.longest:
            return INVALID
        self.lines.append(json.loads(line.decode("utf-8")))
        return 0


def answered(sites, longest):
    library = Library(longest)
    _sites_report.send(library, {"sites": sites}, is_answer=1)
    (line,) = library.lines
    return line["sites"]


# There is one answer whatever the job's names are, and however long; otherwise viewers would repeat the request.
assert answered([{"file": "caf\udce9.py", "name": "\0\n\"é"}], 1000) == [{"file": "caf?.py", "name": "\0\n\"é"}]
assert answered([{"file": "x" * 5000}], 1000) == [{"file": "x" * 240}]
assert answered([{"line": it, "function": "f" * 240} for it in range(16)], 1000) == [
    {"line": it, "function": "f" * 240} for it in range(3)
]
assert answered([{"function": "f" * 240}], 100) == []


class Switch:
    """PyTorch's allocator, as far as its history goes, and a library that asks."""

    def __init__(self, fails=False, refusal=None):
        self.is_on, self.answers = False, []
        made = {}
        exec(compile("def fail(): raise RuntimeError('it is stuck')", "/torch/memory.py", "exec"), made)
        self.fail = made["fail"] if fails else bool
        memory = types.SimpleNamespace(_record_memory_history=self.switch)
        inner = types.SimpleNamespace(_cuda_isCurrentStreamCapturing=bool, _cuda_isHistoryEnabled=lambda: self.is_on)
        inner._cuda_getDeviceCount = int
        torch = types.SimpleNamespace(cuda=types.SimpleNamespace(memory=memory), _C=inner, __file__="/torch/__init__.py")
        self.job = Sites(torch, self, refusal)

    def switch(self, enabled, **_):
        self.fail()
        self.is_on = enabled is not None

    def sites(self, line, is_answer):
        self.answers.append(json.loads(line))

    def sites_asked(self):
        return 8

    def sites_rises(self):
        return 0


# One thread stops the probe while another one is about to capture: nothing stays switched on.
stopped = Switch()
stopped.sites_asked = lambda: stopped.job.end() or 8
stopped.job.turn(1)
assert not stopped.is_on and not stopped.job.is_recording
running = Switch()
running.job.turn(1)
assert running.is_on and running.job.is_recording
running.job.end()
assert not running.is_on
# An exception of PyTorch does not reach the job, neither when the recording begins nor when it ends.
stuck = Switch(fails=True)
stuck.job.turn(1)
assert "it failed" in stuck.answers[0]["trouble"] and "could not be switched off" in stuck.answers[0]["trouble"]

# Where stacks cannot be captured, the answer says why, and nothing of the allocator is touched.
refused = Switch(refusal="the allocator xpu records no stacks")
del refused.job._torch._C
refused.job.turn(1)
assert refused.answers[0]["trouble"] == "the allocator xpu records no stacks" and not refused.is_on

# A build that can do without the lock names fewer holders, and says so where one is missing.
def troubles(flags, *held):
    answer = _sites_report.Answer.__new__(_sites_report.Answer)
    answer._search, answer._has_ended, answer._since, answer._sites, answer.report = None, False, 0, [], {}
    answer._held = [{"holders": it, "autograd": False} for it in held]
    before, sys.abiflags = sys.abiflags, flags
    try:
        answer._trouble()
    finally:
        sys.abiflags = before
    return answer.report.get("trouble", "")


NAMED = [{"by": "global"}]
assert "can do without its global lock" in troubles("t", NAMED, [])
assert [troubles("t", NAMED), troubles("", NAMED, [])] == ["", ""]

# Texts keep to a length; the end of a path is more useful than its beginning.
path = "/" + "deep/" * 100 + "train.py"
short = _sites_report.shortened({"file": path, "text": ["x" * 999, 7]})
assert len(short["file"]) == 240 and short["file"].endswith("/deep/train.py"), short
assert short["text"] == ["x" * 240, 7]


class Native:
    """The probe, with a request for eight steps."""

    def __init__(self):
        self.answers = []

    def sites_asked(self):
        return 8

    def sites(self, text, is_answer):
        self.answers.append(json.loads(text))

    def sites_rises(self):
        return 0


def taken(slow):
    """The steps at which blocks are compared, where a comparison counts as slow from this many seconds on."""
    captures, step = [], 0
    torch = stand_in(lambda _: captures.append(step) or {"segments": []})
    native, before = Native(), _sites._SLOW
    _sites._SLOW = slow
    sites = _sites.Sites(torch, native, None)
    while not native.answers:
        sites.turn(step)
        step += 1
        assert step < 20
    _sites._SLOW = before
    assert native.answers[0]["steps"] == 8 and native.answers[0]["sites"] == [], native.answers
    return captures


def stand_in(snapshot):
    torch = types.SimpleNamespace(__file__="/torch/__init__.py", __version__="2.15")
    torch._C = types.SimpleNamespace(
        _cuda_isCurrentStreamCapturing=bool,
        _cuda_isHistoryEnabled=bool,
        _cuda_getDeviceCount=int,
        _cuda_record_memory_history=print,
        _cuda_memorySnapshot=snapshot,
    )
    memory = types.SimpleNamespace(_record_memory_history_impl=history, _record_memory_history=lambda **_: None)
    torch.cuda = types.SimpleNamespace(memory=memory, memory_snapshot=lambda include_traces=True: None)
    return torch


assert taken(1000.0) == [2, 3, 4, 5, 6, 7, 8, 9, 10]
assert taken(-1.0) == [2, 4, 6, 10], "slow captures are rarer, and the last one stays"
assert 0 < _sites._SLOW < 1


def captured(steps, rises, at, grows=lambda step: True):
    """From when on and until when stacks are recorded, and when is looked, in a job's own steps."""
    made, passed, recorded, captures, went_on = plan(steps, rises, at), 0, [], [], True
    while went_on:
        if made.is_recorded(passed):
            recorded.append(at + passed)
            if made.is_due(passed):
                captures.append(at + passed)
                went_on = made.captured(grows(at + passed), False)
        passed += 1
        assert passed < 100_000
    return recorded, captures, made.steps


# A rise every 5,000 steps: stacks are recorded for some steps around each of two.
recorded, seen, over = captured(8, (5000, 3, 0), 15_100)
assert seen == [20_002, 20_004, 25_002, 25_004] and over == 10_000, seen
assert recorded == [*range(20_000, 20_005), *range(25_000, 25_005)], recorded
# If a rise comes too late, the plan tries the next one, with more slack.
late = lambda step: step > 20_100
recorded, seen, over = captured(8, (5000, 3, 2), 15_100, late)
assert seen == [20_000, 20_006, 24_997, 25_009, 29_997, 30_009] and over == 10_000, seen
# After three that did not come none is waited for.
recorded, seen, over = captured(8, (50, 0, 0), 10, lambda step: False)
assert len(seen) == 6 and over == 0 and len(recorded) < 60, (recorded, seen)
# So soon after the request that nothing is recorded yet: the next step is compared.
assert captured(8, (50, 0, 0), 48)[1][0] == 99
# A staircase has an answer after the first of the two rises as well, and the request lasts until the second.
class Stairs(Native):
    def __init__(self):
        self.answers, self.kinds = [], []

    def sites(self, text, is_answer):
        super().sites(text, is_answer)
        self.kinds.append(is_answer)

    def sites_rises(self):
        return 30 << 40 | 0 << 16 | 0


class Lines:
    """An answer without holders: searching for them needs PyTorch."""

    is_empty = False

    def __init__(self, torch, stacks, since, captures, held, ran, report, earlier):
        found = grown(captures)
        self.report = dict(report, sites=[{"line": it[1][0][1], "blocks": found[it][1]} for it in found])

    def go_on(self):
        return True


def of_stairs():
    step = 0
    frames = [{"filename": "/a/fold.py", "line": 7, "name": "fold"}]

    def snapshot(_):
        blocks = [{"state": "active_allocated", "size": 512, "address": 512 * it, "frames": frames} for it in range(step // 30)]
        return {"segments": [{"device": 0, "stream": 0, "segment_pool_id": (0, 0), "blocks": blocks}]}

    torch = stand_in(snapshot)
    native, answer = Stairs(), _sites.Answer
    _sites.Answer = Lines
    sites = _sites.Sites(torch, native, None)
    while not native.kinds or not native.kinds[-1]:
        sites.turn(step)
        step += 1
        assert step < 200
    _sites.Answer = answer
    return native


found = of_stairs()
assert found.kinds == [0, 1], found.answers
assert [(it["steps"], it["sites"][0]["blocks"], it["sites"][0]["line"]) for it in found.answers] == [(30, 1, 7), (60, 2, 7)], found.answers
# If steps have no numbers, or rises are unknown, all of them are recorded.
assert captured(8, None, 5)[0] == list(range(5, 16)) and type(plan(8, (50, 0, 0), None)) is type(plan(8, None, 1))


# What a viewer saw grow and a collection took back is looked for once more; what grew, or without a collection, is not.
def asked(captures_, runs, request=_sites._GROWTH, repeated=False):
    sites = object.__new__(Sites)
    sites._captures, sites._collections, sites._request, sites._is_repeated = captures_, runs, request, repeated
    return sites._fell_on_a_collection()


assert asked(captures(4, 1, 1), [(9, 3), (9, 4), (9, 4)])
assert not asked(captures(4, 1, 1), [(9, 3), (9, 4), (9, 4)], repeated=True)
assert not asked(captures(4, 1, 1), [(9, 3), (9, 3), (9, 3)])
assert not asked(captures(1, 2, 3), [(9, 3), (9, 4), (9, 4)])
assert not asked(captures(4, 1, 1), [(9, 3), (9, 4), (9, 4)], request=0)
print("sites are right")
