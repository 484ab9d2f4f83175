"""Graphs: captured, replayed, shared, given back; and what a capture forbids, as CUDA documents it."""

import copy
import threading

import torch

device, MIB = "cuda", 1 << 20
x = torch.ones(1000, device=device)
side = torch.cuda.Stream()
old = torch.cuda.Event()
old.record()


def pools():
    """Returns the bytes reserved by each private pool, by its counters and by its segments."""
    torch.cuda.synchronize()
    reported = torch._C._cuda_memoryStats(0).get("reserved_bytes_by_private_pools")
    segments = {}
    for it in torch.cuda.memory_snapshot():
        segments[it["segment_pool_id"]] = segments.get(it["segment_pool_id"], 0) + it["total_size"]
    segments.pop((0, 0), None)
    # Not every release counts them.
    if reported is not None:
        reported = {pool: it["all"]["current"] for pool, it in reported.items() if it["all"]["current"]}
        assert reported == segments, (reported, segments)
    return segments


def captured(work, pool=None, **how):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool, **how):
        kept = work()
    return graph, kept


def forked():
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.mul_(2)


def joined():
    forked()
    torch.cuda.current_stream().wait_stream(side)


def queried():
    event = torch.cuda.Event()
    event.record()
    event.query()


def from_a_thread(work):
    errors = []

    def run():
        torch.cuda.set_device(0)
        try:
            work()
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


# The memory of a graph: reserved with its pool, apart from the rest, until it is reset and the cache is emptied.
assert pools() == {}
allocated = torch.cuda.memory_allocated()
first, kept = captured(lambda: torch.empty(30 * MIB, dtype=torch.uint8, device=device).fill_(1))
held = pools()
assert list(held) == [first.pool()] and 30 * MIB <= held[first.pool()] <= 40 * MIB, held
for _ in range(3):
    first.replay()
torch.cuda.empty_cache()
# (Older releases keep the generator's state on the device.)
assert pools() == held and 30 * MIB <= torch.cuda.memory_allocated() - allocated < 31 * MIB
del kept
assert torch.cuda.memory_allocated() - allocated < MIB
first.replay()
torch.cuda.empty_cache()
assert pools() == held, "its memory is the graph's as long as it can be replayed"
second, kept = captured(lambda: torch.empty(20 * MIB, dtype=torch.uint8, device=device).fill_(2), first.pool())
assert pools() == held, "what the first one's replays do not need any more, the second one has"
first.reset()
torch.cuda.empty_cache()
assert pools() == held, "the second one has it still"
second.reset()
del kept
torch.cuda.empty_cache()
assert pools() == {}

handle = torch.cuda.graph_pool_handle()
graphs = [captured(lambda: torch.zeros(MIB, device=device), handle) for _ in range(3)]
assert list(pools()) == [handle]
for graph, kept in graphs:
    graph.replay()
del graphs, graph, kept
torch.cuda.empty_cache()
assert pools() == {}

# A model, its backward and its optimizer, as graphs and as one.
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.1), torch.nn.Linear(64, 8)).cuda()
batch = torch.randn(16, 64, device=device)
graphed = torch.cuda.make_graphed_callables(copy.deepcopy(net), (batch,))
optimizer = torch.optim.AdamW(graphed.parameters(), capturable=True)
for _ in range(3):
    optimizer.zero_grad()
    graphed(batch).sum().backward()
    optimizer.step()
steady = torch.cuda.memory_allocated()
for _ in range(3):
    optimizer.zero_grad()
    graphed(batch).sum().backward()
    optimizer.step()
assert torch.cuda.memory_allocated() == steady


optimizer = torch.optim.AdamW(net.parameters(), capturable=True)
net(batch).sum().backward()
optimizer.step()


def step():
    net(batch).sum().backward()
    optimizer.step()


optimizer.zero_grad(set_to_none=True)
whole, _ = captured(step)
whole.replay()
nodes = torch.cuda.CUDAGraph(keep_graph=True)
with torch.cuda.graph(nodes):
    x.add_(1)
assert nodes.raw_cuda_graph() and nodes.replay() is None

# Calls that a capture allows, and calls that break it: their messages, and the error at the end of the capture.
allowed = [
    joined,
    lambda: torch.rand(10, device=device),
    lambda: torch.ones(1000, device=device).record_stream(side),
    torch.cuda.mem_get_info,
    lambda: torch.nn.functional.conv2d(torch.ones(2, 3, 8, 8, device=device), torch.ones(4, 3, 3, 3, device=device)),
    lambda: from_a_thread(lambda: None),
]
for work in allowed:
    captured(work)[0].replay()
captured(lambda: from_a_thread(old.query), capture_error_mode="thread_local")
captured(old.query, capture_error_mode="relaxed")
BROKEN = "operation failed due to a previous error during capture"
NOT_NOW = "operation not permitted when stream is capturing"
forbidden = [
    (torch.cuda.synchronize, NOT_NOW),
    (lambda: x.sum().item(), NOT_NOW),
    (old.query, NOT_NOW),
    (lambda: from_a_thread(old.query), NOT_NOW),
    (lambda: from_a_thread(torch.cuda.synchronize), NOT_NOW),
    (queried, "operation not permitted on an event last recorded in a capturing stream"),
    (lambda: torch.cuda.current_stream().wait_event(old), "dependency created on uncaptured work in another stream"),
    (forked, "capturing stream has unjoined work"),
]
for work, phrase in forbidden:
    inside = None
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.add_(1)
            try:
                work()
            except RuntimeError as error:
                inside = str(error)
                assert phrase in inside, (phrase, inside)
        raise AssertionError(phrase)
    except RuntimeError as error:
        assert (BROKEN if inside else phrase) in str(error), (phrase, error)
    torch.cuda.synchronize()

# A replay runs when its stream reaches it; it records its captured events again.
late = torch.cuda.Event(external=True)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    x.add_(1)
    late.record()
graph.replay()
torch.cuda.synchronize()
assert late.query() and not torch.cuda.is_current_stream_capturing()
print("ok")
