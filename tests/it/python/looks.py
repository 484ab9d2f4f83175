"""Looks at the blocks of a large model before a window of the peak begins: each look is a slice of the work, the next one
continues it, and together they find every block. Time is counted in looks at the clock."""

import gc
import weakref
from types import SimpleNamespace

import torch
from torch import nn

from gpuwatch_probe import _parts, _peak_window
from gpuwatch_probe._peak_window import PeakWindow
from parts_count import Parts, backward, walked

# Seconds between two looks at the clock, and the parameters that are read meanwhile.
TICK, TOGETHER = 0.000_1, _parts._TOGETHER

clock = [0.0]


def ticking():
    clock[0] += TICK
    return clock[0]


_peak_window.time = SimpleNamespace(thread_time=ticking, time_ns=lambda: 0, monotonic=ticking, sleep=lambda _: None)


def window():
    it = PeakWindow.__new__(PeakWindow)
    it._torch, it._note, it._unread, it._others, it._blocks, it._modules = torch, print, None, [], {}, []
    it._looks, it._ends, it._paused, it._longest = 0, 0, 0.0, 0.0
    return it


def found(it, kind):
    return it._blocks.get(0, {}).get(kind, set())


def places(tensors):
    return {it.data_ptr() for it in tensors}


net = nn.Sequential(*[nn.Linear(16, 16) for _ in range(500)]).cuda()
optimizer = torch.optim.AdamW([{"params": [it]} for it in net.parameters()])
backward(net, 16)
optimizer.step()
parts = Parts(torch)
parts.see(optimizer)
walked(parts, 1, net)

# 1000 parameters with two states each: 4000 live blocks with the gradients.
early, sizes = window(), [1]
while sizes[-1]:
    before = sum(map(len, early._blocks.get(0, {}).values()))
    early._look(parts)
    sizes.append(sum(map(len, early._blocks[0].values())) - before)
ticks = _peak_window._EARLY_LOOK / TICK + 2
assert max(sizes) <= ticks * TOGETHER * 3 and len(sizes) > _peak_window._LOOKS, sizes
weights, states = list(net.parameters()), [it for of in optimizer.state.values() for it in of.values() if it.is_cuda]
assert sum(sizes) - 1 == len(weights + states) == 3000, sizes
assert found(early, _parts.WEIGHTS) == places(weights) and found(early, _parts.OPTIMIZER) == places(states)

# At the end of a step, the gradients come first. A group of one parameter takes as long as two parameters.
early._ends = 1
took = early._look(parts)
gradients = found(early, _parts.GRADIENTS)
assert gradients <= places(it.grad for it in weights) and len(gradients) >= ticks * TOGETHER / 2, len(gradients)
assert took <= _peak_window._LOOK + 4 * TICK, took

# Gradients that no optimizer steps are some as well.
pair = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16).requires_grad_(False)).cuda()
one = torch.optim.SGD(pair[0].parameters(), lr=0.1)
backward(pair, 16)
one.step()
few = Parts(torch)
few.see(one)
walked(few, 1, pair)
both = window()
both._look(few)
both._ends = 1
both._look(few)
assert found(both, _parts.GRADIENTS) == places(it.grad for it in pair[:2].parameters()), both._blocks
# A look before the window begins and the wait for it.
assert _peak_window._EARLY_LOOK / 2 + _peak_window._BEGINS <= 0.01

# Between two looks nothing of the job's is kept alive.
late = window()
late._look(parts)
gone = weakref.ref(net), weakref.ref(optimizer)
net = optimizer = weights = states = None
gc.collect()
assert [it() for it in gone] == [None, None]
late._look(parts)
print("looks are short")
