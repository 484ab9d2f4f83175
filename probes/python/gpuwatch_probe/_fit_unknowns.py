"""Events of a simulated device whose results it cannot compute, and the lines of the job that caused them."""

import ctypes
import os
import re
import sys

from ._fit_source import Trees
from ._fit_values import SIZE, Values, outside
from ._stacks import LIBRARY, OWN, Stacks

# Kinds of what `simgpu_watch` reports.
_READ, _REFUSED, _CONVOLUTION, _MODULE, _ASSUMED = 1, 2, 3, 4, 5
# Bytes of a read that gets an answer; longer ones get what is stored.
_FEW = 16
# Most entries of a list, and steps whose kernels are counted.
_LINES, _STEPS = 200, 50
# Calls whose results have a shape that depends on values, without a bound that the device knows.
_SHAPES = re.compile(r"\b(bincount|repeat_interleave)\b")
# Those that have one, where the device was not asked for it.
_BOUNDED = re.compile(r"\b(nonzero|unique|unique_consecutive|masked_select|argwhere|where|nms)\b")
_DECIDES = re.compile(r"^(if|elif|while|assert)\b|\bif\b.+\belse\b")


class Unknowns:
    """What one process has met so far."""

    def __init__(self, torch):
        self.stacks = Stacks(torch)
        self.rank = self.stacks.rank
        self.trees = Trees()
        self.values = Values(torch, self)
        self._reads = {}
        self._refused = {}
        self._modules = {}
        self._watcher = self._launches = None
        # Kernels that were launched until each step ended.
        self._counts = []
        # From then on, only cuDNN's use counts.
        self.is_over = False
        # Whether cuDNN is used, and the bytes of the tensors of its largest operation.
        self.facts = {"convolutions": False, "convolution": 0}

    def step(self):
        """Counts the kernels that were launched until a step ended."""
        if len(self._counts) < _STEPS and self._launches is not None:
            self._counts.append(self._launches())

    def launches(self):
        """Returns the kernels that a step launches; `None` before the second one."""
        each = sorted(b - a for a, b in zip(self._counts, self._counts[1:]))
        return each[len(each) // 2] if each else None

    def lists(self):
        """Returns what the report lists."""
        keys = "file", "line", "kind", "text", "own", "answer", "known", "absent"
        return {
            "reads": [dict(zip(keys, it)) for it in self._reads.values()],
            "refused": [{"name": name, "line": line} for name, line in self._refused.items()],
            "modules": list(self._modules),
        }

    def has_read(self):
        """Whether a value was read since `forget`."""
        return bool(self._reads)

    def forget(self):
        """Forgets the lines so far."""
        for it in (self._reads, self._refused, self._modules):
            it.clear()
        self.values.step()

    def is_own(self, file):
        """Whether a file is the job's own."""
        return self.stacks.rank(file) == OWN

    def watch(self):
        """Makes the simulated device report events whose results it cannot compute."""
        device = ctypes.CDLL("libsimgpu.so")
        self._launches, self._launches.restype = device.simgpu_launches, ctypes.c_uint64
        watch = device.simgpu_watch
        watch.argtypes = (ctypes.c_void_p,)
        watch.restype = None
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int32, ctypes.c_char_p)

        def seen(what, name):
            number = 0
            try:
                if what == _CONVOLUTION:
                    self.facts["convolutions"] = True
                    self.facts["convolution"] = max(self.facts["convolution"], int(name))
                elif what == _READ:
                    is_few = int(name) <= _FEW
                    number, frame, answer = self.values.read() if is_few else (0, None, None)
                    if not self.is_over:
                        self._read(frame or sys._getframe(1), answer, is_few)
                elif what == _ASSUMED:
                    if not self.is_over:
                        self._read(sys._getframe(1), None, int(name) <= _FEW, True)
                elif not self.is_over:
                    self._seen(what, name.decode(), sys._getframe(1))
            except Exception:
                pass
            return number

        self._watcher = kind(seen)
        watch(ctypes.cast(self._watcher, ctypes.c_void_p))
        try:
            self.values.install()
        except Exception:
            pass

    def _seen(self, what, name, frame):
        frame = _outside(frame)
        if what == _REFUSED:
            if len(self._refused) < _LINES:
                self._refused.setdefault(name, self.line(frame))
            return
        if what == _MODULE:
            line = self.line(frame)
            if line is not None and len(self._modules) < _LINES:
                self._modules.setdefault(line)
            return

    def _read(self, frame, answer, is_few, is_absent=False):
        """Lists a read: file, line, kind, source, whether it is the user's own, its answer, whether that follows,
        whether ranks that are absent sent what it reads."""
        frame = self.reader(_outside(frame))
        if frame is None:
            return
        file, line = frame.f_code.co_filename, frame.f_lineno
        is_many = answer not in (None, SIZE) and answer.is_many
        if (file, line) in self._reads and not is_many or len(self._reads) >= _LINES:
            return
        import linecache

        text = linecache.getline(file, line).strip()
        kind = "value"
        if answer is SIZE:
            kind = "size"
        elif is_many:
            kind = "loop"
        elif answer is not None and answer.is_number and self.values.branches.sizes(frame):
            kind = "size" if answer.is_most else "shape"
        elif is_absent and self.values.branches.sizes(frame):
            kind = "shape"
        elif _SHAPES.search(text) or answer is None and is_few and (_BOUNDED.search(text) or _is_mask(frame)):
            kind = "shape"
        elif _DECIDES.search(text) or self.values.branches.decides(frame):
            kind = "branch"
        shown, known = "0" if is_few else "", False
        if answer not in (None, SIZE):
            shown, known = str(answer.value).lower(), answer.is_known
        own = self.stacks.rank(file) == OWN
        self._reads[file, line] = file, line, kind, text[:120], own, shown, known, is_absent

    def assume(self):
        """Lists the line that is about to get values of which absent ranks would send some."""
        if not self.is_over:
            frame = sys._getframe(1)
            while frame is not None and self.stacks.rank(frame.f_code.co_filename) not in (OWN, LIBRARY):
                frame = frame.f_back
            self._read(frame, None, False, True)

    def drawn(self, frame, value):
        """Lists the line that got the largest value of what it draws at random."""
        if self.is_over or len(self._reads) >= _LINES:
            return
        import linecache

        file, line = frame.f_code.co_filename, frame.f_lineno
        text = linecache.getline(file, line).strip()[:120]
        value = value.item() if hasattr(value, "item") else value
        self._reads.setdefault((file, line), (file, line, "draw", text, True, str(value)[:20], False, False))

    def reader(self, frame):
        """Returns the frame that reads; `None` of PyTorch's own reads."""
        if frame is None:
            return None
        file = frame.f_code.co_filename
        rank = self.stacks.rank(file)
        # Methods such as `Tensor.__contains__` are in Python; their caller decides.
        while rank not in (OWN, LIBRARY) and os.path.basename(file) in ("_tensor.py", "functional.py"):
            frame = frame.f_back
            if frame is None:
                return None
            file = frame.f_code.co_filename
            rank = self.stacks.rank(file)
        return frame if rank in (OWN, LIBRARY) else None

    def line(self, frame):
        """Returns the job's own innermost line, as `train.py:41`; a library's where there is none."""
        place = self.place(frame)
        return place and "%s:%d" % (os.path.basename(place[0]), place[1])

    def place(self, frame):
        """Returns the same as (file, line, function)."""
        best = None
        while frame is not None:
            code = frame.f_code
            rank = self.stacks.rank(code.co_filename)
            if rank == OWN:
                return code.co_filename, frame.f_lineno, code.co_name
            if rank == LIBRARY and best is None:
                best = code.co_filename, frame.f_lineno, code.co_name
            frame = frame.f_back
        return best


def _outside(frame):
    """Returns the frame outside of the probe; for PyTorch's own threads, which have none, that of the main thread: it
    waits in `backward`."""
    frame = outside(frame)
    if frame is None:
        import threading

        frame = outside(sys._current_frames().get(threading.main_thread().ident))
    return frame


def _is_mask(frame):
    """Whether the frame is about to index: a mask's result has as many elements as the mask has ones."""
    import dis

    at = frame.f_lasti
    name = next((it for it in dis.get_instructions(frame.f_code) if it.offset == at), None)
    return name is not None and (
        name.opname.startswith(("BINARY_SUBSCR", "STORE_SUBSCR")) or name.argrepr == "[]"
    )
