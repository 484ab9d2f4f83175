"""Containers whose items the garbage collector does not list: numpy's arrays of objects, and context variables.

None of the job's code runs.
"""

import gc
import sys
from contextvars import ContextVar
from types import ModuleType


def array_type():
    """Returns numpy's type of arrays; `None` where the job does not use numpy."""
    numpy = sys.modules.get("numpy")
    found = ModuleType.__dict__["__dict__"].__get__(numpy).get("ndarray") if type(numpy) is ModuleType else None
    return found if isinstance(found, type) else None


def array_length(it):
    """Returns the number of an array's objects; `None` for what is not an array of objects."""
    kind = array_type()
    if kind is None or not issubclass(type(it), kind) or kind.dtype.__get__(it).kind != "O":
        return None
    return int(kind.size.__get__(it))


def array_items(it, begin, count):
    """Returns so many objects of an array, from a place on; places below 0 count from its end."""
    end = begin + count or None
    return array_type().flat.__get__(it)[begin:end].tolist()


def context_items(it):
    """Returns the value that a context variable has in this thread, and its default."""
    return [ContextVar.get(it, None), *gc.get_referents(it)]
