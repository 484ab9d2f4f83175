"""Rows of counters: from PyTorch's nested dictionary into one fixed-size struct."""

import _thread
import ctypes

from ._native import FIRST_PINNED, PINNED, ROW, bits

_NATIVE = bits(
    "requested", "allocated", "active", "inactive_split", "reserved", "allocated_peak", "reserved_peak",
    "blocks", "segments", "retries", "ooms",
)  # fmt: skip
_DEVICE_CALLS = bits("device_allocs", "device_frees")
_POOLS = bits("private_pools")
_PINNED = bits("pinned_active", "pinned_reserved")
# All that cudaMallocAsync counts; PyTorch fills the rest with zeros.
_ASYNC = bits("allocated", "active", "reserved", "allocated_peak", "reserved_peak")


def taker(native, stats, host, backend):
    """Makes `take(devices, step, edge, with_pinned=False)`, which pushes one row for each device.

    It has a buffer of its own; a second thread at the same instant makes another one. This is the hot path: everything
    it touches is a variable of this call, and every lookup more would be felt in each step of the job.
    """
    buffer = native.row()
    address = ctypes.byref(buffer)
    push = native.fast_push()
    lock = _thread.allocate_lock()
    acquire, release = lock.acquire, lock.release
    pack = ROW.pack_into
    fields = None

    def take(devices, step, edge, with_pinned=False):
        nonlocal fields
        if not acquire(False):
            return taker(native, stats, host, backend)(devices, step, edge, with_pinned)
        try:
            for device in devices:
                all_of = stats(device)
                if fields is None:
                    fields = present(all_of, backend)
                allocated = all_of["allocated_bytes"]["all"]
                reserved = all_of["reserved_bytes"]["all"]
                pack(
                    buffer,
                    0,
                    step,
                    fields | pinned(buffer, host) if with_pinned else fields,
                    device,
                    edge,
                    all_of["requested_bytes"]["all"]["current"],
                    allocated["current"],
                    all_of["active_bytes"]["all"]["current"],
                    all_of["inactive_split_bytes"]["all"]["current"],
                    reserved["current"],
                    allocated["peak"],
                    reserved["peak"],
                    all_of["allocation"]["all"]["current"],
                    all_of["segment"]["all"]["current"],
                    all_of["num_alloc_retries"],
                    all_of["num_ooms"],
                    all_of["num_device_alloc"],
                    all_of["num_device_free"],
                    pools(all_of) if fields & _POOLS else 0,
                )
                push(address)
        finally:
            release()

    return take


def present(all_of, backend):
    """Which values of a row are known, from the keys that this PyTorch has."""
    if backend != "native":
        return _ASYNC
    return _NATIVE | _DEVICE_CALLS | (_POOLS if "reserved_bytes_by_private_pools" in all_of else 0)


def pools(all_of):
    """Bytes that private pools hold, all of them together."""
    each = all_of["reserved_bytes_by_private_pools"]
    return sum(it["all"]["current"] for it in each.values()) if each else 0


def pinned(buffer, host):
    """Writes pinned bytes in use and held; the keys were renamed in PyTorch 2.10, before 2.7 there is nothing."""
    if host is None:
        return 0
    now = host()
    if "active_bytes" in now:
        values = now["active_bytes"]["current"], now["allocated_bytes"]["current"]
    elif "reserved_bytes" in now:
        values = now["allocated_bytes"]["current"], now["reserved_bytes"]["current"]
    else:
        return 0
    PINNED.pack_into(buffer, FIRST_PINNED, *values)
    return _PINNED
