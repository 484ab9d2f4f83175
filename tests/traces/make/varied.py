"""Loops around the cases that growth detection finds hardest: one tensor that grows under lengths, sawteeth,
curricula."""

import collections

import torch
from harness import family
from models import Encoder, dense, descend, ids, images, lengths, Vision

TENSORS, SCALARS = ["tensors-retained"], ["scalars-retained"]


@family("leak", "allocated", "features are concatenated, under the noise of sentences of any length", ["growing-tensor"])
def cat_in_lengths(run):
    """The outputs are alive at the end of a step; every few steps some rows are added to one tensor."""
    model, box = Encoder(width=run.pick(32, 48)).cuda(), run.holder(dict)
    optimizer = torch.optim.Adam(model.parameters())
    begin, every, rows = run.near(220, 0.5), run.pick(1, 1, 2, 4), run.pick(8, 24, 64)
    batch, mean, out = run.near(4), run.near(24), None
    for step in run.steps(900):
        out = model(ids(batch, lengths(run, mean, 96)))
        loss = out.square().mean()
        if step >= begin and step % every == 0:
            new = torch.randn(rows, 64, device="cuda")
            box["all"] = torch.cat([box["all"], new]) if box else new
            run.leaks()
        descend(loss, optimizer)


@family("leak", "allocated", "tokens' features of any number are concatenated", ["growing-tensor"])
def tokens_kept(run):
    """Adds one row per word of the sentence, so that steps add different amounts."""
    model, box = Encoder(width=32).cuda(), run.holder(dict)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    begin, out = run.near(250, 0.5), None
    for step in run.steps(800):
        batch = ids(4, lengths(run, 20, 80))
        out = model(batch)
        loss = out.square().mean()
        if step >= begin:
            new = model.token(batch).detach().flatten(0, 1)
            box["all"] = torch.cat([box["all"], new]) if box else new
            run.leaks()
        descend(loss, optimizer)


@family("leak", "allocated", "losses are kept beside a metric that is emptied each epoch", TENSORS + SCALARS, before="sawtooth")
def small_under_epochs(run):
    model, held, metric = dense(32, 64, 16).cuda(), run.holder(), []
    optimizer = torch.optim.Adam(model.parameters())
    begin, epoch, every, each = run.near(350, 0.3), run.near(70, 0.6), run.pick(1, 3, 8), run.pick(1, 2)
    for step in run.steps(1300):
        out = model(torch.randn(64, 32, device="cuda"))
        loss = out.square().mean()
        metric.extend(out.detach().clone() for _ in range(each))
        if step % epoch == 0:
            metric.clear()
        if step >= begin and step % every == 0:
            held.append(loss.detach())
            run.leaks()
        descend(loss, optimizer)


@family("leak", "allocated", "outputs are kept among cycles that the collector frees", TENSORS + SCALARS, before="sawtooth")
def small_under_cycles(run):
    """The collector comes by after about as many steps, never the same number."""
    model, held, cycles, left = dense(64, 96, 16).cuda(), run.holder(), [], 0
    optimizer = torch.optim.AdamW(model.parameters())
    begin, every, period = run.near(400, 0.3), run.pick(2, 5), run.near(60, 0.5)
    for step in run.steps(1400):
        if left == 0:
            cycles.clear()
            left = run.near(period, 0.3)
        left -= 1
        out = model(torch.randn(run.near(48, 0.3), 64, device="cuda"))
        cycles.append(out.detach())
        if step >= begin and step % every == 0:
            held.append(torch.randn(run.pick(4, 8), 64, device="cuda"))
            run.leaks()
        descend(out.square().mean(), optimizer)


@family("healthy")
def lengths_grow(run):
    """A curriculum: sentences grow, a little in each step, and the last outputs are alive when it ends."""
    model, out = Encoder(width=run.pick(32, 48), layers=run.pick(1, 2)).cuda(), None
    optimizer = torch.optim.AdamW(model.parameters())
    first, last, ramp = run.near(12), run.near(80, 0.3), run.near(600, 0.3)
    root, batch = run.pick(0.5, 1, 1), run.pick(4, 8)
    for step in run.steps(900):
        out = model(ids(batch, int(first + (last - first) * min(1, step / ramp) ** root)))
        descend(out.square().mean(), optimizer)


@family("healthy")
def lengths_grow_by_stages(run):
    """A curriculum by stages: each is a little longer than the one before."""
    model, out = Encoder(width=48).cuda(), None
    optimizer = torch.optim.AdamW(model.parameters())
    first, more, stage = run.near(12), run.pick(2, 4, 8), run.near(35, 0.4)
    for step in run.steps(900):
        out = model(ids(6, min(96, first + step // stage * more)))
        descend(out.square().mean(), optimizer)


@family("healthy")
def sorted_lengths(run):
    """Each epoch goes from short sentences to long ones."""
    model, out = Encoder(width=32).cuda(), None
    optimizer = torch.optim.AdamW(model.parameters())
    epoch = sorted(lengths(run, 24, 96) for _ in range(run.near(60, 0.3)))
    for step in run.steps(900):
        out = model(ids(4, epoch[step % len(epoch)]))
        descend(out.square().mean(), optimizer)


@family("healthy")
def batches_grow(run):
    """The batch grows with the steps, up to a limit, and the last outputs are alive."""
    model, out = Vision(8).cuda(), None
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    ramp, most = run.near(500, 0.3), run.near(32, 0.3)
    for step in run.steps(800):
        out = model.features(images(4 + int(most * min(1, step / ramp)), 12))
        descend(out.square().mean(), optimizer)


@family("other", "reserved", "requests that grow find no free block that is large enough", ["fragmentation"])
def requests_grow(run):
    """Holds a block for a moment that is a little larger each time than any released block."""
    model = dense(32, 64, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    begin, every, more, size = run.near(150, 0.4), run.near(12, 0.5), run.pick(2, 4) << 20, 24 << 20
    pins = collections.deque(maxlen=4)
    for step in run.steps(700):
        loss = model(torch.randn(16, 32, device="cuda")).square().mean()
        if step >= begin and (step - begin) % every == 0:
            size += more
            room = torch.empty(size, dtype=torch.uint8, device="cuda")
            del room
            run.leaks()
        descend(loss, optimizer)


@family("bounded", cause="a replay buffer filling up, while sentences are of any length")
def replay_in_lengths(run):
    model, kept, out = Encoder(width=32).cuda(), collections.deque(maxlen=run.near(300, 0.3)), None
    optimizer = torch.optim.AdamW(model.parameters())
    for step in run.steps(900):
        out = model(ids(4, lengths(run, 20, 80)))
        kept.append(torch.randn(run.pick(4, 8), 64, device="cuda"))
        if step == kept.maxlen:
            run.settled()
        descend(out.square().mean(), optimizer)
