"""The expressions of a file that are sizes of what a program makes, and those whose results become sizes."""

import ast

from ._fit_counters import own_variables
from ._fit_source import FUNCTIONS, called, scope_around

# Calls whose arguments are sizes.
_MAKERS = frozenset(
    "arange empty expand eye full linspace narrow new_empty new_full new_ones new_zeros ones pad rand randint randn"
    " range randperm repeat reshape resize_ split tril_indices view zeros".split()
)
# Calls whose arguments after the first one are sizes, and such as take them as a name.
_RESIZERS, _NAMED = frozenset("interpolate resize crop center_crop upsample".split()), ("size", "sizes", "scale_factor")
# What tells a size.
_TELLS = frozenset("shape size len numel dim".split())
# Rounds in which the names of sizes are followed further.
_ROUNDS = 6


def sizes(all_):
    """Yields the expressions among a file's nodes that are sizes: in a slice, or given to a call that makes a tensor."""
    for it in all_:
        if isinstance(it, ast.Slice):
            yield from (part for part in (it.lower, it.upper) if part is not None)
        elif called(it) in _MAKERS:
            yield from (part for part in it.args if not isinstance(part, ast.Starred))


def sources(all_):
    """Returns the expressions of a file whose results become sizes: also those that are assigned, given to the file's
    functions or returned by them before that."""
    # How long a slice is does not depend on where it begins.
    slices = {part for it in all_ if isinstance(it, ast.Slice) for part in (it.lower, it.upper)}
    found = [*(it for it in sizes(all_) if it not in slices), *_lengths(all_), *_resized(all_)]
    functions = {it.name: it for it in all_ if isinstance(it, FUNCTIONS)}
    names = _Names()
    for _ in range(_ROUNDS):
        before = len(names.all)
        for it in found:
            names.add(it)
        if len(names.all) == before:
            break
        found += [value for it in all_ for value in _given(it, names, functions)]
    return found


class _Names:
    """Variables by function, attributes, and functions from which sizes are made."""

    def __init__(self):
        self.all = set()
        self._variables = {}

    def add(self, expression):
        """Adds what an expression uses, but for what tells the size of something that is there already."""
        if getattr(expression, "attr", None) in _TELLS or called(expression) in _TELLS:
            return
        self.all |= self._own(expression)
        for it in ast.iter_child_nodes(expression):
            self.add(it)

    def has(self, target):
        """Whether something that is assigned to is among them, or a part of it."""
        return any(self._own(it) & self.all for it in ast.walk(target))

    def has_name(self, function, name):
        """The same of a parameter; of a function of the file without `function`."""
        return (function, name) in self.all

    def _own(self, node):
        if isinstance(node, ast.Attribute):
            return {(None, node.attr)}
        if not isinstance(node, ast.Name):
            return set()
        function = scope_around(node)
        if function not in self._variables:
            self._variables[function] = own_variables(function)
        return {(function if node.id in self._variables[function] else None, node.id)}


def _lengths(all_):
    """Yields what the lengths of slices depend on."""
    for it in all_:
        if not isinstance(it, ast.Slice) or it.upper is None:
            continue
        parts = [it.upper.left, it.upper.right] if isinstance(getattr(it.upper, "op", None), ast.Add) else [it.upper]
        begin = it.lower and ast.dump(it.lower)
        yield from (part for part in parts if ast.dump(part) != begin)


def _resized(all_):
    """Yields the sizes that a picture or a sequence is brought to."""
    for it in all_:
        if isinstance(it, ast.Call):
            yield from (part.value for part in it.keywords if part.arg in _NAMED)
            yield from it.args[1:] if called(it) in _RESIZERS else ()


def _given(it, names, functions):
    """Yields the expressions that a node gives to one of these names."""
    if isinstance(it, ast.Assign):
        for target in it.targets:
            if isinstance(target, ast.Tuple) and isinstance(it.value, ast.Tuple):
                yield from (value for one, value in zip(target.elts, it.value.elts) if names.has(one))
            elif names.has(target):
                yield it.value
    elif isinstance(it, (ast.AugAssign, ast.AnnAssign, ast.For, ast.comprehension)) and names.has(it.target):
        yield from filter(None, (getattr(it, "value", None), getattr(it, "iter", None)))
    elif isinstance(it, FUNCTIONS) and names.has_name(None, it.name):
        results = [one.value for one in ast.walk(it) if isinstance(one, (ast.Return, ast.Yield))]
        yield from filter(None, results)
    function = functions.get(called(it))
    if function is not None:
        parameters = [one.arg for one in function.args.args]
        skipped = parameters[:1] == ["self"]
        yield from (value for name, value in zip(parameters[skipped:], it.args) if names.has_name(function, name))
        yield from (one.value for one in it.keywords if names.has_name(function, one.arg))
