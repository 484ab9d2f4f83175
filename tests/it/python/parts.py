"""Counts weights, gradients and optimizer state as a script would count them itself, for optimizers of every kind; and
that a walk is made of short slices, runs no code of the job's, and keeps nothing alive."""

import gc
import weakref

import torch
from torch import nn

from gpuwatch_probe import _parts
from gpuwatch_probe._parts import Parts
from parts_count import backward, bytes_of, check, counted, flat, plain, truth, walked


# Plain optimizers, of which some keep nothing, and whose state lies on the host.
for kind in (torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad, torch.optim.LBFGS):
    net = plain()
    optimizer = kind(net.parameters(), lr=0.01)
    if kind is torch.optim.LBFGS:
        optimizer.step(lambda: (optimizer.zero_grad(), backward(net), torch.zeros(()))[-1])
    else:
        backward(net)
        optimizer.step()
    found = check(kind.__name__, [optimizer], net)
    assert found[0] == found[1] == 3 * (16384 + 512), found

# A model that only a variable shared with an inner function has, as in a closure.
def closure():
    base, head = plain().requires_grad_(False), plain(64, 1)
    whole, own = nn.Sequential(base, head), torch.optim.SGD(head.parameters(), lr=0.01)

    def step():
        backward(whole)
        own.step()
        return counted(own), truth([own], whole)

    return step


found, expected = closure()()
assert found == expected and found[0] == 4 * (16384 + 512), (found, expected)

# Mixed precision: weights of 32 bits, activations of 16.
net, scaler = plain(), torch.amp.GradScaler("cuda")
optimizer = torch.optim.AdamW(net.parameters())
with torch.autocast("cuda", torch.bfloat16):
    loss = net(torch.ones(8, 64, device="cuda")).square().mean()
loss.backward()
optimizer.step()
check("amp", [optimizer], net)

# Tied weights are one storage, and so are views of one buffer.
net = plain()
net[2].weight = net[0].weight
optimizer = torch.optim.AdamW(net.parameters())
backward(net)
optimizer.step()
assert check("tied", [optimizer], net)[0] == 2 * 16384 + 3 * 512
buffer = torch.zeros(3 * 64 * 64, device="cuda")
net = plain()
for at, layer in enumerate(net):
    layer.weight.grad = buffer[at * 4096 : (at + 1) * 4096].view(64, 64)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
optimizer.step()
assert check("bucket", [optimizer], net)[1] == buffer.nbytes


# A frozen base with small trained layers; a copy of the weights and a frozen teacher are no weights of this model.
class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = plain().requires_grad_(False)
        self.down, self.up = nn.Linear(64, 4, bias=False).cuda(), nn.Linear(4, 64, bias=False).cuda()

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


net, teacher = Adapted(), plain()
average = {name: it.detach().clone() for name, it in net.named_parameters()}
optimizer = torch.optim.AdamW([it for it in net.parameters() if it.requires_grad])
backward(net)
optimizer.step()
found = check("adapter", [optimizer], net, others=teacher.parameters())
assert found[0] == 3 * (16384 + 512) + 2 * 1024 and found[1] == 2 * 1024, found

# Groups that change, and layers that join.
net = plain()
optimizer = torch.optim.AdamW(net[0].parameters())
backward(net)
optimizer.step()
check("first group", [optimizer], net)
optimizer.add_param_group({"params": list(net[1].parameters()), "lr": 0.1})
backward(net)
optimizer.step()
check("second group", [optimizer], net)
net.zero_grad()
assert check("no gradients", [optimizer], net)[1] == 0

# Several optimizers; one of them for a model of its own.
net, other = plain(), plain()
optimizers = [torch.optim.AdamW(net[:2].parameters()), torch.optim.SGD(net[2:].parameters(), lr=0.1, momentum=0.9)]
optimizers.append(torch.optim.AdamW(other.parameters()))
for it in (net, other):
    backward(it)
for it in optimizers:
    it.step()
check("several", optimizers)


# States of eight bits with tables, in nested containers and under a key of its own; and one on the host.
class EightBit(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for it in group["params"]:
                state = self.state[it]
                state["states"] = [torch.zeros(it.numel(), dtype=torch.uint8, device="cuda") for _ in range(2)]
                state["tables"] = {"map": torch.zeros(256, device="cuda"), "step": 1, "host": torch.zeros(99)}
        self.state["shared"] = {"map": torch.zeros(256, device="cuda")}


net = plain()
optimizer = EightBit(net.parameters())
backward(net)
optimizer.step()
assert check("8 bits", [optimizer], net)[2] == 3 * (2 * 4096 + 1024) + 3 * (2 * 512 + 1024) + 1024

# Sparse gradients are their indices and values.
net = nn.Embedding(100, 64, sparse=True).cuda()
optimizer = torch.optim.SparseAdam(net.parameters())
net(torch.arange(10, device="cuda")).sum().backward()
optimizer.step()
found = counted(optimizer, model=net)
grad = net.weight.grad
assert found[1] == bytes_of([grad._indices(), grad._values()]), found
assert found[0] == bytes_of([net.weight]) and found[2] == bytes_of(flat(optimizer.state))


# Code of the job's classes does not run, and tensors that consist of others are those.
class Counting(nn.Parameter):
    calls = 0

    @classmethod
    def __torch_function__(cls, *arguments, **named):
        Counting.calls += 1
        return super().__torch_function__(*arguments, **named)


class Part(torch.Tensor):
    @staticmethod
    def __new__(cls, local):
        return torch.Tensor._make_wrapper_subclass(cls, (128, 64), dtype=local.dtype, device=local.device)

    def __init__(self, local):
        self._local_tensor = local

    def __tensor_flatten__(self):
        raise AssertionError("its code ran")

    @classmethod
    def __torch_dispatch__(cls, *_):
        raise AssertionError("its code ran")


class Slotted(Part):
    __slots__ = ("_inner", "_empty")

    def __init__(self, local):
        self._inner = local


weight, shard = Counting(torch.zeros(64, 64, device="cuda")), torch.zeros(64, 64, device="cuda")
optimizer = torch.optim.SGD([weight], lr=0.1)
optimizer.param_groups[0]["params"] += [Part(shard), Slotted(torch.zeros(64, 64, device="cuda"))]
before = Counting.calls
assert counted(optimizer)[0] == 3 * 16384
assert Counting.calls == before, "the job's code ran"

# Slices: by a clock of its own, each look at which costs 10 µs, of a job whose steps take 40 ms.
_parts._TOGETHER = 1
net = plain(16, 300)
optimizer = torch.optim.AdamW(net.parameters())
backward(net, 16)
optimizer.step()
now = [0.0]


def timer():
    now[0] += 10e-6
    return now[0]


parts, number = Parts(torch, clock=lambda: now[0], timer=timer), 0
parts.see(optimizer)
found = None
while found is None:
    now[0] += 0.04
    number += 1
    begun = now[0]
    found = parts.turn(number, number == 1, lambda: [1])
    # A hundredth of a step, and at most the work between two looks at the clock more.
    assert now[0] - begun <= (0.0008 if number == 1 else 0.0004) + 50e-6, (number, now[0] - begun)
assert found[0] == truth([optimizer], net) and parts.slices == number > 10, (parts.slices, number)
assert parts.longest <= 0.0008 + 20e-6

# The next one is due when something changed: what there is after a second, the level after ten, and after a minute.
def walks(seconds, level):
    now[0] += seconds
    before = parts.slices
    parts.turn(number + 100_000, True, lambda: level)
    return parts.slices > before


assert not walks(9, [1]) and not walks(0.5, [2]) and walks(11, [2])
while parts.is_walking:
    now[0] += 100
    number += 1
    parts.turn(number + 100_000, True, lambda: [2])
optimizer.add_param_group({"params": list(plain(16, 1).parameters())})
assert not walks(0.5, [2]) and walks(1.5, [2])

# A walk that waits for the next step keeps neither optimizer nor model alive; the model's end is no fault.
gone = weakref.ref(net), weakref.ref(optimizer), weakref.ref(net[150].weight)
assert parts.is_walking
net = optimizer = it = layer = None
gc.collect()
assert [it() for it in gone] == [None] * 3
now[0] += 1
parts.turn(number + 200_000, True, lambda: [2])
assert not parts._is_off

# Optimizers of another kind are no fault.
class Odd:
    param_groups, state = "none", 5


parts = Parts(torch)
parts.see(Odd())
parts.see(object())
parts.see(torch.optim.SGD([torch.zeros(3, requires_grad=True)], lr=0.1))
walked(parts, 1)
assert not parts._is_off
print("parts are right")
