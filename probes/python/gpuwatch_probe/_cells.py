"""Cells of notebooks: what IPython calls them, in place of the names that it gives to their code."""

import re
import sys

# What IPython calls a cell's code in a terminal, and called it everywhere before its release 8.
_PLAIN = re.compile(r"<ipython-input-(\d+)-[0-9a-f]+>$")


def cell(file):
    """`In [2]` for the code of a cell; `None` for any other file."""
    plain = _PLAIN.match(file)
    number = int(plain.group(1)) if plain else _numbers().get(file)
    return "In [%d]" % number if type(number) is int else None


def named(told):
    """The same account with cells under their own names, wherever it names a file."""
    if isinstance(told, list):
        return [named(it) for it in told]
    if not isinstance(told, dict):
        return told
    return {
        name: (cell(it) or it) if name == "file" and isinstance(it, str) else named(it) for name, it in told.items()
    }


def _numbers():
    """The names of cells' code and their numbers, as IPython's compiler keeps them; looked up without a call of the job's."""
    module = sys.modules.get("IPython.core.interactiveshell")
    shell = getattr(getattr(module, "InteractiveShell", None), "__dict__", {}).get("_instance")
    compiler = getattr(shell, "__dict__", {}).get("compile")
    numbers = getattr(compiler, "__dict__", {}).get("_filename_map")
    return numbers if type(numbers) is dict else {}
