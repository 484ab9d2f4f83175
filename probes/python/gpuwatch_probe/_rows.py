"""Rows of counters: from PyTorch's nested dictionary into one fixed-size struct."""

import _thread

from ._native import ROW, bits

_NATIVE = bits(
    "requested", "allocated", "active", "inactive_split", "reserved", "allocated_peak", "reserved_peak",
    "blocks", "segments", "retries", "ooms",
)  # fmt: skip
_DEVICE_CALLS = bits("device_allocs", "device_frees")
_POOLS = bits("private_pools")
_PINNED = bits("pinned_active", "pinned_reserved")
# All that cudaMallocAsync counts; PyTorch fills the rest with zeros.
_ASYNC = bits("allocated", "active", "reserved", "allocated_peak", "reserved_peak")


class Rows:
    """Takes rows, with a buffer of its own; a second caller at the same instant takes none."""

    def __init__(self, native, stats, host, backend):
        self.taken = 0
        self._host = host
        self._stats = stats
        self._native_backend = backend == "native"
        self._present = None
        self._buffer, self._address, self._push = native.row()
        self._lock = _thread.allocate_lock()

    def take(self, devices, step, edge, pinned=(0, 0), also=0):
        """One row for each device: the hot path, one read of the counters each."""
        lock = self._lock
        if not lock.acquire(False):
            return
        try:
            for device in devices:
                all_of = self._stats(device)
                present = self._present
                if present is None:
                    present = self._present = self._fields(all_of)
                allocated = all_of["allocated_bytes"]["all"]
                reserved = all_of["reserved_bytes"]["all"]
                pools = all_of.get("reserved_bytes_by_private_pools")
                ROW.pack_into(
                    self._buffer,
                    0,
                    step,
                    present | also,
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
                    all_of.get("num_device_alloc", 0),
                    all_of.get("num_device_free", 0),
                    sum(it["all"]["current"] for it in pools.values()) if pools else 0,
                    *pinned,
                )
                self._push(self._address)
            self.taken += 1
        finally:
            lock.release()

    def take_all(self, devices, step, edge):
        """The same, with pinned host memory, whose reading costs a third more."""
        pinned = self._pinned()
        if pinned is None:
            self.take(devices, step, edge)
        else:
            self.take(devices, step, edge, pinned, _PINNED)

    def _fields(self, all_of):
        if not self._native_backend:
            return _ASYNC
        present = _NATIVE
        if "num_device_alloc" in all_of:
            present |= _DEVICE_CALLS
        if "reserved_bytes_by_private_pools" in all_of:
            present |= _POOLS
        return present

    def _pinned(self):
        """Bytes in use and bytes held. The keys were renamed in PyTorch 2.10; before 2.7 there is nothing."""
        if self._host is None:
            return None
        host = self._host()
        if "active_bytes" in host:
            return host["active_bytes"]["current"], host["allocated_bytes"]["current"]
        if "reserved_bytes" in host:
            return host["allocated_bytes"]["current"], host["reserved_bytes"]["current"]
        return None
