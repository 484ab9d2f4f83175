"""Classifies stack frames: the user's own, a library's, PyTorch's and Python's, native; and names notebook cells."""

import os
import re
import sys
import sysconfig
from types import FunctionType, ModuleType

# The most frames of one stack to send.
_MOST = 24

_LIBRARIES = ("/site-packages/", "/dist-packages/")

# Native frames, in the history of a job that records them too.
_NATIVE = re.compile(r"\.so(\.|$)|\.(c|cc|cpp|cxx|cu|cuh|h|hpp)$")

# Files that torch.compile generates.
_GENERATED = "/torchinductor_"

# Code typed interactively.
_TYPED = ("<stdin>", "<ipython-input-")

# IPython's file name of a cell's code in a terminal; before release 8, everywhere.
_CELL = re.compile(r"<ipython-input-(\d+)-[0-9a-f]+>$")

OWN, LIBRARY, MACHINERY, NATIVE = range(4)


def _is_made_by_library(file):
    """Whether a library has made a file for a module of its own, as `torch_geometric.nn.conv.gcn_conv_propagate.py`."""
    package, dot, _ = os.path.basename(file)[:-3].partition(".")
    made_by = getattr(sys.modules.get(package), "__file__", None) if dot else None
    return bool(made_by) and any(it in made_by for it in _LIBRARIES)


def _folder_of_packages(folder):
    """Returns the folder that PyTorch is in, if packages are installed there, as by `pip install --target`."""
    try:
        return [folder + "/"] if any(it.endswith(".dist-info") for it in os.listdir(folder)) else []
    except OSError:
        return []


class Stacks:
    """Distinguishes PyTorch's and Python's own frames, libraries' frames and the user's."""

    def __init__(self, torch):
        paths = sysconfig.get_paths()
        folder = os.path.dirname(torch.__file__)
        own = [folder, os.path.dirname(os.path.abspath(__file__))]
        self._libraries = (*_LIBRARIES, *_folder_of_packages(os.path.dirname(folder)))
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
        if _is_made_by_library(file):
            return LIBRARY
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
        if any(it in file for it in self._libraries):
            return OWN if package and file.startswith(package) else LIBRARY
        return MACHINERY if file.startswith(self._standard) else OWN

    def site(self, stack):
        """Returns the frame that names a stack: the innermost of the user's, else of a library's, else of all but the
        probe's own."""
        stack = [it for it in stack if not it[0].startswith(self.machinery[1])]
        return next((it for rank in range(4) for it in stack if self.rank(it[0]) == rank), None)

    def library(self, stack):
        """Returns the innermost frame of a library that the user's code called; `None` without one."""
        frame = next((it for it in stack if self.rank(it[0]) < MACHINERY), None)
        return frame if frame and self.rank(frame[0]) == LIBRARY and self.site(stack) != frame else None

    def near(self, stack):
        """Returns the frames that may keep an allocation: the user's first, each kind innermost first."""
        return [it for rank in (OWN, LIBRARY) for it in stack if self.rank(it[0]) == rank]

    def frames(self, stack):
        """Returns a stack's frames for the wire, innermost first; drops PyTorch's and Python's first if there are too
        many."""
        # Next to Python frames, the interpreter's native frames add nothing.
        stack = [it for it in stack if self.rank(it[0]) < NATIVE] or list(stack)
        if len(stack) > _MOST:
            near = [it for it in stack if self.rank(it[0]) < MACHINERY] or stack
            stack = near[: _MOST - 4] + near[-4:] if len(near) > _MOST else near
        return [wire_frame(it) for it in stack]


def wire_frame(frame):
    """Returns a frame in the wire's form."""
    return {"file": frame[0], "line": frame[1], "function": frame[2]}


def _program(scripts):
    """Returns the launcher script of an installed program, and the folder of that program's package.

    Such a program counts as the user's own, although it lies among the libraries: `python -m package`, `bin/program`.
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
        # Such a script only calls what it imports.
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


def cell(file):
    """Returns `In [2]`, as IPython shows it, for the code of a notebook cell; `None` for any other file."""
    plain = _CELL.match(file)
    number = int(plain.group(1)) if plain else _cell_numbers().get(file)
    return "In [%d]" % number if type(number) is int else None


def named(answer):
    """Replaces the file names of cells in a report by the cells' own names."""
    if isinstance(answer, list):
        return [named(it) for it in answer]
    if not isinstance(answer, dict):
        return answer
    return {
        name: (cell(it) or it) if name == "file" and isinstance(it, str) else named(it) for name, it in answer.items()
    }


def _cell_numbers():
    """Returns the cell numbers by file name, from IPython's compiler, without running the job's code."""
    module = sys.modules.get("IPython.core.interactiveshell")
    shell = getattr(getattr(module, "InteractiveShell", None), "__dict__", {}).get("_instance")
    compiler = getattr(shell, "__dict__", {}).get("compile")
    numbers = getattr(compiler, "__dict__", {}).get("_filename_map")
    return numbers if type(numbers) is dict else {}
