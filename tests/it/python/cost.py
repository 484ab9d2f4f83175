"""Measures what the probe costs the training thread, by switching its hooks on and off in turns.

Three kinds of rounds alternate in one process: the hooks on; off, with one bare read of the counters in their
place; off, with nothing. The last is taken away from the other two, so that the optimizer's own time does not count.
`ratio` is the first of these differences over the second, so that both read with the caches that a step leaves. With
`idle`, the optimizer does nothing: both are in a tight loop.

usage: cost.py ROUNDS STEPS_A_ROUND [idle]
"""

import json
import statistics
import sys
import time

import torch
import gpuwatch_probe

rounds, steps = (int(it) for it in sys.argv[1:3])
parameter = torch.zeros(1, device="cuda", requires_grad=True)
parameter.grad = torch.zeros(1, device="cuda")


class Idle(torch.optim.SGD):
    def step(self, closure=None):
        return None


optimizer = (Idle if "idle" in sys.argv else torch.optim.SGD)([parameter], lr=1e-3)
for _ in range(300):
    optimizer.step()
probe = gpuwatch_probe._probe
assert probe is not None and probe.native is not None and not probe.off, "the probe runs"
assert len(probe.devices) == 1, probe.devices
assert not probe._watch._handles, "the library watches the steps"
bare = torch._C._cuda_memoryStats


def on(is_on):
    probe._watch.remove()
    if is_on:
        probe._watch_steps(probe.native.builtin)


def with_read():
    optimizer.step()
    bare(0)


def timed(is_on, body):
    on(is_on)
    clock = time.perf_counter_ns
    took = []
    for _ in range(steps):
        before = clock()
        body()
        took.append(clock() - before)
    return took


print(json.dumps({"warm": True}), flush=True)
sys.stdin.readline()

kinds = {"hook": (True, optimizer.step), "bare": (False, with_read), "none": (False, optimizer.step)}
ratios, costs = [], {"hook": [], "bare": []}
for number in range(rounds):
    order = list(kinds)[number % 3:] + list(kinds)[: number % 3]
    took = {kind: timed(*kinds[kind]) for kind in order}
    base = statistics.median(took["none"])
    median = {kind: statistics.median(took[kind]) - base for kind in costs}
    ratios.append(median["hook"] / median["bare"])
    for kind, all_of in costs.items():
        all_of.extend(it - base for it in took[kind])
on(True)


def us(kind, percent):
    return round(sorted(costs[kind])[int((len(costs[kind]) - 1) * percent / 100)] / 1000, 2)


print(json.dumps({
    "steps": len(costs["hook"]), "rounds": rounds, "ratio": round(statistics.median(ratios), 3),
    "hook_us": {"median": us("hook", 50), "p99": us("hook", 99)},
    "bare_us": {"median": us("bare", 50), "p99": us("bare", 99)},
}), flush=True)
torch.cuda.synchronize()
