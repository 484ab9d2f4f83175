"""Measures for `gpuwatch fit` inside of the job: the peaks of each step, and facts that a simulated GPU cannot know.

`GPUWATCH_FIT` names the folder for one file per process, `GPUWATCH_FIT_STEPS` the optimizer step after which the peak
of training counts as known (without it: the third, or a later one as long as the peak still rises). From there, the
job continues by itself for a while, which is more than a small one needs to come to its end, and is then led out of
its training loop (`_fit_loop_exit.py`), through what follows. How long that while is, `GPUWATCH_FIT_ALONE` says:
`no` or `long`. With `GPUWATCH_FIT_TRACE` the allocator records its events, for a snapshot beside the file.
`GPUWATCH_FIT_SECONDS` is the time after which the process ends in any case, `GPUWATCH_FIT_VALUES` how reads of values
are answered (`_fit_values.py`).
"""

import atexit
import json
import os
import sys
import threading
import time
import weakref

from ._advise import attach as attach_advise
from ._fit_agreement import Agreement
from ._fit_batches import Batches
from ._fit_draws import Draws
from ._fit_groups import communicators
from ._fit_growth import Growth, held
from ._fit_host import HostMemory
from ._fit_kept import Kept
from ._fit_loop_exit import LoopExit
from ._fit_makers import Makers
from ._fit_not_run import Positions, not_run
from ._fit_phases import Phases, is_compiled
from ._fit_source import failed_at
from ._fit_unknowns import Unknowns
from ._fit_varied import Varied
from ._loops import Places
from ._process import at_end_of_multiprocessing_child, is_data_worker
from ._steps import Steps, hooks

_LEAST, _MOST = 3, 12
# Steps, and allocations, up to which a job that keeps more after each of them goes on: many lists have a bound.
_BOUNDED, _ALLOCATIONS_BOUNDED = 128, 10_000
# Optimizers whose gradients are looked at together.
_FEW = 4
_EVENTS = 4_000_000
_STEPS = 4000
# Seconds between two reports of a job that has made more than so many steps: they matter only if something kills it.
_SELDOM, _BEGINNING = 0.5, 50
# Seconds between two looks at a job that is led on.
_OFTEN = 0.2
# What a job that is led on does at most, however fast its machine is: steps and allocations; the part of these after
# which its loaders end. After so many seconds nobody waits any longer.
_STEPS_AFTER, _ALLOCATIONS_AFTER, _NEARLY, _SECONDS_AFTER = 400, 200_000, 0.7, 60.0
# How long a job continues by itself: so many allocations of all its ranks, which agree on it every few steps, unless it
# is slow. Blocks are compared after so many more of them. For long: a part of its time limit, at most so many seconds, with several ranks so
# many steps; and allocations, of which a trace keeps a limited number.
_ALLOCATIONS_ALONE, _TOGETHER, _COMPARED, _SECONDS_ALONE = 40_000, 10, 4_000, 60.0
_PART, _SECONDS, _STEPS_OF_RANKS, _ALLOCATIONS = 0.1, 90.0, 50, 700_000


class Fit:
    """This process's report, which is written after each step and at the end."""

    def __init__(self, torch, folder, plan=None):
        self._torch = torch
        # Which ranks run, where some are absent.
        self._plan = plan
        self._file = os.path.join(folder, "%d.json" % os.getpid())
        self._folder, self._others = folder, Agreement(folder, plan)
        self._steps = int(os.environ.get("GPUWATCH_FIT_STEPS") or 0)
        alone = os.environ.get("GPUWATCH_FIT_ALONE")
        self._is_quick, self._is_whole = alone == "no" or self._steps > 0, alone == "long"
        self.is_traced = bool(os.environ.get("GPUWATCH_FIT_TRACE"))
        self._seconds = float(os.environ.get("GPUWATCH_FIT_SECONDS") or 0)
        self._host = HostMemory(folder)
        self._unknowns = Unknowns(torch)
        if plan is not None:
            plan.assume = self._unknowns.assume
        self._makers = Makers(self._unknowns)
        self._optimizers = weakref.WeakSet()
        self._phases = None
        trees = self._trees = self._unknowns.trees
        self._batches = Batches(torch, self._unknowns, trees, self._memory)
        self._loop_exit = LoopExit(self._unknowns, trees, self._batches, self._allocations, self._memory, self._others)
        self._batches.is_wanted = self._loop_exit.wants
        # What `--advise` tries in this run.
        self._advise = attach_advise(torch, self._unknowns)
        # The step after which the peak of training is known, and the one from which on the job is led.
        self._steady = self._led = self._known = None
        # Where the job was when its peak was known and when it was led on, and where an error ended it.
        self._trained = self._positions = self._failed = None
        self._begun = time.monotonic()
        self._kept = Kept(torch, self._makers)
        self._backward = []
        # When steps ended, in µs since 1970.
        self._ends = []
        # What is allocated at the ends of steps, what grows there, and what else lives there.
        self._growth = Growth(torch, self._unknowns.stacks)
        self._grows, self._alive = None, []
        # Whether the ranks continue, allocations until the latest comparison of blocks, and when the report was written.
        self._is_agreed, self._compared, self._written = False, 0, 0.0
        self._varied = Varied()
        # How often anything but training had come when the latest step ended.
        self._before = 0
        self._draws = Draws(torch, self._unknowns)
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
        if not is_data_worker():
            self._batches.install()
            if self.is_traced:
                self._makers.install()
        if self._seconds and not is_data_worker():
            threading.Thread(target=self._end_after, args=(self._seconds,), daemon=True).start()
            watched = lambda: self._is_over, self._end_for_host
            threading.Thread(target=self._host.watch, args=watched, daemon=True).start()
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
        """Ends the job after its time limit."""
        event = threading.Event()
        # A loader that still gives batches shortly before ends, so that what follows it is seen.
        event.wait(seconds * _NEARLY)
        self._batches.is_over |= self._led is not None
        event.wait(seconds * (1 - _NEARLY))
        self._end("time")

    def _end_led(self, is_rank):
        """Ends a job that is led on after what it does at most, with the ranks beside it, which may wait for it; or, so
        that the answer says it, when nobody waits any longer."""
        event, until, before = threading.Event(), time.monotonic() + _SECONDS_AFTER, self._allocations()
        while not self._is_over:
            event.wait(_OFTEN)
            made = self._allocations() - before
            self._batches.is_over |= made >= _ALLOCATIONS_AFTER * _NEARLY
            if made >= _ALLOCATIONS_AFTER or (is_rank and self._others.is_ended()):
                self._others.end()
                self._end("later")
            elif time.monotonic() > until:
                self._end("late")

    def _end(self, how):
        if not self._is_on or self._is_over:
            return
        try:
            self._line = self._unknowns.line(sys._current_frames().get(threading.main_thread().ident))
        except Exception:
            pass
        self.finish(how)
        self._leave()

    def _end_for_host(self):
        self._line = self._unknowns.line(sys._current_frames().get(threading.main_thread().ident))
        self._is_over = True
        self._write("host")
        self._leave()

    def _forked(self):
        self._file = os.path.join(self._folder, "%d.json" % os.getpid())
        self._is_over = self._unknowns.is_over = self._is_on

    def _on_cuda(self):
        if self._is_on or self._is_over or is_data_worker():
            return
        self._is_on = True
        self._unknowns.watch()
        self._phases = Phases(self._torch, self._unknowns, self._optimizers)
        self._phases.install()
        self._draws.begin()
        self._hook()
        if self.is_traced:
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
        self._counts = lambda: Steps(Places(os.path.dirname(wrapper.co_filename)))
        self._counter = self._counts()

        def true_depth():
            depth, frame = 0, sys._getframe(2)
            while frame is not None:
                depth += frame.f_code is wrapper
                frame = frame.f_back
            return depth

        def ended(optimizer):
            group = next((it for it in optimizer.param_groups if it["params"]), None)
            if self._counter.event((id(optimizer), id(group and group["params"][0]))):
                self.step(self._counter.number, sys._getframe(1))

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
            self._phases.backward()
            begun = time.time_ns() // 1000
            line = self._unknowns.place(sys._getframe(1))
            try:
                return function(*arguments, **named)
            finally:
                if line is not None and len(self._backward) < _STEPS * 10:
                    self._backward.append((begun, time.time_ns() // 1000, line))

        return timed

    def _before_step(self, optimizer):
        self._optimizers.add(optimizer)
        if not self.is_traced or self._number > _MOST:
            return
        # What another optimizer trains may be freed before its own step; with one for each parameter, it is not.
        self._kept.look_at_gradients(self._optimizers if len(self._optimizers) <= _FEW else [optimizer])

    def step(self, number, frame):
        """An optimizer step has ended; once the peak is known, the process is led on from here, or ends."""
        if not self._is_on or self._is_over or number <= self._number:
            return
        self._number = number
        self._phases.step(number, self._led is not None)
        self._unknowns.values.step()
        self._unknowns.step()
        self._draws.step(number, self._led is not None)
        if len(self._ends) < _STEPS:
            self._ends.append(time.time_ns() // 1000)
        rises = self._measure()
        if number <= _MOST:
            self._host.look()
        if self._led is None:
            is_ahead, others = self._draws.has_drawn or self._batches.is_varied, self._phases.others()
            is_training, self._before = others == self._before, others
            if self._varied.step(number, self._count("allocated_bytes"), rises, is_ahead, is_training):
                self._forget_cache()
        uses_loader = self._batches.step(number)
        is_due = self._steady is None or (self._led is None and self._allocations() >= self._compared + _COMPARED)
        of = self._memory()[0], self._now("requested_bytes"), self.is_traced and number > 1 and is_due
        is_looked, is_higher = self._growth.step(number, *of, is_sought=self._steps > 0)
        rises |= is_higher
        if is_looked:
            self._compared = self._allocations()
        if number == 1:
            self._keep()
        if self._steady is None and self._is_known(number, rises):
            self._steady = self._known = number
            self._trained = Positions(self._unknowns, self._trees, frame)
            self._keep()
            self._search()
        if self._steady is None or (self._led is None and self._continues(number)):
            self._write_now_and_then(number)
            return
        if self._led is None and self._steady < number <= _STEPS:
            # It continued by itself: what grew late grows.
            self._steady = number
            self._search()
        if self._advise is not None and not self._advise.is_active:
            # What follows is of no use to a run that only observes.
            self.finish("steps")
            self._others.wait_for_all()
            self._leave()
        if self._led is None:
            self._led = number
            self._positions = Positions(self._unknowns, self._trees, frame)
            self._draws.step(number, True)
            self._phases.step(number, True)
            if not self._is_whole:
                is_rank = self._others.count() > 1
                threading.Thread(target=self._end_led, args=(is_rank,), daemon=True).start()
        leads = self._loop_exit.step(number, frame, uses_loader, self._varied.rises(number))
        if leads and self._batches.is_repeating() and not self._loop_exit.has_later():
            # More rounds only serve to come to what follows them.
            leads = self._loop_exit.calls_later or bool(self._not_run())
        if leads and (self._is_whole or number < self._led + _STEPS_AFTER):
            self._write_now_and_then(number)
            return
        self.finish("steps")
        self._others.wait_for_all()
        self._leave()

    def _write_now_and_then(self, number):
        """Writes the report of a job that goes on."""
        now = time.monotonic()
        if number <= _BEGINNING or now >= self._written + _SELDOM:
            self._written = now
            self._write(None)

    def _search(self):
        """Searches what holds the memory that grows, and the rest of what lives between steps."""
        if not self.is_traced:
            return
        try:
            self._grows = self._growth.report() or self._grows
            self._alive = held(self._torch, self._unknowns.stacks, self._kept.addresses())
        except Exception:
            pass

    def _is_known(self, number, rises):
        """Whether the peak of training is known after so many steps."""
        # With several optimizers, a step that has begun is over when the next one begins.
        done = number - (len(self._optimizers) > 1)
        if self._steps:
            return done >= self._steps
        if done < _LEAST:
            return False
        is_short = done < _BOUNDED and self._allocations() < _ALLOCATIONS_BOUNDED
        continues = rises and (done < _MOST or is_short)
        continues |= self._varied.wants_more(done, self._allocations(), self._others.count() < 2)
        # Where more and more is allocated on one rank, the others continue, too.
        return not self._others.any("rises-%d" % number, continues)

    def _continues(self, number):
        """Whether the job continues by itself."""
        ranks = self._others.count()
        if not self._is_whole:
            # Techniques are compared.
            if self._is_quick or self._advise is not None:
                return False
            goes_on = self._allocations() < _ALLOCATIONS_ALONE // ranks and number < _STEPS
            goes_on &= time.monotonic() - self._begun < _SECONDS_ALONE
            # Each of several ranks has to make as many steps as the others.
            if ranks > 1 and (number % _TOGETHER == 0 or not self._is_agreed):
                self._is_agreed = self._others.any("alone-%d" % number, goes_on)
            return goes_on if ranks < 2 else self._is_agreed
        if ranks > 1:
            return number < _STEPS_OF_RANKS
        seconds = min(_SECONDS, self._seconds * _PART) if self._seconds else _SECONDS
        return time.monotonic() - self._begun < seconds and self._allocations() < _ALLOCATIONS

    def _forget_cache(self):
        """Gives back what the longest batches left in the allocator: the next ones would fit into it."""
        if not self._steps and not self._torch.cuda.is_current_stream_capturing():
            self._torch.cuda.empty_cache()

    def _allocations(self):
        """Returns how often the allocator was asked for memory."""
        return self._count("allocation")

    def _count(self, counter):
        """Returns what a counter of the allocator has counted in all."""
        stats = self._torch._C._cuda_memoryStats
        return sum(stats(it)[counter]["all"]["allocated"] for it in list(self._peaks))

    def _unseen(self):
        """Returns what is left of passes that were not made: [(line, passes, bytes by which memory still rose in one)]."""
        return [(*it, self._risen() if kept is None else kept) for *it, kept in self._loop_exit.unseen()]

    def _risen(self):
        """Returns the bytes by which the allocated peak rose in each step of the later half; 0 if it did not any more."""
        steps = [[peak for peak, _ in it[: self._number]] for it in self._peaks.values()]
        rises = (((it[-1] - it[len(it) // 2]) * 2 // len(it)) for it in steps if it)
        return max(rises, default=0)

    def _memory(self):
        """Returns the allocated bytes now, and the highest reserved ones."""
        stats = [self._torch._C._cuda_memoryStats(it) for it in self._peaks]
        return self._now("allocated_bytes"), sum(it["reserved_bytes"]["all"]["peak"] for it in stats)

    def _now(self, counter):
        """Returns the bytes that a counter has now; 0 of one that this PyTorch does not have."""
        stats = [self._torch._C._cuda_memoryStats(it).get(counter) for it in self._peaks]
        return sum(it["all"]["current"] for it in stats if it)

    def _measure(self):
        """Notes the peaks so far; true if the reserved one has risen."""
        cuda, rises = self._torch.cuda, False
        for device in range(cuda.device_count()):
            if not self._torch._C._cuda_hasPrimaryContext(device):
                continue
            now = self._phases.peak(device)
            all_steps = self._peaks.setdefault(device, [])
            before = all_steps[-1] if all_steps else (0, 0)
            rises |= now[1] > before[1] or now[0] > before[0]
            if len(all_steps) < _STEPS:
                all_steps.append(now)
            else:
                all_steps[-1] = now
        self._groups = max(self._groups, communicators())
        return rises

    # The end

    def _listen_to_errors(self):
        hook = sys.excepthook

        def excepthook(kind, error, trace):
            try:
                inner = own = failed_at(trace)
                while own is not None and not self._unknowns.is_own(own.f_code.co_filename):
                    own = own.f_back
                own = own or inner
                line = own and "%s:%d" % (os.path.basename(own.f_code.co_filename), own.f_lineno)
                self._failed = Positions(self._unknowns, self._trees, inner)
                is_after = self._failed.is_after(self._trained)
                phase = self._phases.now(error, inner, is_after) if self._phases is not None else None
                self._error = {"kind": kind.__name__, "text": str(error)[:2000], "line": line, "phase": phase}
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
            self._phases.finish(how == "exit")
            self._measure()
            self._host.look()
            self._facts.update(self._learnt())
        except Exception:
            pass
        kept = snapshot = None
        # What a job holds that was ended by its time is of no use.
        if self.is_traced and (how != "time" or self._steady is not None):
            try:
                self._keep()
                kept = self._kept.report()
                snapshot = self._file[:-5] + ".pickle"
                self._torch.cuda.memory._dump_snapshot(snapshot)
            except Exception:
                snapshot = None
        self._write(how, kept=kept, snapshot=snapshot, not_run=self._not_run(how == "exit"))

    def _not_run(self, is_end=False):
        """Returns what the job's own lines would still do, or would have done."""
        try:
            positions = self._failed or self._positions
            if self._failed is not None:
                is_end = False
            elif not is_end:
                frame = sys._current_frames().get(threading.main_thread().ident)
                positions = Positions(self._unknowns, self._trees, frame)
            # A job that was not led on decided by itself.
            files = self._trees.own(self._unknowns) if positions is not None else []
            return not_run(files, self._phases.lines, positions, self._loop_exit, is_end)
        except Exception:
            return []

    def _learnt(self):
        torch, facts = self._torch, {}
        facts["benchmark"] = bool(torch.backends.cudnn.benchmark)
        facts["compiled"] = is_compiled("ok")
        facts["groups"] = self._groups
        clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None and not self.is_traced:
            return facts
        if clear is not None:
            # The trace continues for a moment; it is read up to the highest peak, which is past.
            allocated = torch.cuda.memory_allocated
            devices = [it for it in range(torch.cuda.device_count()) if torch._C._cuda_hasPrimaryContext(it)]
            before = [allocated(it) for it in devices]
            clear()
            facts["blas"] = {it: was - allocated(it) for it, was in zip(devices, before)}
        return facts

    def _keep(self):
        """Notes what the job keeps now."""
        if self.is_traced:
            self._kept.look(self._optimizers)

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
            "host_bytes": self._host.bytes(),
            "steps": self._number,
            "steady": self._steady or 0,
            "known": self._known or 0,
            "phases": self._phases.list() if self._phases is not None else [],
            "entered": list(self._loop_exit.entered.items()),
            "unfinished": self._batches.unfinished,
            "unseen": self._unseen(),
            "looked": self._batches.looked,
            "round": self._batches.round if self._growth.is_given_back(self._led) else 0,
            "launches": self._unknowns.launches(),
            "levels": self._growth.levels,
            "asked": self._growth.asked,
            "passes": self._loop_exit.passes or 0,
            "whole": ended == "exit" and self._led is None,
            "ended": ended,
            "error": self._error,
            "line": self._line,
            "devices": devices,
            "backward": self._backward,
            "ends": self._ends,
            "paths": self._makers.paths,
            "modules_of": self._makers.functions,
            "grows": self._grows,
            "held": self._alive,
            **self._unknowns.lists(),
            "facts": {**self._unknowns.facts, **self._facts},
            "rank": self._others.rank(),
            **(self._plan.report() if self._plan is not None else {}),
            "techniques": self._advise.report() if self._advise is not None and ended is not None else {},
        }
        report.update(more)
        beside = self._file + ".new"
        with open(beside, "w") as file:
            json.dump(report, file)
        os.replace(beside, self._file)

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


def attach(torch, plan):
    """Begins the report of this process, where `gpuwatch fit` has started it."""
    folder = os.environ.get("GPUWATCH_FIT")
    if not folder or not hasattr(torch._C, "_cuda_memoryStats"):
        return None
    it = Fit(torch, folder, plan)
    it.wait_for_cuda()
    return it
