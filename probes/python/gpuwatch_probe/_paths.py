"""Turns the objects that a search met into one path of holders, in the names of the job's program."""

import gc
import sys
from types import CellType, FrameType, TracebackType

from ._edges import hop, is_a, short, step, type_name

# Types that only stand for their owner: no cycle closes and no path ends at one of these.
_PARTS = frozenset(map(id, (dict, tuple, CellType, FrameType, TracebackType)))

_LONGEST = 64
_MOST_STEPS = 12
_PLACES = ("_parameters", "_buffers", "_modules")
ROOTED, CYCLE, PARTIAL = 2, 1, 0


def rooted(trail, end):
    """Returns the steps of a trail that ends in a variable or a class."""
    return _folded(_steps(trail) + ([end] if end else []))


def path(young, target):
    """Returns `(steps, certainty)` for a tensor without a path from a variable: a cycle, or what young objects show."""
    order, below = _upwards(young, target)
    if len(order) > 1 and _is_closed(young, order):
        return _cycle(young, order), CYCLE
    trail = _trail(below, order[-1])
    return _folded(_steps([young.nodes[it] for it in trail])), PARTIAL


def elected(paths):
    """Chooses the path that most tensors share; of several, one that ends in a variable, then the shortest."""
    counted = {}
    for steps, sure in paths:
        sign = tuple((it["by"], None if it["by"] == "key" else it["name"], it["type"], it["function"]) for it in steps)
        counted.setdefault(sign, []).append((steps, sure))
    if not counted:
        return []

    def merit(alike):
        steps, sure = alike[0]
        return bool(steps), len(alike), sure, any(it["items"] is not None for it in steps), -len(steps)

    alike = max(counted.values(), key=merit)
    chosen = alike[0][0]
    for at, it in enumerate(chosen):
        if any(steps[at]["name"] != it["name"] for steps, _ in alike):
            # Each tensor has its own key, so omit the key.
            it["name"] = None
    return chosen[:_MOST_STEPS]


def _upwards(search, target):
    """Returns all holders above a tensor, nearest first, and the next object below each on the shortest path."""
    order, below = [target], {target: None}
    for at in order:
        for holder in search.up.get(at, ()):
            if holder not in below:
                below[holder] = at
                order.append(holder)
    return order, below


def _trail(below, end):
    """Returns the path from the tensor up to `end`."""
    trail = [end]
    while below[trail[-1]] is not None:
        trail.append(below[trail[-1]])
    return trail[::-1]


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
    trail, seen = order[:1], set(order[:1])
    while len(trail) < _LONGEST:
        holders = search.up.get(trail[-1])
        if not holders:
            break
        # Prefer new objects, so that the cycle covers as much as possible.
        following = next((it for it in holders if it not in seen), holders[0])
        trail.append(following)
        if following in seen and id(type(search.nodes[following])) not in _PARTS:
            break
        seen.add(following)
    loop = _steps([search.nodes[it] for it in trail[trail.index(trail[-1]) :]])
    names = ["%s.%s" % (it["type"], it["name"]) for it in loop if it["by"] in ("attribute", "slot") and it["name"]]
    size = sum(id(type(search.nodes[it])) not in _PARTS for it in order[1:])
    closes = type_name(search.nodes[trail[-1]])
    return _folded(_steps([search.nodes[it] for it in trail])) + [step("cycle", short(", ".join(names)), closes, size)]


def _folded(steps):
    """Folds places inside of `torch.nn.Module`s into one dotted attribute: `encoder.0.cache` of the outermost."""
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
        folded.append(it)
    return folded


def _placed(folded, it):
    """Folds a module's entry into one attribute, and prefixes the attribute of the inner module with its name."""
    key = folded.pop()
    inner = folded[-1] if folded and it["name"] == "_modules" else None
    it = dict(it, name=key["name"])
    if inner is not None and inner["by"] in ("attribute", "hook") and inner["name"] and key["name"]:
        folded.pop()
        return dict(inner, name=short("%s.%s" % (key["name"], inner["name"])), type=it["type"])
    return it
