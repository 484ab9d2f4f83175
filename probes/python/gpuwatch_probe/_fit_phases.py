"""What a job does under `gpuwatch fit`, from start to end, and the peak of each of these phases.

The allocator's peaks are read and reset wherever a phase begins or ends; the job still sees its own. A phase is known
by what happens in it, not by the names of the job's functions:

start       what comes before the first call of a module that is to be trained
training    what comes around a backward, up to the end of the optimizer's step
evaluation  calls of modules without gradients, or between `eval()` and `train()` without a backward
generation  the same inside of a method `generate`
loading     reading a checkpoint and giving it to a module
saving      from taking a module's state to writing it
end         what comes after the last optimizer step
"""

import functools
import os
import sys
import threading

from ._fit_peaks import PeakCounters

# The most phases that are listed by name and line; further ones are listed by name only.
_MOST = 100
# The most steps that a phase remembers, and the most lines that began a phase.
_STEPS, _LINES = 50, 1000
# The most errors that led to one another.
_CAUSES = 10
# Steps after which new optimizers are no longer looked for.
_EARLY = 100

START, TRAINING, END = "start", "training", "end"
EVALUATION, GENERATION, LOADING, SAVING = "evaluation", "generation", "loading", "saving"


def _harmless(method):
    """Makes a method that the job calls without knowing: no fault of it reaches the job."""

    @functools.wraps(method)
    def called(*arguments):
        try:
            method(*arguments)
        except Exception:
            pass

    return called


class Phases:
    """The phases of one process so far."""

    def __init__(self, torch, unknowns, optimizers):
        self._torch = torch
        self._unknowns = unknowns
        self._optimizers = optimizers
        # Parameters by optimizer, whose functions may end before the job does.
        self._trained = {}
        self._counters = PeakCounters(torch, self._flush)
        self._thread = threading.get_ident()
        self._found = {}
        # Steps that have ended, and the one from which on the job is led on (`_fit_loop_exit.py`).
        self._number = 0
        self._led = None
        # What runs now, from the outermost; the first is not known until a backward, a step or the end comes.
        self._open = [_Phase(None, None)]
        self._is_started = False
        # Open `no_grad` and `inference_mode`, and the line that set evaluation mode.
        self._depth = 0
        self._evaluates = None
        self._hook = None
        self._is_in_mode = False
        # The latest error that passed a phase, by identity, with the phase and its line.
        self._failed = None
        # Lines of the job from which phases began.
        self.lines = set()

    def install(self):
        """Follows the job from now on."""
        torch = self._torch
        for cls in (torch.no_grad, torch.inference_mode):
            self._wrap_context(cls)
        module, optimizer = torch.nn.Module, torch.optim.Optimizer
        self._wrap_mode(module)
        for owner, name, phase in (
            (torch, "load", LOADING),
            (module, "load_state_dict", LOADING),
            (optimizer, "load_state_dict", LOADING),
            (torch, "save", SAVING),
        ):
            setattr(owner, name, self._within(phase, getattr(owner, name)))
        for owner in (module, optimizer):
            owner.state_dict = self._before_saving(owner.state_dict)
        self._arm()

    # What happens

    @_harmless
    def backward(self):
        """A backward begins: what was open is training, but for evaluations that have ended."""
        if not self._is_here():
            return
        self._flush()
        self._evaluates = None
        self._collapse()
        if not self._is_started:
            self._is_started = True
            self._record(START)
        self._record(TRAINING)

    def step(self, number, is_led):
        """An optimizer step has ended."""
        self._flush()
        self._collapse()
        self._is_started = True
        self._record(TRAINING)
        self._number = number
        if number <= _EARLY:
            for it in list(self._optimizers):
                self._trained[id(it)] = [id(one) for group in it.param_groups for one in group["params"]]
        if is_led and self._led is None:
            self._led = number

    def finish(self, is_end):
        """Nothing of the job follows, at its end or because it is ended."""
        self._flush()
        while len(self._open) > 1:
            self._close()
        self._record(END if self._number and is_end else TRAINING if self._is_started else START)

    def peak(self, device):
        """Returns the highest allocated and reserved bytes of a device so far."""
        self._flush()
        return self._counters.highest.get(device, (0, 0))

    def now(self, error, frame, is_after=False):
        """Returns name and line of the phase that an error passed, or in which it was raised at a frame; `None` between
        those after training, where the job was led to or came by itself (`is_after`)."""
        for _ in range(_CAUSES):
            if self._failed is not None and self._failed[0] == id(error):
                return self._failed[1:]
            error = getattr(error, "__context__", None)
        top = self._open[-1]
        if top.name is not None and not (top.is_tail and not _is_within(frame, top.code)):
            return top.name, top.line
        if self._evaluates is not None and (not top.is_tail or top.code is None):
            return EVALUATION, self._evaluates
        if self._led is not None or is_after:
            return None
        return (TRAINING if self._is_started else START), None

    def others(self):
        """Returns how often anything but training was."""
        return sum(it.count for (name, _), it in self._found.items() if name != TRAINING)

    def list(self):
        """Returns the phases in the order in which they began."""
        merged = {}
        for it in self._found.values():
            if self._is_of_each_step(it):
                it = _Phase(TRAINING, None, it)
            key = it.name, it.line
            if key in merged:
                merged[key].join(it)
            else:
                merged[key] = _Phase(it.name, it.line, it)
        if TRAINING in (name for name, _ in merged):
            merged[TRAINING, None].count = self._number
        return [it.report() for it in sorted(merged.values(), key=lambda it: it.order)]

    def _is_of_each_step(self, it):
        """Whether a phase belongs to training: as a teacher's forward, it runs between all steps."""
        if it.name not in (EVALUATION, GENERATION):
            return False
        limit = self._led if self._led is not None else self._number + 1
        own = sorted(step for step in it.steps if 0 < step < limit)
        return any(b - a == 1 for a, b in zip(own, own[1:]))

    # Phases that begin and end

    def _begin(self, name, line):
        self._flush()
        self._end_tail()
        self._note_lines(sys._getframe(2))
        self._open.append(_Phase(name, line))

    def _begin_without_gradients(self, frame):
        """Begins an evaluation, or learns that what is open is one."""
        it = self._open[-1]
        if it.is_without_gradients:
            self._open.pop()
            self._end_tail()
            self._open.append(it)
            self._note_lines(frame)
            it.name, it.line = self._evaluation(frame)
        else:
            self._begin(*self._evaluation(frame))
            self._open[-1].is_without_gradients = True

    def _close(self):
        """Ends the innermost open phase."""
        self._flush()
        it = self._open.pop()
        if it.name is None:
            self._open[-1].join(it)
        else:
            self._record(it.name, it)

    def _conclude(self, frame):
        """Ends an evaluation. What follows belongs to it until a module is called with gradients, or another phase
        begins: its results are put together."""
        it = self._open[-1]
        self._close()
        tail = _Phase(it.name, it.line)
        tail.is_tail, tail.code = True, frame.f_code
        self._open.append(tail)
        self._arm()

    def _end_tail(self):
        # What it holds at its end is not noted as a peak of what is around it.
        if self._open[-1].is_tail:
            it = self._open.pop()
            self._record(it.name, it)

    def _collapse(self):
        """What is still open turns out to be a part of what is around it."""
        while len(self._open) > 1:
            inner = self._open.pop()
            self._open[-1].join(inner)

    def _record(self, name, it=None):
        """Adds a phase that has ended, or what is not known yet, to those of that name and line."""
        it = it or self._open[0]
        if it.is_empty():
            return
        if it is self._open[0]:
            self._open[0] = _Phase(None, None)
        key = name, it.line
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _MOST:
                key = name, None
            order = 0 if name == START else len(self._found) + 1
            found = self._found.setdefault(key, _Phase(name, key[1], order=order))
        found.count += 1
        found.add(it, self._number)
        if len(found.steps) < _STEPS:
            found.steps.add(self._number)

    def _flush(self):
        """Gives the peaks since the last call to what is open now."""
        self._counters.take(self._open[-1])

    def _is_free(self):
        """Whether an evaluation may begin: it is not within another phase."""
        return self._open[-1].name is None or self._open[-1].is_tail

    def _is_here(self):
        return threading.get_ident() == self._thread

    def _line(self, depth=2):
        return self._unknowns.line(sys._getframe(depth))

    def _note_lines(self, frame):
        while frame is not None and len(self.lines) < _LINES:
            file = frame.f_code.co_filename
            if self._unknowns.is_own(file):
                self.lines.add("%s:%d" % (os.path.basename(file), frame.f_lineno))
            frame = frame.f_back

    # Calls of modules

    def _arm(self):
        """Notices the next call of a module. Compiled functions must not see a hook."""
        if self._hook is None and not is_compiled():
            from torch.nn.modules.module import register_module_forward_pre_hook

            is_compiling = compiling(self._torch)

            def called(module, arguments):
                if not is_compiling():
                    self._called(module, arguments)

            self._hook = register_module_forward_pre_hook(called)

    def _disarm(self):
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    @_harmless
    def _called(self, module, arguments):
        if not self._is_here():
            return
        self._disarm()
        frame = sys._getframe(3)
        if not self._depth and self._open[-1].is_tail:
            self._flush()
            self._end_tail()
        if self._depth and self._is_free():
            self._begin_without_gradients(frame)
        elif not self._depth and self._evaluates is not None and self._is_free():
            self._begin(self._evaluation(frame)[0], self._evaluates)
        elif not self._is_started and not self._depth:
            self._flush()
            self._record(START)
            self._is_started = True

    def _evaluation(self, frame):
        """Returns name and line of an evaluation that this call begins."""
        line = self._unknowns.line(frame)
        while frame is not None:
            if frame.f_code.co_name == "generate" and "self" in frame.f_code.co_varnames:
                return GENERATION, line
            frame = frame.f_back
        return EVALUATION, line

    def _wrap_context(self, cls):
        enter, leave = cls.__enter__, cls.__exit__

        @functools.wraps(enter)
        def entered(context):
            result = enter(context)
            if self._is_here():
                self._entered()
            return result

        @functools.wraps(leave)
        def left(context, kind, error, trace):
            if self._is_here():
                self._left(error)
            return leave(context, kind, error, trace)

        cls.__enter__, cls.__exit__ = entered, left

    @_harmless
    def _entered(self):
        self._depth += 1
        if self._depth > 1:
            return
        frame = sys._getframe(3)
        # As a decorator, it is entered by a function of PyTorch's.
        if os.path.basename(frame.f_code.co_filename) == "_contextlib.py":
            frame = frame.f_back
        if not is_compiled():
            self._arm()
            if self._number and self._is_free():
                # If a module is called, what comes before that is a part of it.
                self._flush()
                is_own = self._led is not None and self._unknowns.is_own(frame.f_code.co_filename)
                self._open.append(_Phase(None, self._unknowns.line(frame) if is_own else None))
                self._open[-1].is_without_gradients = True
        elif self._number and self._is_free() and self._unknowns.is_own(frame.f_code.co_filename):
            self._begin_without_gradients(frame)

    @_harmless
    def _left(self, error):
        self._depth = max(self._depth - 1, 0)
        if self._depth:
            return
        top = self._open[-1]
        if top.is_without_gradients:
            self._note_failure(error)
            if top.name is not None:
                self._conclude(sys._getframe(3))
                return
            self._close()
            top = self._open[-1]
        if self._is_started and self._evaluates is None and not top.is_tail:
            self._disarm()
        else:
            self._arm()

    def _wrap_mode(self, module):
        train = module.train

        @functools.wraps(train)
        def changed(this, mode=True):
            if self._is_in_mode or not self._is_here():
                return train(this, mode)
            self._is_in_mode = True
            try:
                result = train(this, mode)
            finally:
                self._is_in_mode = False
            self._mode(this, mode)
            return result

        module.train = changed

    @_harmless
    def _mode(self, module, is_training):
        if not is_training:
            self._note_lines(sys._getframe(3))
        if not self._number or not self._is_trained(module):
            return
        if not is_training:
            # The caller of `eval`, or of `train(False)`. Results of an earlier evaluation are put together by now.
            self._evaluates, self._open[-1].code = self._line(4), None
            if not self._depth:
                self._arm()
            return
        self._evaluates = None
        top = self._open[-1]
        if top.name in (EVALUATION, GENERATION) and not top.is_without_gradients and not top.is_tail:
            self._conclude(sys._getframe(4))
        elif self._is_started and not self._depth and not top.is_tail:
            self._disarm()

    def _is_trained(self, module):
        """Whether a module has half of the parameters of an optimizer."""
        parameters = {id(it) for it in module.parameters()}
        return any(own and sum(it in parameters for it in own) * 2 >= len(own) for own in self._trained.values())

    # Checkpoints

    def _within(self, name, function):
        """Makes the calls of a function that do not come from another one a phase."""

        @functools.wraps(function)
        def within(*arguments, **named):
            if not self._is_here() or self._open[-1].name in (LOADING, SAVING):
                return function(*arguments, **named)
            self._open_file(name)
            failed = None
            try:
                return function(*arguments, **named)
            except BaseException as error:
                failed = error
                raise
            finally:
                self._close_file(name, failed)
                failed = None

        return within

    @_harmless
    def _open_file(self, name):
        if name == SAVING and self._open[-1].is_state:
            # What was done with the state since it was taken is a part of it.
            self._open[-1].name = SAVING
            self._note_lines(sys._getframe(1))
        else:
            self._begin(name, self._line(4))

    @_harmless
    def _close_file(self, name, error):
        self._note_failure(error)
        if self._open[-1].name == name:
            self._close()

    def _before_saving(self, function):
        @functools.wraps(function)
        def taken(*arguments, **named):
            self._take_state()
            return function(*arguments, **named)

        return taken

    @_harmless
    def _take_state(self):
        if self._is_here() and (len(self._open) == 1 or self._open[-1].is_tail):
            self._flush()
            self._end_tail()
            it = _Phase(None, self._line(4))
            it.is_state = True
            self._open.append(it)

    def _note_failure(self, error):
        # The innermost phase that an error passes is the one that failed.
        if not isinstance(error, Exception) or self._failed is not None and self._failed[0] == id(error):
            return
        top = self._open[-1]
        # What fails without gradients before it calls a module.
        name = EVALUATION if top.name is None and top.is_without_gradients and top.line else top.name
        if name is not None:
            self._failed = id(error), name, top.line


class _Phase:
    """What one phase took, the step of the peak, and how often it ran.

    `peaks` has allocated and reserved bytes by device. The allocator keeps what it has reserved, so that reserved bytes
    count only where they were more than ever before; otherwise they are 0.
    """

    __slots__ = ("name", "line", "peaks", "count", "step", "steps", "order") + (
        "is_without_gradients",
        "is_state",
        "is_tail",
        "code",
    )

    def __init__(self, name, line, other=None, order=0):
        self.name, self.line, self.order = name, line, order
        self.peaks, self.count, self.step, self.steps = {}, 0, None, set()
        self.is_without_gradients = self.is_state = self.is_tail = False
        self.code = None
        if other is not None:
            self.order = other.order
            self.join(other)

    def is_empty(self):
        return not self.peaks

    def note(self, device, allocated, reserved):
        """Adds peaks; returns whether they are higher."""
        before = self.peaks.get(device, (0, 0))
        self.peaks[device] = max(before[0], allocated), max(before[1], reserved)
        return self.peaks[device] != before

    def add(self, other, step):
        """Adds what another one took after so many steps."""
        if any([self.note(device, *peaks) for device, peaks in other.peaks.items()]):
            self.step = step

    def join(self, other):
        """Takes another one in."""
        if any([self.note(device, *peaks) for device, peaks in other.peaks.items()]):
            self.step = other.step
        self.count += other.count
        self.order = min(self.order, other.order)
        self.steps |= other.steps

    def report(self):
        return {
            "name": self.name,
            "line": self.line,
            "count": self.count,
            "step": self.step,
            "peaks": [[device, *peaks] for device, peaks in sorted(self.peaks.items())],
        }


def _is_within(frame, code):
    """Whether a frame is in a function, or in one that it calls."""
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None and code.co_name != "<module>"


def is_compiled(which="total"):
    """Whether the job compiles functions, or has compiled one (`ok`)."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return bool(dynamo is not None and dynamo.counters["frames"].get(which))


def compiling(torch):
    """Returns the function that says whether a function is being compiled, which then sees nothing of what is behind it."""
    return getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
