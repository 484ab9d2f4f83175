"""Reads rows of counters. The library's table lists the counters and their places in PyTorch's dictionary."""

from ._native import ASKED, INVALID


def taker(push, stats, host, mask, joined):
    """Makes `take(devices, step, edge, with_pinned=False)`, which pushes one row for each device.

    `joined(device)` returns the bytes and blocks of parameters that joined an optimizer.

    `mask` has a bit for each valid counter. `push` leaves out counters that this PyTorch does not have.
    `take` returns true if a viewer requests sites.
    """

    def take(devices, step, edge, with_pinned=False):
        code = 0
        for device in devices:
            if with_pinned:
                code = push(stats(device), device, step, edge, mask, *pinned(host), *joined(device))
            else:
                code = push(stats(device), device, step, edge, mask)
            if code == INVALID:
                raise unknown_shape()
        return code == ASKED

    return take


def unknown_shape():
    """Returns the error for a row that could not be read."""
    return ValueError("this PyTorch's counters are of a shape that this probe does not know")


def pinned(host):
    """Pinned bytes in use and held; the keys were renamed in PyTorch 2.10, before 2.7 there is nothing."""
    if host is None:
        return None, None
    now = host()
    if "active_bytes" in now:
        return now["active_bytes"]["current"], now["allocated_bytes"]["current"]
    if "reserved_bytes" in now:
        return now["allocated_bytes"]["current"], now["reserved_bytes"]["current"]
    return None, None
