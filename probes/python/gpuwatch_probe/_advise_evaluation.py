"""What an evaluation keeps: graphs that no backward uses, and outputs, which go to the host after each batch, by the switch
of transformers' Trainer, or in the job's own functions that append them to lists."""

import ast
import functools
import linecache
import os
import sys

from ._advise_technique import Refused, Technique
from ._fit_source import EditedSource, functions_of

# The name under which the job's functions find what moves an output.
CALL = "_gpuwatch_to_host"
# Results of these are on the host already.
_ON_HOST = CALL, "item", "tolist", "cpu", "numpy", "float", "int", "len", "str"


class NoGrad(Technique):
    """An evaluation without graphs."""

    name = "no-grad"

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        # Calls of the model in evaluation with gradients, and the line of the first.
        self._calls, self._line = 0, None

    def install(self):
        self.advise.calls.on_first(self._follow)

    def _follow(self, root):
        original, technique, torch = root.forward, self, self.torch

        @functools.wraps(original)
        def forward(*arguments, **named):
            if root.training or not torch.is_grad_enabled() or technique.advise.calls.is_backward:
                return original(*arguments, **named)
            technique._calls += 1
            if technique._line is None:
                technique._line = technique.advise.unknowns.line(sys._getframe(1))
            if not technique.is_active:
                return original(*arguments, **named)
            with torch.no_grad():
                return original(*arguments, **named)

        root.forward = forward

    def applied(self):
        self.edit = [(self._line, "with torch.no_grad():  # around the evaluation")]
        if not self._calls:
            unknowns = self.advise.unknowns
            own = (it for _, nodes in unknowns.trees.own(unknowns) for it in nodes)
            # A run that only observes ends before an evaluation.
            if self.is_active or not any(_is_eval(it) for it in own):
                raise Refused("the model is not evaluated with gradients")
        return "%d calls of an evaluation" % self._calls if self._calls else "the evaluation"


def _is_eval(it):
    """Whether a node is a call of a model's `eval()`."""
    return isinstance(it, ast.Call) and getattr(it.func, "attr", None) == "eval" and not it.args


class EvalAccumulation(Technique):
    """Outputs of an evaluation leave the device after each batch, not after the last one."""

    name = "eval-accumulation"
    is_outside_functions = True

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        # The class of the arguments; and how often outputs were moved before the end of an evaluation.
        self._arguments = self._why = None
        self._moved = self._graphs = 0
        # Statements of the job's functions that append: {(file, line): text}; and those that appended outputs.
        self._appends, self._lines = {}, set()

    def install(self):
        switches = self.advise.switches
        switches.on_made("transformers.trainer", "Trainer", self._trainer)
        switches.on_made("transformers.trainer_pt_utils", "EvalLoopContainer", self._move, "to_cpu_and_numpy")
        self.advise.calls.on_first(self._begin)

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

    # Functions of the job

    def _begin(self, root):
        if self._appends or self._arguments or self._why:
            return
        unknowns = self.advise.unknowns
        for file, nodes in unknowns.trees.own(unknowns):
            if not any(map(_is_append, nodes)):
                continue
            source = EditedSource("".join(linecache.getlines(file)))
            functions = list(functions_of(file))
            changed = [it for it in functions if self._rewrite(file, source.function(it.__code__.co_firstlineno))]
            for it in changed if self.is_active else ():
                source.replace(it, CALL, self._to_host)

    def _rewrite(self, file, function):
        """Has what a function appends moved to the host; returns how many statements of it do."""
        count = 0
        for it in ast.walk(function) if function is not None else ():
            if not _is_append(it):
                continue
            call = it.value
            value, place = call.args[0], (file, it.lineno)
            own = ast.unparse(value)
            is_simple = isinstance(value, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
            self._appends[place] = "%s(%s.cpu())" % (ast.unparse(call.func), own if is_simple else "(%s)" % own)
            call.args[0] = ast.Call(ast.Name(CALL, ast.Load()), [value, ast.Constant(place)], [])
            count += 1
        return count

    def _to_host(self, value, place):
        torch = self.torch
        if not isinstance(value, torch.Tensor) or not value.is_cuda:
            return value
        # What belongs to a graph is kept by it on the device, too.
        self._graphs += value.requires_grad
        if not torch.is_grad_enabled():
            self._moved += 1
            self._lines.add(place)
            return value.cpu()
        return value

    def applied(self):
        if self._why is not None:
            raise Refused(self._why)
        if self._arguments is None and not self._appends:
            raise Refused("no function of the job appends outputs of an evaluation: move what is gathered with .cpu()")
        # A run that only observes ends before an evaluation.
        if self.is_active and not self._moved:
            graphs = "the outputs that are gathered have graphs, which keep them on the device: see no-grad"
            raise Refused(graphs if self._graphs else "no evaluation gathered outputs")
        if self._arguments is not None:
            self.edit = [(None, "%s(…, eval_accumulation_steps=1)" % self._arguments)]
            return "every batch of an evaluation"
        places = sorted(self._lines)
        self.edit = [("%s:%d" % (os.path.basename(it[0]), it[1]), self._appends[it]) for it in places]
        return "what %s" % ("1 line appends" if len(places) == 1 else "%d lines append" % len(places))


def _is_append(it):
    """Whether a statement appends one value to a list that may be a tensor on the device."""
    call = it.value if isinstance(it, ast.Expr) else None
    if not isinstance(call, ast.Call) or getattr(call.func, "attr", None) != "append":
        return False
    if len(call.args) != 1 or call.keywords or isinstance(call.args[0], (ast.Constant, ast.Starred, ast.Tuple)):
        return False
    function = getattr(call.args[0], "func", None)
    return getattr(function, "attr", getattr(function, "id", None)) not in _ON_HOST
