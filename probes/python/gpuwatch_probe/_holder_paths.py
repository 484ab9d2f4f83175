"""Turns the objects that a search met into one path of holders, in the names of the job's program."""

import gc
import re
import sys
from types import CellType, FrameType, TracebackType

from ._references import hop, short, step, type_name

# Types that only stand for their owner: no cycle closes and no path ends at one of these.
_PARTS = frozenset(map(id, (dict, tuple, CellType, FrameType, TracebackType)))

_LONGEST = 64
_MOST_STEPS = 12
_PLACES = ("_parameters", "_buffers", "_modules")
ROOTED, CYCLE, PARTIAL = 2, 1, 0
_NUMBER = re.compile(r"\d+")


def rooted(chain, end):
    """Returns the steps of a chain that ends in a variable or a class."""
    return _folded(_steps(chain) + ([end] if end else []))


def path(young, target):
    """Returns `(steps, certainty)` for a tensor without a path from a variable: a cycle, or what young objects show."""
    order, below = _upwards(young, target)
    if len(order) > 1 and _is_closed(young, order):
        return _cycle(young, order), CYCLE
    chain = _chain(below, order[-1])
    return _folded(_steps([young.nodes[it] for it in chain])), PARTIAL


def elected(paths, rank):
    """Chooses the path that most tensors share; of several, one that ends in a variable, of the user's code before that
    of libraries (`rank(file)`), then the shortest."""
    counted = {}
    for steps, sure in paths:
        sign = tuple((it["by"], _same(it), it["type"], it["function"]) for it in steps)
        counted.setdefault(sign, []).append((steps, sure))
    if not counted:
        return []

    def merit(alike):
        steps, sure = alike[0]
        root = rank(steps[-1]["file"]) if steps and steps[-1]["file"] else 0
        return bool(steps), len(alike), sure, -root, any(it["items"] is not None for it in steps), -len(steps)

    alike = max(counted.values(), key=merit)
    chosen = alike[0][0]
    for at, it in enumerate(chosen):
        names = {steps[at]["name"] for steps, _ in alike}
        if len(names) > 1:
            # Each tensor has its own key, so omit the key.
            it["name"] = None if it["by"] == "key" else _common(names)
        if it["by"] in ("attribute", "slot"):
            # Of a chain, the longest that was met.
            it["items"] = max((steps[at]["items"] or 0 for steps, _ in alike)) or None
    names = [steps[0]["name"] for steps, _ in alike if steps]
    if chosen and isinstance(chosen[0], _Place):
        container = _container(names, chosen[0].among)
        if container is not None:
            chosen = [step("key"), dict(chosen[0], name=container), *chosen[1:]]
    return chosen[:_MOST_STEPS]


def _same(it):
    """Returns what paths have in common that differ only in keys and numbers: `branches` of `branches.3.weight`,
    `slot_*` of `slot_3`."""
    if it["by"] == "key" or it["name"] is None:
        return None
    return _without_numbers(it["name"].partition(".")[0])


def _common(names):
    """Returns `layers.*.cache` for `layers.3.cache` and `layers.4.cache`, `slot_*` for `slot_3` and `slot_4`."""
    parts = [it.split(".") for it in names]
    if len(set(map(len, parts))) > 1:
        return _without_numbers(parts[0][0])
    return ".".join(of[0] if len(set(of)) == 1 else _alike(set(of)) for of in zip(*parts))


def _alike(names):
    """Returns what names have in common that differ in a number; `*` where they differ otherwise."""
    shapes = set(map(_without_numbers, names))
    return shapes.pop() if len(shapes) == 1 else "*"


def _without_numbers(name):
    return _NUMBER.sub("*", name)


def _container(names, among):
    """Returns what gets ever more modules, `tasks` of `tasks.a.0.weight` and `tasks.b.1.weight`: the place before the
    part that differs, and of several, before the one with a name and not a number, which is among most others. `None` if
    only the last part differs."""
    parts = [it.split(".") for it in names]
    if len(set(map(len, parts))) > 1 or len(parts[0]) != len(among):
        return None
    kinds = [set(of) for of in zip(*parts)]
    differ = [at for at in range(1, len(kinds) - 1) if len(kinds[at]) > 1]
    if not differ:
        return None
    at = max(differ, key=lambda it: (not all(map(str.isdigit, kinds[it])), among[it] or 0))
    before = [it.copy().pop() if len(it) == 1 else "*" for it in kinds[: at - 1]]
    return ".".join([*before, parts[0][at - 1]])


def _upwards(search, target):
    """Returns all holders above a tensor, nearest first, and the next object below each on the shortest path."""
    order, below = [target], {target: None}
    for at in order:
        for holder in search.up.get(at, ()):
            if holder not in below:
                below[holder] = at
                order.append(holder)
    return order, below


def _chain(below, end):
    """Returns the path from the tensor up to `end`."""
    chain = [end]
    while below[chain[-1]] is not None:
        chain.append(below[chain[-1]])
    return chain[::-1]


def _steps(objects):
    """Describes a path hop by hop."""
    steps, at = [], 0
    while at + 1 < len(objects):
        fields, places = hop(objects, at)
        at += places
        if fields["by"] != "cell" or fields["name"] or at + 1 < len(objects):
            steps.append(fields)
    return steps


def _is_closed(search, order):
    """Whether only these objects hold each other, so that only the collector frees them."""
    held = dict.fromkeys(order, 0)
    for at in order:
        for it in map(id, gc.get_referents(search.nodes[at])):
            if it in held:
                held[it] += 1
    known = _references({0: object()}, 0)
    return all(
        # References from elsewhere: older objects, variables, C code.
        _references(search.nodes, at) - known + 1 - search.references(at) <= held[at]
        for at in order[1:]
    )


def _references(nodes, at):
    return sys.getrefcount(nodes[at])


def _cycle(search, order):
    """Finds a path above a tensor that returns to itself."""
    chain, seen = order[:1], set(order[:1])
    while len(chain) < _LONGEST:
        holders = search.up.get(chain[-1])
        if not holders:
            break
        # Prefer new objects, so that the cycle covers as much as possible.
        following = next((it for it in holders if it not in seen), holders[0])
        chain.append(following)
        if following in seen and id(type(search.nodes[following])) not in _PARTS:
            break
        seen.add(following)
    loop = _steps([search.nodes[it] for it in chain[chain.index(chain[-1]) :]])
    names = ["%s.%s" % (it["type"], it["name"]) for it in loop if it["by"] in ("attribute", "slot") and it["name"]]
    size = sum(id(type(search.nodes[it])) not in _PARTS for it in order[1:])
    closes = type_name(search.nodes[chain[-1]])
    return _folded(_steps([search.nodes[it] for it in chain])) + [step("cycle", short(", ".join(names)), closes, size)]


def _folded(steps):
    """Folds places inside of `torch.nn.Module`s into one dotted attribute: `encoder.0.cache` of the outermost; and the
    links of a chain, where each object keeps the one before, into one with their number."""
    folded = []
    for it in steps:
        if folded and folded[-1]["by"] == "key":
            if it["by"] == "hook":
                # Hooks have meaningless numbers.
                folded.pop()
            elif it["by"] != "attribute":
                pass
            elif it["name"] in _PLACES:
                it = _placed(folded, it)
            elif it["name"] is not None and it["name"].endswith("_hooks"):
                folded.pop()
                it = dict(it, by="hook")
        if folded and it["by"] in ("attribute", "slot") and _is_link(folded[-1], it):
            folded[-1] = dict(it, items=(folded[-1]["items"] or 1) + 1)
            continue
        folded.append(it)
    return folded


def _is_link(one, other):
    """Whether two steps are the same attribute of objects of one type."""
    return one["name"] is not None and all(one[it] == other[it] for it in ("by", "name", "type"))


class _Place(dict):
    """A step with a dotted name, and for each part of it among how many entries it is."""

    among = ()


def _placed(folded, it):
    """Folds a module's entry into one attribute, and prefixes the attribute of the inner module with its name."""
    key = folded.pop()
    inner = folded[-1] if folded and it["name"] == "_modules" else None
    place = _Place(it, name=key["name"])
    place.among = (key["items"],)
    if inner is not None and inner["by"] in ("attribute", "hook") and inner["name"] and key["name"]:
        folded.pop()
        place = _Place(inner, name=short("%s.%s" % (key["name"], inner["name"])), type=it["type"])
        place.among = (key["items"], *(inner.among if isinstance(inner, _Place) else (None,)))
    return place
