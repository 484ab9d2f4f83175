"""Finds what a job would still have done when `gpuwatch fit` ended it: lines of its own that evaluate, generate or
save, and did not run."""

import ast
import os
import sys

from ._fit_phases import EVALUATION, GENERATION, SAVING

# Methods and functions by what they do.
_CALLS = {
    "eval": EVALUATION,
    "evaluate": EVALUATION,
    "validate": EVALUATION,
    "predict": EVALUATION,
    "generate": GENERATION,
    "save": SAVING,
    "save_pretrained": SAVING,
    "save_model": SAVING,
    "save_checkpoint": SAVING,
    "save_state": SAVING,
}
# What evaluates is called within.
_CONTEXTS = ("no_grad", "inference_mode")
# Names that mean other things elsewhere, and whose they must be.
_OF = {"save": ("torch", "accelerator", "self.accelerator", "fabric", "self.fabric")}
# How far calls of the job's own functions are followed, and the most lines that are named.
_DEPTH, _LINES = 5, 5
# Files of a job that are read at most.
_FILES = 100


def not_run(unknowns, trees, seen, frame):
    """Returns [phase, line] of what did not run; `seen` are lines that did, and the job is at `frame`."""
    seen, now, others = set(seen), {}, set()
    while frame is not None:
        if unknowns.is_own(frame.f_code.co_filename):
            loops = trees.around(frame, (ast.For, ast.While))
            name = frame.f_code.co_name
            here = now[frame.f_code.co_filename, None if name == "<module>" else name] = frame.f_lineno
            now[frame.f_code.co_filename, here] = loops[0].lineno if loops else here
            for it in trees.around(frame, ast.If):
                # The other branch of what the job is in.
                branch = it.orelse if here < (it.orelse[0].lineno if it.orelse else here + 1) else it.body
                others.update((frame.f_code.co_filename, line) for one in branch for line in _lines(one))
            seen.add("%s:%d" % (os.path.basename(frame.f_code.co_filename), here))
        frame = frame.f_back
    files = [it for it in _files() if unknowns.is_own(it)][:_FILES]
    nodes = [(file, it) for file in files for it in trees.of(file)]
    calls = [_Call(file, it) for file, it in nodes if isinstance(it, ast.Call)]
    functions = {it.name for _, it in nodes if isinstance(it, ast.FunctionDef)}

    def is_past(call):
        here = now.get((call.file, call.function))
        if (call.file, call.number) in others:
            return True
        return here is not None and call.number < now[call.file, here]

    found = {}
    for call in calls:
        phase = call.phase(functions)
        if phase is not None and call.line not in seen:
            for outer in _outermost(call, calls, now, _DEPTH):
                if outer.line not in seen and not is_past(outer):
                    found.setdefault((outer.file, outer.number), (phase, outer.line))
    return [list(found[it]) for it in sorted(found)[:_LINES]]


def _lines(node):
    return range(node.lineno, node.end_lineno + 1)


def _files():
    names = {getattr(it, "__file__", None) for it in list(sys.modules.values())}
    return sorted(it for it in names if isinstance(it, str) and it.endswith(".py"))


def _outermost(call, calls, running, depth):
    """Returns the calls of the function that a call is in, and so on; the call itself at the top of a file, and in a
    function that runs."""
    if call.function is None or not depth or (call.file, call.function) in running:
        return [call]
    callers = [it for it in calls if it.name == call.function and it is not call and it.function != call.function]
    return [outer for it in callers for outer in _outermost(it, calls, running, depth - 1)]


class _Call:
    """A call in a file of the job: what is called, where, and in which function."""

    def __init__(self, file, node):
        function, self.owner = node.func, None
        self.name = getattr(function, "attr", getattr(function, "id", None))
        if isinstance(function, ast.Attribute):
            self.owner = ast.unparse(function.value)
        self.file, self.number = file, node.lineno
        self.line = "%s:%d" % (os.path.basename(file), node.lineno)
        self._arguments = len(node.args) + len(node.keywords)
        at = getattr(node, "above", None)
        # A decorated function is called elsewhere.
        is_decorator = isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef)) and node in at.decorator_list
        self._is_entered = isinstance(at, ast.withitem) or is_decorator
        while at is not None and not isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef)):
            at = getattr(at, "above", None)
        self.function = at and at.name

    def phase(self, functions):
        """Returns what it does; `None` of a call of the job's own functions, which have lines of their own."""
        phase = _CALLS.get(self.name)
        if self.name in _CONTEXTS and self._is_entered:
            return EVALUATION
        if phase is None or self.name in functions or self.owner is None:
            return None
        if self.name == "eval" and self._arguments:
            return None
        return phase if self.name not in _OF or self.owner in _OF[self.name] else None
