"""Groups live blocks by size, without torch; and an account that fails takes nothing else with it."""

from gpuwatch_probe import _torch
from gpuwatch_probe._oom_blocks import GROUPS, grouped, snapshot


def segment(device, *sizes):
    blocks = [{"size": size, "state": it, "address": 1 + at, "frames": []} for at, (size, it) in enumerate(sizes)]
    return {"device": device, "blocks": blocks}


live, free, pending = "active_allocated", "inactive", "active_pending_free"
account = grouped(
    [
        segment(0, (512, live), (512, pending), (1 << 20, free), (1 << 20, live)),
        segment(1, (1 << 30, live), (1 << 30, free)),
        segment(0, (512, live), (2 << 20, free)),
    ],
    0,
)
assert [list(it) for it in account.group[: account.groups]] == [[1 << 20, 1], [512, 3]]
assert (account.largest_free, account.other_blocks, account.other_bytes) == (2 << 20, 0, 0)

many = grouped([segment(0, *((512 * it, live) for it in range(1, GROUPS + 4)))], 0)
assert many.groups == GROUPS and list(many.group[0]) == [512 * (GROUPS + 3), 1]
assert (many.other_blocks, many.other_bytes) == (3, 512 * (1 + 2 + 3))
assert grouped([], 0).groups == 0


class Torch:
    """So much of PyTorch as the account asks for."""

    class OutOfMemoryError(RuntimeError):
        """The error that it raises."""

    def __init__(self, allocated):
        self._C, self.cuda, self.allocated, self.TensorBase = self, self, allocated, ()

    def _cuda_memoryStats(self, device):
        return {"allocation": {"all": {"current": self.allocated}}, "inactive_split": {"all": {"current": 0}}}

    def _cuda_memorySnapshot(self, what):
        assert what == (0, 0, False), what
        return {"segments": [segment(0, (512, live))]}

    def memory_snapshot(include_traces=True):
        raise AssertionError("not through here")


assert len(snapshot(Torch(1), 0)) == 1
assert snapshot(Torch(1 << 20), 0) is None, "it would take too long"

class NoSites:
    """Stacks that are not recorded."""

    is_recording = False
    stacks = None

    def at_oom(self, device, step, live):
        calls.append(live)


calls = []
probe = _torch.Probe(Torch(1))
probe._sites, probe._oom_message = NoSites(), _torch.OomMessage(Torch.OutOfMemoryError, probe._on_oom_message)
probe.native = probe
probe._row = lambda *_: None
probe._request = lambda again: again
probe.oom_of = lambda *row: calls.append(row)
probe.log = lambda line: calls.append(line) or 0
probe._on_oom(0, 7, 9, 1)
assert calls[0][:6] == (0, 0, 7, 1, 9, None) and calls[0][6] is not None
assert calls[1] == {((), 512): [(1, 512)]}
probe._on_oom(0, 7, 9, 1)
assert calls[2][6] is not None and len(calls) == 4, "the first retry tells whether the attempt before is still live"
probe._on_oom(0, 7, 9, 1)
assert calls[4][6] is None and len(calls) == 5, "further errors in a row are not accounted for"

calls.clear()
probe.torch, probe._burst = Torch(1), None
# As a function that is not Python's raises: without a frame of its own.
probe.torch._cuda_memorySnapshot = {}.__getitem__
probe._on_oom(0, 7, 9, 1)
assert "could not be counted" in calls[0].decode() and calls[1][6] is None and not probe.off, calls
print("blocks are right")
