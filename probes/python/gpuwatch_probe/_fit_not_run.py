"""Finds what a job would still have done when `gpuwatch fit` ended it: lines of its own that evaluate, generate or
save, and did not run."""

import ast
import os

from ._fit_phases import EVALUATION, GENERATION, SAVING
from ._fit_source import FUNCTIONS, place_of, place_of_code

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


def calls_of(files):
    """Returns (call, phase) for all calls in (file, nodes); the phase is `None` if it does not evaluate, generate or
    save."""
    functions = {it.name for _, nodes in files for it in nodes if isinstance(it, ast.FunctionDef)}
    calls = [_Call(file, it) for file, nodes in files for it in nodes if isinstance(it, ast.Call)]
    return [(it, it.phase(functions)) for it in calls]


def leading(calls):
    """Returns the lines of calls, and of calls of the job's functions that come to them: {file: lines}. `calls` as of
    `calls_of`."""
    found = {it for it, phase in calls if phase is not None}
    for _ in range(_DEPTH):
        functions = {it.function for it in found}
        found |= {it for it, _ in calls if it.name in functions}
    lines = {}
    for it in found:
        lines.setdefault(it.file, set()).add(it.number)
    return lines


def uses_model_after(loop, scope):
    """Whether a statement that follows a loop in its function gives a model, or what is nothing yet, to what it calls."""
    statement, found = loop, []
    while isinstance(statement, ast.stmt) and not isinstance(statement, FUNCTIONS):
        for suite in (getattr(statement.above, it, None) for it in ("body", "orelse", "finalbody")):
            if isinstance(suite, list) and statement in suite:
                found += suite[suite.index(statement) + 1 :]
        statement = statement.above
    calls = [it for of in found for it in ast.walk(of) if isinstance(it, ast.Call)]
    given = [one for it in calls for one in (*it.args, *(it.value for it in it.keywords)) if isinstance(one, ast.Name)]
    return any(it.id in scope and _may_be_model(scope[it.id]) for it in given)


def _may_be_model(value):
    return value is None or hasattr(type(value), "named_parameters")


class Positions:
    """Where the functions of a job are, from which it goes on."""

    def __init__(self, unknowns, trees, frame):
        # Lines that run.
        self.lines = set()
        # The line from which each function has more to do: {(file, first line of the function): line}.
        self.functions = {}
        # (file, line) in the other branches of tests.
        self.others = set()
        while frame is not None:
            file = frame.f_code.co_filename
            if unknowns.is_own(file):
                loops, here = trees.around(frame, (ast.For, ast.While)), frame.f_lineno
                self.functions[file, place_of_code(frame.f_code)] = loops[0].lineno if loops else here
                for it in trees.around(frame, ast.If):
                    branch = it.orelse if here < (it.orelse[0].lineno if it.orelse else here + 1) else it.body
                    self.others.update((file, line) for one in branch for line in _lines(one))
                self.lines.add("%s:%d" % (os.path.basename(file), here))
            frame = frame.f_back

    def is_after(self, earlier):
        """Whether a function that made the steps then has left its loop, or the line that made them."""
        before = earlier.functions if earlier is not None else {}
        return any(self.functions[it] > line for it, line in before.items() if it in self.functions)


def not_run(files, seen, positions, followed, is_end):
    """Returns [phase, line] of what did not run of the job's (file, nodes).

    `seen` are lines that began phases, `followed` knows which ones ran in the loop that the job was led out of. At the end
    of a job (`is_end`), only what was followed counts: all else was the job's own decision.
    """
    phases = calls_of(files)
    calls = [it for it, _ in phases]
    known = followed.known()
    left_out, stops = followed.left_out(), known | set(positions.functions)
    seen = seen | positions.lines

    def did_run(call):
        here = positions.functions.get(call.place)
        is_past = (here is not None and call.number < here) or (call.file, call.number) in positions.others
        if is_past or call.line in seen or (call.file, call.number) in left_out:
            return True
        if call.place in known:
            return any(it in followed.ran.get(call.file, ()) for it in call.lines)
        return is_end

    found = {}
    for call, phase in phases:
        if phase is not None and call.line not in seen:
            for outer in _outermost(call, calls, stops, _DEPTH):
                if not did_run(outer):
                    found.setdefault((outer.file, outer.number), (phase, outer.line))
    return [list(found[it]) for it in sorted(found)[:_LINES]]


def _lines(node):
    return range(node.lineno, node.end_lineno + 1)


def _outermost(call, calls, stops, depth):
    """Returns the calls of the function that a call is in, and so on; the call itself at the top of a file, and in a
    function that runs or did."""
    if call.function is None or not depth or call.place in stops:
        return [call]
    callers = [it for it in calls if it.name == call.function and it is not call and it.function != call.function]
    return [outer for it in callers for outer in _outermost(it, calls, stops, depth - 1)]


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
        is_decorator = isinstance(at, FUNCTIONS) and node in at.decorator_list
        self._is_entered = isinstance(at, ast.withitem) or is_decorator
        statement = node
        while not isinstance(statement, ast.stmt):
            statement = statement.above
        # Those that run if it does: of the statement, without statements in it. There are none on the line of a test.
        body, first = getattr(statement, "body", None), place_of(statement) if is_decorator else statement.lineno
        self.lines = range(first, max(body[0].lineno, first + 1)) if body else _lines(statement)
        if getattr(statement.above, "lineno", None) == statement.lineno:
            self.lines = ()
        while at is not None and not isinstance(at, FUNCTIONS):
            at = getattr(at, "above", None)
        self.function, self.place = at and at.name, (file, place_of(at))

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
