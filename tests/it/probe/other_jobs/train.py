"""A job that holds on to 2 MiB a step, on the stand-in and with the probe that its arguments name."""

import importlib
import sys

library, steps = sys.argv[1], int(sys.argv[2])
module = importlib.import_module(library)
probe = importlib.import_module(library + "_probe")
pool = module.DEVICE if library == "jax" else module.get_default_memory_pool()

pool.take(1 << 30)
probe.start()
for _ in range(steps):
    pool.take(64 << 20)
    pool.take(2 << 20)
    pool.give(64 << 20)
    probe.step()
if not steps:
    probe.tick()
print("%d steps are done; Enter ends the job." % steps, flush=True)
sys.stdin.readline()
