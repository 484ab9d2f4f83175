"""The latest figures of this process as a flat dictionary, for experiment trackers."""

import json
import os
import time

# What only a recorder of the job knows: the ladder, which needs the driver, and the findings.
RECORDED = (
    "ladder_weights",
    "ladder_gradients",
    "ladder_optimizer",
    "ladder_retained",
    "ladder_wanted",
    "ladder_transient",
    "ladder_allocated",
    "ladder_rounding",
    "ladder_pending",
    "ladder_stuck",
    "ladder_graph_pools",
    "ladder_mem_pools",
    "ladder_releasable",
    "ladder_cached",
    "ladder_reserved",
    "ladder_non_torch",
    "ladder_others",
    "ladder_driver",
    "ladder_unattributed",
    "ladder_page_cache",
    "ladder_free",
    "growth_bytes_per_step",
    "full_seconds",
    "open_info",
    "open_warning",
    "open_critical",
    "finding",
)

# µs after which what a recorder wrote is too old: it writes each second.
_FRESH_US = 10_000_000

_BYTES_MAX = 1 << 20


def figures(native, device=None):
    """Returns the figures of a device; without a number, of the first one that the process uses."""
    text = native.latest(-1 if device is None else int(device))
    if not text:
        return {}
    found = json.loads(text.decode("utf-8", "replace"))
    recorded = _recorded(found.pop("file"), found["device"])
    found.update((name, recorded.get(name)) for name in RECORDED)
    return found


def _recorded(path, device):
    """Returns what a recorder of the job wrote about a device. Opening the file makes it, which requests the figures."""
    try:
        flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(path, flags, 0o600)
        try:
            text = os.read(file, _BYTES_MAX)
        finally:
            os.close(file)
        found = json.loads(text) if text else {}
        age = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000 - found.get("at_us", 0)
        own = found.get("devices", {}).get(str(device)) if age < _FRESH_US else None
        return own if isinstance(own, dict) else {}
    except Exception:
        return {}
