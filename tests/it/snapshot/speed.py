# How long programs take for a snapshot, and their peak of resident memory: speed.py FILE GPUWATCH, as JSON.
import json
import resource
import subprocess
import sys
import time

file, gpuwatch = sys.argv[1:]
python = [sys.executable, "-c", "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))", file]
figures = {}
# The peak is that of the largest child so far: the smaller program goes first.
for name, command in (("gpuwatch", [gpuwatch, "snapshot", file]), ("python", python)):
    best = None
    for _ in range(3):
        begun = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        took = time.perf_counter() - begun
        best = took if best is None else min(best, took)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    figures[name] = {"seconds": best, "peak": peak}
print(json.dumps(figures))
