"""Reads an optimizer without running code of its class, which may count calls or have side effects."""

from types import MemberDescriptorType

from ._edges import is_a, namespaces


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
