"""Counts weights, gradients and optimizer state by a walk of the probe's, and as a script would count them itself."""

import torch
from torch import nn

from gpuwatch_probe._parts import Parts


def bytes_of(tensors):
    """The bytes of storages on the device, each once, as the allocator rounds them."""
    sizes = {}
    for it in tensors:
        if it is not None and it.is_cuda:
            whole = it.untyped_storage()
            sizes[whole.data_ptr()] = -(-whole.nbytes() // 512) * 512
    return sum(sizes.values())


def flat(it):
    if isinstance(it, torch.Tensor):
        yield it
    elif isinstance(it, (dict, list, tuple)):
        for one in it.values() if isinstance(it, dict) else it:
            yield from flat(one)


def counted(*optimizers, model=None):
    """What a walk finds at the end of a step, in a function that has the model at hand."""
    parts = Parts(torch)
    for it in optimizers:
        parts.see(it)
    return walked(parts, 1, model)


def walked(parts, number, model=None):
    for _ in range(100_000):
        found = parts.turn(number, True, lambda: [torch.cuda.memory_allocated()])
        if found is not None:
            return found.get(0, (0, 0, 0))
        number += 1
    raise AssertionError("the walk does not end")


def truth(optimizers, model=None):
    parameters = [it for o in optimizers for group in o.param_groups for it in group["params"]]
    parameters += list(model.parameters()) if model is not None else []
    gradients = [it.grad for it in parameters]
    return bytes_of(parameters), bytes_of(gradients), bytes_of(flat([o.state for o in optimizers]))


def backward(net, width=64):
    x = torch.ones(8, width, device="cuda")
    net(x).float().square().mean().backward()


def check(name, optimizers, model=None, others=()):
    expected, found = truth(optimizers, model), counted(*optimizers, model=model)
    assert found == expected, (name, found, expected)
    assert sum(found) <= torch.cuda.memory_allocated(), name
    assert not others or found[0] < expected[0] + bytes_of(others), name
    return found


def plain(width=64, layers=3):
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)]).cuda()
