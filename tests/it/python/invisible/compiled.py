"""Programs with compiled steps and models: what Dynamo counts, breaks and compiles again."""

import io
import logging

import torch

from steps import Bare, Counting, Failing, Property, parameters, sgd
from reported import program, run, stable
from torch._dynamo.utils import counters


def counted(body, times=4, **named):
    """Compiles a body and runs it several times; all that Dynamo counts."""
    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(body, backend=named.pop("backend", "eager"), **named)
    for _ in range(times):
        compiled()
    return {key: {stable(name): count for name, count in it.items()} for key, it in counters.items()}


@program
def a_compiled_step():
    return [counted(sgd(kind).step) for kind in (torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad)]


@program
def a_compiled_function_with_a_step():
    optimizer = sgd()
    return counted(lambda: optimizer.step())


@program
def one_graph():
    optimizer = Bare(parameters())
    return counted(lambda: optimizer.step(), fullgraph=True), optimizer.param_groups[0]["params"][0].tolist()


@program
def a_whole_training_step():
    model = torch.nn.Linear(3, 3).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.ones(2, 3, device="cuda")

    def step():
        optimizer.zero_grad()
        model(data).sum().backward()
        optimizer.step()

    return counted(step)


@program
def a_compiled_model():
    model = torch.nn.Linear(3, 3).to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.ones(2, 3, device="cuda")

    def step():
        optimizer.zero_grad()
        compiled(data).sum().backward()
        optimizer.step()

    torch._dynamo.reset()
    counters.clear()
    compiled = torch.compile(model, backend="aot_eager")
    for _ in range(5):
        step()
    return {key: {stable(name): count for name, count in it.items()} for key, it in counters.items()}


@program
def odd_optimizers():
    seen = []
    for kind in (Property, Counting, Failing):
        try:
            seen.append(counted(sgd(kind).step))
        except Exception as error:
            seen.append(stable(str(error)))
    return seen, Property.reads


@program
def recompilations():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    torch._logging.set_logs(recompiles=True, graph_breaks=True)
    logger = logging.getLogger("torch._dynamo")
    logger.addHandler(handler)
    optimizer = sgd()
    step = torch.compile(optimizer.step, backend="eager")
    for rate in (0.1, 0.2, 0.3):
        optimizer.param_groups[0]["lr"] = rate
        step()
    logger.removeHandler(handler)
    return len(stream.getvalue().splitlines())


@program
def an_optimizer_made_in_a_compiled_function():
    return counted(lambda: sgd(torch.optim.Rprop).step())


@program
def dynamo_explains():
    explained = torch._dynamo.explain(Bare(parameters()).step)()
    return explained.graph_count, explained.graph_break_count, explained.op_count


if __name__ == "__main__":
    torch.zeros(1, device="cuda")
    run()
