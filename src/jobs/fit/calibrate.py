"""Measures on a real GPU what lies outside PyTorch's allocator, and cuDNN's workspaces, for `gpuwatch fit --table`.

Prints one line of JSON. Each repetition is a process of its own, because a context and loaded kernels stay until the
process ends. NVML's figures of the device are read before and after: nothing else may run on it meanwhile.
"""

import ctypes
import datetime
import json
import os
import statistics
import subprocess
import sys

REPETITIONS = 3
SIZES = 256, 1024, 4096
TYPES = "float32", "float16", "bfloat16"
# Channels in, height and width, channels out, filter, stride, groups.
CONVOLUTIONS = (
    (3, 224, 64, 7, 2, 1),
    (64, 56, 64, 3, 1, 1),
    (128, 28, 128, 3, 1, 1),
    (256, 14, 256, 3, 1, 1),
    (512, 7, 512, 3, 1, 1),
    (256, 56, 64, 1, 1, 1),
    (96, 56, 96, 3, 1, 96),
    (320, 32, 320, 3, 1, 1),
)
BATCHES = 1, 16, 64


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64)]


class Driver:
    """NVML, as far as it is needed here."""

    def __init__(self):
        self._library = ctypes.CDLL(os.environ.get("GPUWATCH_NVML_PATH") or "libnvidia-ml.so.1")
        self._call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self.devices = {}
        for index in range(count.value):
            device, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(96)
            self._call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device))
            self._call("nvmlDeviceGetUUID", device, uuid, len(uuid))
            self.devices[uuid.value.decode().removeprefix("GPU-")] = device

    def _call(self, name, *arguments):
        code = getattr(self._library, name)(*arguments)
        if code:
            raise OSError("%s fails with %d" % (name, code))

    def used(self, uuid):
        memory = Memory()
        self._call("nvmlDeviceGetMemoryInfo", self.devices[uuid], ctypes.byref(memory))
        return memory.used

    def version(self):
        text = ctypes.create_string_buffer(96)
        self._call("nvmlSystemGetDriverVersion", text, len(text))
        return text.value.decode()


def operations(torch):
    """Yields the name, the group and the function of each operation whose kernels are loaded by its first call."""
    functional = torch.nn.functional

    def tensor(*shape, **named):
        return torch.zeros(*shape, device="cuda", requires_grad=True, **named)

    def differentiated(function, *tensors):
        return lambda: torch.autograd.grad(function(*tensors).float().sum(), tensors, allow_unused=True)

    for name in TYPES:
        dtype = getattr(torch, name)
        square = tensor(64, 64, dtype=dtype)
        yield "elementwise " + name, "plain", differentiated(lambda it: functional.gelu(it * 2 + 1), square)
        yield "softmax " + name, "plain", differentiated(lambda it: functional.softmax(it, -1), square)
        yield "layer norm " + name, "plain", differentiated(lambda it: functional.layer_norm(it, (64,)), square)
        yield "dropout " + name, "plain", differentiated(lambda it: functional.dropout(it, 0.1), square)
        for size in SIZES:
            left, right = tensor(size, size, dtype=dtype), tensor(size, size, dtype=dtype)
            yield "matmul %d %s" % (size, name), "plain", differentiated(torch.matmul, left, right)
            bias = tensor(size, dtype=dtype)
            yield "linear %d %s" % (size, name), "plain", differentiated(functional.linear, left, right, bias)
        parts = [tensor(2, 4, 128, 64, dtype=dtype) for _ in range(3)]
        attention = functional.scaled_dot_product_attention
        yield "attention " + name, "plain", differentiated(attention, *parts)
        images, filters = tensor(2, 16, 32, 32, dtype=dtype), tensor(16, 16, 3, 3, dtype=dtype)
        convolution = differentiated(lambda x, w: functional.conv2d(x, w, padding=1), images, filters)
        yield "convolution " + name, "cudnn", convolution
    ids = torch.zeros(8, 8, dtype=torch.long, device="cuda")
    table = tensor(32, 64)
    yield "embedding", "plain", differentiated(lambda it: functional.embedding(ids, it), table)
    classes = torch.zeros(64, dtype=torch.long, device="cuda")
    yield "cross entropy", "plain", differentiated(lambda it: functional.cross_entropy(it, classes), tensor(64, 64))
    for kind in torch.optim.SGD, torch.optim.AdamW:
        weight = tensor(64, 64)
        weight.grad = torch.zeros_like(weight)
        yield kind.__name__, "plain", kind([weight], lr=0.1).step


def outside(torch):
    """Measures the context, and what each operation adds to it."""
    driver = Driver()
    idle = {uuid: driver.used(uuid) for uuid in driver.devices}
    torch.zeros(1, device="cuda")
    uuid = str(torch.cuda.get_device_properties(0).uuid)

    def now():
        torch.cuda.synchronize()
        return driver.used(uuid) - idle[uuid] - torch.cuda.memory_reserved()

    context = last = now()
    kernels = []
    for name, group, run in operations(torch):
        try:
            run()
        except RuntimeError:
            # Not every architecture has every type.
            continue
        at = now()
        kernels.append({"name": name, "group": group, "bytes": max(0, at - last)})
        last = max(at, last)
    return {"context": max(0, context), "kernels": kernels}


def workspace(torch, run):
    """Returns the bytes that are allocated during a call and free after it."""
    cuda = torch.cuda
    cuda.reset_peak_memory_stats()
    before = cuda.memory_allocated()
    result = run()
    after = cuda.memory_allocated()
    del result
    return max(0, cuda.max_memory_allocated() - max(before, after))


def convolutions(torch):
    """Measures the workspaces of a grid of convolutions, with cuDNN's heuristics and with its trials."""
    conv, backward = torch.nn.functional.conv2d, torch.ops.aten.convolution_backward
    found = []
    for name in TYPES[:2]:
        for channels, size, filters, width, stride, groups in CONVOLUTIONS:
            for batch in BATCHES:
                named = {"device": "cuda", "dtype": getattr(torch, name)}
                x = torch.zeros(batch, channels, size, size, **named)
                w = torch.zeros(filters, channels // groups, width, width, **named)
                y = conv(x, w, None, stride, width // 2, 1, groups)
                pad = width // 2
                rest = (torch.zeros_like(y), x, w, None, [stride] * 2, [pad] * 2, [1] * 2, False, [0] * 2, groups)
                # Not by `autograd`, whose own thread may hold a call's result when the next call begins.
                runs = {
                    "forward": lambda: conv(x, w, None, stride, width // 2, 1, groups),
                    "input": lambda: backward(*rest, (True, False, False)),
                    "weight": lambda: backward(*rest, (False, True, False)),
                }
                bytes_ = sum(it.numel() * it.element_size() for it in (x, w, y))
                for direction, run in runs.items():
                    both = []
                    for torch.backends.cudnn.benchmark in (False, True):
                        both.append(workspace(torch, run))
                    shape = "%dx%dx%d to %d, %d wide, batch %d" % (channels, size, size, filters, width, batch)
                    what = "%s %s %s" % (direction, name, shape)
                    found.append({"name": what, "tensors": bytes_, "workspace": both[0], "trial": both[1]})
                torch.backends.cudnn.benchmark = False
    return {"convolutions": found}


def measured(what):
    """Runs one of the functions above in a process of its own."""
    done = subprocess.run([sys.executable, __file__, what], capture_output=True, text=True)
    if done.returncode:
        lines = [it for it in done.stderr.splitlines() if it.strip()] or ["exit code %d" % done.returncode]
        sys.exit("measuring %s fails: %s" % (what, lines[-1]))
    return json.loads(done.stdout.splitlines()[-1])


def facts(torch):
    it = torch.cuda.get_device_properties(0)
    return {
        "gpu": it.name,
        "capability": "%d.%d" % (it.major, it.minor),
        "multiprocessors": it.multi_processor_count,
        "driver": Driver().version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() or 0,
    }


def table():
    outsides = [measured("outside") for _ in range(REPETITIONS)]
    kernels = []
    # Each repetition has the same operations.
    for rows in zip(*(it["kernels"] for it in outsides)):
        kernels.append({**rows[0], "bytes": int(statistics.median(it["bytes"] for it in rows))})
    return {
        "schema": 1,
        "kind": "gpuwatch-fit-table",
        "date": datetime.date.today().isoformat(),
        **measured("facts"),
        "context": [it["context"] for it in outsides],
        "kernels": kernels,
        **measured("convolutions"),
    }


def main():
    try:
        import torch
    except ImportError as error:
        sys.exit("this Python cannot import PyTorch (%s): name the job's Python after --" % error)
    if torch.version.cuda is None:
        sys.exit("this Python's PyTorch %s is built without CUDA" % torch.__version__)
    if len(sys.argv) > 1:
        print(json.dumps(globals()[sys.argv[1]](torch)))
        return
    # The driver counts them without a context of this process, which would be measured too.
    if not torch.cuda.device_count():
        sys.exit("PyTorch finds no GPU on this machine")
    try:
        Driver()
    except (OSError, AttributeError) as error:
        sys.exit("NVML cannot be used, which counts the device's memory: %s" % error)
    print(json.dumps(table()))


main()
