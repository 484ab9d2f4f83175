"""Shared by tests of the search for holders: tensors to search for, and the search's result.

With the argument `standin` without PyTorch, for the sake of this Python's own ways.
"""

import json
import sys
import sysconfig

from gpuwatch_probe._holders import Search
from gpuwatch_probe._memory_history import refusal
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


# Whether this build can do without its lock, and does.
IS_FREE = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
IS_UNLOCKED = IS_FREE and not sys._is_gil_enabled()


def fewer():
    """The cases in which such a build names fewer holders: its collector has no generations, so nothing lists the
    latest objects, and without the lock the frames of other threads are not read."""
    young = {"cycles", "two_groups", "a_variable_of_this_step_holds_nothing_of_the_others"}
    return (young if IS_FREE else set()) | ({"a_thread"} if IS_UNLOCKED else set())


def run(cases, **more):
    """Runs them one after the other, and reports how many there are."""
    failed = set()
    for case in cases:
        try:
            case()
        except AssertionError:
            if case.__name__ not in fewer():
                raise
            failed.add(case.__name__)
        # The next case must not find its remains at the same addresses.
        MADE.clear()
    assert failed == fewer() & {it.__name__ for it in cases}, failed
    if IS_UNLOCKED:
        assert "without its global lock" in refusal(torch, "native"), "a job without the lock is searched"
    print(json.dumps(dict(more, cases=len(cases))))
