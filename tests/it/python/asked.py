"""Trains as many steps as each line of its standard input requests, with the leak that its argument names; or does what
the line names."""

import json
import sys
import time

import torch

net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
kept = []
# A key as `os.listdir` returns it for a file whose name is not UTF-8.
FILE = "caf\udce9.bin"
by_file = {FILE: []}
history = torch.cuda.memory._record_memory_history
# Whether this release lists live blocks without the history of events, whose length has no limit.
APART = "include_traces" in torch.cuda.memory_snapshot.__code__.co_varnames


def step(leaks):
    output = net(torch.randn(512, 64, device="cuda"))
    output.sum().backward()
    if leaks:
        kept.append(output.detach())
    if how == "files":
        by_file[FILE].append(output.detach())
    optimizer.step()
    optimizer.zero_grad()


def report(**facts):
    stats = torch.cuda.memory_stats()
    facts["apart"] = APART
    facts["enabled"] = torch._C._cuda_isHistoryEnabled()
    facts["switch"] = torch._C._cuda_record_memory_history.__class__.__name__
    # A capture must not affect the job's own figures.
    facts["peak"] = stats["allocated_bytes.all.peak"]
    facts["allocations"] = stats["allocation.all.allocated"]
    facts["resets"] = stats["num_ooms"]
    print(json.dumps(facts), flush=True)


how = sys.argv[1]
if how == "inference":
    report(ready=True)
    for _ in range(200):
        with torch.no_grad():
            kept.append(net(torch.randn(512, 64, device="cuda")))
        time.sleep(0.05)
    raise SystemExit
step(False)
report(ready=True)
for line in sys.stdin:
    request = line.strip()
    if request.isdigit():
        for _ in range(int(request)):
            step(how == "leak")
        report()
    elif request == "slowly":
        # Until a line changes it, a second has a hundred steps.
        for _ in range(1500):
            step(how == "leak")
            time.sleep(0.01)
        report()
    elif request == "record":
        history("all", max_entries=100_000)
        report()
    elif request == "record as ever":
        history(True, trace_alloc_max_entries=100_000)
        report()
    elif request == "recorded":
        traces = torch.cuda.memory._snapshot()["device_traces"][0]
        report(entries=len(traces))
    elif request == "exhaust":
        try:
            torch.empty(1 << 42, device="cuda")
        except torch.cuda.OutOfMemoryError:
            report()
    else:
        break
