"""One run of a loop under the probe: its steps, what it retains, and the label that follows from what was measured."""

import ctypes
import gc
import json
import os
import random
import subprocess
import sys
import time

import torch

FAMILIES = {}


def family(kind, resource=None, cause="", causes=(), tolerate=(), before=None):
    """Registers a loop. `kind` is its class, `causes` the ids of right diagnoses, `before` the class until it leaks."""

    def register(loop):
        about = dict(
            kind=kind, resource=resource, cause=cause, causes=list(causes), tolerate=list(tolerate), before=before
        )
        FAMILIES[loop.__name__] = (loop, about)
        return loop

    return register


class Run:
    """The argument of a loop: a seed's random numbers, and methods to record what the loop does."""

    def __init__(self, seed, life, late):
        self.random = random.Random(seed)
        torch.manual_seed(seed)
        # Which of its lives a restarted job is in, from 0.
        self.life = life
        # The step before which a late viewer attaches, and the file in which the two agree about it.
        self.late, self.door = late
        self.step = 0
        self.first = self.first_us = self.benign_until = None
        self.grew = 0
        self.empty = []
        self.alive = []
        # Events before a step, besides training.
        self.due = {}
        self.debuggers = []

    def steps(self, count):
        """Counts training steps from 1."""
        for _ in range(count):
            self.step += 1
            if self.step in self.due:
                self.due[self.step]()
            if self.step == self.late:
                self.admit()
            yield self.step

    def holder(self, make=list):
        """A container that leaks; it is emptied at the end, so that the fall can be read."""
        held = make()
        self.empty.append(held.clear)
        return held

    def outlives(self, thing):
        """Keeps alive what a leak refers to, without being part of it, while the fall is measured."""
        self.alive.append(thing)
        return thing

    def leaks(self):
        """Records that the leak grew in this step. Call it before the optimizer's step, or its row does not show it."""
        if self.first is None:
            self.first, self.first_us = self.step, monotonic_us()
        self.grew += 1

    def settled(self):
        """Records that everything bounded has reached its size."""
        self.benign_until = self.step

    def fell(self):
        """Records that a sawtooth has come down; its height is known from the first time on."""
        if self.step > 1 and self.benign_until is None:
            self.benign_until = self.step

    def stall(self, begin, end):
        """Between two steps the probe's thread is stopped, so that its queue overruns."""
        self.due[begin] = lambda: self.debuggers.append(stopped_probe())
        self.due[end] = lambda: self.debuggers.pop().kill()

    def admit(self):
        open(self.door, "w").close()
        while os.path.exists(self.door):
            time.sleep(0.01)

    def pick(self, *of):
        return self.random.choice(of)

    def near(self, value, spread=0.5):
        return max(1, int(value * (1 + self.random.uniform(-spread, spread))))


def stopped_probe():
    """A debugger that has stopped the probe's thread, and lets it go when it is killed."""
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/comm") as file:
            if file.read() == "gpuwatch\n":
                program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "debugger.py")
                debugger = subprocess.Popen([sys.executable, program, thread], stdout=subprocess.PIPE)
                assert debugger.stdout.readline() == b"stopped\n"
                return debugger
    raise LookupError("the probe's thread")


def monotonic_us():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def resident():
    # Memory that the C library keeps for later no longer belongs to the leak.
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


READ = {
    "allocated": torch.cuda.memory_allocated,
    "pinned": lambda: torch.cuda.host_memory_stats()["active_bytes.current"],
    "host": resident,
}


def blocks():
    return torch.cuda.memory_stats()["allocation.all.current"]


def fall(run, resource):
    """Empties what leaked; gives the fall of the allocator's own counters, bytes and blocks, where they are known."""
    read = READ.get(resource)
    if read is None or not run.grew:
        return None, None
    counted = resource == "allocated" and torch.cuda.get_allocator_backend() == "native"

    def figures():
        gc.collect()
        torch.cuda.synchronize()
        return read(), blocks() if counted else None

    before = figures()
    for empty in run.empty:
        empty()
    after = figures()
    return before[0] - after[0], before[1] - after[1] if counted else None


def run(name, seed, life=0, late=(None, None)):
    """Runs a loop, and returns the job's own part of the label; the maker adds the part from the trace."""
    torch.set_num_threads(1)
    loop, about = FAMILIES[name]
    this = Run(seed, life, late)
    loop(this)
    end_us = monotonic_us()
    torch.cuda.synchronize()
    bytes_fallen, blocks_fallen = fall(this, about["resource"])
    leaks = about["kind"] in ("leak", "other")
    return {
        "trace": f"{name}-{seed}",
        "family": name,
        "class": about["kind"],
        "pre_class": about["before"],
        "resource": about["resource"] if leaks else None,
        "start_step": this.first if leaks else None,
        "benign_until_step": this.benign_until,
        "cause": about["cause"],
        "causes": about["causes"],
        "tolerate": about["tolerate"],
        "steps": this.step,
        "events": this.grew,
        # For the maker, not part of the label.
        "fell": bytes_fallen,
        "blocks_fell": blocks_fallen,
        "first_us": this.first_us,
        "end_us": end_us,
    }


if __name__ == "__main__":
    # The loops import this file by its name, not as the program.
    import harness
    import healthy  # noqa: F401
    import leaks  # noqa: F401
    import varied  # noqa: F401

    asked = json.loads(sys.argv[1])
    printed = harness.run(
        asked["name"],
        asked["seed"],
        asked.get("life", 0),
        (asked.get("late"), os.path.splitext(asked["out"])[0] + ".door"),
    )
    with open(asked["out"], "w") as file:
        json.dump(printed, file)
