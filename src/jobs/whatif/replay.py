# Replays recorded allocations through PyTorch's own caching allocator, on a simulated device.
#
# It imports PyTorch once and then forks a child for each request, a line of JSON on standard input. Each child answers
# with a line on standard output. When standard input ends, this process removes the folder of the requests and exits.
import array
import ctypes
import json
import os
import resource
import shutil
import signal
import sys

# Kinds of operations, as gpuwatch writes them.
FREE, ALLOCATE, ATTEMPT, EMPTY, READY = range(5)
SEGMENTS = {"segment_alloc": 0, "segment_free": 1, "segment_map": 2, "segment_unmap": 3}
OTHERS = ["alloc", "free_requested", "free_completed", "oom", "snapshot"]
SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
SIGKILL_WITH_PARENT = 1


def write_line(what):
    # A write of less than a page is not interleaved with others.
    os.write(1, (json.dumps(what)[:4000] + "\n").encode())


def words(error):
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:500]


def columns(path):
    with open(path, "rb") as file:
        count, slots, streams = array.array("Q", file.read(24))
        read = lambda code: array.array(code, file.read(count * array.array(code).itemsize))
        return read("Q"), read("I"), read("I"), read("B"), slots, streams


def record(torch):
    """Makes the allocator record its segments; older releases can only record everything."""
    start = torch.cuda.memory._record_memory_history
    try:
        start("all", context=None, stacks="python", skip_actions=OTHERS)
    except (TypeError, RuntimeError):
        start("all", context=None, stacks="python")


def note_segments(torch, path):
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    segments = [it["size"] << 2 | SEGMENTS[it["action"]] for it in events if it["action"] in SEGMENTS]
    with open(path, "wb") as file:
        array.array("Q", segments).tofile(file)


def replay(torch, request):
    allocate = torch._C._cuda_cudaCachingAllocator_raw_alloc
    delete = torch._C._cuda_cudaCachingAllocator_raw_delete
    full = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
    torch.cuda.init()
    sizes, slots, streams, kinds, places, count = columns(request["operations"])
    # The first stream is the default one.
    made = [0] + [stream() for stream in [new_stream(torch)] * (count - 1)]
    held = array.array("Q", bytes(8 * places))
    before = {}
    failed = None
    at = 0
    try:
        for at, (kind, slot, size, stream) in enumerate(zip(kinds, slots, sizes, streams)):
            if kind == FREE:
                delete(held[slot])
            elif kind == ALLOCATE:
                held[slot] = allocate(size, made[stream])
            elif kind == EMPTY:
                torch.cuda.empty_cache()
            elif kind == READY:
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_stats()
                if request["segments"]:
                    record(torch)
            else:
                try:
                    delete(allocate(size, made[stream]))
                except full:
                    if not request["expects_failures"]:
                        raise
    except full:
        failed = at
    stats = torch.cuda.memory_stats()
    if request["segments"]:
        note_segments(torch, request["segments"])
    since = lambda name: stats.get(name, 0) - before.get(name, 0)
    return {
        "failed": failed,
        "peak_allocated": stats["allocated_bytes.all.peak"],
        "peak_reserved": stats["reserved_bytes.all.peak"],
        "reserved": stats["reserved_bytes.all.current"],
        "retries": since("num_alloc_retries"),
        "cuda_mallocs": since("num_device_alloc"),
        "synchronisations": since("num_sync_all_streams"),
    }


def new_stream(torch):
    runtime = torch.cuda.cudart()

    def stream():
        place = ctypes.c_void_p()
        if int(runtime.cudaStreamCreate(ctypes.addressof(place))) != 0:
            raise RuntimeError("no stream")
        return place.value

    return stream


def child(torch, request):
    # An interrupted child has nothing to clean up.
    for name in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(name, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(SIGKILL_WITH_PARENT, signal.SIGKILL)
    for name in SETTINGS:
        os.environ.pop(name, None)
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = request["settings"]
    os.environ.update(request["environment"])
    try:
        answer = replay(torch, request)
    except MemoryError:
        answer = {"refused": "the replay exceeds its memory limit"}
    except Exception as error:
        answer = {"refused": words(error)}
    write_line({"id": request["id"], **answer})


def reap(children):
    while children:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        request = children.pop(pid, None)
        if status and request is not None:
            code = os.waitstatus_to_exitcode(status) if hasattr(os, "waitstatus_to_exitcode") else status
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            write_line({"id": request, "died": how})


def main():
    folder, limit = sys.argv[1], int(sys.argv[2])
    os.nice(10)
    # When gpuwatch ends, standard input ends; a terminal's interrupt goes to both processes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        if "SIMGPU_FIRST" in os.environ:
            # Else PyTorch would load NVIDIA's libraries, where they are installed.
            ctypes.CDLL(os.environ["SIMGPU_FIRST"])
        import torch

        if not torch.version.cuda:
            raise ImportError(f"PyTorch {torch.__version__} is built without CUDA")
        torch._C._cuda_cudaCachingAllocator_raw_alloc
    except Exception as error:
        write_line({"unusable": words(error)})
        return
    write_line({"version": torch.__version__})
    children = {}
    signal.signal(signal.SIGCHLD, lambda *_: reap(children))
    for line in sys.stdin:
        request = json.loads(line)
        sys.stderr.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        pid = os.fork()
        if pid == 0:
            # The child of a server that was killed would work for no reader (PR_SET_PDEATHSIG).
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            try:
                child(torch, request)
            finally:
                os._exit(0)
        children[pid] = request["id"]
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    shutil.rmtree(folder, ignore_errors=True)


main()
