"""The statements of the job's files, each parsed once."""

import ast
import dis
import inspect
import itertools
import linecache
import os
import re
import sys
from types import SimpleNamespace

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.Module)
# The lists of statements in a statement.
SUITES = "body", "orelse", "finalbody"
# Instructions that test a value, or come before those that do.
_JUMPS = re.compile("JUMP|^UNARY_NOT$|^TO_BOOL$|^COPY$|^EXTENDED_ARG$")
# The most files whose statements are kept, and the most files of the job that are read.
_FILES, _OWN_FILES = 200, 100


class Trees:
    """The statements of the job's files; each knows the one around it."""

    def __init__(self):
        self._files = {}
        self._own, self._script = set(), None

    def of(self, file):
        """Returns all nodes of a file."""
        found = self._files.get(file)
        if found is None:
            if len(self._files) >= _FILES:
                self._files.clear()
            try:
                tree = ast.parse("".join(linecache.getlines(file)))
                found = list(ast.walk(tree))
                for node in found:
                    for child in ast.iter_child_nodes(node):
                        child.above = node
            except Exception:
                found = []
            self._files[file] = found
        return found

    def around(self, frame, kinds):
        """Returns the statements of these kinds around what a function runs now, from the outermost."""
        line, nodes = frame.f_lineno, self.of(frame.f_code.co_filename)
        around = [it for it in nodes if hasattr(it, "lineno") and it.lineno <= line <= it.end_lineno]
        is_lambda = frame.f_code.co_name == "<lambda>"
        scopes = [it for it in around if isinstance(it, SCOPES) and isinstance(it, ast.Lambda) <= is_lambda]
        scope = max(scopes, key=lambda it: it.lineno, default=None)
        own = [it for it in around if isinstance(it, kinds) and scope_around(it) is scope]
        return sorted(own, key=lambda it: it.lineno)

    def own(self, unknowns):
        """Returns (file, all its nodes) of the job's own modules, those that are next to its script first."""
        names = {getattr(it, "__file__", None) for it in list(sys.modules.values())}
        # At its end, a script has no `__file__` any more.
        self._own.update(it for it in names if isinstance(it, str) and it.endswith(".py") and unknowns.is_own(it))
        self._script = self._script or getattr(sys.modules.get("__main__"), "__file__", None) or ""
        beside = os.path.join(os.path.dirname(self._script), "")
        nearest = sorted(self._own, key=lambda it: (it != self._script, not it.startswith(beside), it))
        return [(it, self.of(it)) for it in nearest[:_OWN_FILES]]


class EditedSource:
    """The statements of a file, to be changed and compiled again; those of `Trees` stay as the file is."""

    def __init__(self, text):
        self.tree = ast.parse(text)
        self._code = None

    def function(self, line):
        """Returns the function whose definition (or first decorator) is at a line."""
        functions = (it for it in ast.walk(self.tree) if isinstance(it, FUNCTIONS))
        return next((it for it in functions if place_of(it) == line), None)

    def replace(self, function, name, value):
        """Gives a function its changed statements, and a name that they use; returns whether it could. All changes come
        before."""
        old = function.__code__
        if self._code is None:
            self._code = compile(ast.fix_missing_locations(self.tree), old.co_filename, "exec")
        code = _code_of(self._code, old.co_firstlineno, old.co_name)
        if code is None or code.co_freevars != old.co_freevars:
            return False
        function.__globals__[name] = value
        function.__code__ = code
        return True


def functions_of(file):
    """Yields the functions that a file defined, and the methods of its classes, without their decorators."""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) != file:
            continue
        for it in list(vars(module).values()):
            found = vars(it).values() if inspect.isclass(it) else [it]
            for one in (inspect.unwrap(it) for it in found if inspect.isfunction(it)):
                # A name may be another file's function.
                if os.path.basename(one.__code__.co_filename) == os.path.basename(file):
                    yield one


def _code_of(code, line, name):
    for it in code.co_consts:
        if hasattr(it, "co_code"):
            if (it.co_firstlineno, it.co_name) == (line, name):
                return it
            found = _code_of(it, line, name)
            if found is not None:
                return found
    return None


def failed_at(trace):
    """Returns where an error was raised, as a frame: a frame that has ended may have another line by now."""
    frame = None
    while trace is not None:
        frame = SimpleNamespace(f_code=trace.tb_frame.f_code, f_lineno=trace.tb_lineno, f_back=frame)
        trace = trace.tb_next
    return frame


def scope_around(node):
    """Returns the function around a statement; `None` at the top of a file."""
    node = getattr(node, "above", None)
    while node is not None and not isinstance(node, SCOPES):
        node = getattr(node, "above", None)
    return None if isinstance(node, ast.Module) else node


def place_of(function):
    """Returns the first line of a function's code, which is that of a decorator; `None` of a file's top."""
    if function is None:
        return None
    return min([it.lineno for it in function.decorator_list] + [function.lineno])


def place_of_code(code):
    """Returns the same of a function that runs."""
    return None if code.co_name == "<module>" else code.co_firstlineno


def position_of(frame):
    """Returns line, last line, column and last column of what a frame reads; columns from Python 3.11 on."""
    positions = getattr(frame.f_code, "co_positions", None)
    if positions is not None:
        at, code = frame.f_lasti // 2, frame.f_code.co_code
        # A jump has the place of the whole test; what comes before it made the value.
        while at > 0 and _JUMPS.search(dis.opname[code[at * 2]]):
            at -= 1
        found = next(itertools.islice(positions(), at, None), None)
        if found is not None and None not in found:
            line, end, column, end_column = found
            return line, end, column, end_column
    return frame.f_lineno, frame.f_lineno, None, None


def contains(it, position):
    line, end, column, end_column = position
    if column is None:
        return it.lineno <= line <= it.end_lineno
    return (it.lineno, it.col_offset) <= (line, column) and (end, end_column) <= (it.end_lineno, it.end_col_offset)


def called(it):
    """Returns the name of what a call calls."""
    return getattr(it.func, "attr", getattr(it.func, "id", None)) if isinstance(it, ast.Call) else None


def stored(target, value):
    """Yields (value, name) of what an assignment gives to names."""
    if isinstance(target, ast.Name):
        yield value, target.id
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, of in zip(target.elts, value.elts):
            yield from stored(one, of)
