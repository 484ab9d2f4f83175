"""The statements of the job's files, each parsed once."""

import ast
import linecache

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.Module)
# The lists of statements in a statement.
SUITES = "body", "orelse", "finalbody"
# The most files whose statements are kept.
_FILES = 200


class Trees:
    """The statements of the job's files; each knows the one around it."""

    def __init__(self):
        self._files = {}

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
        scope = max((it for it in around if isinstance(it, SCOPES)), key=lambda it: it.lineno, default=None)
        own = [it for it in around if isinstance(it, kinds) and _scope(it) is scope]
        return sorted(own, key=lambda it: it.lineno)


def _scope(node):
    """Returns the function around a statement; `None` at the top of a file."""
    node = getattr(node, "above", None)
    while node is not None and not isinstance(node, SCOPES):
        node = getattr(node, "above", None)
    return None if isinstance(node, ast.Module) else node
