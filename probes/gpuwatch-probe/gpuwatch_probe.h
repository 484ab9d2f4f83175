/* gpuwatch_probe.h - the C ABI of gpuwatch's probe.
 *
 * Loaded into a training process, it takes an allocator's counters and serves them on a Unix socket to any
 * number of viewers. One thread, no dependency; it never blocks the caller, never prints, never throws.
 *
 *     gpuwatch_describe("framework", "mine");
 *     gpuwatch_device(0, NULL, NULL, 0);
 *     if (gpuwatch_start() == GPUWATCH_OK) {
 *         struct gpuwatch_sample sample = {.step = 1, .device = 0, .edge = GPUWATCH_STEP};
 *         sample.values[GPUWATCH_ALLOCATED] = bytes;
 *         sample.present |= 1ull << GPUWATCH_ALLOCATED;
 *         gpuwatch_push(&sample);                        // once per device and step
 *     }
 *     gpuwatch_stop("exit");
 *
 * Every call may come from any thread. In a forked child everything counts as never called: the child may
 * describe and start a probe of its own. Texts are UTF-8 that ends in a zero; other bytes are replaced. */
#ifndef GPUWATCH_PROBE_H
#define GPUWATCH_PROBE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What every call returns. */
enum {
    GPUWATCH_OK = 0,
    GPUWATCH_OFF = -1,     /* GPUWATCH=off, not started, stopped, or started by the process forked from */
    GPUWATCH_INVALID = -2, /* a null or impossible argument */
    GPUWATCH_FAULT = -3,   /* the probe is off after a fault; its log file has the reason */
    GPUWATCH_FULL = -4     /* the queue is full; the probe counts the loss and reports it to viewers */
};

/* gpuwatch_sample.edge: where in the job's life the sample was taken. */
enum {
    GPUWATCH_STEP = 0, /* after an optimizer step */
    GPUWATCH_TICK = 1, /* between steps, about once a second */
    GPUWATCH_CALL = 2  /* the job reported the step itself */
};

/* Places in gpuwatch_sample.values. In bytes by default; current or cumulative, never differences. */
enum {
    GPUWATCH_REQUESTED = 0, /* Requested bytes, before rounding; falls only when the block's last stream is done. */
    GPUWATCH_ALLOCATED = 1, /* Bytes of live allocations, rounded. */
    GPUWATCH_ACTIVE = 2, /* Allocated, and freed while a stream still uses it. */
    GPUWATCH_INACTIVE_SPLIT = 3, /* Free parts of split segments, which cannot be released. */
    GPUWATCH_RESERVED = 4, /* Bytes reserved from the driver. */
    GPUWATCH_ALLOCATED_PEAK = 5, /* Highest `allocated` since the job last reset it. */
    GPUWATCH_RESERVED_PEAK = 6, /* Highest `reserved` since the job last reset it. */
    GPUWATCH_BLOCKS = 7, /* Live allocations, a count. */
    GPUWATCH_SEGMENTS = 8, /* Segments from the driver, a count. */
    GPUWATCH_RETRIES = 9, /* Times that the cache was flushed to satisfy a request. */
    GPUWATCH_OOMS = 10, /* Out-of-memory errors raised. */
    GPUWATCH_DEVICE_ALLOCS = 11, /* Calls that allocated memory from the driver. */
    GPUWATCH_DEVICE_FREES = 12, /* Calls that released memory to the driver. */
    GPUWATCH_PRIVATE_POOLS = 13, /* Bytes reserved by private pools (CUDA graphs). */
    GPUWATCH_PINNED_ACTIVE = 14, /* Pinned host memory in use. */
    GPUWATCH_PINNED_RESERVED = 15, /* Pinned host memory reserved, in use or cached. */
    GPUWATCH_DEVICE_FREE = 16, /* Free bytes of the device, as CUDA reports them in this process; the probe adds it once a second. */
    GPUWATCH_DEVICE_TOTAL = 17, /* Total bytes of the device, as CUDA reports them in this process; the probe adds it once a second. */
    GPUWATCH_RSS = 18, /* Resident host memory of the process; the probe adds it. */
    GPUWATCH_JOINED = 19, /* Gradients and optimizer's state of parameters that joined an optimizer after its first step, in bytes; the probe adds it once a second. */
    GPUWATCH_JOINED_BLOCKS = 20, /* The live blocks of them. */
    GPUWATCH_SLOTS = 24           /* places in the array; the rest is ignored */
};

struct gpuwatch_sample {
    uint64_t step;    /* optimizer steps completed, from 1; 0 before the first */
    uint64_t present; /* bit i: values[i] is known */
    uint32_t device;  /* the process's own number of the device, 0 to 63 */
    uint32_t edge;    /* GPUWATCH_STEP, GPUWATCH_TICK or GPUWATCH_CALL */
    uint64_t values[GPUWATCH_SLOTS];
};

/* Describes the job: framework, framework_version, backend, allocator_conf, rank, local_rank,
 * world_size, run, restart, probe, log (a path, before the start only), directory (for the socket, before the start
 * only), attached_us (when the probe was started in a job that ran already, Unix time), sites ("ready": the job answers
 * gpuwatch_sites_asked; any other text is the reason why it does not). Unknown keys are ignored. The
 * probe reads keys that are not given from the process and its environment, where it can. */
int32_t gpuwatch_describe(const char *key, const char *value);

/* Adds a device, or what is known of one. NULL and 0 are filled from a libcuda that the process has loaded
 * and initialised itself; none is ever loaded, no context is created. May be called after the start. */
int32_t gpuwatch_device(uint32_t ordinal, const char *uuid, const char *name, uint64_t total);

/* Binds the socket and starts the one thread, in which all signals are blocked. */
int32_t gpuwatch_start(void);

/* Returns why gpuwatch_start failed; NULL if it did not. The text is valid until the thread's next call. */
const char *gpuwatch_fault(void);

/* The counters that a backend of PyTorch ("native", "cudaMallocAsync", "xpu", another accelerator) fills, as bits of gpuwatch_sample.present. */
uint64_t gpuwatch_torch_counters(const char *backend);

/* Hands over the counters of one device; the stamp is taken here. Allocates nothing, waits for nothing. */
int32_t gpuwatch_push(const struct gpuwatch_sample *sample);

/* For Python jobs, with the interpreter's lock held: a new reference to a builtin function, by its name.
 *
 * push_row(stats, device, step, edge, mask[, pinned_active, pinned_reserved[, joined, joined_blocks[, weights, gradients,
 * optimizer[, device_free, device_total]]]]), where None is unknown, picks a row out of the dictionary that
 * torch._C._cuda_memoryStats returns, or the function of another accelerator, and pushes it; counters that are not there, or not in the mask, are unknown. It
 * returns one of the codes above, or 1: taken, and a viewer requests sites. It never raises.
 *
 * end_step(optimizer) counts a step and pushes a row for each device, if it is armed for that optimizer and its first
 * parameter; it returns what push_row returns, or 2: not armed for it, nothing was done. It raises what reading the
 * counters raises. arm(optimizer_id, parameter_id, step, mask, stats, (device,), ...) arms it, where step is the number
 * of the latest step and stats the function that reads the counters; disarm() takes that back and returns the number
 * of the latest step that was counted here.
 *
 * begin_watching(update_wrapper, code, found, other, set_eval_frame) prepares for watch(function): from then on
 * end_step runs after each outermost call of that function, by the way that `function(*args, **kwargs)` takes through
 * the function object, and other(optimizer, answer) if it returns anything but 0 (-1000: it raised). found(wrapper, None)
 * runs after functools.update_wrapper has made a function with that code. The two run where neither tracers and
 * profilers (from Python 3.11 on) nor Dynamo, by its set_eval_frame, see them. The garbage collector is off meanwhile.
 * After end_watching() nothing of this happens. They return 0, or an error where that is not possible.
 *
 * NULL where the process has no Python, or there is no function of that name. */
void *gpuwatch_python(const char *name);

/* For Python up to 3.13 with its lock: a new list of the latest `most` containers of its collector, from `newest` on, the latest first. */
void *gpuwatch_young(void *newest, uint32_t most);

/* Names what the job does from here: ("epoch", 3, 1), ("evaluation", 0, 0). */
int32_t gpuwatch_mark(const char *name, int64_t value, int32_t has_value);

/* What an allocator held when an allocation failed. */
struct gpuwatch_blocks {
    uint64_t largest_free;  /* the largest block that was held and not used, bytes; 0: there was none */
    uint64_t other_blocks;  /* live blocks that are in no group, a count */
    uint64_t other_bytes;   /* what they take together */
    uint64_t groups;        /* groups that follow, 32 at most, what takes most first */
    uint64_t group[32][2];  /* live blocks of one size: their size in bytes, and how many */
};

/* Reports that an allocation failed for good. Zeros and NULL are unknown; limit is the capacity, or the smaller
 * limit that the job set itself. */
int32_t gpuwatch_oom(uint32_t device, uint64_t step, uint64_t tried, uint64_t device_free, uint64_t limit,
                     const char *message, const struct gpuwatch_blocks *blocks);

/* A call: its file, its line from 1, its function. */
struct gpuwatch_frame {
    const char *file;
    uint64_t line;
    const char *function;
};

/* What asked for the memory that an allocation did not get. */
struct gpuwatch_request {
    const struct gpuwatch_frame *frames; /* the call stack, from the innermost frame of the user's code outwards */
    uint32_t count;                      /* its frames; 12 are kept at most */
    uint32_t has_library;                /* 1: one more frame follows, the library's innermost one that the user called */
    const char *phase;                   /* "forward", "backward", "optimizer", "placement", "inference", "outside"; NULL: unknown */
    uint64_t again_bytes; /* if the job handles or keeps an error that keeps memory: bytes of live blocks that were live at the
                           * error before as well; 0 otherwise */
};

/* Reports the same, and what asked for the memory. */
int32_t gpuwatch_oom_of(uint32_t device, uint64_t step, uint64_t tried, uint64_t device_free, uint64_t limit,
                        const char *message, const struct gpuwatch_blocks *blocks,
                        const struct gpuwatch_request *request);

/* Reports the framework's message for the latest failure on a device, if it exists only after the failure. */
int32_t gpuwatch_oom_message(uint32_t device, const char *message);

/* Returns what viewers request by `sites`: in the low 32 bits the steps over which to compare live blocks, bit 32: run
 * the garbage collector once, bit 33: the request is from a viewer that saw growth, not from a user. 0: no request. It
 * stays until it is answered. */
uint64_t gpuwatch_sites_asked(void);

/* Returns when memory is expected to rise again, for growth in rare rises: bits 40 to 63 the period in steps, bits 16
 * to 39 the remainder of a rise's step modulo the period, bits 0 to 15 by how many steps a rise may be early or late.
 * 0: unknown. */
uint64_t gpuwatch_sites_rises(void);

/* Reports sites, as the answer to a request (is_answer) or unrequested: one JSON object with the fields of the
 * wire's line `sites` except type, seq and at_us, which the probe adds; no line breaks, less than 1 MiB. The probe
 * checks nothing else in it. */
int32_t gpuwatch_sites(const char *object, int32_t is_answer);

/* Returns what a viewer requests by `window`, a trace of the allocations of some steps: in the low 20 bits the steps, in
 * bits 20 to 29 the seconds after which it ends at the latest, in bit 31 whether it has call stacks, in bit 30 whether
 * these may pause the job for long, in the high 32 bits the number N in the name of its file,
 * PID.N.trace in gpuwatch_folder(). 0: no request, or the viewer is gone. A job that never calls this takes none. */
uint64_t gpuwatch_window_asked(void);

/* Ends a request for a window: its file is complete. */
int32_t gpuwatch_window_ended(uint64_t request);

/* Returns the folder of the probe's socket; NULL without a probe. The text is valid until the next call. */
const char *gpuwatch_folder(void);

/* Returns the latest counters of a device as a JSON object, by the names on the wire, and "step"; null is unknown. A
 * negative number stands for the first device that has some. NULL without any. It takes the queue's entries, and calls
 * nothing of CUDA. The object also has "device", and in "file" the path of a file: once the job has made it (empty, mode
 * 0600), a recorder of the job replaces it each second by what it knows of the process. The text is valid until the
 * thread's next call. */
const char *gpuwatch_latest(int32_t device);

/* Sends a bye to the viewers and removes the socket; waits for viewers that still
 * read, a second at most. Final until gpuwatch_reset. */
int32_t gpuwatch_stop(const char *reason);

/* Forgets a probe that was stopped, and its description: another one can be described and started. */
int32_t gpuwatch_reset(void);

/* One line to the probe's log file, which comes into being with it. */
int32_t gpuwatch_log(const char *line);

#ifdef __cplusplus
}
#endif

#endif
