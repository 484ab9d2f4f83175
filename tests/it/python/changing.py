"""Trainings that are unusual, or change while they run: each function returns the modules, the optimizers, a step, and
what `change` does to it, each as lists or functions that stay the same objects."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def layers(count=4, width=128):
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(count)]).cuda()


def trained(net, optimizers, clear=lambda it: it.zero_grad()):
    """Returns a step that trains a model with all its optimizers."""

    def step():
        for it in optimizers:
            clear(it)
        net(torch.ones(32, 128, device="cuda")).square().mean().backward()
        for it in optimizers:
            it.step()

    return step


def nothing():
    pass


def stochastic_average():
    """An average of the weights that begins in the middle of the run."""
    net, averages = layers(), []
    optimizers = [torch.optim.AdamW(net.parameters())]
    train = trained(net, optimizers)

    def step():
        train()
        for it in averages:
            it.update_parameters(net)

    return [net], optimizers, step, lambda: averages.append(AveragedModel(net))


def moving_average():
    """A moving average beside the model, and another one of plain tensors."""
    net = layers()
    optimizers = [torch.optim.AdamW(net.parameters())]
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.99), use_buffers=True)
    shadow = {name: it.detach().clone() for name, it in net.named_parameters()}
    train = trained(net, optimizers)

    def step():
        train()
        average.update_parameters(net)
        for name, it in net.named_parameters():
            shadow[name].lerp_(it.detach(), 0.01)

    # The averages take the place of the weights.
    return [net], optimizers, step, lambda: net.load_state_dict(average.module.state_dict())


class Adapted(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base, self.is_merged = base.requires_grad_(False), False
        self.down = nn.Parameter(torch.ones(rank, base.in_features, device="cuda"))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, device="cuda"))

    def forward(self, x):
        return self.base(x) if self.is_merged else self.base(x) + x @ self.down.t() @ self.up.t()


def adapters():
    """Adapters that are merged into their base, taken out of it, and trained again."""
    net = nn.Sequential(*[Adapted(nn.Linear(128, 128).cuda()) for _ in range(3)])
    optimizers = [torch.optim.AdamW([it for it in net.parameters() if it.requires_grad])]

    def change():
        for sign in (1, -1):
            for it in net:
                it.is_merged = sign > 0
                it.base.weight.data = it.base.weight.data + sign * (it.up.data @ it.down.data)
            with torch.no_grad():
                net(torch.ones(4, 128, device="cuda"))

    return [net], optimizers, trained(net, optimizers), change


def unfrozen():
    """Frozen layers that are trained later; the optimizer has them from the beginning."""
    net = layers(6)
    net[:4].requires_grad_(False)
    optimizers = [torch.optim.AdamW(net.parameters())]
    return [net], optimizers, trained(net, optimizers), lambda: net[2:].requires_grad_(True)


def groups():
    """Groups of parameters that join."""
    net = layers(6)
    optimizers = [torch.optim.AdamW(net[4:].parameters())]

    def change():
        optimizers[0].add_param_group({"params": list(net[2:4].parameters()), "lr": 0.1})

    return [net], optimizers, trained(net, optimizers), change


def larger():
    """A model that gets layers, and outputs that are kept."""
    net, kept = layers(), []
    optimizers = [torch.optim.AdamW(net.parameters())]
    train = trained(net, optimizers)

    def step():
        train()
        kept.append(torch.ones(1024, device="cuda"))

    def change():
        net.append(nn.Linear(128, 128).cuda())
        optimizers[0].add_param_group({"params": list(net[-1].parameters())})

    return [net], optimizers, step, change


def accumulated():
    """Gradients of several batches, which an optimizer steps now and then."""
    net = layers()
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)]

    def step():
        optimizers[0].zero_grad()
        for size in (8, 16, 32):
            (net(torch.ones(size, 128, device="cuda")).square().mean() / 3).backward()
        optimizers[0].step()

    return [net], optimizers, step, nothing


def several():
    """Several optimizers of parts of a model; one more in the middle of the run."""
    net = layers(6)
    optimizers = [torch.optim.AdamW(net[:2].parameters()), torch.optim.SGD(net[2:4].parameters(), lr=0.1, momentum=0.9)]
    return [net], optimizers, trained(net, optimizers), lambda: optimizers.append(torch.optim.RMSprop(net[4:].parameters()))


def replaced():
    """An optimizer that takes the place of another one."""
    net = layers()
    optimizers = [torch.optim.AdamW(net.parameters(), amsgrad=True)]

    def change():
        optimizers[0] = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    return [net], optimizers, trained(net, optimizers), change


def zeroed():
    """Gradients that are set to zero, and stay."""
    net = layers()
    optimizers = [torch.optim.Adam(net.parameters())]
    return [net], optimizers, trained(net, optimizers, lambda it: it.zero_grad(set_to_none=False)), nothing


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(500, 64), nn.Linear(64, 500, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        return self.head(self.words(x))


def tied():
    """Weights that two layers share."""
    net, tokens = Tied().cuda(), torch.arange(64, device="cuda")
    optimizers = [torch.optim.AdamW(net.parameters())]

    def step():
        optimizers[0].zero_grad()
        F.cross_entropy(net(tokens), tokens).backward()
        optimizers[0].step()

    return [net], optimizers, step, nothing


def sparse():
    """Sparse gradients of an embedding, beside dense ones."""
    net = nn.Sequential(nn.Embedding(1000, 64, sparse=True), nn.Linear(64, 8)).cuda()
    optimizers = [torch.optim.SparseAdam(net[0].parameters()), torch.optim.AdamW(net[1].parameters())]

    def step():
        for it in optimizers:
            it.zero_grad()
        net(torch.arange(0, 100, 2, device="cuda")).square().mean().backward()
        for it in optimizers:
            it.step()

    return [net], optimizers, step, nothing


def complex_numbers():
    """Complex parameters."""
    net = nn.ParameterList([nn.Parameter(torch.ones(64, 64, dtype=torch.complex64, device="cuda")) for _ in range(3)])
    optimizers = [torch.optim.AdamW(net.parameters())]

    def step():
        optimizers[0].zero_grad()
        x = torch.ones(8, 64, dtype=torch.complex64, device="cuda")
        for it in net:
            x = x @ it
        x.abs().mean().backward()
        optimizers[0].step()

    return [net], optimizers, step, nothing


def flat():
    """Parameters and gradients that are views of flat buffers."""
    net = layers()
    count = sum(it.numel() for it in net.parameters())
    buffer, gradients, at = torch.ones(count, device="cuda"), torch.zeros(count, device="cuda"), 0
    for it in net.parameters():
        it.data = buffer[at : at + it.numel()].view_as(it)
        it.grad = gradients[at : at + it.numel()].view_as(it)
        at += it.numel()
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)]
    return [net], optimizers, trained(net, optimizers, lambda it: gradients.zero_()), nothing


def other_types():
    """Gradients of another type than their parameters."""
    net = layers()
    for it in net.parameters():
        it.grad_dtype = torch.bfloat16
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, foreach=False)]
    return [net], optimizers, trained(net, optimizers), nothing


def parametrized():
    """Weights that are computed of others."""
    net = nn.Sequential(parametrizations.weight_norm(nn.Linear(128, 128)), parametrizations.spectral_norm(nn.Linear(128, 128))).cuda()
    optimizers = [torch.optim.AdamW(net.parameters())]
    return [net], optimizers, trained(net, optimizers), nothing


def normalised():
    """Buffers, which are no weights."""
    net = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.BatchNorm2d(64)).cuda()
    net.register_buffer("table", torch.ones(4096, device="cuda"))
    optimizers = [torch.optim.NAdam(net.parameters())]

    def step():
        optimizers[0].zero_grad()
        net(torch.ones(4, 3, 16, 16, device="cuda")).square().mean().backward()
        optimizers[0].step()

    return [net], optimizers, step, nothing


def functional():
    """A model that is called with parameters that are not its own."""
    net = layers()
    own = nn.ParameterDict({name.replace(".", "_"): it.detach().clone() for name, it in net.named_parameters()})
    optimizers = [torch.optim.AdamW(own.values())]

    def step():
        optimizers[0].zero_grad()
        weights = {name: own[name.replace(".", "_")] for name, _ in net.named_parameters()}
        torch.func.functional_call(net, weights, (torch.ones(32, 128, device="cuda"),)).square().mean().backward()
        optimizers[0].step()

    return [own], optimizers, step, nothing


def with_optimizer(kind, **options):
    net = layers()
    optimizers = [kind(net.parameters(), **options)]
    return [net], optimizers, trained(net, optimizers), nothing


def capturable():
    """Counters of steps on the device."""
    return with_optimizer(torch.optim.Adam, capturable=True)


def fused():
    """All parameters in one kernel."""
    return with_optimizer(torch.optim.AdamW, fused=True)


def foreach():
    """Lists of parameters at once."""
    return with_optimizer(torch.optim.Adadelta, foreach=True)


def one_by_one():
    """Each parameter by itself."""
    return with_optimizer(torch.optim.AdamW, foreach=False)


def factored():
    """State of rows and columns."""
    return with_optimizer(torch.optim.Adafactor)


def orthogonal():
    """State of one tensor, of matrices alone; another optimizer has the rest."""
    net = layers()
    some = [[it for it in net.parameters() if (it.dim() == 2) is wanted] for wanted in (True, False)]
    optimizers = [torch.optim.Muon(some[0]), torch.optim.Adagrad(some[1])]
    return [net], optimizers, trained(net, optimizers), nothing


def quasi_newton():
    """A closure, and a history of gradients in lists."""
    net = layers(2)
    optimizers = [torch.optim.LBFGS(net.parameters(), lr=0.01, max_iter=3, history_size=4)]

    def closure():
        optimizers[0].zero_grad()
        loss = net(torch.ones(32, 128, device="cuda")).square().mean()
        loss.backward()
        return loss

    return [net], optimizers, lambda: optimizers[0].step(closure), nothing


def copied():
    """A teacher that is a copy of the student, made again and again."""
    net, teachers = layers(), []
    optimizers = [torch.optim.AdamW(net.parameters())]
    train = trained(net, optimizers)
    teachers.append(copy.deepcopy(net).requires_grad_(False))

    def step():
        with torch.no_grad():
            teachers[0](torch.ones(8, 128, device="cuda"))
        train()

    def change():
        teachers[0] = copy.deepcopy(net).requires_grad_(False)

    return [net], optimizers, step, change


CHANGING = {
    it.__name__: it
    for it in (
        stochastic_average, moving_average, adapters, unfrozen, groups, larger, accumulated, several, replaced, zeroed, tied,
        sparse, complex_numbers, flat, other_types, parametrized, normalised, functional, capturable, fused, foreach,
        one_by_one, factored, orthogonal, quasi_newton, copied,
    )
}
