"""The peaks that the allocator counts."""


class PeakCounters:
    """The allocator's peaks, reset at each reading without the job noticing."""

    def __init__(self, torch, before_reset):
        self._c = torch._C
        self._count = torch.cuda.device_count
        self._stats, self._reset = torch._C._cuda_memoryStats, torch._C._cuda_resetPeakMemoryStats
        # Peaks since the job's own reset: {device: {(group, pool): bytes}}.
        self._kept = {}
        self._before_reset = before_reset
        # {device: (allocated, reserved)} of the whole run.
        self.highest = {}
        # PyTorch has two sets of functions for the same figures.
        for stats, reset in (
            ("_cuda_memoryStats", "_cuda_resetPeakMemoryStats"),
            ("_accelerator_getDeviceStats", "_accelerator_resetPeakStats"),
        ):
            if hasattr(torch._C, stats) and hasattr(torch._C, reset):
                setattr(torch._C, stats, self._shown)
                setattr(torch._C, reset, self._asked)

    def take(self, phase):
        """Gives the peaks since the last reading to a phase."""
        for device in range(self._count()):
            if not self._c._cuda_hasPrimaryContext(device):
                continue
            stats = self._stats(device)
            kept = self._kept.setdefault(device, {})
            for key, figures in _peaks(stats):
                kept[key] = max(kept.get(key, 0), figures["peak"])
            self._reset(device)
            allocated, reserved = (stats[key]["all"]["peak"] for key in ("allocated_bytes", "reserved_bytes"))
            before = self.highest.get(device, (0, 0))
            self.highest[device] = max(before[0], allocated), max(before[1], reserved)
            if reserved:
                phase.note(device, allocated, reserved if reserved > before[1] else 0)

    def _shown(self, device):
        stats = self._stats(device)
        kept = self._kept.get(device, {})
        for key, figures in _peaks(stats):
            figures["peak"] = max(figures["peak"], kept.get(key, 0))
        return stats

    def _asked(self, device):
        self._before_reset()
        self._kept.pop(device, None)
        return self._reset(device)


def _peaks(stats):
    """Yields what has a peak in the allocator's nested figures."""
    for group, pools in stats.items():
        if not isinstance(pools, dict):
            continue
        if "peak" in pools:
            yield (group, None), pools
            continue
        for pool, figures in pools.items():
            if isinstance(figures, dict) and "peak" in figures:
                yield (group, pool), figures
