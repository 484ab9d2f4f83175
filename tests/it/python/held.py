"""Shared by tests of the search for holders: tensors to search for, and the search's result.

With the argument `standin` without PyTorch, for the sake of this Python's own ways.
"""

import json
import sys

from gpuwatch_probe._holders import Search
from gpuwatch_probe._young_generations import collections

if "standin" in sys.argv:
    import standin as torch
else:
    import torch

# Addresses and sizes of the tensors to search for.
MADE = []


def made(*shape):
    """A tensor to search for."""
    it = torch.zeros(*shape or (16,))
    storage = it.untyped_storage()
    MADE.append((storage.data_ptr(), storage.nbytes()))
    return it


def rank(file):
    """Ranks a file by whose code it is, as `_stacks.Stacks` does."""
    if "site-packages" in file and "/torch/" not in file:
        return 1
    return 2 if "/torch/" in file or file.startswith((sys.base_prefix + "/lib/", "<frozen")) else 0


def searched(groups):
    """A search that is over, for blocks that were all made lately."""
    search = Search(torch, groups, rank, (collections(), groups))
    while not search.slice():
        pass
    return search


def asked(groups=None):
    """Returns the holders of the tensors made since."""
    search = searched([list(MADE)] if groups is None else groups)
    MADE.clear()
    return search.result()[0]


def steps(group):
    """The path with the fields of each step that are not `None`, except lines and files."""
    printed = []
    for step in group["holders"]:
        assert set(step) == {"by", "name", "type", "items", "function", "file", "line"}, step
        printed.append(tuple(it for it in (step["by"], step["name"], step["type"], step["items"], step["function"]) if it))
    return printed


def expect(*want):
    group = asked()
    assert steps(group) == list(want), (steps(group), want)
    return group


def run(cases, **more):
    """Runs them one after the other, and reports how many there are."""
    for case in cases:
        case()
        # The next case must not find its remains at the same addresses.
        MADE.clear()
    print(json.dumps(dict(more, cases=len(cases))))
