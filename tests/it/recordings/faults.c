// A disk that fails, for programs with this library in `LD_PRELOAD`: calls on the regular files below `$FAULTS_IN`
// fail as the file `$FAULTS` says, for as long as it says so.
//
//   write N    a write takes some of its bytes, and fails with the error N
//   kill        the program is killed when half of the bytes of a write are in the file
//   note        a sync is noted: the file's path as a line of `$FAULTS.synced`
//   kill-sync   the program is killed when it syncs
//   stale      descriptors are of a file system that was there before: those that are opened now work
//   sync N     a sync fails with the error N, and the bytes since the last one are gone
//   sync-once N  the same; only once

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST = 4096 };

// By descriptor: whether it was opened while others are stale, and the length at the last sync.
static char is_fresh[MOST];
static off_t synced[MOST];

// Returns the error of the fault if it has this name, or 0.
static int fault(const char *name) {
    const char *path = getenv("FAULTS");
    char text[64] = {0}, found[32] = {0};
    int number = 0;
    int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return 0;
    if (syscall(SYS_read, file, text, sizeof text - 1) > 0)
        sscanf(text, "%31s %d", found, &number);
    syscall(SYS_close, file);
    if (strcmp(found, name) != 0)
        return 0;
    if (strcmp(name, "sync-once") == 0)
        unlink(path);
    return number ? number : 1;
}

static int is_ours(int file) {
    const char *folder = getenv("FAULTS_IN");
    char name[64], path[4096] = {0};
    struct stat about;
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    return folder && file >= 0 && file < MOST && readlink(name, path, sizeof path - 1) > 0 &&
           strncmp(path, folder, strlen(folder)) == 0 && fstat(file, &about) == 0 && S_ISREG(about.st_mode);
}

static int fails(int error) {
    errno = error;
    return -1;
}

static int is_stale(int file) {
    return is_ours(file) && !is_fresh[file] && fault("stale");
}

ssize_t write(int file, const void *bytes, size_t length) {
    if (is_stale(file))
        return fails(ESTALE);
    if (is_ours(file) && fault("kill")) {
        syscall(SYS_write, file, bytes, length / 2);
        kill(getpid(), SIGKILL);
    }
    int error = is_ours(file) ? fault("write") : 0;
    if (error && length < 2)
        return fails(error);
    // Whoever writes the rest comes to fewer and fewer bytes.
    return syscall(SYS_write, file, bytes, error ? length / 2 : length);
}

int ftruncate64(int file, off64_t length) {
    return is_stale(file) ? fails(ESTALE) : (int)syscall(SYS_ftruncate, file, length);
}

int ftruncate(int file, off_t length) {
    return ftruncate64(file, length);
}

static void note(int file) {
    char name[64], path[4096] = {0}, notes[4096];
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    snprintf(notes, sizeof notes, "%s.synced", getenv("FAULTS"));
    ssize_t length = readlink(name, path, sizeof path - 2);
    int to = (int)syscall(SYS_openat, AT_FDCWD, notes, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (length > 0) {
        path[length] = '\n';
        syscall(SYS_write, to, path, length + 1);
    }
    syscall(SYS_close, to);
}

int fdatasync(int file) {
    if (is_stale(file))
        return fails(ESTALE);
    if (is_ours(file) && fault("kill-sync"))
        kill(getpid(), SIGKILL);
    if (is_ours(file) && fault("note"))
        note(file);
    struct stat about;
    int error = is_ours(file) ? fault("sync") : 0;
    if (!error && is_ours(file))
        error = fault("sync-once");
    if (error) {
        ftruncate64(file, synced[file]);
        return fails(error);
    }
    if (is_ours(file) && fstat(file, &about) == 0)
        synced[file] = about.st_size;
    return (int)syscall(SYS_fdatasync, file);
}

static int opened(int file) {
    if (file >= 0 && file < MOST) {
        struct stat about;
        is_fresh[file] = fault("stale") != 0;
        synced[file] = fstat(file, &about) == 0 ? about.st_size : 0;
    }
    return file;
}

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    return opened((int)syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    int mode = va_arg(more, int);
    va_end(more);
    return open64(path, flags, mode);
}
