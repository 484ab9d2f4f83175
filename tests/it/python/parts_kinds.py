"""Counts the parts of unusual models and optimizers, each as a script would count them itself."""

import gc

import torch
from torch import nn

from gpuwatch_probe._parts import Parts
from parts_count import backward, check, counted, plain, truth, walked

# The bytes of a plain model's weights.
PLAIN = 3 * (16384 + 512)


def trained(kind=torch.optim.AdamW, net=None, **options):
    """A model after a step."""
    net = net or plain()
    optimizer = kind(net.parameters(), **options)
    backward(net)
    optimizer.step()
    return net, optimizer


def kinds_of_state():
    for options in ({"fused": True}, {"capturable": True}, {"amsgrad": True}):
        net, optimizer = trained(**options)
        check(str(options), [optimizer], net)
    net, optimizer = trained(torch.optim.Adafactor)
    assert check("adafactor", [optimizer], net)[2] < PLAIN


def states_on_the_host():
    net, optimizer = trained()
    for state in optimizer.state.values():
        state["exp_avg"] = state["exp_avg"].cpu()
    assert check("a half", [optimizer], net)[2] == PLAIN
    for state in optimizer.state.values():
        state["exp_avg_sq"] = state["exp_avg_sq"].cpu().pin_memory()
    assert check("all", [optimizer], net)[2] == 0


def states_in_one_buffer():
    net, optimizer = trained()
    whole, at = torch.zeros(2, 3 * 4160, device="cuda"), 0
    for it in net.parameters():
        for row, name in enumerate(("exp_avg", "exp_avg_sq")):
            optimizer.state[it][name] = whole[row, at : at + it.numel()].view_as(it)
        at += it.numel()
    assert check("buffer", [optimizer], net)[2] == whole.nbytes


def complex_parameters():
    it = nn.Parameter(torch.zeros(64, 64, dtype=torch.complex64, device="cuda"))
    optimizer = torch.optim.AdamW([it])
    it.grad = torch.zeros_like(it)
    optimizer.step()
    assert check("complex", [optimizer])[0] == 2 * 16384


def parameters_without_memory():
    net = nn.Sequential(nn.Linear(64, 64, device="meta"), nn.Linear(64, 64), plain(64, 1))
    some = [nn.Parameter(torch.zeros(0, 5, device="cuda")), nn.Parameter(torch.zeros((), device="cuda"))]
    optimizer = torch.optim.SGD([*net.parameters(), *some], lr=0.1)
    assert check("meta, host, none, one", [optimizer], net)[0] == PLAIN // 3 + 512


def parameters_that_are_views():
    whole = torch.zeros(3 * 4096, device="cuda")
    parts = [nn.Parameter(it.view(64, 64)) for it in whole.split(4096)]
    parts.append(nn.Parameter(torch.zeros(1, 64, device="cuda").expand(64, 64)))
    optimizer = torch.optim.SGD(parts, lr=0.1)
    assert check("views", [optimizer])[0] == whole.nbytes + 512


def models_that_were_empty():
    with torch.device("meta"):
        net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(3)])
    net, optimizer = trained(net=net.to_empty(device="cuda"))
    assert check("to_empty", [optimizer], net)[0] == PLAIN


def optimizers_that_replace_others():
    net, parts = plain(), Parts(torch)
    for number, (kind, options) in enumerate([(torch.optim.AdamW, {}), (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9})]):
        optimizer = None
        gc.collect()
        _, optimizer = trained(kind, net, **options)
        parts.see(optimizer)
        assert walked(parts, 1 + 1000 * number, net) == truth([optimizer], net), kind


def optimizers_that_share_parameters():
    net, first = trained()
    second = torch.optim.SGD(net[:2].parameters(), lr=0.1, momentum=0.9)
    second.step()
    found = check("shared", [first, second], net)
    assert found[0] == PLAIN and found[2] == 2 * PLAIN + PLAIN * 2 // 3, found


def optimizers_around_others():
    class Around(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner, self.param_groups, self.state, self.defaults = inner, inner.param_groups, inner.state, {}

    net, inner = trained()
    assert counted(Around(inner), inner, model=net) == truth([inner], net)


def gradients_of_zero_and_of_several_batches():
    net, optimizer = trained()
    for _ in range(4):
        backward(net)
    assert check("accumulated", [optimizer], net)[1] == PLAIN
    optimizer.zero_grad(set_to_none=False)
    assert check("zeros", [optimizer], net)[1] == PLAIN


def groups_that_go_and_groups_of_one():
    net = plain(64, 40)
    optimizer = torch.optim.AdamW([{"params": [it]} for it in net.parameters()])
    backward(net)
    optimizer.step()
    whole = check("groups", [optimizer], net)
    del optimizer.param_groups[10:20]
    # Their states are still kept, and their parameters are the model's.
    found, expected = counted(optimizer, model=net), truth([optimizer], net)
    assert (found[0], found[2]) == (expected[0], expected[2]) == (whole[0], whole[2]), (found, expected)


def copies_of_other_types():
    net = plain().bfloat16()
    masters = [it.detach().float().requires_grad_() for it in net.parameters()]
    optimizer = torch.optim.AdamW(masters)
    for it in masters:
        it.grad = torch.zeros_like(it)
    optimizer.step()
    # Nothing says that what the step trains is a copy of that model.
    assert counted(optimizer, model=net) == truth([optimizer])


def several_models():
    maker, judge = trained(), trained()
    assert counted(maker[1], judge[1]) == truth([maker[1], judge[1]])


for name, case in list(globals().items()):
    if callable(case) and getattr(case, "__module__", "") == __name__ and name != "trained":
        case()
print("kinds are right")
