"""What an evaluation gathers: to the host after each batch, by the switch of transformers' Trainer."""

import sys

from ._advise_technique import Refused, Technique


class EvalAccumulation(Technique):
    """Outputs of an evaluation leave the device after each batch, not after the last one."""

    name = "eval-accumulation"
    is_outside_functions = True

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        # The class of the arguments; and how often outputs were moved before the end of an evaluation.
        self._arguments = self._why = None
        self._moved = 0

    def install(self):
        switches = self.advise.switches
        switches.on_made("transformers.trainer", "Trainer", self._trainer)
        switches.on_made("transformers.trainer_pt_utils", "EvalLoopContainer", self._move, "to_cpu_and_numpy")

    def _trainer(self, values):
        arguments = values.get("args")
        if arguments is None or not hasattr(arguments, "eval_accumulation_steps"):
            return
        if arguments.eval_accumulation_steps is not None:
            self._why = "%s has eval_accumulation_steps already" % type(arguments).__name__
        elif values.get("compute_metrics") is None or arguments.prediction_loss_only:
            self._why = "the evaluation keeps losses only"
        elif getattr(arguments, "batch_eval_metrics", False):
            self._why = "the evaluation keeps no outputs: it has batch_eval_metrics"
        else:
            self._arguments = type(arguments).__name__
            if self.is_active:
                arguments.eval_accumulation_steps = 1

    def _move(self, container):
        # At the end, `get_arrays` moves what is left.
        if container.tensors is not None and sys._getframe(2).f_code.co_name != "get_arrays":
            self._moved += 1

    def applied(self):
        self.edit = [(None, "%s(…, eval_accumulation_steps=1)" % (self._arguments or "TrainingArguments"))]
        if self._why is not None:
            raise Refused(self._why)
        if self._arguments is None:
            raise Refused("the job evaluates without transformers' Trainer: move gathered outputs with .cpu()")
        # A run that only observes ends before an evaluation.
        if self.is_active and not self._moved:
            raise Refused("no evaluation gathered outputs")
        return "every batch of an evaluation"
