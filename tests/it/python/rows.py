"""Pushes rows out of dictionaries of every kind; prints the answers and the lines that viewers get."""

import json
import os
import socket
import sys

from gpuwatch_probe._native import NOT_ARMED, STEP, Native

# Places of counters, as in gpuwatch_probe.h.
ALLOCATED, ALLOCATED_PEAK, OOMS = 1 << 1, 1 << 5, 1 << 10


def gauge(now, peak=0):
    return {"all": {"current": now, "peak": peak}, "small_pool": {"current": 9, "peak": 9}}


def stats():
    names = ("requested_bytes", "allocated_bytes", "active_bytes", "inactive_split_bytes", "reserved_bytes")
    made = {name: gauge(100 + at, 200 + at) for at, name in enumerate(names)}
    made.update(allocation=gauge(7), segment=gauge(8), num_alloc_retries=1, num_ooms=2)
    made.update(num_device_alloc=3, num_device_free=4, reserved_bytes_by_private_pools={})
    return made


class Hostile(dict):
    """A dictionary that lies: only its true contents count."""

    def __getitem__(self, key):
        raise KeyError(key)


native = Native()
ALL = native.torch_counters(b"native")
assert ALL & 0xFFFF == 0xFFFF
assert native.torch_counters(b"cudaMallocAsync") == 0b1110110, "what that backend counts"
assert native.torch_counters(b"xpu") == ALL, "what is not there is unknown"
assert native.torch_counters(b"npu") == 0b1110110, "what every allocator counts"
assert native.device(0, None, None, 0) == 0
assert native.start() == 0
push, arm, disarm, end_step = map(native.builtin, ("push_row", "arm", "disarm", "end_step"))
answers = []


def report(*arguments):
    answers.append(push(*arguments))


report(stats(), 0, 1, STEP, ALL)
pools = {(0, 1): gauge(30), (0, 2): gauge(12)}
report(dict(stats(), reserved_bytes_by_private_pools=pools), 0, 2, STEP, ALL, 5, 6, *[None] * 5, 70, 80)
report(stats(), 0, 3, STEP, ALLOCATED | ALLOCATED_PEAK)
odd = dict(stats(), allocated_bytes=gauge(-1, 1 << 64), active_bytes=gauge(1.5), segment={}, num_ooms="many")
del odd["requested_bytes"], odd["reserved_bytes_by_private_pools"]
report(odd, 0, 4, STEP, ALL)
report(dict(stats(), num_ooms=(1 << 64) - 1, reserved_bytes_by_private_pools={1: 2}), 0, 5, STEP, ALL)
report(Hostile(stats()), 0, 6, STEP, ALL)
good = len(answers)
for bad in (
    (), (stats(),), (stats(), 0, 7, STEP), ({}, 0, 7, STEP, ALL), (None, 0, 7, STEP, ALL), ([1], 0, 7, STEP, ALL),
    (stats(), -1, 7, STEP, ALL), (stats(), 1 << 32, 7, STEP, ALL), (stats(), 64, 7, STEP, ALL),
    (stats(), 0, "7", STEP, ALL), (stats(), 0, 7, 3, ALL), (stats(), 0, 7, STEP, 1 << 64),
):  # fmt: skip
    report(*bad)

kept, number = stats(), 1 << 40
kept["num_ooms"] = number
before = [sys.getrefcount(it) for it in (kept, kept["segment"], number, push)]
for _ in range(1000):
    push(kept, 0, 8, STEP, OOMS)
assert [sys.getrefcount(it) for it in (kept, kept["segment"], number, push)] == before, "no reference is kept or lost"



class Optimizer:
    """The probe reads only the parameter groups of an optimizer."""

    def __init__(self, groups):
        self.param_groups = groups


class Failing(Optimizer):
    @property
    def param_groups(self):
        raise KeyError("groups")

    @param_groups.setter
    def param_groups(self, groups):
        pass


def counters(device):
    return dict(stats(), num_ooms=device)


def refuses(device):
    raise MemoryError(device)


def key(optimizer):
    return id(optimizer), id(optimizer.param_groups[0]["params"][0])


first, other = Optimizer([{"params": [object()]}]), Optimizer([{"params": [object()]}])
strange = [Optimizer(it) for it in ([], [{}], [{"params": []}], ({"params": [1]},), [5], None)] + [Failing([]), None, 7]
ended = {"unarmed": end_step(first), "step": disarm()}
arguments = [(it,) for it in range(2)]
before = [sys.getrefcount(it) for it in (first, first.param_groups, counters, *arguments)]
ended["armed"] = arm(*key(first), 100, ALL, counters, *arguments)
ended["two steps"] = [end_step(first), end_step(first), disarm()]
ended["after that"] = [end_step(first), disarm()]
arm(*key(first), 102, ALL, counters, *arguments)
ended["others"] = [end_step(it) for it in [other, *strange]] + [end_step(), end_step(first, first)]
parameters, first.param_groups[0]["params"] = first.param_groups[0]["params"], [object()]
ended["with other parameters"] = end_step(first)
first.param_groups[0]["params"] = parameters
ended["still"] = [end_step(first), disarm()]
arm(*key(first), 103, ALL, refuses, *arguments)
try:
    end_step(first)
except MemoryError as error:
    ended["raises"] = error.args
arm(*key(first), 110, ALL, lambda device: None, *arguments)
ended["no counters"] = end_step(first)
ended["bad"] = [arm(), arm(1, 2, 3, 4), arm(-1, 2, 3, 4, counters), arm(1, 2, 3, 4, counters, 5), arm(1, 2, 3, 4, counters, ())]
arm(0, 0, 0, 0, stats)
assert [sys.getrefcount(it) for it in (first, first.param_groups, counters, *arguments)] == before, "references"
assert NOT_ARMED == ended["unarmed"]

lines = []
with socket.socket(socket.AF_UNIX) as viewer:
    viewer.connect("%s/%d.sock" % (os.environ["GPUWATCH_SOCKET_DIR"], os.getpid()))
    for line in viewer.makefile():
        line = json.loads(line)
        if line["type"] == "live":
            break
        if line["type"] == "sample" and line["step"] != 8:
            lines.append(line)
print(json.dumps({"good": answers[:good], "bad": answers[good:], "lines": lines, "ended": ended}))
