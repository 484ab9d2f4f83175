"""Reads optimizers without running code of their classes, which may count calls or have side effects.

`Joined` counts the gradients and the optimizer's state of parameters that joined an optimizer after its first step.
Unfreezing layers one after the other raises memory as a leak does, stair by stair. What belongs to the parameters that
an optimizer trains now is bounded, so the growth analysis leaves it out.
"""

import weakref
from types import MemberDescriptorType

from ._oom import is_ours
from ._references import is_a, namespaces

# Optimizers remembered at once, and parameters.
_MOST, _MOST_PARAMETERS = 64, 100_000

# The allocator rounds a block up to a multiple of this.
_ROUND = 512


def address_of_first_parameter(optimizer):
    """Returns the `id` of the first parameter after empty groups, as the library computes it for the first group; 0
    for an optimizer without parameters, or whose own code would have to run."""
    return next((id(it) for it in _parameters(optimizer)), 0)


def steps_of(optimizer):
    """Returns how many steps an optimizer has made by its own count; 0 where it keeps none on the host."""
    try:
        state = own(optimizer, "state")
        # A tensor's hash is its address, and one without code of its own equals itself alone.
        by_address = {id(key): it for key, it in dict.items(state)} if is_a(state, dict) else {}
        for parameter in _parameters(optimizer):
            values = by_address.get(id(parameter))
            if is_a(values, dict):
                count = dict.get(values, "step", 0)
                # To read a number from a device would wait for the device.
                return int(count) if getattr(getattr(count, "device", None), "type", "cpu") == "cpu" else 0
    except Exception:
        pass
    return 0


def _parameters(optimizer):
    groups = own(optimizer, "param_groups")
    for group in list.__iter__(groups) if is_a(groups, list) else ():
        parameters = dict.get(group, "params") if is_a(group, dict) else None
        yield from list.__iter__(parameters) if is_a(parameters, list) else ()


def own(it, name):
    """Returns an attribute of the instance itself; `None` if code of its class would run."""
    for space in namespaces(type(it)):
        if name in space and type(space[name]) is not MemberDescriptorType:
            return None
    try:
        return object.__getattribute__(it, name)
    except AttributeError:
        return None


class Joined:
    """The parameters that optimizers began with, and those that joined them later, on devices of a kind."""

    def __init__(self, torch, kind):
        self._torch, self._kind = torch, kind
        # By id, because tensors compare by value: each optimizer with its number of states and what joined it, as
        # {device: (bytes, blocks)}; and each parameter that was there from the beginning. Other threads read the first,
        # which is replaced and never changed.
        self._optimizers, self._parameters = {}, {}
        self._has_any = False

    def see(self, optimizer):
        """Reads an optimizer at the end of its step. It costs time only where the number of states has changed."""
        try:
            self._see(optimizer)
        except Exception as error:
            # An optimizer of another kind; the growth analysis does without.
            if not is_ours(error):
                raise

    def on(self, device):
        """Returns the bytes and blocks on a device; `None` until a parameter joins."""
        if not self._has_any:
            return None, None
        bytes_ = blocks = 0
        for optimizer, _, amounts in self._optimizers.values():
            if device in amounts and optimizer() is not None:
                bytes_, blocks = bytes_ + amounts[device][0], blocks + amounts[device][1]
        return bytes_, blocks

    def _see(self, optimizer):
        state = own(optimizer, "state")
        if not is_a(state, dict):
            return
        known = self._optimizers.get(id(optimizer))
        if known is not None and known[0]() is optimizer and known[1] == dict.__len__(state):
            return
        optimizers = {key: it for key, it in self._optimizers.items() if it[0]() is not None}
        self._parameters = {key: it for key, it in self._parameters.items() if it() is not None}
        if len(optimizers) < _MOST and len(self._parameters) + dict.__len__(state) <= _MOST_PARAMETERS:
            parameters = [it for it in dict.keys(state) if isinstance(it, self._torch.Tensor)]
            new = [it for it in parameters if not self._is_known(it)]
            # A new optimizer for parameters of an earlier one, and for others, continues with it.
            if len(new) == len(parameters):
                self._parameters.update((id(it), weakref.ref(it)) for it in new)
                new = []
            optimizers[id(optimizer)] = weakref.ref(optimizer), dict.__len__(state), _amounts(new, state, self._kind)
        self._optimizers = optimizers
        self._has_any = self._has_any or any(it[2] for it in optimizers.values())

    def _is_known(self, parameter):
        known = self._parameters.get(id(parameter))
        return known is not None and known() is parameter


def _amounts(parameters, state, kind):
    """Returns the bytes and blocks of these parameters' gradients and states on devices of a kind, by device."""
    amounts = {}
    for parameter in parameters:
        of = dict.get(state, parameter)
        values = list(dict.values(of)) if is_a(of, dict) else []
        for it in [parameter.grad, *values]:
            # Of a tensor that is distributed, this rank has one part.
            it = getattr(it, "_local_tensor", it)
            if getattr(getattr(it, "device", None), "type", None) == kind:
                bytes_, blocks = amounts.get(it.device.index, (0, 0))
                size = -(-it.numel() * it.element_size() // _ROUND) * _ROUND
                amounts[it.device.index] = bytes_ + size, blocks + 1
    return amounts
