"""Asks stand-ins for PyTorch's releases for their events: one that drops references to the numbers that it is given, as
2.8 to 2.14 do, takes nothing that is still in use."""

import ctypes
from types import SimpleNamespace

from gpuwatch_probe._captures import events, has_events_apart, segments

# Rounds in which a number that was freed too early would be another object.
ROUNDS = 2000


def release(parameters, drops=0, fails=None):
    def snapshot(pool):
        if fails is not None:
            raise fails
        assert len(pool) == (3 if "include_traces" in parameters else 2), pool
        for _ in range(drops):
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(pool[0]))
        return {"segments": ["all"] if pool[0] == 0 else [], "device_traces": [["event"]]}

    space = {}
    exec("def memory_snapshot(%s): pass" % ", ".join(parameters), space)
    cuda = SimpleNamespace(memory_snapshot=space["memory_snapshot"])
    return SimpleNamespace(cuda=cuda, _C=SimpleNamespace(_cuda_memorySnapshot=snapshot))


for parameters in (["mempool_id"], ["mempool_id", "include_traces"]):
    sound = release(parameters)
    assert has_events_apart(sound) and events(sound)["device_traces"] == [["event"]], parameters
    kept = []
    for at in range(ROUNDS):
        drops = release(parameters, drops=at % 4)
        assert has_events_apart(drops) and events(drops)["device_traces"] == [["event"]], parameters
        assert "include_traces" not in parameters or segments(drops) == ["all"]
        kept.append(int("1" + "0" * 12) + at)
    assert kept == [10**12 + at for at in range(ROUNDS)]
    assert not has_events_apart(release(parameters, fails=TypeError("another signature"))), parameters
assert not has_events_apart(release([]))
print("snapshots are right")
