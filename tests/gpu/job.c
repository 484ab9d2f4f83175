/* A job that allocates through the driver, reports its memory to the probe, and prints the results of cuMemGetInfo.
 *
 *     job PROBE_LIBRARY MIB
 *
 * For each line of its input it allocates MIB more and writes "step allocated free total", with the device's free and
 * total bytes from just before and just after its report: "1 268435456 FREE FREE TOTAL". */
#include <dlfcn.h>
#include <gpuwatch_probe.h>
#include <stdio.h>
#include <stdlib.h>

static void *need(void *library, const char *name) {
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "%s: %s\n", name, dlerror());
        exit(2);
    }
    return found;
}

static void check(int code, const char *call) {
    if (code) {
        fprintf(stderr, "%s: error %d\n", call, code);
        exit(3);
    }
}

int main(int argc, char **argv) {
    if (argc != 3) {
        return 1;
    }
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *probe = dlopen(argv[1], RTLD_NOW);
    int (*init)(unsigned) = need(driver, "cuInit");
    int (*retain)(void **, int) = need(driver, "cuDevicePrimaryCtxRetain");
    int (*use)(void *) = need(driver, "cuCtxSetCurrent");
    int (*allocate)(unsigned long long *, size_t) = need(driver, "cuMemAlloc_v2");
    int (*info)(size_t *, size_t *) = need(driver, "cuMemGetInfo_v2");
    int32_t (*describe)(const char *, const char *) = need(probe, "gpuwatch_describe");
    int32_t (*device)(uint32_t, const char *, const char *, uint64_t) = need(probe, "gpuwatch_device");
    int32_t (*start)(void) = need(probe, "gpuwatch_start");
    int32_t (*push)(const struct gpuwatch_sample *) = need(probe, "gpuwatch_push");
    int32_t (*stop)(const char *) = need(probe, "gpuwatch_stop");

    void *context = NULL;
    check(init(0), "cuInit");
    check(retain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(use(context), "cuCtxSetCurrent");
    describe("framework", "c");
    device(0, NULL, NULL, 0);
    check(start(), "gpuwatch_start");

    size_t bytes = strtoull(argv[2], NULL, 10) << 20;
    struct gpuwatch_sample sample = {.device = 0, .edge = GPUWATCH_STEP};
    sample.present = 1ull << GPUWATCH_ALLOCATED | 1ull << GPUWATCH_RESERVED;
    for (int c; (c = getchar()) != EOF;) {
        if (c != '\n') {
            continue;
        }
        unsigned long long block = 0;
        check(allocate(&block, bytes), "cuMemAlloc");
        sample.step++;
        sample.values[GPUWATCH_ALLOCATED] += bytes;
        sample.values[GPUWATCH_RESERVED] += bytes;
        size_t before = 0, after = 0, total = 0;
        check(info(&before, &total), "cuMemGetInfo");
        check(push(&sample), "gpuwatch_push");
        check(info(&after, &total), "cuMemGetInfo");
        printf("%llu %llu %zu %zu %zu\n", (unsigned long long)sample.step,
               (unsigned long long)sample.values[GPUWATCH_ALLOCATED], before, after, total);
        fflush(stdout);
    }
    stop("exit");
    return 0;
}
