"""Loops that keep nothing for good, bounded ones among them: what must not ring."""

import collections
import gc
import time
import weakref

import torch
import torch.nn.functional as F
from harness import family
from models import Encoder, Recurrent, Vision, dense, descend, ids, images, lengths
from torch import nn
from torch.utils.data import DataLoader, Dataset


@family("healthy")
def vision(run):
    """Images of one size, momentum, a scheduler."""
    model = Vision(run.pick(6, 8, 12)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
    batch, side = run.near(12), run.pick(16, 24)
    for _ in run.steps(900):
        loss = F.cross_entropy(model(images(batch, side)), torch.zeros(batch, dtype=torch.long, device="cuda"))
        descend(loss, optimizer)
        schedule.step()


@family("healthy")
def accumulating(run):
    """Mixed precision, gradients of several batches, warm-up and decay of the rate, clipped norms."""
    model = Encoder(width=run.pick(32, 64)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=1000)
    scaler, parts = torch.amp.GradScaler("cuda"), run.pick(2, 3, 5)
    for _ in run.steps(500):
        for _ in range(parts):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model.loss(ids(4, lengths(run, 20, 60))) / parts
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()


@family("healthy")
def alternating(run):
    """Two optimizers by turns, on batches of different size; a critic takes several steps for one of the other."""
    maker, critic = dense(32, 128, 256).cuda(), dense(256, 128, 1).cuda()
    first = torch.optim.Adam(maker.parameters(), lr=1e-4, betas=(0.5, 0.9))
    second = torch.optim.RMSprop(critic.parameters(), lr=5e-5)
    times, batch = run.pick(1, 3, 5), run.near(64)
    for _ in run.steps(700):
        for _ in range(times):
            made = maker(torch.randn(batch, 32, device="cuda")).detach()
            descend(critic(made).mean() - critic(torch.randn(2 * batch, 256, device="cuda")).mean(), second)
        descend(-critic(maker(torch.randn(batch // 2 + 1, 32, device="cuda"))).mean(), first)


@family("healthy")
def best_outputs(run):
    """Evaluation now and then, whose best outputs and best weights are kept, the former ones let go."""
    model = Encoder(width=48).cuda()
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3)
    every, best, outputs = run.near(90, 0.3), float("inf"), None
    for step in run.steps(1100):
        descend(model.loss(ids(6, 24)), optimizer)
        if step % every == 0:
            model.eval()
            with torch.no_grad():
                now = [model(ids(8, lengths(run, 20, 48))) for _ in range(6)]
            score = run.random.random() / step
            if score < best:
                best, outputs = score, (now, {k: v.clone() for k, v in model.state_dict().items()})
            model.train()
    del outputs


@family("healthy")
def lengths_vary(run):
    """Sentences of any length: the noise is large, and nothing grows."""
    model = Encoder(width=run.pick(48, 64), layers=run.pick(1, 2)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    mean, out = run.near(30), None
    for _ in run.steps(900):
        out = model(ids(run.near(6), lengths(run, mean, 160)))
        descend(out.square().mean(), optimizer)


@family("healthy")
def resizing(run):
    """Images grow with the epochs, and shrink again: progressive resizing, in cycles."""
    model = Vision(10).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    sides, epoch = run.pick((12, 16, 20, 28), (16, 24, 20)), run.near(60, 0.2)
    for step in run.steps(1000):
        x = images(8, sides[step // epoch % len(sides)])
        out = model(x)
        descend(out.logsumexp(1).mean(), optimizer)


@family("healthy")
def tiny(run):
    """As small and as long as can be: a hundred thousand steps."""
    model, x = nn.Linear(16, 4).cuda(), torch.randn(8, 16, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in run.steps(110_000):
        descend(model(x).sum(), optimizer)


@family("healthy")
def long_lengths(run):
    """A hundred thousand steps over sequences of any length, with an evaluation now and then."""
    model = nn.Sequential(nn.Embedding(200, 24), dense(24, 48, 200)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    mean, every, out = run.near(40), run.near(2500, 0.3), None
    for step in run.steps(104_000):
        out = model(ids(run.near(4), lengths(run, mean, 400), 200))
        descend(out.logsumexp(-1).mean(), optimizer)
        if step % every == 0:
            with torch.no_grad():
                for _ in range(8):
                    out = model(ids(16, 200, 200))


@family("healthy")
def tabular(run):
    """A network over columns, whose last batch of each epoch is smaller."""
    model = dense(run.near(40), 128, 64, 1)
    width, model = model[0].in_features, model.cuda()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=1e-2)
    epoch, batch = run.near(70, 0.3), run.near(500)
    for step in run.steps(run.pick(1200, 1500)):
        size = batch // 3 if step % epoch == 0 else batch
        out = model(torch.randn(size, width, device="cuda"))
        descend(out.square().mean(), optimizer)


@family("healthy")
def frames_kept(run):
    """An exception is caught and kept: its frames keep a step's tensors, once."""
    model = dense(64, 256, 256, 8).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    at, failure = run.near(300, 0.3), None

    def forward(x):
        hidden = model[:4](x)
        if run.step == at:
            raise ValueError("a batch that is not as it should be")
        return model[4:](hidden)

    for _ in run.steps(900):
        try:
            loss = forward(torch.randn(400, 64, device="cuda")).square().mean()
        except ValueError as error:
            failure, loss = error, model(torch.randn(4, 64, device="cuda")).mean()
        descend(loss, optimizer)
    del failure


@family("healthy")
def averaged(run):
    """Weights are averaged from a certain step on: one lasting jump."""
    model, begin = Recurrent(24, 48).cuda(), run.near(350, 0.4)
    optimizer, average = torch.optim.Adamax(model.parameters()), None
    for step in run.steps(800):
        out, _ = model(torch.randn(16, 6, 24, device="cuda"), torch.zeros(16, 48, device="cuda"))
        descend(out.square().mean(), optimizer)
        if step == begin:
            average = torch.optim.swa_utils.AveragedModel(model)
        elif average is not None and step % 5 == 0:
            average.update_parameters(model)


@family("healthy", tolerate=["host"])
def loaded_by_workers(run):
    """Batches come from forked workers through pinned memory."""

    class Numbers(Dataset):
        def __len__(self):
            return 4000

        def __getitem__(self, at):
            return torch.full((256,), float(at))

    model = dense(256, 64, 1).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(Numbers(), batch_size=16, num_workers=2, pin_memory=True, persistent_workers=True)
    count = run.steps(750)
    for _ in range(3):
        for x in loader:
            next(count)
            descend(model(x.cuda(non_blocking=True)).square().mean(), optimizer)


@family("healthy", tolerate=["device"])
def neighbour_moves(run):
    """Another process on the device allocates and frees, again and again; the trace's own job is steady."""
    model = dense(64, 64, 1).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in run.steps(800):
        time.sleep(0.06)
        descend(model(torch.randn(32, 64, device="cuda")).square().mean(), optimizer)


@family("healthy")
def serving(run):
    """No optimizer at all: requests of any length are answered, and only the clock makes rows."""
    model = Encoder(width=64).cuda().eval()
    deadline = time.monotonic() + 450
    with torch.no_grad():
        while time.monotonic() < deadline:
            answer = model(ids(4, lengths(run, 30, 200)))
            time.sleep(0.05)
            del answer


@family("bounded", cause="a buffer of past transitions filling up")
def replay(run):
    """Transitions on the device, in a buffer of fixed length."""
    actor = dense(24, 64, 4).cuda()
    optimizer = torch.optim.Adam(actor.parameters())
    most, shape = run.near(280, 0.3), run.pick((4, 24), (16, 24), (64, 24))
    buffer = collections.deque(maxlen=most)
    for step in run.steps(1000):
        buffer.append((torch.randn(shape, device="cuda"), torch.randn(shape[0], device="cuda")))
        if step == most:
            run.settled()
        x, reward = buffer[run.random.randrange(len(buffer))]
        descend((actor(x).mean(1) * reward).mean(), optimizer)


@family("bounded", cause="a cache that forgets what was used least recently, filling up")
def lru(run):
    """Features by key, the keys by Zipf's law, the cache of a fixed number of entries."""
    model = dense(128, 32, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    most, cache = run.near(200, 0.3), collections.OrderedDict()
    for _ in run.steps(1300):
        for _ in range(3):
            key = int(run.random.paretovariate(0.6))
            if key in cache:
                cache.move_to_end(key)
            else:
                cache[key] = torch.randn(run.pick(1, 1, 2), 128, device="cuda")
                if len(cache) > most:
                    cache.popitem(last=False)
                elif len(cache) == most and run.benign_until is None:
                    run.settled()
        descend(model(next(reversed(cache.values()))).mean(), optimizer)


@family("bounded", cause="a memo table over finitely many keys, filling up ever more slowly")
def memo(run):
    """Each key's answer is computed once and kept; there are only so many keys."""
    model, keys, table = dense(96, 64, 8).cuda(), run.near(150, 0.3), {}
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in run.steps(run.pick(1400, 1800)):
        key = run.random.randrange(keys)
        if key not in table:
            table[key] = torch.randn(run.pick(8, 8, 9), 96, device="cuda")
            run.settled()
        descend(model(table[key]).square().mean(), optimizer)


@family("bounded", cause="an optimizer's memory of past directions filling up")
def quasi_newton(run):
    """LBFGS remembers a fixed number of steps."""
    model = dense(40, 60, 1).cuda()
    most = run.near(60, 0.3)
    optimizer = torch.optim.LBFGS(
        model.parameters(), lr=0.1, max_iter=1, history_size=most, tolerance_grad=-1, tolerance_change=-1
    )

    def closure():
        optimizer.zero_grad()
        loss = model(torch.randn(64, 40, device="cuda")).square().mean()
        loss.backward()
        return loss

    for step in run.steps(500):
        optimizer.step(closure)
        if step == most + 1:
            run.settled()


@family("bounded", cause="layers are unfrozen one after another, each with its optimizer's state")
def unfreezing(run):
    """From the head down, a layer begins to learn every few steps."""
    model = dense(*[128] * 7, 4).cuda().requires_grad_(False)
    layers = [it for it in reversed(model) if isinstance(it, nn.Linear)]
    every = run.near(60, 0.3)
    layers[0].requires_grad_(True)
    optimizer = torch.optim.AdamW(layers[0].parameters())
    for step in run.steps(1100):
        if step % every == 0 and step // every < len(layers):
            layer = layers[step // every].requires_grad_(True)
            optimizer.add_param_group({"params": list(layer.parameters())})
            run.settled()
        descend(model(torch.randn(64, 128, device="cuda")).square().mean(), optimizer)


@family("bounded", cause="outputs are kept for a report, until there are enough of them")
def stops(run):
    """A leak that ends: so many outputs are kept, and no more."""
    model = dense(64, 128, 32).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    begin, most, kept = run.near(150, 0.4), run.near(250, 0.3), []
    for step in run.steps(1100):
        out = model(torch.randn(48, 64, device="cuda"))
        if step >= begin and len(kept) < most:
            kept.append(out.detach())
            run.settled()
        descend(out.square().mean(), optimizer)


@family("sawtooth", cause="a metric keeps an epoch's predictions and begins anew with the next")
def epoch_metric(run):
    """Predictions and targets of an epoch; the epochs are of different length."""
    model = dense(32, 64, 10).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    kept, end, mean = [], 0, run.near(110, 0.4)
    for step in run.steps(1300):
        if step > end:
            kept.clear()
            run.fell()
            end = step + run.near(mean, 0.15)
        out = model(torch.randn(run.pick(60, 64), 32, device="cuda"))
        kept.append((out.detach(), torch.zeros(64, dtype=torch.long, device="cuda")))
        descend(out.logsumexp(1).mean(), optimizer)


@family("sawtooth", cause="objects that refer to each other, freed when the collector comes by")
def cycles(run):
    """Each step's record refers to itself; the collector runs every few hundred objects."""

    class Record:
        def __init__(self, out):
            self.out, self.me = out, self

    model = dense(64, 96, 16).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    gc.collect()
    gc.disable()
    every = run.near(120, 0.3)
    for _ in run.steps(1200):
        out = model(torch.randn(run.near(64, 0.2), 64, device="cuda"))
        Record(out.detach())
        descend(out.square().mean(), optimizer)
        # The collector's own threshold counts objects that vary from version to version; this counts steps.
        if run.random.random() < 1 / every:
            gc.collect()
            run.fell()
    gc.enable()


@family("sawtooth", cause="keys and values of one sequence, dropped at its end")
def decoding(run):
    """A small step of adaptation for each token decoded; a sequence's keys and values grow until it ends."""
    model = dense(64, 192).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    cache, left = [], 0
    for _ in run.steps(1400):
        if left == 0:
            run.fell()
            cache, left = [], run.near(90, 0.5)
        left -= 1
        out = model(torch.randn(8, 64, device="cuda"))
        cache.append(out.detach().view(8, 3, 64)[:, 1:].clone())
        descend(out.square().mean() + torch.stack(cache[-4:]).mean(), optimizer)


@family("bounded", cause="a window over the last steps' memories, filling up")
def window(run):
    """Memories of past segments are concatenated, and cut to a window."""
    model = dense(48, 96, 48).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    most, memory = run.near(160, 0.3), torch.empty(0, 48, device="cuda")
    each = run.pick(4, 16)
    for step in run.steps(900):
        out = model(torch.randn(each, 48, device="cuda"))
        memory = torch.cat([memory, out.detach()])[-most * each :]
        if step == most:
            run.settled()
        descend(out.square().mean() + memory.mean(), optimizer)


@family("healthy")
def weak_registry(run):
    """Activations are registered, but weakly: the registry knows many and keeps none."""
    model, registry = dense(64, 128, 16).cuda(), weakref.WeakValueDictionary()
    optimizer = torch.optim.Adam(model.parameters())
    model[0].register_forward_hook(lambda _, __, out: registry.__setitem__(run.step, out))
    for _ in run.steps(800):
        descend(model(torch.randn(run.near(80, 0.4), 64, device="cuda")).square().mean(), optimizer)


@family("healthy")
def restarted(run):
    """The same run begins twice at its first step; the second life loads what the first one saved."""
    model = dense(48, 128, 16).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    saved = {k: v.cpu() for k, v in model.state_dict().items()} if run.life else None
    for step in run.steps(700 if run.life else 450):
        if step == 2 and saved:
            model.load_state_dict(saved)
        descend(model(torch.randn(run.near(64, 0.3), 48, device="cuda")).square().mean(), optimizer)


@family("healthy")
def overrun(run):
    """The probe stands still for a while: rows are lost, and the probe reports them."""
    model, x = nn.Linear(16, 4).cuda(), torch.randn(8, 16, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    run.stall(4_000, 11_000)
    for _ in run.steps(14_000):
        descend(model(x).sum(), optimizer)
