"""Steps with CuPy and gpuwatch's probe for it, which prints the pool's own figures and waits."""

import json
import sys

import cupy
import cupy_probe

STEPS = 30

cupy_probe.start()
kept = []
for _ in range(STEPS):
    kept.append(cupy.ones((256, 1024)) @ cupy.ones((1024, 256)))
    cupy_probe.step()
pool = cupy.get_default_memory_pool()
counters = {"allocated": pool.used_bytes(), "reserved": pool.total_bytes()}
print(json.dumps({"steps": STEPS, "counters": counters}), flush=True)
sys.stdin.readline()
