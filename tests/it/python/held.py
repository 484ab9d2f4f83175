"""What tests of the search for holders share: tensors that are asked for, and what is said of them.

With the argument `standin` without PyTorch, for the sake of this Python's own ways.
"""

import json
import sys

from gpuwatch_probe._holders import find

if "standin" in sys.argv:
    import standin as torch
else:
    import torch

# Addresses and sizes of the tensors that are asked for.
MADE = []


def made(*shape):
    """A tensor that the search is asked for."""
    it = torch.zeros(*shape or (16,))
    storage = it.untyped_storage()
    MADE.append((storage.data_ptr(), storage.nbytes()))
    return it


def asked(limit_s=30, groups=None):
    """What is found of the tensors made since; the steps as short tuples."""
    found = find(torch, [list(MADE)] if groups is None else groups, limit_s)
    MADE.clear()
    assert not found["cut"] and not found["hidden"] and found["us"] > 0, found
    return found["groups"][0]


def steps(group):
    """The path with what is not `None` of each step, but for lines and files."""
    said = []
    for step in group["holders"]:
        assert set(step) == {"by", "name", "type", "items", "function", "file", "line"}, step
        said.append(tuple(it for it in (step["by"], step["name"], step["type"], step["items"], step["function"]) if it))
    return said


def expect(*want):
    group = asked()
    assert steps(group) == list(want), (steps(group), want)
    return group


def run(cases, **more):
    """Runs them one after the other, and says how many they were."""
    for case in cases:
        case()
        # What it left must not be found by the next one, at the same addresses.
        MADE.clear()
    print(json.dumps(dict(more, cases=len(cases))))
