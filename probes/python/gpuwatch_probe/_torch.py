"""PyTorch's side of the probe: reads the caching allocator's counters at the end of every training step.

Nothing happens before the job itself initialises its devices. From then on the training thread reads one dictionary a step
and device and hands it over; a timer thread keeps the picture alive between steps. Nothing here may synchronise,
create a context, change the current device, reset a peak, print, or raise.
"""

import _thread
import atexit
import os
import signal
import time

from . import _accelerators
from ._captures import Resting
from ._loops import Places
from ._memory_history import refusal
from ._native import (
    CALL,
    INVALID,
    NOT_ARMED,
    RAISED,
    REQUESTED,
    STEP,
    TICK,
    cure,
    loaded,
    log,
    path,
    taker,
    unknown_shape,
    utf8,
)
from ._oom import Errors, is_ours
from ._oom_message import OomMessage
from ._optimizers import Joined, address_of_first_parameter, steps_of
from ._parts import ROUND, Parts
from ._process import at_end_of_multiprocessing_child, is_data_worker, ranks
from ._sites import Sites
from ._step_watch import Watch
from ._steps import Steps
from ._trace import traced
from ._trace_window import Windows

# The first steps, at which the probe searches for devices; after them, the timer does so once a second.
_FIRST = 4
_MOST_DEVICES = 64


# The probe that callbacks are for which nothing can take back, and those callbacks that stand.
_current = None
_standing = set()


class Probe(Errors):
    """The probe of this process: waiting for the devices, running, or off for good.

    `late` describes a probe that is started in a job that ran already: what it adds to the description.
    """

    def __init__(self, torch, late=None):
        self.torch = torch
        self.late = late
        # What the job's PyTorch allocates on; `None` without any.
        self.accelerator = _accelerators.found(torch)
        # Why it is off, where it never ran.
        self.trouble = None
        self.steps = Steps()
        self.native = None
        self.off = False
        # The job calls `step()` itself.
        self.explicit = False
        self.devices = ()
        self._sites = None
        self._watch = None
        self._handles = []
        self._wake = _thread.allocate_lock()
        self._due = True
        self._burst = None
        self._size_search = None
        self._oom_message = None
        self._trace = None
        self._windows = None
        self._joined = Joined(torch, self.accelerator and self.accelerator.kind)
        self._parts = None
        self._has_rank = False
        # Once the library is loaded: the builtin functions that begin and end what `end_step` does without Python, the
        # mask of counters, and the function that reads them.
        self._arm = None
        self._disarm = int
        self._counters = ()

    def wait_for_devices(self):
        """Asks to be called when the job initialises its devices, here or in a child forked before that."""
        accelerator = self.accelerator
        if accelerator is None:
            return
        global _current
        _current = self
        if "process" not in _standing:
            _standing.add("process")
            os.register_at_fork(after_in_child=_forked)
            # Registered this early, it runs after everything that the job registers later.
            atexit.register(_stop)
        if accelerator.is_polled:
            self._poll()
        elif accelerator.is_initialized():
            self._on_devices()
        else:
            accelerator.when_initialized(self._on_devices)

    def _poll(self):
        """Asks each second whether the devices are initialised, where nothing tells."""

        def ask():
            try:
                while not (self.off or self.accelerator.is_initialized()):
                    time.sleep(1)
                self._on_devices()
            except Exception as error:
                self._fail(error)

        _aside(ask)

    def call(self):
        """Ends a step on the job's own word."""
        if not self.explicit:
            self.explicit = True
            self._take_over()
            if self.steps.number:
                # An optimizer ended this very step just before.
                return
        if self.native is None or self.off:
            return
        self.steps.number += 1
        try:
            if self.steps.number == 1:
                self._describe_first(1)
            self._end_step(CALL)
        except Exception as error:
            if not self._fault(error):
                raise

    def mark(self, name, value):
        """Names an instant."""
        if self.native is None or self.off:
            return
        try:
            given = value is not None
            self.native.mark(utf8(name), int(value) if given else 0, int(given))
        except Exception as error:
            self._note("a mark was refused: %r" % (error,))

    def stop(self, reason):
        """Sends the bye and ends the probe for good."""
        if self.off:
            return
        self._turn_off()
        try:
            if self.native is not None:
                try:
                    if not self.number():
                        # A job that ends before its first step and the timer's first second has figures as well.
                        self._due_row(TICK)
                finally:
                    self.native.stop(utf8(reason))
        except Exception:
            pass

    def leave(self):
        """Ends the probe so that another one may start in this process; not on the thread that trains."""
        global _current
        self._turn_off()
        if self.native is not None:
            self._disarm()
            self.native.stop_aside("detach")
            self.native.reset()
        if _current is self:
            _current = None

    def _forked(self):
        # Devices are of no use in a child forked after their initialisation, where even a read of counters may hang on
        # a lock that was held; a child forked earlier may still begin.
        if self.native is None:
            if self.accelerator.is_polled and not self.off:
                self._poll()
        else:
            self.devices = ()
            if self._parts is not None:
                self._parts.forget()
            # Nothing of the allocator's is switched here: a lock of its may have been held.
            self._sites = None
            if self._oom_message is not None:
                self._oom_message.forked()
            for it in (self._trace, self._windows):
                if it is not None:
                    it.forked()
            Resting.end()
            self._turn_off()

    def _turn_off(self):
        self.off = True
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if self._oom_message is not None:
            self._oom_message.stop()
        if self._sites is not None:
            self._sites.end()
        if self._trace is not None:
            self._trace.end("the probe ended")
        if self._windows is not None:
            self._windows.end()
        try:
            self._wake.release()
        except RuntimeError:
            pass

    def _fail(self, error):
        self._turn_off()
        self.trouble = repr(error)
        self._note("the probe is off: " + self.trouble)

    def _note(self, line):
        try:
            if self.native is None or self.native.log(utf8(line)) < 0:
                log(line)
        except Exception:
            pass

    def _on_devices(self):
        """The devices are initialised (or about to be: this may run inside `torch.cuda._lazy_init`)."""
        if self.off or self.native is not None:
            return
        try:
            if self.accelerator.is_in_bad_fork() or is_data_worker():
                self.off = True
                self.trouble = "it was forked from a process that uses the GPU, or loads data for one"
                return
            try:
                native = loaded()
            except (OSError, AttributeError) as error:
                self.off = True
                self.trouble = "%s does not load (%s); %s" % (path(), error, cure(error))
                log("the probe is off: " + self.trouble)
                return
            self._start(native)
        except Exception as error:
            self._fail(error)

    def _start(self, native):
        torch, accelerator = self.torch, self.accelerator
        backend = accelerator.backend()
        conf = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF")
        sites = refusal(torch, backend)
        self._trace = traced(torch, backend, self._note)
        if self._is_traced():
            sites = "its allocations are traced (gpuwatch run --trace)"
        described = {
            "framework": "torch",
            "framework_version": torch.__version__,
            "backend": backend,
            "allocator_conf": conf,
            "sites": sites or "ready",
        }
        for key, value in [*described.items(), *(self.late or ())]:
            if value is not None:
                native.describe(utf8(key), utf8(value))
        self._describe_rank(native)
        self._visible = range(min(accelerator.count(), _MOST_DEVICES))
        for device in self._visible:
            name, product, total = accelerator.described(device)
            native.device(device, name and utf8(name), product and utf8(product), total)
        if native.start() < 0:
            self.off = True
            self.trouble = "its socket cannot be made: %s" % (native.fault() or b"GPUWATCH turns it off").decode()
            # The next attachment names its own folders.
            native.reset()
            return
        self._sites = Sites(torch, native, sites)
        self._windows = Windows(torch, backend, native, self.number, self._note, self._sites, self._is_traced)
        by = accelerator.reports_errors_by(backend)
        on_oom_message = self._on_oom_message if by == "observer" else self._on_oom_message_alone
        self._oom_message = OomMessage(accelerator.error, on_oom_message)
        if "noparts" not in os.environ.get("GPUWATCH", "").split(","):
            self._parts = Parts(torch, ROUND if backend == "native" else 1)
        self.native = native
        stats, mask = accelerator.stats, native.torch_counters(utf8(backend))
        beside = self._joined.on, accelerator.memory
        self._row = taker(native.builtin("push_row"), stats, accelerator.host_stats, mask, *beside)
        self._arm, self._disarm = native.builtin("arm"), native.builtin("disarm")
        self._counters = mask, stats
        self._watch_steps(native.builtin)
        if by == "observer" and "observer" not in _standing:
            _standing.add("observer")
            accelerator.observe(_on_oom)
        elif by == "message":
            self._oom_message.listen_alone()
        self._start_timer()
        if "end" not in _standing:
            _standing.add("end")
            at_end_of_multiprocessing_child(_stop)

    def _is_traced(self):
        return self._trace is not None and self._trace.is_on

    def _tracing(self):
        """Returns the trace or the window whose history the allocator keeps; `None` without one."""
        if self._is_traced():
            return self._trace
        return None if self._windows is None else self._windows.current

    def _watch_steps(self, builtin):
        watch = Watch(self.torch, builtin, self._other_step, self._fault)
        self.steps.places = Places(os.path.dirname(watch.wrapper.co_filename))
        self._watch, self._handles = watch, [watch]

    def _other_step(self, optimizer, answer):
        """Handles an optimizer's step that `end_step` did not end, or after which a request waits."""
        if self.off:
            return
        if answer == REQUESTED:
            self._sites.turn(self.number())
        elif answer == RAISED:
            # The same again, to know what it raises.
            self._take_over()
            self._end_step(STEP)
        elif answer == INVALID:
            raise unknown_shape()
        elif answer == NOT_ARMED and self._parts is not None:
            self._parts.see(optimizer)
        if answer == NOT_ARMED and not self.explicit:
            if (self.late is not None or self.accelerator.is_polled) and not self.number():
                # This step is counted below.
                self.steps.number = max(0, steps_of(optimizer) - 1)
                self._describe_first(self.steps.number + 1)
            self._take_over()
            if self._due:
                self._joined.see(optimizer)
            key = (id(optimizer), address_of_first_parameter(optimizer))
            if self.steps.event(key):
                self._end_step(STEP)
            if self.steps.is_alone(key) and not self._due and not self._is_busy():
                self._arm(*key, self.steps.number, *self._counters, *((it,) for it in self.devices))

    def _end_step(self, edge):
        number = self.steps.number
        parts = None
        if self._size_search is not None:
            self._describe_size()
        if self._parts is not None:
            self._windows.boundary(number, self._parts)
            parts = self._parts.turn(number, self._due, self._allocated)
        if self._due_row(edge, parts) if self._due else self._row(self.devices, number, edge, False, parts):
            self._sites.turn(number)

    def _is_busy(self):
        """Returns whether the ends of steps need Python."""
        return self._parts is not None and (self._parts.is_walking or self._windows.watches_steps)

    def _allocated(self):
        """Returns the allocated bytes of each device."""
        stats = self.accelerator.stats
        return [stats(it)["allocated_bytes"]["all"]["current"] for it in self.devices]

    def number(self):
        """The number of the latest step, for any thread; the next one comes to `_other_step`."""
        return max(self.steps.number, self._disarm())

    def _take_over(self):
        """Counts on from where `end_step` has counted; for the thread that trains alone."""
        self.steps.number = self.number()

    def _due_row(self, edge, parts=None):
        """Sends a row with the figures that cost more; about once a second."""
        self._find_devices()
        self._due = self.steps.number < _FIRST
        return self._row(self.devices, self.steps.number, edge, True, parts)

    def _fault(self, error):
        """Handles an error of this package; returns false for one that the job's signal handler raised meanwhile."""
        if not is_ours(error):
            return False
        self._fail(error)
        return True

    def _find_devices(self):
        self._watch.search()
        in_use = self.accelerator.in_use
        self.devices = tuple(it for it in self._visible if in_use(it))
        # Launchers that are libraries initialise `torch.distributed` after the devices.
        self._describe_rank(self.native)

    def _describe_rank(self, native):
        if not self._has_rank:
            known = ranks()
            for key, value in known.items():
                native.describe(utf8(key), utf8(value))
            self._has_rank = bool(known)

    def _describe_first(self, number):
        """Describes the first step that is counted, in a job that ran already."""
        if self.late is not None:
            self.native.describe(b"attached_step", utf8(number))

    def _start_timer(self):
        self._wake.acquire()
        _aside(self._run_timer)

    def _run_timer(self):
        seen = 0
        while not self._wake.acquire(True, 1.0):
            if self.off:
                return
            try:
                # The next step is one that costs more.
                self._due = True
                number = self.number()
                if number == seen:
                    self._find_devices()
                    if self._row(self.devices, number, TICK, True):
                        self._sites.tick(number)
                seen = number
                self._oom_message.second(number)
                self._windows.second()
            except Exception as error:
                self._fail(error)
                return


def _aside(work):
    """Runs a function on a raw thread, so that the job's `threading` does not see it, and that takes no signal."""
    # Asked for first: the call that blocks may be the one at which a handler of the job's raises.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        _thread.start_new_thread(work, ())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _forked():
    if _current is not None:
        _current._forked()


def _stop(reason="exit"):
    if _current is not None:
        _current.stop(reason)


def _on_oom(device, tried, limit, free):
    if _current is not None:
        _current._on_oom(device, tried, limit, free)
