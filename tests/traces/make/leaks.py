"""Loops that leak, each in a way that occurs in practice: each records when it begins and what it retains."""

import time

import numpy
import torch
import torch.nn.functional as F
from harness import family
from models import Encoder, Recurrent, Vision, dense, descend, ids, images, lengths
from torch import nn
from torch.utils.data import DataLoader, Dataset

TENSORS, SCALARS, GRAPH = ["tensors-retained"], ["scalars-retained"], ["graph-retained"]


@family("leak", "allocated", "a forward hook appends each activation to a list", TENSORS)
def hooked(run):
    model, held = dense(64, run.pick(96, 160), 8).cuda(), run.holder()
    optimizer = torch.optim.AdamW(model.parameters())
    begin = run.near(120, 0.5)

    def keep(_, __, out):
        held.append(out.detach())
        run.leaks()

    for step in run.steps(700):
        if step == begin:
            model[0].register_forward_hook(keep)
        descend(model(torch.randn(40, 64, device="cuda")).square().mean(), optimizer)


@family("leak", "allocated", "a recurrent state is carried over without being detached, and its graph with it", GRAPH)
def state_carried(run):
    """The recurrence is a sum, so that the optimizer's writes do not upset the graph that is kept."""
    enter = run.outlives(nn.Linear(24, 40).cuda())
    optimizer = torch.optim.SGD(enter.parameters(), lr=1e-3)
    box, begin = run.holder(dict), run.near(60, 0.5)
    for step in run.steps(260):
        state = torch.tanh(enter(torch.randn(16, 24, device="cuda")))
        if step >= begin:
            state = box["state"] = 0.5 * box.get("state", 0) + state
            run.leaks()
        state.sum(1).mean().backward(retain_graph=step >= begin)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@family("leak", "allocated", "a running mean of a loss that nobody goes back through keeps every graph", GRAPH)
def running_mean(run):
    model, aux = dense(48, 64, 32).cuda(), run.outlives(dense(32, 32, 1).cuda())
    optimizer = torch.optim.Adam([*model.parameters(), *aux.parameters()])
    box, begin, every = run.holder(dict), run.near(150, 0.5), run.pick(1, 2)
    for step in run.steps(600):
        out = model(torch.randn(32, 48, device="cuda"))
        if step >= begin and step % every == 0:
            extra = aux(torch.randn(64, 32, device="cuda")).square().mean()
            box["mean"] = 0.99 * box["mean"] + 0.01 * extra if box else extra
            run.leaks()
        descend(out.square().mean(), optimizer)


@family("leak", "allocated", "backward(retain_graph=True), and the loss kept with its graph", GRAPH)
def loss_kept(run):
    model, held = run.outlives(Vision(6).cuda()), run.holder()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    begin = run.near(80, 0.5)
    for step in run.steps(400):
        loss = model(images(4, 12)).logsumexp(1).mean()
        if step >= begin:
            held.append(loss)
            run.leaks()
        loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@family("leak", "allocated", "a memory bank grows by concatenation and is never cut", ["growing-tensor"])
def bank(run):
    model, box = dense(48, 96, 64).cuda(), run.holder(dict)
    optimizer = torch.optim.Adam(model.parameters())
    begin, each = run.near(200, 0.5), run.pick(16, 32)
    for step in run.steps(800):
        out = F.normalize(model(torch.randn(each, 48, device="cuda")), dim=1)
        loss = out.square().mean()
        if step >= begin:
            box["bank"] = torch.cat([box["bank"], out.detach()]) if box else out.detach().clone()
            run.leaks()
        descend(loss, optimizer)


@family("leak", "allocated", "a dictionary of embeddings by sample, which is never emptied", TENSORS + SCALARS)
def by_sample(run):
    """Every sample of a stream is new; a few come twice, and replace what was there."""
    model, held = Encoder(width=32, layers=1).cuda(), run.holder(dict)
    optimizer = torch.optim.AdamW(model.parameters())
    begin = run.near(100, 0.5)
    for step in run.steps(700):
        batch = ids(4, 12)
        if step >= begin:
            with torch.no_grad():
                for row in model.token(batch):
                    key = run.random.randrange(10**9) if run.random.random() > 0.05 or not held else next(iter(held))
                    held[key] = row.mean(0).clone()
            run.leaks()
        descend(model.loss(batch), optimizer)


@family("leak", "allocated", "losses are kept as tensors, under the noise of sentences of any length", SCALARS)
def small_in_lengths(run):
    model, held = Encoder(width=64).cuda(), run.holder()
    optimizer = torch.optim.Adam(model.parameters())
    begin, out = run.near(200, 0.5), None
    for step in run.steps(900):
        out = model(ids(run.near(6), lengths(run, 30, 160)))
        loss = out.square().mean()
        if step >= begin:
            held.append(loss.detach())
            run.leaks()
        descend(loss, optimizer)


@family("leak", "allocated", "after hundreds of quiet steps, outputs begin to be kept", TENSORS)
def begins_late(run):
    model, held = Recurrent(16, 40).cuda(), run.holder()
    optimizer = torch.optim.RAdam(model.parameters())
    begin = run.near(1100, 0.15)
    for step in run.steps(1500):
        out, state = model(torch.randn(12, 4, 16, device="cuda"), torch.zeros(12, 40, device="cuda"))
        if step >= begin:
            held.append(state.detach())
            run.leaks()
        descend(out.square().mean(), optimizer)


@family("leak", "allocated", "two leaks at once: losses every step, outputs every few", TENSORS + SCALARS)
def two_at_once(run):
    model, losses, outputs = dense(64, 128, 48).cuda(), run.holder(), run.holder()
    optimizer = torch.optim.Adam(model.parameters())
    begin, every = run.near(150, 0.5), run.pick(3, 7)
    for step in run.steps(800):
        out = model(torch.randn(run.near(50, 0.1), 64, device="cuda"))
        loss = out.square().mean()
        if step >= begin:
            losses.append(loss.detach())
            run.leaks()
            if step % every == 0:
                outputs.append(torch.randn(64, 48, device="cuda"))
        descend(loss, optimizer)


@family("leak", "allocated", "a validation keeps its predictions, every so many steps", TENSORS)
def validations(run):
    model, held = Vision(8).cuda(), run.holder()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    every = run.near(25, 0.3)
    for step in run.steps(1000):
        if step % every == 0 and step >= 6 * every:
            with torch.no_grad():
                for _ in range(3):
                    held.append(model.features(images(16, 12)))
            run.leaks()
        descend(model(images(6, 12)).logsumexp(1).mean(), optimizer)


@family("leak", "allocated", "a callback keeps locals(), and every tensor of the step with them", TENSORS)
def locals_kept(run):
    model, held = run.outlives(dense(40, 80, 20).cuda()), run.holder()
    optimizer = torch.optim.Adam(model.parameters())
    begin = run.near(170, 0.5)

    def forward(size):
        x = torch.randn(size, 40, device="cuda")
        with torch.no_grad():
            hidden = model[0](x)
            scores = hidden.softmax(1)
        if run.step >= begin:
            held.append(dict(locals()))
            run.leaks()
        return model(x).mean() + scores.mean()

    for _ in run.steps(700):
        descend(forward(run.near(40, 0.3)), optimizer)


@family("leak", "allocated", "prototypes are added to the optimizer and never taken out", TENSORS)
def prototypes(run):
    """Each new prototype is a parameter, a gradient and two moments."""
    model, held = dense(32, 64, 64).cuda(), []
    optimizer = run.outlives(torch.optim.Adam(model.parameters(), foreach=False))
    begin, every = run.near(100, 0.4), run.pick(2, 4)

    def forget():
        for it in held:
            optimizer.state.pop(it, None)
        del optimizer.param_groups[1:]
        held.clear()

    run.empty.append(forget)
    for step in run.steps(500):
        if step >= begin and step % every == 0:
            new = nn.Parameter(torch.randn(2, 64, device="cuda"))
            held.append(new)
            optimizer.add_param_group({"params": [new]})
            run.leaks()
        loss = model(torch.randn(24, 32, device="cuda")).square().mean()
        descend(sum((it.square().mean() for it in held), loss), optimizer)


@family("leak", "allocated", "at random, one step in several keeps a batch", TENSORS)
def now_and_then(run):
    model, held = dense(64, 64, 1).cuda(), run.holder()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    begin, chance = run.near(120, 0.5), run.pick(0.15, 0.3)
    for step in run.steps(900):
        x = torch.randn(run.near(64, 0.1), 64, device="cuda")
        if step >= begin and run.random.random() < chance:
            held.append(x)
            run.leaks()
        descend(model(x).square().mean(), optimizer)


@family("leak", "allocated", "outputs are kept beside a metric that is emptied each epoch", TENSORS, before="sawtooth")
def under_epochs(run):
    model, held, metric = dense(32, 64, 16).cuda(), run.holder(), []
    optimizer = torch.optim.Adam(model.parameters())
    begin, epoch = run.near(350, 0.3), run.near(80, 0.2)
    for step in run.steps(1400):
        out = model(torch.randn(64, 32, device="cuda"))
        metric.append(out.detach())
        if step % epoch == 0:
            metric.clear()
        if step >= begin and step % 2 == 0:
            held.append(out.detach()[:16].clone())
            run.leaks()
        descend(out.square().mean(), optimizer)


@family("leak", "pinned", "pinned staging buffers are made anew and kept", ["pinned-growth"], tolerate=["host"])
def staging(run):
    model, held = dense(64, 64, 1).cuda(), run.holder()
    optimizer = torch.optim.Adam(model.parameters())
    begin = run.near(250, 0.3)
    for step in run.steps(1100):
        time.sleep(0.045)
        x = torch.randn(32, 64)
        if step >= begin:
            buffer = torch.empty(64, run.pick(40, 64), pin_memory=True)
            held.append(buffer)
            run.leaks()
        descend(model(x.cuda()).square().mean(), optimizer)


@family("other", "host", "predictions are kept on the host as arrays", ["host-growth"])
def arrays(run):
    model, held = dense(64, 64, 1).cuda(), run.holder()
    optimizer = torch.optim.Adam(model.parameters())
    begin = run.near(250, 0.3)
    for step in run.steps(1000):
        time.sleep(0.04)
        out = model(torch.randn(32, 64, device="cuda"))
        if step >= begin:
            held.append(numpy.ones(run.pick(40_000, 50_000, 60_000)))
            run.leaks()
        descend(out.square().mean(), optimizer)


@family("other", "host", "batches that workers loaded are kept for a later look", ["host-growth"])
def batches_kept(run):
    class Numbers(Dataset):
        def __len__(self):
            return 900 * 16

        def __getitem__(self, at):
            return torch.full((4096,), float(at))

    model, held = dense(4096, 16, 1).cuda(), run.holder()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    begin, count = run.near(250, 0.3), run.steps(900)
    for x in DataLoader(Numbers(), batch_size=16, num_workers=2):
        next(count)
        time.sleep(0.03)
        if run.step >= begin:
            held.append(x.clone())
            run.leaks()
        descend(model(x.cuda()).square().mean(), optimizer)


@family("other", "device", "another process on the device allocates more and more", ["driver-growth", "other-process"])
def neighbour_grows(run):
    """The maker starts the neighbour; it writes to a file when it began, and by how much it grew."""
    model = dense(64, 64, 1).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in run.steps(900):
        time.sleep(0.05)
        descend(model(torch.randn(32, 64, device="cuda")).square().mean(), optimizer)


@family("leak", "allocated", "answers are kept by a server that has no optimizer; only the clock makes rows", TENSORS)
def serving_leaks(run):
    model, held = Encoder(width=64).cuda().eval(), run.holder()
    start = time.monotonic()
    begin = run.near(20, 0.3)
    with torch.no_grad():
        while time.monotonic() < start + 600:
            answer = model(ids(4, lengths(run, 30, 200)))
            # Rows come once a second: a second is this run's step.
            run.step = int(time.monotonic() - start) + 1
            if run.step >= begin:
                held.append(answer[:, 0].clone())
                run.leaks()
            time.sleep(0.05)
            del answer


@family("leak", "allocated", "every output is kept, in a backend that counts no blocks", TENSORS)
def plain_outputs(run):
    model, held = dense(64, 256, 128).cuda(), run.holder()
    optimizer = torch.optim.Adam(model.parameters())
    begin, size = run.near(200, 0.5), run.pick(64, 200)
    for step in run.steps(800):
        out = model(torch.randn(run.near(size, 0.3), 64, device="cuda"))
        if step >= begin:
            held.append(out.detach()[: size // 2].clone())
            run.leaks()
        descend(out.square().mean(), optimizer)


@family("leak", "allocated", "outputs are kept all along a long run", TENSORS)
def long_outputs(run):
    """Long enough that a late viewer receives the beginning at a stride."""
    model, held = nn.Linear(16, 8).cuda(), run.holder()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    begin, x = run.near(30_000, 0.3), torch.randn(64, 16, device="cuda")
    for step in run.steps(100_000):
        out = model(x)
        if step >= begin and step % 4 == 0:
            held.append(out.detach())
            run.leaks()
        descend(out.sum(), optimizer)


@family("leak", "allocated", "after a restart the job keeps outputs, which it did not do in its first life", TENSORS)
def restarted_leaks(run):
    """Steps are the second life's; the first one, in the same trace, is healthy and shorter than the start."""
    model, held = dense(48, 96, 24).cuda(), run.holder()
    optimizer = torch.optim.AdamW(model.parameters())
    begin = run.near(420, 0.1)
    for step in run.steps(900 if run.life else 300):
        out = model(torch.randn(run.near(48, 0.2), 48, device="cuda"))
        if run.life and step >= begin:
            held.append(out.detach()[:32].clone())
            run.leaks()
        descend(out.square().mean(), optimizer)


@family("leak", "allocated", "outputs are kept, while the probe's queue overruns twice", TENSORS)
def overrun_leaks(run):
    model, held = nn.Linear(16, 24).cuda(), run.holder()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    begin, x = run.near(10_000, 0.1), torch.randn(64, 16, device="cuda")
    run.stall(3_000, 8_500)
    run.stall(12_500, 18_500)
    for step in run.steps(20_000):
        out = model(x)
        if step >= begin and step % 8 == 0:
            held.append(out.detach())
            run.leaks()
        descend(out.sum(), optimizer)
