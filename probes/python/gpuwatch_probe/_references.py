"""Finds how one object holds another: by which attribute, key or variable.

A class of the job may define `__dict__`, `__len__`, `__eq__` or `__repr__` itself. These functions use Python's
own types instead, so that none of the job's code runs.
"""

import sys
from collections import deque
from functools import _lru_cache_wrapper, partial
from itertools import compress
from types import (
    CellType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    TracebackType,
)

from ._frames import function_name, is_library, of_generator, variables
from ._opaque import array_length

CONTAINERS = (list, dict, tuple, set, frozenset, deque)

# The most items of a deque; `None` without a bound.
_most_items = deque.maxlen.__get__

# The longest name that is sent, in characters.
_LONG = 80

# The most functions that are wrapped around a method.
_WRAPPED = 4

name_of = type.__dict__["__name__"].__get__
_mro_of = type.__dict__["__mro__"].__get__
_namespace_of = type.__dict__["__dict__"].__get__
_module_dict = ModuleType.__dict__["__dict__"].__get__


def type_name(it):
    """The name of an object's type."""
    return short(name_of(type(it)))


def short(name):
    """Returns a name for the wire: a plain string or integer, not an instance of a subclass."""
    if type(name) is int:
        name = str(name) if name.bit_length() < 256 else None
    return name[:_LONG] if type(name) is str else None


def items(it):
    """Returns the length of a known container type; `None` for any other object."""
    kind = type(it)
    for known in CONTAINERS:
        if issubclass(kind, known):
            return known.__len__(it)
    return None


def is_a(it, kind):
    """Acts as `isinstance` on the true type: the job may override `__class__`."""
    return issubclass(type(it), kind)


def key_of(mapping, ids):
    """Finds the first key whose value has one of these ids; `(False, None)` without one. Loops in C."""
    for key in compress(dict.keys(mapping), map(ids.__contains__, map(id, dict.values(mapping)))):
        return True, key
    return False, None


def namespace(it):
    """Returns an instance's `__dict__`; `None` if it has none or its class overrides it."""
    get = namespace_of(type(it))
    mapping = get(it) if get is not None else None
    return mapping if is_a(mapping, dict) else None


def namespaces(kind):
    """Yields the namespaces of a type and its bases, in method resolution order."""
    return map(_namespace_of, _mro_of(kind))


def namespace_of(kind):
    """Returns the getter of `__dict__` for instances of a type; `None` if it would run the job's code."""
    for own in namespaces(kind):
        found = own.get("__dict__")
        if found is not None:
            return found.__get__ if type(found) in (GetSetDescriptorType, MemberDescriptorType) else None
    return None


def module_dict(module):
    """The dictionary of a module's globals."""
    return _module_dict(module)


def text_in(mapping, name):
    """A string in a dictionary of globals."""
    found = dict.get(mapping, name)
    return found if type(found) is str else None


def step(by, name=None, kind=None, count=None, function=None, file=None, line=None):
    """Returns one hop of a path, in the wire's form."""
    fields = {"by": by, "name": short(name), "type": kind, "items": count}
    fields.update(function=function, file=file, line=line)
    return fields


def of_global(mapping, name):
    """Describes a variable of a module."""
    return step("global", name, "module", file=text_in(mapping, "__file__"), function=None)


def of_local(frame, name, by="local"):
    """Describes a variable of a function that runs or is suspended."""
    code = frame.f_code
    return step(by, name, "frame", function=function_name(code), file=code.co_filename, line=frame.f_lineno)


def _of_function(by, function, name):
    code = function.__code__
    fields = step(by, name, "function", function=function_name(code), file=code.co_filename)
    fields["line"] = code.co_firstlineno
    return fields


def hop(path, at):
    """The step from `path[at]` to what holds it, and how many places of the path that step is.

    `path` are the objects from the tensor outwards. What Python needs several objects for (a closure: the cell, a
    tuple, the function) is one step.
    """
    child, holder = path[at], path[at + 1]
    beyond = path[at + 2] if at + 2 < len(path) else None
    kind = type(holder)
    if kind is CellType:
        return _from_cell(path, at)
    if issubclass(kind, dict):
        fields = _from_dict(child, holder, beyond)
        if fields:
            return fields
    if kind is tuple and type(beyond) is FunctionType and beyond.__defaults__ is holder:
        return _of_function("default", beyond, _argument(beyond, child)), 2
    if kind is FrameType:
        return _from_frame(path, at)
    if issubclass(kind, CONTAINERS) and _contains(holder, child):
        fields = step("item", kind=type_name(holder), count=items(holder))
        if issubclass(kind, deque) and _most_items(holder) == items(holder):
            # What comes in takes the place of what goes.
            fields["full"] = True
        return fields, 1
    length = array_length(holder)
    if length is not None:
        return step("item", kind=type_name(holder), count=length), 1
    generator = of_generator(holder)
    if generator is not None:
        fields = of_local(generator, variable(generator, child), "generator")
        fields["type"] = type_name(holder)
        return fields, 1
    return _from_object(child, holder), 1


def _from_dict(child, holder, beyond):
    """Out of a dictionary; out of what it is the `__dict__` of at once, if it is one."""
    found, key = key_of(holder, {id(child)})
    if not found:
        return None
    if beyond is not None:
        if is_a(beyond, type):
            fields = step("class", key, short(name_of(beyond)))
            home = _namespace_of(beyond).get("__module__")
            module = sys.modules.get(home) if type(home) is str else None
            if type(module) is ModuleType:
                fields["file"] = text_in(module_dict(module), "__file__")
            return fields, 2
        if is_a(beyond, ModuleType):
            return of_global(holder, key), 2
        if type(beyond) is FunctionType and beyond.__kwdefaults__ is holder:
            return _of_function("default", beyond, key), 2
        if type(beyond) is _lru_cache_wrapper:
            return _from_object(child, beyond), 2
        if namespace(beyond) is holder:
            return _of_attribute("attribute", key, beyond), 2
    return step("key", key, type_name(holder), dict.__len__(holder)), 1


def _from_cell(path, at):
    """Out of a variable that functions share."""
    cell = path[at + 1]
    around = path[at + 2] if at + 2 < len(path) else None
    function = path[at + 3] if at + 3 < len(path) else None
    if type(function) is FunctionType and function.__closure__ is around:
        names = [name for name, it in zip(function.__code__.co_freevars, around) if it is cell]
        return _of_function("cell", function, names[0] if names else None), 3
    frame = of_generator(around)
    if frame is not None:
        fields = of_local(frame, variable(frame, cell), "generator")
        fields["type"] = type_name(around)
        return fields, 2
    return step("cell", kind="cell"), 1


def _from_frame(path, at):
    """Describes a frame that outlives its function, as a rule in a traceback."""
    child, frame = path[at], path[at + 1]
    if at + 2 < len(path) and of_generator(path[at + 2]) is frame:
        return dict(of_local(frame, variable(frame, child), "generator"), type=type_name(path[at + 2])), 2
    fields, last = of_local(frame, variable(frame, child)), at + 2
    while last < len(path) and type(path[last]) is TracebackType:
        if path[last].tb_frame is frame:
            fields["line"] = path[last].tb_lineno
        last += 1
    if last == len(path) or not is_a(path[last], BaseException):
        return fields, 1
    fields.update(by="traceback", type=type_name(path[last]))
    return fields, last - at


def _from_object(child, holder):
    """Describes how an instance, or one of Python's own objects, holds its child."""
    kind = type(holder)
    if kind is MethodType:
        function = holder.__func__
        is_python = type(function) is FunctionType
        fields = _of_function("attribute", function, "__self__") if is_python else step("attribute")
        return dict(fields, name="__self__", type="method")
    if kind is _lru_cache_wrapper:
        wrapped = dict.get(namespace(holder) or {}, "__wrapped__")
        fields = _of_function("item", wrapped, None) if type(wrapped) is FunctionType else step("item")
        fields.update(type="lru_cache", items=kind.cache_info(holder).currsize)
        return fields
    if kind is partial:
        for name in ("func", "args", "keywords"):
            if kind.__dict__[name].__get__(holder) is child:
                return step("attribute", name, "partial")
    mapping = namespace(holder)
    if mapping is not None:
        if mapping is child:
            return step("attribute", None, type_name(holder))
        found, key = key_of(mapping, {id(child)})
        if found:
            return _of_attribute("attribute", key, holder)
    name = _member(holder, child)
    by = "slot" if name else "other"
    if _is_tensor(holder):
        # A tensor's other references are in C++, where the collector cannot see them.
        by = "grad" if _is_tensor(child) else "hook"
    return _of_attribute(by, name, holder) if by == "slot" else step(by, name, type_name(holder))


def _of_attribute(by, name, holder):
    """Describes an attribute, with the first method that mentions it, or the first one that is not a library's."""
    fields, first = step(by, name, type_name(holder)), None
    for code in _methods(type(holder)):
        if fields["name"] in code.co_names or fields["name"] in code.co_consts:
            first = code
            break
        first = first or code
    if first is not None:
        fields.update(file=first.co_filename, line=first.co_firstlineno)
    return fields


def _methods(kind):
    """Yields the code of methods that are not a library's, of a type and then of its bases; without what is wrapped
    around them."""
    for own in namespaces(kind):
        for it in list(own.values()):
            for _ in range(_WRAPPED):
                inner = dict.get(namespace(it) or {}, "__wrapped__") if type(it) is FunctionType else None
                if inner is None:
                    break
                it = inner
            if type(it) is FunctionType and not is_library(it.__code__.co_filename):
                yield it.__code__


def _is_tensor(it):
    return any(name_of(kind) == "TensorBase" for kind in _mro_of(type(it)))


def _member(holder, child):
    """Finds the slot of an instance that holds the child."""
    for kind in _mro_of(type(holder)):
        for name, it in list(_namespace_of(kind).items()):
            if type(it) is MemberDescriptorType:
                try:
                    if it.__get__(holder) is child:
                        return name
                except (AttributeError, TypeError):
                    pass  # An empty slot.
    return None


def _argument(function, child):
    """Finds the argument whose default value is the child."""
    code, defaults = function.__code__, function.__defaults__
    first = code.co_argcount - len(defaults)
    for at, it in enumerate(defaults):
        if it is child:
            return code.co_varnames[first + at]
    return None


def variable(frame, child):
    """Finds the variable of a frame that holds the child."""
    for name, it in variables(frame) or ():
        if it == id(child):
            return name
    return None


def _contains(container, child):
    for known in CONTAINERS:
        if issubclass(type(container), known):
            return id(child) in map(id, known.__iter__(container))
    return False
