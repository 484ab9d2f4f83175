"""Trainers that hold the training loop themselves, under `gpuwatch fit`: they are asked to evaluate, to save, and after some
steps to stop.

Where a size depends on a number that rises in that loop, counted by the trainer or by the job's functions, it goes on before
that: through its epochs, of which loaders leave little, then through passes of the last one that come later. The numbers
get the values that they have by then.
"""

import ast
import math
import os

from ._fit_counters import scope_of, text
from ._fit_later_passes import evaluated
from ._fit_repeats import is_much
from ._fit_rising import Number, Parameter

# Steps before a trainer ends, and before one whose epochs the job's functions test; steps and epochs that show what rises.
_PASSES, _STEPS, _LOOKED, _SHOWN = 2, 5, 10, 3
# Epochs that are made, and parts of those or of the passes to which it goes at once, with what the job's tests name.
_EPOCHS, _PARTS, _NAMED = 60, 12, 24
# Allocations after which there are no more, where no other rank has to make as many passes; numbers that are followed.
_ALLOCATIONS, _MOST = 60_000, 100


class Trainers:
    """The loops of trainers in one process; there is one at a time. `round_` returns the batches of an epoch where the
    trainer does not tell, `memory` the allocated bytes now and the highest reserved ones; `repeats` are branches that may
    want another step, and `others` the ranks beside it."""

    def __init__(self, round_, memory, repeats, others):
        self._round, self._memory, self._repeats, self._others = round_, memory, repeats, others
        # Numbers on which sizes depend: {(owner, name): Number}; the values of tests and tables that the job names.
        self._numbers, self._named, self._may_rise = {}, [], False
        # Steps since the lead, the latest one, and whether there is another to be made.
        self._passes, self._step, self._goes_on = 0, None, False
        # The epochs so far, loaders that began again, and passes and epochs that were left out.
        self._epochs, self._rounds, self._passes_out, self._epochs_out = [], 0, 0, 0
        # The trainer, and what it computes anew in each pass from numbers of its own: [(number, its value)].
        self._trainer, self._ahead = None, []
        # The later passes that are to be made; `None` until then.
        self._marks = None
        # Whether no other epoch is made.
        self._is_last = False
        # Allocations when the first step under this lead had ended.
        self._before = None
        # Allocated bytes as each epoch but the first began, all epochs, and whether all are made for that.
        self._levels, self._planned, self._is_ending = [], None, False
        # Whether it was left for its time, and whether no more passes are made.
        self._is_cut, self._is_done = False, False

    def read(self, files, may_rise):
        """Learns the numbers with which the job compares, and those of its tables; and whether its functions may read or
        count what sizes depend on."""
        self._may_rise = may_rise
        nodes = [it for _, nodes in files for it in nodes]
        tests = (part for it in nodes if isinstance(it, ast.Compare) for part in it.comparators)
        tables = (part for it in nodes if isinstance(it, (ast.Dict, ast.List, ast.Tuple)) for part in _parts(it))
        values = {it.value for part in (*tests, *tables) if part for it in ast.walk(part) if isinstance(it, ast.Constant)}
        self._named = sorted(it for it in values if type(it) is int and it > 0)

    @property
    def wants_batches(self):
        """Whether loaders of training go on."""
        return self._goes_on and self._is_last and not self._is_ending

    @property
    def goes_on(self):
        """Whether more passes are made, because a size depends on them."""
        return self._goes_on

    def unseen(self):
        """Returns the place of what rises, and the passes, where they were too few for the sizes of all."""
        return (self._place(), self._passes) if self._is_cut else None

    def _place(self):
        return next(it.place for it in self._numbers.values() if it.rises)

    def ask(self, it, number, first, waits, allocations):
        """Asks a trainer to evaluate and to save, and after some steps to stop; returns whether it is one. `allocations` is
        `None` where other ranks have to make as many passes."""
        if it is None:
            return False
        control, arguments = getattr(it, "control", None), getattr(it, "args", None)
        steps, least = number - first, _STEPS if waits else _PASSES
        if hasattr(control, "should_training_stop") and hasattr(control, "should_evaluate"):
            if not steps:
                control.should_evaluate = _is_set(arguments, "eval_strategy", "evaluation_strategy")
                control.should_save = _is_set(arguments, "save_strategy")
            control.should_training_stop |= not self._continues(it, number, allocations) and steps >= least
            return True
        trainer = trainer_of(it)
        if hasattr(trainer, "val_check_batch") and hasattr(trainer, "should_stop"):
            if not steps and isinstance(trainer.val_check_batch, (int, float)):
                trainer.val_check_batch = trainer.check_val_every_n_epoch = 1
            trainer.should_stop |= not self._continues(trainer, number, allocations) and steps >= least
            return True
        return False

    def note(self, frame, added, read, stored, is_own):
        """A function of the job is called in the loop. It adds to the nodes `added`, and sizes depend on what it reads.
        `stored` are attributes that the job sets, and `is_own` returns whether a class is the job's."""
        if self._is_done:
            return
        self._show()
        scope, code = scope_of(frame), frame.f_code
        for it in (*added, *read):
            if isinstance(it, ast.arg):
                key, place, make = (code, it.arg), None, Parameter
            elif isinstance(it, ast.Name):
                key, place, make = (id(frame.f_globals), it.id), (frame.f_globals, it.id), Number
            else:
                owner = evaluated(ast.unparse(it.value), scope)
                if it in read and it.attr in stored and is_own(type(owner)):
                    # The job sets it itself, to a size perhaps.
                    continue
                name = it.attr if isinstance(it, ast.Attribute) else it.slice.value
                key, place, make = (id(owner), name), (owner, name), Number
            if key not in self._numbers and len(self._numbers) < _MOST:
                line = "%s:%d" % (os.path.basename(code.co_filename), it.lineno)
                self._numbers[key] = make(line, *place) if place else make(line)
            if isinstance(it, ast.arg) and key in self._numbers:
                self._numbers[key].give(frame, it.arg)

    def _continues(self, trainer, number, allocations):
        """Whether the loop goes on for sizes after a step; it may be asked more than once."""
        if number != self._step and not self._is_done:
            self._step = number
            try:
                self._goes_on = self._passed(trainer, allocations)
            except Exception:
                self._goes_on = False
            self._is_done |= not self._goes_on
        return self._goes_on or self._repeats.goes_on

    def _passed(self, trainer, allocations):
        self._passes, self._trainer, self._ahead = self._passes + 1, trainer, []
        self._before = allocations if self._before is None else self._before
        _, epochs, _, planned = _position(trainer)
        epoch = self._epoch()
        self._epochs.append(epoch)
        for it in self._numbers.values():
            it.look(epoch)
        rising = [it for it in self._numbers.values() if it.rises]
        self._is_last |= epoch + 1 == epochs
        if not rising:
            is_shown = len(set(self._epochs)) >= _SHOWN or (self._is_last and self._passes >= _STEPS)
            is_shown |= not self._numbers and not self._may_rise
            return (not is_shown and self._passes < _LOOKED) or self._keeps(epoch, epochs, allocations)
        if self._left(allocations) <= 0:
            self._is_cut = True
            return False
        batches = planned // epochs if planned and epochs else self._round()
        if self._marks is None and self._goes_through_epochs(trainer, rising, epoch, epochs):
            self._end_epoch(rising, batches)
            return not self._is_cut
        self._is_last = True
        planned = planned or batches * (epochs or 1)
        return self._goes_to_later_passes(trainer, rising, planned, batches, self._left(allocations))

    def _keeps(self, epoch, epochs, allocations):
        """Whether another epoch is made to see what epochs keep: the first ones show whether they do."""
        self._planned = epochs
        # What is kept is what a branch keeps that was entered as often as in the whole run.
        is_over = self._repeats.is_done or epochs is None or epochs == 1 or len(self._levels) >= _EPOCHS
        if is_over or (epoch + 1 == epochs and not self._is_ending):
            return False
        if len(self._levels) < 2:
            return True
        before, now = self._levels[-2:]
        is_kept = is_much(now - before, epochs - epoch, self._memory()) and self._left(allocations) > 0
        self._is_ending = self._others.any_now("epochs", is_kept)
        return self._is_ending

    def passes_left(self, value):
        """Returns how often what counts, and has this value, still does in the whole run: in each epoch if that is what it has,
        else in each step. `None` where nobody knows."""
        epoch, epochs, steps, planned = _position(self._trainer) if self._trainer is not None else (0, None, 0, None)
        value = int(value) if isinstance(value, float) else value
        if epochs and value in (epoch, epoch + 1) and value not in (steps, steps + 1):
            return epochs - epoch
        return planned and max(planned - steps, 1)

    def leave(self, place):
        """Notes what the epochs keep that were not made; `place` has the call of the trainer. Where branches keep it, those are
        known already."""
        still_rises = len(self._levels) > 2 and self._levels[-1] > self._levels[-2]
        if still_rises and not self._is_ending and not self._repeats.unseen:
            self._repeats.leave(place, self._levels, self._planned)

    def _left(self, allocations):
        """Returns how many more passes there is time for."""
        if None in (allocations, self._before):
            return _MOST
        each = (allocations - self._before) / max(self._passes - 1, 1)
        return (self._before + _ALLOCATIONS - allocations) / max(each, 1)

    def _goes_through_epochs(self, trainer, rising, epoch, epochs):
        """Goes to the next epoch that is to be made; returns whether there is one."""
        # What is first read as an epoch begins has risen when the next one does.
        is_new = len(set(self._epochs)) < _SHOWN
        followed = [it for it in rising if it.by_epoch]
        if epochs is None or epochs == 1 or not (followed or is_new):
            return False
        now = epoch + self._epochs_out
        if now + 1 >= epochs:
            return False
        made = len(set(self._epochs))
        if made > _EPOCHS:
            self._is_cut = True
            return True
        if epochs > _EPOCHS and followed and not is_new:
            marks = _marks(now, epochs - 1, self._named)
            skipped = next(it for it in marks if it > now) - now - 1
            if hasattr(type(trainer), "current_epoch"):
                followed = {it.key: it for it in (*followed, Number(None, trainer, "current_epoch", 1))}.values()
            for it in followed:
                it.add(it.by_epoch * skipped)
            # The trainer may count by itself.
            self._epochs_out += skipped - (_position(trainer)[0] - epoch)
            self._epochs[-1] = epoch + skipped if _position(trainer)[0] != epoch else epoch
        return True

    def epoch_begins(self):
        """A loader of training begins again."""
        self._show()
        if self._trainer is not None:
            self._rounds += 1
            self._levels.append(self._memory()[0])
            self._is_last |= self._epoch() + 1 == _position(self._trainer)[1]

    def _epoch(self):
        """Returns the epoch, which a trainer may only know once a step of it has ended."""
        now = _position(self._trainer)[0]
        return max(now, self._epochs[0] + self._rounds) if self._epochs else now

    def _show(self):
        for it, value in self._ahead:
            it.set(value)

    def _end_epoch(self, rising, batches):
        """Gives numbers their values at the end of an epoch, of which only a pass or two are made."""
        is_first = self._epochs.count(self._epochs[-1]) == 1
        for it in rising:
            if it.is_part:
                self._ahead.append((it, math.floor(it.now()) + 1))
            elif it.by_pass and is_first and batches > _PASSES:
                it.add(it.by_pass * (batches - _PASSES), batches)

    def _goes_to_later_passes(self, trainer, rising, planned, batches, most):
        followed, steps = [it for it in rising if it.by_pass], _position(trainer)[2]
        now = steps + self._passes_out
        if not followed or now >= planned:
            return False
        if self._marks is None:
            marks = _marks(now, planned - 1, self._named)
            # The last one is among them, however few there are.
            self._marks = marks[:: -math.ceil(len(marks) / max(most - 1, 1)) or -1][::-1]
        left = [it for it in self._marks if it > now]
        if not left:
            return False
        skipped = left[0] - now - 1
        for it in followed:
            if it.is_part:
                most = math.floor(it.now()) + 1 - it.by_pass
                self._ahead.append((it, min(it.now() + it.by_pass * (skipped + 1), most)))
                continue
            it.add(it.by_pass * skipped, batches)
        self._passes_out += skipped - (_position(trainer)[2] - steps)
        return True


def read_by(function, sizes):
    """Returns what a function of the job reads on which sizes depend: attributes, and its own parameters."""
    parameters = [it for it in (*function.args.args, *function.args.kwonlyargs) if it.arg not in ("self", "cls")]
    found = [it for it in parameters if sizes.has_name(function, it.arg)]
    for it in ast.walk(function):
        is_read = isinstance(it, ast.Attribute) and isinstance(it.ctx, ast.Load) and text(it) is not None
        if is_read and sizes.has_name(None, it.attr):
            found.append(it)
    return found


def _marks(now, last, named):
    """Returns what comes after `now` and is to be made, up to the last: parts of all, and about what is named."""
    between = [it for it in named if now < it < last][:_NAMED]
    parts = (now + (last - now) * it // _PARTS for it in range(1, _PARTS + 1))
    return sorted(it for it in {*parts, *between, *(it + 1 for it in between)} if now < it <= last)


def _parts(node):
    return node.keys if isinstance(node, ast.Dict) else node.elts


def trainer_of(it):
    """Returns a trainer that validates by itself: this one, or that of one of its loops."""
    return it if hasattr(it, "val_check_batch") else getattr(it, "trainer", None)


def _position(trainer):
    """Returns a trainer's epoch, all of them, its steps, and all of those; `None` of all that is not known."""
    state, planned = getattr(trainer, "state", None), planned_steps(trainer) or None
    if hasattr(state, "global_step"):
        epochs = getattr(state, "num_train_epochs", None)
        return int(state.epoch or 0), epochs if type(epochs) is int and epochs > 0 else None, state.global_step, planned
    epochs = trainer.max_epochs
    if not (type(epochs) is int and epochs > 0):
        batches = trainer.num_training_batches
        epochs = -(-planned // batches) if planned and type(batches) is int and batches else None
    return trainer.current_epoch, epochs, trainer.global_step, planned


def planned_steps(trainer):
    """Returns how many steps a trainer makes at most; 0 where it does not say."""
    most = getattr(getattr(trainer, "state", None), "max_steps", 0)
    if isinstance(most, int) and most > 0 and hasattr(trainer, "control"):
        return most
    trainer = trainer_of(trainer)
    if not hasattr(trainer, "val_check_batch"):
        return 0
    if trainer.max_steps > 0:
        return trainer.max_steps
    batches, epochs = trainer.num_training_batches, trainer.max_epochs
    return epochs * batches if isinstance(epochs, int) and isinstance(batches, int) and epochs > 0 else 0


def _is_set(arguments, *names):
    """Whether a strategy of a trainer is anything but none."""
    for name in names:
        strategy = getattr(arguments, name, None)
        if strategy is not None:
            return str(getattr(strategy, "value", strategy)) != "no"
    return False
