"""Whose frame is whose: which line of a stack is the user's own, and which belong to libraries."""

import os
import re
import sys
import sysconfig

# Frames of one stack that are told.
_MOST = 24

_LIBRARIES = ("/site-packages/", "/dist-packages/")

# Frames that are not Python's, in the history of a job that records those too.
_NATIVE = re.compile(r"\.so(\.|$)|\.(c|cc|cpp|cxx|cu|cuh|h|hpp)$")

# What torch.compile writes for itself.
_GENERATED = "/torchinductor_"


class Stacks:
    """Tells PyTorch's and Python's own frames from libraries', and those from the user's."""

    def __init__(self, torch):
        paths = sysconfig.get_paths()
        own = [os.path.dirname(torch.__file__), os.path.dirname(os.path.abspath(__file__))]
        self.machinery = tuple(it.rstrip("/") + "/" for it in own)
        self._standard = tuple(paths[it].rstrip("/") + "/" for it in ("stdlib", "platstdlib"))
        self._ranks = {it: 3 for it in (sys.executable, os.path.realpath(sys.executable or ""))}

    def rank(self, file):
        """0: the user's own, 1: a library's, 2: PyTorch's, Python's, or made by them, 3: not Python's."""
        found = self._ranks.get(file)
        if found is None:
            found = self._ranks[file] = self._ranked(file)
        return found

    def _ranked(self, file):
        if file[:2] == "??":
            return 3
        if file.startswith(self.machinery) or file[:1] == "<" or _GENERATED in file:
            return 2
        if _NATIVE.search(file):
            return 3
        if any(it in file for it in _LIBRARIES):
            return 1
        return 2 if file.startswith(self._standard) else 0

    def site(self, stack, holders=()):
        """The frame that a stack is named after: the innermost of the user's, else of a library's, else of all.

        Where a library itself holds what grows, it is the library's innermost frame in the file that does.
        """
        files = {it["file"] for it in holders if it.get("file") and self.rank(it["file"]) == 1}
        for frame in stack:
            if frame[0] in files:
                return frame
        for rank in (0, 1, 2, 3):
            for frame in stack:
                if self.rank(frame[0]) == rank:
                    return frame
        return None

    def told(self, stack):
        """The frames of a stack as they are told, innermost first; PyTorch's and Python's go first where room is short."""
        # Where there are frames of Python, the interpreter's own say nothing more.
        stack = [it for it in stack if self.rank(it[0]) < 3] or list(stack)
        if len(stack) > _MOST:
            near = [it for it in stack if self.rank(it[0]) < 2] or stack
            stack = near[: _MOST - 4] + near[-4:] if len(near) > _MOST else near
        return [{"file": file, "line": line, "function": function} for file, line, function in stack]
