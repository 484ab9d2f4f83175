"""Trains for some steps with a history of allocations, writes a snapshot, and prints what a script counts itself of it:
at the end, and at the highest moment of the history; in bytes of blocks, by where the objects of the job are."""

import copy
import json
import os
import sys

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
from moments import TRAININGS

WORKSPACE = 8_519_680
STEPS = 3

kept = []


def buffers():
    """Normalised by batch, with buffers, a frozen average and a cache on the device."""
    net = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 10))
    net[0].register_buffer("mask", torch.ones(300, 300))
    net.cuda()
    kept.append(copy.deepcopy(net))
    kept.append(torch.ones(1 << 18, device="cuda"))
    optimizer = torch.optim.AdamW(net.parameters())

    def step():
        net(torch.ones(16, 3, 8, 8, device="cuda")).square().mean().backward()
        optimizer.step()

    return [net], [optimizer], step


def on_device():
    """Parameters that modules make on the device themselves."""
    with torch.device("cuda"):
        net = nn.Sequential(nn.Linear(64, 256), nn.LayerNorm(256), nn.GELU(), nn.Linear(256, 8))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step():
        net(torch.ones(64, 64, device="cuda")).square().mean().backward()
        optimizer.step()

    return [net], [optimizer], step


def leaking():
    """Outputs of each step are kept, and an average of the weights is made in the course."""
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).cuda()
    optimizer = torch.optim.Adam(net.parameters())

    def step():
        out = net(torch.ones(64, 64, device="cuda"))
        out.square().mean().backward()
        optimizer.step()
        kept.append(out.detach())
        if len(kept) == 2:
            kept.append(torch.optim.swa_utils.AveragedModel(net))

    return [net], [optimizer], step


def hooked():
    """The optimizer's step is a hook of each gradient, and backward begins at a hook of the job."""
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8)).cuda()
    optimizers = [torch.optim.AdamW([it]) for it in net.parameters()]
    for it, optimizer in zip(net.parameters(), optimizers):
        it.register_post_accumulate_grad_hook(lambda _, optimizer=optimizer: optimizer.step())

    def step():
        out = net(torch.ones(64, 64, device="cuda"))
        out.register_hook(lambda it: it * 2)
        out.square().mean().backward()

    return [net], optimizers, step


def other_thread():
    """A thread copies batches to the device while the other one trains."""
    import threading

    net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(6)]).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    def step():
        threads = [threading.Thread(target=lambda: [torch.ones(99, 64, device="cuda") for _ in range(20)]) for _ in range(3)]
        for it in threads:
            it.start()
        net(torch.ones(64, 64, device="cuda")).square().mean().backward()
        optimizer.step()
        for it in threads:
            it.join()

    return [net], [optimizer], step


for it in (buffers, on_device, leaking, hooked, other_thread):
    TRAININGS[it.__name__] = it


def main(name, file, stacks):
    torch.cuda.memory._record_memory_history(stacks=stacks)
    modules, optimizers, step = TRAININGS[name]()
    # Frozen ones that the step calls as well.
    held = [it.cell_contents for it in step.__closure__ or ()]
    modules = {id(it): it for it in modules + [it for it in held if isinstance(it, nn.Module)]}.values()
    ends, gradients = [events()], []
    parameters = [it for module in modules for it in module.parameters()]
    for number in range(STEPS):
        for it in optimizers:
            it.zero_grad()
        step()
        ends.append(events())
        gradients.append(places(it.grad for it in parameters))
    states = [it for one in optimizers for of in one.state.values() for it in flat(of)]
    held = torch.cuda.memory._snapshot()
    torch.cuda.memory._dump_snapshot(file)
    sets = [("weights", places(parameters)), ("optimizer", places(states)), ("gradients", gradients[-1])]
    blocks = [it for segment in held["segments"] for it in segment["blocks"] if it["state"] == "active_allocated"]
    end = {"allocated": sum(it["size"] for it in blocks)}
    for part, of in sets:
        end[part] = sum(it["size"] for it in blocks if it["address"] in of)
    print(json.dumps({"end": end, "peak": peak(held["device_traces"][0], sets[:2], ends, gradients)}))


def events():
    return len(torch.cuda.memory._snapshot()["device_traces"][0])


def flat(of):
    for it in of.values() if isinstance(of, dict) else of if isinstance(of, (list, tuple)) else [of]:
        if isinstance(it, (dict, list, tuple)):
            yield from flat(it)
        elif isinstance(it, torch.Tensor):
            yield it


def places(tensors):
    return {it.untyped_storage().data_ptr() for it in tensors if it is not None and it.is_cuda}


def peak(trace, sets, ends, gradients):
    """The parts of the highest moment; what is none of them was made by a step, or is older than all steps."""
    born, lives, now, highest, moment = {}, [], 0, 0, 0
    for at, event in enumerate(trace):
        if event["action"] == "alloc":
            born[event["addr"]] = (at, event["size"])
            now += event["size"]
        elif event["action"] == "free_requested":
            begin, size = born.pop(event["addr"])
            lives.append((event["addr"], begin, at, size))
            now -= size
        if now > highest:
            highest, moment = now, at
    lives += [(address, begin, len(trace), size) for address, (begin, size) in born.items()]
    found = dict.fromkeys(("weights", "optimizer", "gradients", "step", "other"), 0)
    for address, begin, end, size in lives:
        if not begin <= moment < end:
            continue
        part = next((name for name, of in sets if address in of and end == len(trace)), None)
        was_gradient = any(begin < at < end and address in of for at, of in zip(ends[1:], gradients))
        is_kept = size == WORKSPACE or begin < ends[0] or end == len(trace) and begin < max(it for it in ends if it <= moment)
        part = part or ("gradients" if was_gradient else "other" if is_kept else "step")
        found[part] += -(-size // 512) * 512
    return found


main(*sys.argv[1:])
