"""Measures for `gpuwatch fit` inside of the job: the peaks of each step, and facts that a simulated GPU cannot know.

`GPUWATCH_FIT` names the folder for one file per process, `GPUWATCH_FIT_STEPS` the optimizer step after which the
process ends (without it: the third, or a later one as long as the peak still rises). With `GPUWATCH_FIT_TRACE` the
allocator records its events, for a snapshot beside the file. `GPUWATCH_FIT_SECONDS` is the time after which the process
ends in any case, `GPUWATCH_FIT_VALUES` how reads of values are answered (`_fit_values.py`).
"""

import atexit
import gc
import json
import os
import sys
import threading
import time
import weakref

from ._fit_unknowns import Unknowns
from ._loops import Places
from ._process import at_end_of_multiprocessing_child, is_data_worker
from ._steps import Steps, hooks

_LEAST, _MOST = 3, 12
_EVENTS = 4_000_000
_STEPS = 1000
# Seconds to wait for the other ranks of this machine, whose collectives may need this process.
_PATIENCE = 30.0


class Fit:
    """This process's report, which is written after each step and at the end."""

    def __init__(self, torch, folder):
        self._torch = torch
        self._file = os.path.join(folder, "%d.json" % os.getpid())
        self._folder = folder
        self._steps = int(os.environ.get("GPUWATCH_FIT_STEPS") or 0)
        self._ranks = int(os.environ.get("WORLD_SIZE") or 1)
        self._unknowns = Unknowns(torch)
        self._optimizers = weakref.WeakSet()
        self._gradients = {}
        self._backward = []
        # When steps ended, in µs since 1970.
        self._ends = []
        self._peaks = {}
        # The most communicators of NCCL at a time: a job destroys them before it ends.
        self._groups = 0
        self._number = 0
        self._is_on = False
        self._is_over = False
        self._facts = {}
        self._error = None
        # Where the job was when it was ended.
        self._line = None

    # Beginning

    def wait_for_cuda(self):
        os.register_at_fork(after_in_child=self._forked)
        self._listen_to_errors()
        atexit.register(self.finish, "exit")
        self._count_without_cuda()
        seconds = float(os.environ.get("GPUWATCH_FIT_SECONDS") or 0)
        if seconds and not is_data_worker():
            threading.Thread(target=self._end_after, args=(seconds,), daemon=True).start()
        cuda = self._torch.cuda
        if cuda.is_initialized():
            self._on_cuda()
        else:
            cuda._lazy_call(self._on_cuda)

    def _count_without_cuda(self):
        """Ends a job that trains on the CPU: no step of it will ever use the device."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        count = [0]

        def stepped(optimizer, arguments, named):
            if self._is_on or self._is_over:
                return
            count[0] += 1
            if count[0] == _MOST:
                self._line = self._unknowns.line(sys._getframe(1))
                self._is_over = True
                self._write("cpu")
                self._leave()

        stepped._torchdynamo_disable = True
        register_optimizer_step_post_hook(stepped)

    def _end_after(self, seconds):
        threading.Event().wait(seconds)
        if not self._is_on or self._is_over:
            return
        try:
            self._line = self._unknowns.line(sys._current_frames().get(threading.main_thread().ident))
        except Exception:
            pass
        self.finish("time")
        self._leave()

    def _forked(self):
        self._file = os.path.join(self._folder, "%d.json" % os.getpid())
        self._is_over = self._unknowns.is_over = self._is_on

    def _on_cuda(self):
        if self._is_on or self._is_over or is_data_worker():
            return
        self._is_on = True
        self._ranks = int(os.environ.get("WORLD_SIZE") or 1)
        self._unknowns.watch()
        self._hook()
        if os.environ.get("GPUWATCH_FIT_TRACE"):
            record = self._torch.cuda.memory._record_memory_history
            record(enabled="all", context="all", stacks="python", max_entries=_EVENTS)
        at_end_of_multiprocessing_child(self.finish)
        self._write(None)

    def _hook(self):
        from torch.optim.optimizer import (
            Optimizer,
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        wrapper = Optimizer.profile_hook_step(lambda: None).__code__
        steps = Steps(Places(os.path.dirname(wrapper.co_filename)))

        def true_depth():
            depth, frame = 0, sys._getframe(2)
            while frame is not None:
                depth += frame.f_code is wrapper
                frame = frame.f_back
            return depth

        def ended(optimizer):
            group = next((it for it in optimizer.param_groups if it["params"]), None)
            if steps.event((id(optimizer), id(group and group["params"][0]))):
                self.step(steps.number)

        outer, post = hooks(true_depth, ended, None, lambda error: True)

        def pre(optimizer, args, kwargs):
            outer(optimizer, args, kwargs)
            try:
                self._before_step(optimizer)
            except Exception:
                pass

        pre._torchdynamo_disable = post._torchdynamo_disable = True
        register_optimizer_step_pre_hook(pre)
        register_optimizer_step_post_hook(post)
        autograd = self._torch.autograd
        for name in ("backward", "grad"):
            setattr(autograd, name, self._timed(getattr(autograd, name)))

    def _timed(self, function):
        import functools

        @functools.wraps(function)
        def timed(*arguments, **named):
            begun = time.time_ns() // 1000
            line = self._unknowns.line(sys._getframe(1))
            try:
                return function(*arguments, **named)
            finally:
                if line is not None and len(self._backward) < _STEPS * 10:
                    self._backward.append((begun, time.time_ns() // 1000, line))

        return timed

    def _before_step(self, optimizer):
        self._optimizers.add(optimizer)
        if not os.environ.get("GPUWATCH_FIT_TRACE") or self._number > _MOST:
            return
        for group in optimizer.param_groups:
            for it in group["params"]:
                grad = getattr(it, "grad", None)
                if grad is not None:
                    self._note(self._gradients, grad)

    def step(self, number):
        """An optimizer step has ended; the process ends here if it was the last requested one."""
        if not self._is_on or self._is_over or number <= self._number:
            return
        self._number = number
        self._unknowns.values.step()
        if len(self._ends) < _STEPS:
            self._ends.append(time.time_ns() // 1000)
        rises = self._measure()
        # With several optimizers, a step that has begun is over when the next one begins.
        done = number - (len(self._optimizers) > 1)
        if self._steps:
            is_last = done >= self._steps
        elif self._ranks > 1:
            # Ranks must agree, and each has only its own figures.
            is_last = done >= _LEAST
        else:
            is_last = done >= _MOST or (done >= _LEAST and not rises)
        if not is_last:
            self._write(None)
            return
        self.finish("steps")
        self._wait_for_others()
        self._leave()

    def _measure(self):
        """Notes the peaks so far; true if the reserved one has risen."""
        cuda, rises = self._torch.cuda, False
        stats = self._torch._C._cuda_memoryStats
        for device in range(cuda.device_count()):
            if not self._torch._C._cuda_hasPrimaryContext(device):
                continue
            it = stats(device)
            allocated, reserved = (it[key]["all"]["peak"] for key in ("allocated_bytes", "reserved_bytes"))
            all_steps = self._peaks.setdefault(device, [])
            before = all_steps[-1] if all_steps else (0, 0)
            # Jobs may reset the allocator's peaks.
            now = max(allocated, before[0]), max(reserved, before[1])
            rises |= now[1] > before[1] or now[0] > before[0]
            if len(all_steps) < _STEPS:
                all_steps.append(now)
            else:
                all_steps[-1] = now
        self._groups = max(self._groups, _groups())
        return rises

    # The end

    def _listen_to_errors(self):
        hook = sys.excepthook

        def excepthook(kind, error, trace):
            try:
                frames = []
                at = trace
                while at is not None:
                    frames.append((at.tb_frame.f_code.co_filename, at.tb_lineno))
                    at = at.tb_next
                frames.reverse()
                own = next((it for it in frames if self._unknowns.is_own(it[0])), frames[0] if frames else None)
                line = own and "%s:%d" % (os.path.basename(own[0]), own[1])
                self._error = {"kind": kind.__name__, "text": str(error)[:2000], "line": line}
            except Exception:
                pass
            hook(kind, error, trace)

        sys.excepthook = excepthook

    def finish(self, how="exit"):
        """Writes everything down, once."""
        if not self._is_on or self._is_over:
            if self._error is not None and not self._is_over:
                self._write(how)
            return
        self._is_over = self._unknowns.is_over = True
        try:
            self._measure()
            self._facts.update(self._learnt())
        except Exception:
            pass
        tensors = snapshot = None
        # What a job holds that was ended by its time is of no use.
        if os.environ.get("GPUWATCH_FIT_TRACE") and how != "time":
            try:
                tensors = self._tensors()
                snapshot = self._file[:-5] + ".pickle"
                self._torch.cuda.memory._dump_snapshot(snapshot)
            except Exception:
                snapshot = None
        self._write(how, tensors=tensors, snapshot=snapshot)

    def _learnt(self):
        torch, facts = self._torch, {}
        facts["benchmark"] = bool(torch.backends.cudnn.benchmark)
        dynamo = sys.modules.get("torch._dynamo.utils")
        facts["compiled"] = bool(dynamo is not None and dynamo.counters["frames"].get("ok"))
        facts["groups"] = self._groups
        clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None and not os.environ.get("GPUWATCH_FIT_TRACE"):
            return facts
        if clear is not None:
            # The trace continues for a moment; it is read up to the highest peak, which is past.
            allocated = torch.cuda.memory_allocated
            devices = [it for it in range(torch.cuda.device_count()) if torch._C._cuda_hasPrimaryContext(it)]
            before = [allocated(it) for it in devices]
            clear()
            facts["blas"] = {it: was - allocated(it) for it, was in zip(devices, before)}
        return facts

    def _tensors(self):
        """Returns blocks by what the job keeps in them: {kind: {device: {address}}}."""
        torch = self._torch
        weights, optimizer = {}, {}
        for it in gc.get_objects():
            if issubclass(type(it), torch.nn.Module):
                try:
                    for one in list(it.__dict__["_parameters"].values()) + list(it.__dict__["_buffers"].values()):
                        self._note(weights, one)
                except Exception:
                    continue
        for one in list(self._optimizers):
            for group in one.param_groups:
                for it in group["params"]:
                    self._note(weights, it)
            self._walk(optimizer, one.state, 4)
        kinds = {"weights": weights, "gradients": self._gradients, "optimizer": optimizer}
        return {kind: {device: sorted(all_) for device, all_ in it.items()} for kind, it in kinds.items()}

    def _walk(self, into, it, depth):
        if issubclass(type(it), self._torch.Tensor):
            self._note(into, it)
        elif depth and isinstance(it, dict):
            for value in it.values():
                self._walk(into, value, depth - 1)
        elif depth and isinstance(it, (list, tuple)):
            for value in it:
                self._walk(into, value, depth - 1)

    def _note(self, into, tensor):
        # A distributed tensor's own part.
        tensor = getattr(tensor, "_local_tensor", tensor)
        if tensor is None or not tensor.is_cuda:
            return
        into.setdefault(tensor.device.index, set()).add(tensor.untyped_storage().data_ptr())

    def _write(self, ended, **more):
        devices = []
        if self._is_on:
            properties = self._torch.cuda.get_device_properties
            for device, peaks in self._peaks.items():
                stats = self._torch._C._cuda_memoryStats(device)
                devices.append(
                    {
                        "ordinal": device,
                        "uuid": str(getattr(properties(device), "uuid", device)),
                        "retries": stats["num_alloc_retries"],
                        "ooms": stats["num_ooms"],
                        "peaks": peaks,
                    }
                )
        report = {
            "pid": os.getpid(),
            "torch": self._torch.__version__,
            "steps": self._number,
            "ended": ended,
            "error": self._error,
            "line": self._line,
            "devices": devices,
            "backward": self._backward,
            "ends": self._ends,
            **self._unknowns.lists(),
            "facts": {**self._unknowns.facts, **self._facts},
        }
        report.update(more)
        beside = self._file + ".new"
        with open(beside, "w") as file:
            json.dump(report, file)
        os.replace(beside, self._file)

    def _wait_for_others(self):
        local = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
        mark = os.path.join(self._folder, "done-%s" % os.environ.get("RANK", "0"))
        open(mark, "w").close()
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            if sum(it.startswith("done-") for it in os.listdir(self._folder)) >= local:
                return
            time.sleep(0.02)

    def _leave(self):
        """Ends the process as if it were done: what would follow is of no use here."""
        from . import stop

        stop()
        for it in (sys.stdout, sys.stderr):
            try:
                it.flush()
            except Exception:
                pass
        os._exit(0)


def attach(torch):
    """Begins the report of this process, where `gpuwatch fit` has started it."""
    folder = os.environ.get("GPUWATCH_FIT")
    if not folder or not hasattr(torch._C, "_cuda_memoryStats"):
        return None
    it = Fit(torch, folder)
    it.wait_for_cuda()
    return it


def _groups():
    """Returns how many communicators of NCCL there are."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 0
    world = sys.modules["torch.distributed.distributed_c10d"]._world
    # A group without a named backend has one for each kind of device, as in `cpu:gloo,cuda:nccl`.
    backends = getattr(world, "pg_backend_config", {})
    return sum("nccl" in "%s %s" % (it[0], backends.get(group)) for group, it in world.pg_map.items())
