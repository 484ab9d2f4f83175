"""Reads the first device's metrics and its processes' figures with NVIDIA's own binding.

usage: binding.py METRICS FIGURES

Both are expressions by name, as JSON: of the device `d`, and of `p`, a sample of a process. Prints a line of JSON at
once and another one for each line of input; for the line `time`, the µs that each metric takes.
"""

import json
import statistics
import sys
import time

import pynvml as n

metrics, figures = ({name: compile(it, name, "eval") for name, it in json.loads(arg).items()} for arg in sys.argv[1:])
n.nvmlInit()
d = n.nvmlDeviceGetHandleByIndex(0)
seen = 0
TYPES = "dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal"


def field(number):
    it = n.nvmlDeviceGetFieldValues(d, [number])[0]
    if it.nvmlReturn:
        raise n.NVMLError(it.nvmlReturn)
    return getattr(it.value, TYPES[it.valueType])


def read(code, **names):
    try:
        return eval(code, globals(), names)
    except n.NVMLError:
        return None


def samples():
    """What processes used since the samples before, the newest first; at first, since the driver knows them."""
    global seen
    try:
        found = sorted(n.nvmlDeviceGetProcessUtilization(d, seen), key=lambda it: -it.timeStamp)
    except n.NVMLError:
        return []
    seen = max([seen, *(it.timeStamp for it in found)])
    return found


def answer():
    by_pid = {}
    for it in samples():
        by_pid.setdefault(it.pid, []).append({name: read(code, p=it) for name, code in figures.items()})
    memory = n.nvmlDeviceGetMemoryInfo(d)
    return {
        "metrics": {name: read(code) for name, code in metrics.items()},
        "figures": by_pid,
        "driver": n.nvmlSystemGetDriverVersion(),
        "name": n.nvmlDeviceGetName(d),
        "memory": [memory.total, memory.free, memory.used],
    }


def durations():
    def one(code):
        before = time.perf_counter()
        read(code)
        return (time.perf_counter() - before) * 1e6

    made = {name: code for name, code in metrics.items() if read(code) is not None}
    return {name: statistics.median(one(code) for _ in range(9)) for name, code in made.items()}


print(json.dumps(answer()), flush=True)
for line in sys.stdin:
    print(json.dumps(durations() if line.strip() == "time" else answer()), flush=True)
