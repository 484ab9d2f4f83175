"""Tests the runtime's documented errors for calls that are not allowed during a capture."""

import ctypes
import threading

import torch

torch.cuda.init()
torch.ones(1, device="cuda")
cuda = ctypes.CDLL("libcudart.so.%s" % torch.version.cuda.split(".")[0])
GLOBAL, THREAD, RELAXED = 0, 1, 2


def made(make, kind=ctypes.c_void_p):
    out = kind()
    assert make(ctypes.byref(out)) == 0
    return out


one, two = (made(lambda out: cuda.cudaStreamCreateWithFlags(out, 1)) for _ in range(2))
blocking = made(cuda.cudaStreamCreate)
event, old = made(cuda.cudaEventCreate), made(cuda.cudaEventCreate)
assert cuda.cudaEventRecord(old, one) == 0


def begin(stream, mode=GLOBAL):
    assert cuda.cudaStreamBeginCapture(stream, mode) == 0


def end(stream):
    graph = ctypes.c_void_p(1)
    status = cuda.cudaStreamEndCapture(stream, ctypes.byref(graph))
    assert bool(graph.value) == (status == 0)
    return status


def status(stream):
    return made(lambda out: cuda.cudaStreamIsCapturing(stream, out), ctypes.c_int).value


def in_a_thread(work):
    reported = []
    thread = threading.Thread(target=lambda: reported.append((cuda.cudaSetDevice(0), work())[1]))
    thread.start()
    thread.join()
    return reported[0]


def malloc():
    at = ctypes.c_void_p()
    status = cuda.cudaMalloc(ctypes.byref(at), 1 << 20)
    assert bool(at.value) == (status == 0)
    return status or free(at)


def free(at):
    """In the thread's relaxed mode, as allocators do it."""
    mode = ctypes.c_int(RELAXED)
    assert cuda.cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode)) == 0
    try:
        return cuda.cudaFree(at)
    finally:
        assert cuda.cudaThreadExchangeStreamCaptureMode(ctypes.byref(mode)) == 0 and mode.value == RELAXED


# Allocating: by the capture's mode, in its thread and in others.
for mode, here, elsewhere in [(GLOBAL, 900, 900), (THREAD, 900, 0), (RELAXED, 0, 0)]:
    for work, answer in [(malloc, here), (lambda: in_a_thread(malloc), elsewhere)]:
        begin(one, mode)
        assert status(one) == 1 and status(two) == 0
        assert work() == answer, (mode, answer)
        assert status(one) == (2 if answer else 1)
        assert end(one) == (901 if answer else 0)
        assert status(one) == 0

# Waiting for what was captured, whatever the mode.
for wait in (
    lambda: cuda.cudaStreamSynchronize(one),
    lambda: cuda.cudaStreamQuery(one),
    lambda: cuda.cudaDeviceSynchronize(),
):
    begin(one, RELAXED)
    assert wait() == 900 and end(one) == 901
assert cuda.cudaGetLastError() == 901 and cuda.cudaGetLastError() == 0
begin(one, RELAXED)
assert cuda.cudaEventRecord(event, one) == 0
assert cuda.cudaEventQuery(event) == 907 and end(one) == 901 and cuda.cudaEventSynchronize(event) == 907
assert cuda.cudaEventRecord(event, one) == 0 and cuda.cudaEventQuery(event) == 0

# Beginning and ending.
assert end(one) == 401 and cuda.cudaStreamBeginCapture(None, GLOBAL) == 900
begin(one)
assert cuda.cudaStreamBeginCapture(one, GLOBAL) == 401
assert in_a_thread(lambda: end(one)) == 908 and status(one) == 1 and end(one) == 0
begin(one)
assert cuda.cudaEventRecord(event, one) == 0 and cuda.cudaStreamWaitEvent(two, event, 0) == 0
assert status(two) == 1 and end(two) == 903 and end(one) == 901 and status(two) == 0

# Two captures are not merged; what was not captured is not waited for; the legacy stream waits for no capture.
begin(one)
begin(two)
assert cuda.cudaEventRecord(event, one) == 0 and cuda.cudaStreamWaitEvent(two, event, 0) == 902
assert end(one) == 901 and end(two) == 901
begin(two)
assert cuda.cudaStreamWaitEvent(two, old, 0) == 905 and end(two) == 901
begin(blocking)
at = torch.empty(8, device="cuda").data_ptr()
capturing = ctypes.c_int()
assert cuda.cudaStreamIsCapturing(None, ctypes.byref(capturing)) == 906 and status(blocking) == 1
assert cuda.cudaMemsetAsync(ctypes.c_void_p(at), 0, 4, None) == 906 and end(blocking) == 901
cuda.cudaGetErrorName.restype = ctypes.c_char_p
assert cuda.cudaGetErrorName(906) == b"cudaErrorStreamCaptureImplicit"
cuda.cudaGetLastError()
torch.cuda.synchronize()
# An object that graphs keep ends with the last of its references.
ended = []
DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
destructor = DESTRUCTOR(ended.append)


def user_object(value, count=1):
    out = ctypes.c_void_p()
    assert cuda.cudaUserObjectCreate(ctypes.byref(out), ctypes.c_void_p(value), destructor, count, 1) == 0
    return out


lone = user_object(1, 2)
assert cuda.cudaUserObjectRetain(lone, 1) == 0 and cuda.cudaUserObjectRelease(lone, 2) == 0 and not ended
assert cuda.cudaUserObjectRelease(lone, 2) == 1, "there are not so many"
assert cuda.cudaUserObjectRelease(lone, 1) == 0 and ended == [1]
assert cuda.cudaUserObjectRelease(lone, 1) == 1 and cuda.cudaUserObjectRetain(lone, 1) == 1
for release_by_hand in (True, False):
    kept = user_object(2)
    graph = made(lambda out: cuda.cudaGraphCreate(out, 0))
    MOVE = 1
    assert cuda.cudaGraphRetainUserObject(graph, kept, 1, MOVE) == 0
    assert cuda.cudaUserObjectRelease(kept, 1) == 1, "the graph has it"
    executable = made(lambda out: cuda.cudaGraphInstantiate(out, graph, ctypes.c_ulonglong(0)))
    if release_by_hand:
        assert cuda.cudaGraphReleaseUserObject(graph, kept, 1) == 0
    assert cuda.cudaGraphDestroy(graph) == 0 and ended == [1]
    assert cuda.cudaGraphExecDestroy(executable) == 0 and ended == [1, 2]
    ended.pop()

print("ok")
