/* A job in C: runs the test that its argument names, and returns the line of a failed check. */
#include "gpuwatch_probe.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(what) do { if (!(what)) { return __LINE__ % 256; } } while (0)

static int push(uint64_t step, uint32_t edge) {
    struct gpuwatch_sample sample;
    memset(&sample, 0, sizeof sample);
    sample.step = step;
    sample.edge = edge;
    sample.values[GPUWATCH_ALLOCATED] = step << 20;
    sample.present = 1ull << GPUWATCH_ALLOCATED | 1ull << 63;
    return gpuwatch_push(&sample);
}

static int stream(void) {
    EXPECT(push(1, GPUWATCH_STEP) == GPUWATCH_OFF);
    EXPECT(gpuwatch_stop("early") == GPUWATCH_OFF);
    EXPECT(gpuwatch_describe("framework", "c\xff") == GPUWATCH_OK);
    EXPECT(gpuwatch_describe("rank", "3") == GPUWATCH_OK);
    EXPECT(gpuwatch_describe("colour", "red") == GPUWATCH_OK);
    EXPECT(gpuwatch_describe(NULL, "red") == GPUWATCH_INVALID);
    EXPECT(gpuwatch_device(0, "GPU-0", "first", 1 << 30) == GPUWATCH_OK);
    EXPECT(gpuwatch_start() == GPUWATCH_OK);
    EXPECT(gpuwatch_start() == GPUWATCH_OK);
    EXPECT(gpuwatch_device(1, NULL, NULL, 0) == GPUWATCH_OK);
    EXPECT(gpuwatch_push(NULL) == GPUWATCH_INVALID);
    EXPECT(push(1, 3) == GPUWATCH_INVALID);
    EXPECT(push(1, GPUWATCH_STEP) == GPUWATCH_OK && push(1, GPUWATCH_TICK) == GPUWATCH_OK);
    EXPECT(push(2, GPUWATCH_CALL) == GPUWATCH_OK);
    EXPECT(gpuwatch_mark("epoch", -3, 1) == GPUWATCH_OK && gpuwatch_mark("evaluation", 9, 0) == GPUWATCH_OK);
    struct gpuwatch_blocks blocks = {.largest_free = 20, .other_blocks = 1, .other_bytes = 9, .groups = 2,
                                     .group = {{512, 3}, {64, 4}, {1, 1}}};
    EXPECT(gpuwatch_oom(0, 2, 5, 0, 7, "no \"memory\"", &blocks) == GPUWATCH_OK);
    EXPECT(gpuwatch_oom_message(0, NULL) == GPUWATCH_INVALID);
    EXPECT(gpuwatch_oom_message(0, "none \xff left") == GPUWATCH_OK);
    EXPECT(gpuwatch_log("a line\nof the job") == GPUWATCH_OK);
    const char *latest = gpuwatch_latest(-1);
    EXPECT(latest && strstr(latest, "\"device\":0,\"step\":2,\"requested\":null,\"allocated\":2097152,"));
    EXPECT(strstr(latest, ".figures\"") && gpuwatch_latest(0) && !gpuwatch_latest(1));
    getchar();
    EXPECT(gpuwatch_stop("done") == GPUWATCH_OK && !gpuwatch_latest(0));
    EXPECT(gpuwatch_stop("done") == GPUWATCH_OFF && push(3, GPUWATCH_STEP) == GPUWATCH_OFF);
    return 0;
}

static int forked(void) {
    EXPECT(gpuwatch_start() == GPUWATCH_OK && push(1, GPUWATCH_STEP) == GPUWATCH_OK);
    pid_t child = fork();
    if (child == 0) {
        EXPECT(push(2, GPUWATCH_STEP) == GPUWATCH_OFF && gpuwatch_stop("child") == GPUWATCH_OFF);
        EXPECT(gpuwatch_start() == GPUWATCH_OK && push(77, GPUWATCH_STEP) == GPUWATCH_OK);
        getchar();
        return 0;
    }
    EXPECT(push(2, GPUWATCH_STEP) == GPUWATCH_OK);
    printf("%d\n", child);
    fflush(stdout);
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

/* A child that never starts a probe, as most are. */
static int orphaned(void) {
    EXPECT(gpuwatch_start() == GPUWATCH_OK && push(1, GPUWATCH_STEP) == GPUWATCH_OK);
    if (fork() == 0) {
        getchar();
        return 0;
    }
    puts("forked");
    fflush(stdout);
    for (;;) {
        pause();
    }
}

static int unstartable(void) {
    int started = gpuwatch_start();
    EXPECT(push(1, GPUWATCH_STEP) == GPUWATCH_OFF && gpuwatch_mark("x", 0, 0) == GPUWATCH_OFF);
    printf("%d\n", started);
    fflush(stdout);
    getchar();
    return 0;
}

/* Some jobs close every descriptor that they do not know. */
static int careless(void) {
    EXPECT(gpuwatch_start() == GPUWATCH_OK && push(1, GPUWATCH_STEP) == GPUWATCH_OK);
    getchar();
    for (int fd = 3; fd < 100; fd++) {
        close(fd);
    }
    int pair[2];
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    for (int fd = 5; fd < 60; fd++) {
        EXPECT(dup2(pair[0], fd) == fd);
    }
    for (int i = 0; i < 2000 && push(2, GPUWATCH_STEP) != GPUWATCH_OFF; i++) {
        usleep(1000);
    }
    EXPECT(push(2, GPUWATCH_STEP) == GPUWATCH_OFF && gpuwatch_stop("exit") == GPUWATCH_OFF);
    char byte;
    EXPECT(recv(pair[1], &byte, 1, MSG_DONTWAIT) == -1);
    int status = 1;
    if (fork() == 0) {
        for (int fd = 5; fd < 60; fd++) {
            EXPECT(fcntl(fd, F_GETFD) >= 0);
        }
        return 0;
    }
    wait(&status);
    EXPECT(status == 0);
    getchar();
    return 0;
}

static int driver(const char *path) {
    EXPECT(gpuwatch_device(0, NULL, NULL, 0) == GPUWATCH_OK && gpuwatch_start() == GPUWATCH_OK);
    EXPECT(push(1, GPUWATCH_STEP) == GPUWATCH_OK);
    void *library = dlopen(path, RTLD_NOW);
    EXPECT(library);
    int *current = dlsym(library, "current"), *asked = dlsym(library, "asked");
    EXPECT(gpuwatch_device(1, NULL, "mine", 0) == GPUWATCH_OK);
    EXPECT(push(2, GPUWATCH_STEP) == GPUWATCH_OK && *asked == 0);
    *current = 1;
    sleep(1); /* the rate that is tested: once a second */
    for (int i = 0; i < 100; i++) {
        EXPECT(push(3, GPUWATCH_TICK) == GPUWATCH_OK);
    }
    EXPECT(*asked == 0);
    for (int i = 0; i < 100; i++) {
        EXPECT(push(4, GPUWATCH_STEP) == GPUWATCH_OK);
    }
    EXPECT(*asked == 1 && *(int *)dlsym(library, "capture_mode") == 0);
    getchar();
    return 0;
}

int main(int argc, char **argv) {
    const char *act = argc > 1 ? argv[1] : "";
    if (!strcmp(act, "stream")) return stream();
    if (!strcmp(act, "forked")) return forked();
    if (!strcmp(act, "orphaned")) return orphaned();
    if (!strcmp(act, "unstartable")) return unstartable();
    if (!strcmp(act, "careless")) return careless();
    if (!strcmp(act, "driver") && argc > 2) return driver(argv[2]);
    return 255;
}
