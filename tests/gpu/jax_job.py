"""A training with JAX and gpuwatch's probe for it, which prints the allocator's own figures and waits."""

import json
import sys

import jax
import jax.numpy as jnp
import jax_probe

STEPS = 30

jax_probe.start()


@jax.jit
def train(weights, x):
    gradient = jax.grad(lambda it: jnp.mean(jnp.square(x @ it)))(weights)
    return weights - 0.1 * gradient


weights = jnp.ones((2048, 2048))
for _ in range(STEPS):
    weights = train(weights, jnp.ones((512, 2048)))
    jax_probe.step()
weights.block_until_ready()
stats = jax.local_devices()[0].memory_stats()
counters = {ours: stats[theirs] for ours, theirs in jax_probe.COUNTERS.items() if theirs in stats}
print(json.dumps({"steps": STEPS, "counters": counters}), flush=True)
sys.stdin.readline()
