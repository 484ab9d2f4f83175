"""Trainings whose way depends on values of the device: `values.py CASE`."""

import math
import sys
import time

import torch
from torch.distributions import Categorical, Gamma, Independent, Normal

case = sys.argv[1]
if case == "processor":
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    while True:
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()  # processor

net = torch.nn.Linear(1024, 512).cuda()
head = torch.nn.Linear(512, 20_000).cuda()
parameters = [*net.parameters(), *head.parameters()]
optimizer = torch.optim.AdamW(parameters)
scaler = torch.amp.GradScaler("cuda", enabled=case == "healthy")


def is_broken(x):
    return not bool(torch.isfinite(x).all())


def check(loss, x, out):
    """What careful programs check."""
    assert torch.isfinite(loss)
    if torch.isnan(loss) or torch.isinf(loss).any():
        raise FloatingPointError("nan")
    ok = torch.isfinite(loss).item()
    if not ok or is_broken(out) or torch.isnan(x).sum() > 0 or not (x == x).all():
        raise FloatingPointError("broken")
    if x.min() < -10 or not (x.softmax(-1) <= 1).all():
        raise ValueError("range")
    assert torch.allclose(x, x) and (loss.detach() < float("inf")).item()
    mean = Independent(Normal(out, out.exp()), 1).log_prob(out).mean()
    Categorical(logits=out).sample()
    Gamma(out.exp(), out.exp()).mean
    with torch.inference_mode():
        assert torch.isfinite(mean) and not torch.isnan(net(x)).any()
    flags = torch.ones(3, dtype=torch.long, device="cuda") & (x[:3, 0] == x[:3, 0])
    flags &= True
    assert (flags | 0 == 1).all() and (True & (flags == 1)).all() and torch.tensor(2.0) != x[0, 0]
    ratio = 1 / loss.item() + 1 / (x > 0).sum().item()
    assert ratio > 0 and scaler.get_scale() > 0
    traced = torch.compile(lambda it: torch.where(torch.isfinite(it), it, 0).sum(), fullgraph=True, backend="aot_eager")
    traced(x)


def divide(x):
    """What is counted is divided by, there or by a name, in a library, too."""
    hits = (x.argmax(-1) == 3).long().sum()
    rate, kept = x.mean() / hits.item(), int(hits)
    share = 100 % kept
    counted = torch.nn.BatchNorm1d(x.shape[1], momentum=None).cuda()
    counted(x)
    return rate * share * math.log(x.argmax(0)[0].item())


def loops(x):
    """What ends by a value alone."""
    error = torch.ones((), device="cuda")
    while error > 1e-6:  # test
        error = error * 0.5
    number = 1.0
    while number > 1e-6:
        number = (x.mean() / 2).item()  # number
    token = 0
    while token != 30:
        token = x[0].argmax().item()
    while True:
        if (torch.rand(3, device="cuda") > 0.5).all():  # rejection
            break


def rows(x):
    if case == "masked":
        x = x[x[:, 0] > 2]
    elif case == "found":
        x = x.index_select(0, (x[:, 0] > 2).nonzero().flatten())
        values, counts = torch.unique(x[:, 0], return_counts=True)
        assert len(values) == len(counts) and x[x[:, 1] > 1].dim() == 2
    return x


for step in range(10):
    x = torch.randn(4096, 1024, device="cuda")
    if case == "endless":
        while True:
            net(x)  # endless
            time.sleep(0.01)
    out = net(rows(x))
    loss = head(out).square().mean()
    if case == "never" and (loss < 3).cpu():  # never
        optimizer.step()
    if case == "stops" and step == 1 and torch.median(x).item() < 3:  # stops
        sys.exit()
    if case == "fails":
        raise IndexError([1][torch.ones(3, device="cuda").argmax().item() + 1])  # fails
    if case == "loops":
        loops(x)
    if case == "assigned":
        some, few = torch.zeros(4096, device="cuda"), torch.zeros(4096, dtype=torch.bool, device="cuda")
        few[:300] = True
        some[few] = x[:300, 0]
        pairs, both = torch.zeros(64, 64, 3, device="cuda"), (x[:64, :64] > 0) & (x[:64, :64] < 0)
        pairs[both] = torch.ones(7, 3, device="cuda")
        pairs[both] = 0.5
        pairs[0, both[0]] = torch.ones(1, 3, device="cuda")
    if case == "divides":
        divide(x.detach())
    if case == "never":
        continue
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
    if case == "healthy":
        check(loss, x, out)
        if not torch.isfinite(norm):
            optimizer.zero_grad()
            continue
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
