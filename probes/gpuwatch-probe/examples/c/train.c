/* A training loop in C with its own allocator, which reports to gpuwatch after every step.
 *
 *     cargo build --release -p gpuwatch-probe
 *     cc -Iprobes/gpuwatch-probe probes/gpuwatch-probe/examples/c/train.c -o train \
 *         -Ltarget/release -lgpuwatch_probe -Wl,-rpath,$PWD/target/release
 *     ./train [STEPS [UUID]]          # and `gpuwatch` in another terminal
 *
 * The UUID is the device's (`nvidia-smi -L`); a job that uses CUDA can leave it out, because the probe queries the driver
 * that the job loaded. */
#include <gpuwatch_probe.h>
#include <stdio.h>
#include <stdlib.h>

/* The size of a segment; a real pool would call cudaMalloc for each. */
#define SEGMENT (32ull << 20)

/* The counters of a pool with one stream: freed memory is free at once, so "active" equals "allocated". */
struct pool {
    uint64_t requested, allocated, reserved, peak, blocks;
};

static void take(struct pool *pool, uint64_t bytes) {
    pool->requested += bytes;
    pool->allocated += (bytes + 511) / 512 * 512;
    while (pool->reserved < pool->allocated) {
        pool->reserved += SEGMENT;
    }
    if (pool->peak < pool->allocated) {
        pool->peak = pool->allocated;
    }
    pool->blocks++;
}

static void put(struct gpuwatch_sample *sample, int place, uint64_t value) {
    sample->values[place] = value;
    sample->present |= 1ull << place;
}

/* Counters that the pool lacks are left out, and stay unknown to every viewer. */
static void report(const struct pool *pool, uint64_t step) {
    struct gpuwatch_sample sample = {.step = step, .device = 0, .edge = GPUWATCH_STEP};
    put(&sample, GPUWATCH_REQUESTED, pool->requested);
    put(&sample, GPUWATCH_ALLOCATED, pool->allocated);
    put(&sample, GPUWATCH_ACTIVE, pool->allocated);
    put(&sample, GPUWATCH_RESERVED, pool->reserved);
    put(&sample, GPUWATCH_ALLOCATED_PEAK, pool->peak);
    put(&sample, GPUWATCH_BLOCKS, pool->blocks);
    gpuwatch_push(&sample);
}

int main(int argc, char **argv) {
    uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 100;
    gpuwatch_describe("framework", "c");
    gpuwatch_device(0, argc > 2 ? argv[2] : NULL, NULL, 0);
    /* If no probe can run, or none should (GPUWATCH=off), every call does nothing and returns that. */
    gpuwatch_start();

    struct pool pool = {0};
    take(&pool, 1000000000);
    for (uint64_t step = 1; step <= steps; step++) {
        take(&pool, 1000000); /* a tensor that the job keeps: gpuwatch will find it */
        report(&pool, step);
    }
    printf("%llu steps are done; Enter ends the job.\n", (unsigned long long)steps);
    fflush(stdout);
    getchar();
    gpuwatch_stop("exit");
    return 0;
}
