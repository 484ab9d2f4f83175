"""From what the search met to what is told: one path, in the words of the program that is looked at."""

import gc
import sys
from types import CellType, FrameType, TracebackType

from ._edges import hop, is_a, short, step, type_name

# What stands in a path only for what it belongs to: no path is closed, and none ends, at one of these.
_PARTS = frozenset(map(id, (dict, tuple, CellType, FrameType, TracebackType)))

_LONGEST = 64
_MOST_TOLD = 12
_PLACES = ("_parameters", "_buffers", "_modules")
ROOTED, CYCLE, PARTIAL = 2, 1, 0


def rooted(trail, end):
    """The steps of a trail that ends in a variable, or in a class."""
    return _folded(_steps(trail) + ([end] if end else []))


def path(young, target):
    """`(steps, how sure)` of a tensor to which no variable was seen to lead: a cycle, or as far as the young go."""
    order, below = _upwards(young, target)
    if len(order) > 1 and _is_closed(young, order):
        return _cycle(young, order), CYCLE
    trail = _trail(below, order[-1])
    return _folded(_steps([young.nodes[it] for it in trail])), PARTIAL


def elected(paths):
    """The path that most of some tensors share; of several, one that ends in a variable, then the shortest."""
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
    told = alike[0][0]
    for at, it in enumerate(told):
        if any(steps[at]["name"] != it["name"] for steps, _ in alike):
            # Every tensor has a key of its own: none of them says anything.
            it["name"] = None
    return told[:_MOST_TOLD]


def _upwards(search, target):
    """Everything above a tensor, the nearest first, and for each what is below it on the shortest way."""
    order, below = [target], {target: None}
    for at in order:
        for holder in search.up.get(at, ()):
            if holder not in below:
                below[holder] = at
                order.append(holder)
    return order, below


def _trail(below, end):
    """The way from the tensor up to here."""
    trail = [end]
    while below[trail[-1]] is not None:
        trail.append(below[trail[-1]])
    return trail[::-1]


def _steps(objects):
    """A way, hop by hop."""
    steps, at = [], 0
    while at + 1 < len(objects):
        told, places = hop(objects, at)
        at += places
        if told["by"] != "cell" or told["name"] or at + 1 < len(objects):
            steps.append(told)
    return steps


def _is_closed(search, order):
    """Whether these objects are held by each other alone, so that only the collector frees them."""
    held = dict.fromkeys(order, 0)
    for at in order:
        for it in map(id, gc.get_referents(search.nodes[at])):
            if it in held:
                held[it] += 1
    known = _references({0: object()}, 0)
    return all(
        # References of others than these and us: older objects, variables, C code.
        _references(search.nodes, at) - known + 1 - search.references(at) <= held[at]
        for at in order[1:]
    )


def _references(nodes, at):
    return sys.getrefcount(nodes[at])


def _cycle(search, order):
    """A way that comes back to itself, out of all that is above a tensor."""
    trail, seen = order[:1], set(order[:1])
    while len(trail) < _LONGEST:
        holders = search.up.get(trail[-1])
        if not holders:
            break
        # Where the way may go on to something new it does, so that it passes as much as it can.
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
    """Places inside of `torch.nn.Module`s as one dotted attribute: `encoder.0.cache` of the outermost one."""
    told = []
    for it in steps:
        if told and told[-1]["by"] == "key":
            if it["by"] == "hook":
                # Hooks have numbers, which say nothing.
                told.pop()
            elif it["by"] != "attribute":
                pass
            elif it["name"] in _PLACES:
                it = _placed(told, it)
            elif it["name"] is not None and it["name"].endswith("_hooks"):
                told.pop()
                it = dict(it, by="hook")
        told.append(it)
    return told


def _placed(told, it):
    """An attribute out of a module's place; what the module that lies there has goes into its name."""
    key = told.pop()
    inner = told[-1] if told and it["name"] == "_modules" else None
    it = dict(it, name=key["name"])
    if inner is not None and inner["by"] in ("attribute", "hook") and inner["name"] and key["name"]:
        told.pop()
        return dict(inner, name=short("%s.%s" % (key["name"], inner["name"])), type=it["type"])
    return it
