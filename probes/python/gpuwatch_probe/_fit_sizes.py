"""The expressions of a program that are sizes of what it makes, those whose results become sizes, and the tests that
decide which size is made."""

import ast

from ._fit_counters import inside, own_variables
from ._fit_source import FUNCTIONS, called, scope_around

# Calls whose arguments are sizes.
_MAKERS = frozenset(
    "arange empty expand eye full linspace narrow new_empty new_full new_ones new_zeros ones pad rand randint randn"
    " range randperm repeat reshape resize_ split tril_indices view zeros".split()
)
# Calls whose arguments after the first one are sizes, and such as take them as a name.
_RESIZERS = frozenset("interpolate resize crop center_crop upsample DataLoader".split())
_NAMED = ("size", "sizes", "scale_factor", "batch_size")
# Calls, and what is assigned to, that decide what is trained: gradients and the optimizer's state have sizes, too.
_TRAINING = frozenset("requires_grad requires_grad_ add_param_group".split())
# What tells a size.
_TELLS = frozenset("shape size len numel dim".split())
# Statements that decide which of their own are run, and how often.
_DECIDERS = (ast.If, ast.While, *([ast.Match] if hasattr(ast, "Match") else []))
# What gives something to a name.
_GIVING = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.comprehension, ast.Call, *FUNCTIONS)
# Rounds in which the names of sizes are followed further.
_ROUNDS = 6


def sizes(all_):
    """Yields the expressions among a file's nodes that are sizes: in a slice, or given to a call that makes a tensor."""
    for it in all_:
        if isinstance(it, ast.Slice):
            yield from (part for part in (it.lower, it.upper) if part is not None)
        elif called(it) in _MAKERS:
            # What is padded is no size.
            given = it.args[called(it) == "pad" :]
            yield from (part for part in given if not isinstance(part, ast.Starred))
        elif isinstance(it, ast.Attribute) and _is_training(it):
            yield it.value


def sources(all_):
    """Returns the expressions of a file whose results become sizes: also those that are assigned, given to the file's
    functions or returned by them before that."""
    return _followed(all_, False)[0]


class Sizes:
    """The names of a program from which sizes are made, and the tests on which they depend."""

    def __init__(self, all_):
        found, self._names = _followed(all_, True)
        self._functions = {it.name: it for it in all_ if isinstance(it, FUNCTIONS)}
        # A class that iterates is what its method yields.
        all_methods = ((it.above, it) for it in all_ if isinstance(it, FUNCTIONS) and it.name == "__iter__")
        self._functions.update((of.name, it) for of, it in all_methods if isinstance(of, ast.ClassDef))
        self._expressions = set(found)

    def has(self, target):
        """Whether a name, or something that is assigned to, becomes a size or decides about one."""
        return self._names.has(target)

    def has_name(self, function, name):
        """The same of a parameter; of an attribute without `function`."""
        return self._names.has_name(function, name)

    def uses(self, node):
        """Whether the result of an expression becomes one, or a part of it does."""
        while node is not None and not isinstance(node, ast.stmt):
            if node in self._expressions:
                return True
            node = node.above
        return False

    def varies(self, name):
        """Whether a function or a class of the program yields what it makes with sizes that change from one to the next."""
        function = self._functions.get(name)
        nodes = list(inside(function)) if function is not None else ()
        if not any(isinstance(it, (ast.Yield, ast.YieldFrom)) for it in nodes):
            return False
        loops = [it for it in nodes if isinstance(it, (ast.For, ast.While))]
        own = {one.id for it in loops for one in ast.walk(getattr(it, "target", ast.Pass())) if isinstance(one, ast.Name)}
        counts = [one.target for it in loops for one in inside(it) if isinstance(one, ast.AugAssign)]
        own |= {it.id for it in counts if isinstance(it, ast.Name)}
        return any(isinstance(it, ast.Name) and it.id in own and self.uses(it) for it in nodes)

    def decided_by(self, node):
        """Returns the test, or what a `match` looks at, by which a node decides about a size; `None` of other nodes."""
        return _decider(node, self._names)


def _followed(all_, with_tests):
    """Returns the expressions whose results become sizes, and their names; `with_tests` also what decides about them."""
    # How long a slice is does not depend on where it begins.
    slices = {part for it in all_ if isinstance(it, ast.Slice) for part in (it.lower, it.upper)}
    found = [*(it for it in sizes(all_) if it not in slices), *_lengths(all_), *_resized(all_)]
    functions = {it.name: it for it in all_ if isinstance(it, FUNCTIONS)}
    names = _Names(functions)
    names.all.update((None, it) for it in _TRAINING if with_tests)
    giving = [it for it in all_ if isinstance(it, _GIVING)]
    deciding = [it for it in all_ if with_tests and isinstance(it, (ast.IfExp, *_DECIDERS))]
    stored = {it: _stored(it) for it in deciding}
    for _ in range(_ROUNDS):
        before = len(names.all)
        for it in found:
            names.add(it)
        if len(names.all) == before:
            break
        found = [*found, *(value for it in giving for value in _given(it, names, functions))]
        found += [it for it in (_decider(node, names, stored[node]) for node in deciding) if it is not None]
    return found, names


def _decider(node, names, stored=None):
    """Returns the test of a node in one of whose branches a size is set."""
    if isinstance(node, ast.IfExp):
        # Where its value becomes a size, so does what it tests.
        return node.test if names.has(node.test) else None
    if not isinstance(node, _DECIDERS):
        return None
    is_set = any(map(names.has, _stored(node) if stored is None else stored))
    return getattr(node, "test", getattr(node, "subject", None)) if is_set else None


def _stored(node):
    """Returns what a node assigns to, and what it calls to decide what is trained."""
    return [it for it in inside(node) if isinstance(getattr(it, "ctx", None), ast.Store) or _is_training(it)]


def _is_training(node):
    """Whether a node decides what is trained."""
    if not isinstance(node, ast.Attribute) or node.attr not in _TRAINING:
        return False
    is_called = isinstance(node.above, ast.Call) and node is node.above.func
    return isinstance(node.ctx, ast.Store) or is_called


class _Names:
    """Variables by function, attributes, and functions from which sizes are made."""

    def __init__(self, functions):
        self.all = set()
        self._variables, self._functions = {}, functions

    def add(self, expression):
        """Adds what an expression uses, but for what tells the size of something that is there already."""
        is_told = called(expression) in _TELLS and called(expression) not in self._functions
        if is_told or getattr(expression, "attr", None) == "shape":
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
        yield from _handed(it, parameters[skipped:], lambda name: names.has_name(function, name))


def _handed(call, parameters, is_size):
    """Yields what a call gives to parameters that are sizes; of `*values` and `**values` it is not known which get which."""
    for at, value in enumerate(call.args):
        names = parameters[at:] if isinstance(value, ast.Starred) else parameters[at : at + 1]
        if any(map(is_size, names)):
            yield getattr(value, "value", value) if isinstance(value, ast.Starred) else value
    for it in call.keywords:
        if is_size(it.arg) if it.arg is not None else any(map(is_size, parameters)):
            yield it.value
