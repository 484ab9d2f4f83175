"""Whose frame is whose: which line of a stack is the user's own, and which belong to libraries."""

import os
import re
import sys
import sysconfig
from types import FunctionType, ModuleType

# Frames of one stack that are told.
_MOST = 24

_LIBRARIES = ("/site-packages/", "/dist-packages/")

# Frames that are not Python's, in the history of a job that records those too.
_NATIVE = re.compile(r"\.so(\.|$)|\.(c|cc|cpp|cxx|cu|cuh|h|hpp)$")

# What torch.compile writes for itself.
_GENERATED = "/torchinductor_"

# What a person types.
_TYPED = ("<stdin>", "<ipython-input-")

OWN, LIBRARY, MACHINERY, NATIVE = range(4)


class Stacks:
    """Tells PyTorch's and Python's own frames from libraries', and those from the user's."""

    def __init__(self, torch):
        paths = sysconfig.get_paths()
        own = [os.path.dirname(torch.__file__), os.path.dirname(os.path.abspath(__file__))]
        self.machinery = tuple(it.rstrip("/") + "/" for it in own)
        standard = [paths["stdlib"], paths["platstdlib"], os.path.dirname(os.__file__)]
        self._standard = tuple(it.rstrip("/") + "/" for name in standard for it in (name, os.path.realpath(name)))
        self._scripts = paths["scripts"]
        self._ranks = {it: NATIVE for it in (sys.executable, os.path.realpath(sys.executable or ""))}
        self._program = None

    def rank(self, file):
        """`OWN`: the user's, `LIBRARY`, `MACHINERY`: PyTorch's, Python's, or made by them, `NATIVE`: not Python's."""
        found = self._ranks.get(file)
        if found is None:
            found = self._ranks[file] = self._ranked(file)
        return found

    def _ranked(self, file):
        if file[:2] == "??":
            return NATIVE
        if file.startswith(self.machinery) or _GENERATED in file:
            return MACHINERY
        if file[:1] == "<":
            is_typed = file.startswith(_TYPED) or (file == "<string>" and sys.argv[:1] == ["-c"])
            return OWN if is_typed else MACHINERY
        if _NATIVE.search(file):
            return NATIVE
        if self._program is None:
            self._program = _program(self._scripts)
        script, package = self._program
        if file == script:
            return MACHINERY
        if any(it in file for it in _LIBRARIES):
            return OWN if package and file.startswith(package) else LIBRARY
        return MACHINERY if file.startswith(self._standard) else OWN

    def site(self, stack):
        """The frame that a stack is named after: the innermost of the user's, else of a library's, else of all."""
        return next((it for rank in range(4) for it in stack if self.rank(it[0]) == rank), None)

    def library(self, stack):
        """The innermost frame of a library that the user's own code called there; `None` without one."""
        frame = next((it for it in stack if self.rank(it[0]) < MACHINERY), None)
        return frame if frame and self.rank(frame[0]) == LIBRARY and self.site(stack) != frame else None

    def near(self, stack):
        """Frames that may keep what they allocate: the user's own first, each kind innermost first."""
        return [it for rank in (OWN, LIBRARY) for it in stack if self.rank(it[0]) == rank]

    def told(self, stack):
        """The frames of a stack as they are told, innermost first; PyTorch's and Python's go first where room is short."""
        # Where there are frames of Python, the interpreter's own say nothing more.
        stack = [it for it in stack if self.rank(it[0]) < NATIVE] or list(stack)
        if len(stack) > _MOST:
            near = [it for it in stack if self.rank(it[0]) < MACHINERY] or stack
            stack = near[: _MOST - 4] + near[-4:] if len(near) > _MOST else near
        return [told(it) for it in stack]


def told(frame):
    """A frame, as on the wire."""
    return {"file": frame[0], "line": frame[1], "function": frame[2]}


def _program(scripts):
    """The script that an installer made for an installed program, and the folder of that program's package.

    Such a program is the user's own, though it lies among the libraries: `python -m package` and `bin/program`.
    """
    main = sys.modules.get("__main__")
    if type(main) is not ModuleType:
        return None, None
    space = vars(main)
    spec, file = space.get("__spec__"), space.get("__file__")
    script = None
    if spec is not None:
        name = getattr(spec, "name", None)
    elif type(file) is str and os.path.dirname(os.path.abspath(file)) == scripts:
        # All that such a script does is to call what it imports.
        homes = [it.__module__ for it in list(space.values()) if type(it) is FunctionType]
        name = homes[0] if homes and "__main__" not in homes else None
        script = file if name else None
    else:
        name = None
    top = sys.modules.get(name.partition(".")[0]) if type(name) is str else None
    home = vars(top).get("__file__") if type(top) is ModuleType else None
    if type(home) is not str:
        return script, None
    is_package = os.path.basename(home).startswith("__init__.")
    return script, os.path.dirname(home) + "/" if is_package else home
