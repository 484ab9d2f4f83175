"""Converts a viewer's recording to a trace and its label."""

import statistics

NEIGHBOUR_BYTES = 24 << 20

# Every line may have these: what a viewer makes of them, it makes in other tests.
DROPPED = {"from", "seen_us", "seq"}
KINDS = {"hello", "sample", "mark", "oom", "lost", "history", "live", "bye"}

# The counter that shows a leak of each resource.
SHOWN = {"allocated": "allocated", "reserved": "reserved", "pinned": "pinned_active", "host": "rss", "device": "device_free"}


def wire(lines, end_us):
    """Returns the probe's own lines up to the loop's end, without the fields that identify the machine and the user."""
    kept = []
    for line in lines:
        if line["type"] not in KINDS or line["type"] == "sample" and line["at_us"] > end_us:
            continue
        if line["type"] == "hello":
            line = {**line, "host": "lab", "argv": ["train.py"], "cwd": None}
        kept.append({key: value for key, value in line.items() if key not in DROPPED and value is not None})
    return kept


def thinned(lines, stride):
    """A late viewer's history at a stride, as a longer run's is; what came live stays whole."""
    kept, count, live = [], 0, False
    for line in lines:
        live |= line["type"] == "live"
        if line["type"] == "history":
            line["stride"] *= stride
        if line["type"] == "sample" and not live:
            count += 1
            if count % stride != 1 and stride > 1:
                continue
        kept.append(line)
    return kept


def labelled(reported, lines, neighbour):
    """Returns the label: the job's part, completed from the trace; and which part of the leak the trace shows."""
    samples = last_life(lines)
    rows = [it for it in samples if it["edge"] == "step"]
    unit, number = "step", lambda row: row["step"]
    if not rows:
        # No optimizer: growth is by the second, since the first row.
        unit, rows = "second", samples
        number = lambda row: (row["at_us"] - samples[0]["at_us"]) // 1_000_000  # noqa: E731
    reported = {**reported, **neighbour}
    start, first_us = reported["start_step"], reported.pop("first_us")
    if first_us is not None and (unit == "second" or neighbour):
        start = next(number(it) for it in rows if it["at_us"] >= first_us)
    if not reported["resource"]:
        start = None
    steps = reported["steps"] if unit == "step" else number(rows[-1])
    fell, blocks_fell, _ = (reported.pop(it) for it in ("fell", "blocks_fell", "end_us"))
    if start is None:
        fell = blocks_fell = None
    over = steps - start + 1 if start is not None else None
    if reported["resource"] == "reserved":
        # There is no container to empty: the trace itself has the bytes that were taken.
        fell = rows[-1]["reserved"] - [it for it in rows if number(it) < start][-1]["reserved"]
    quiet = [it["allocated"] for it in rows if 10 < number(it) < (start or steps + 1)]
    label = {
        **reported,
        "unit": unit,
        "steps": steps,
        "start_step": start,
        "period": over / reported["events"] if over else 1.0,
        "bytes_per_step": fell / over if over else None,
        "blocks_per_step": blocks_fell / over if blocks_fell is not None else None,
        "noise_bytes_std": round(statistics.pstdev(quiet)) if len(quiet) > 1 else 0,
        "device_total": next(it for it in lines if it["type"] == "hello")["devices"][0]["total"],
    }
    return label, shown(label, rows, number) if over else None


def last_life(lines):
    """The rows of a job's last life: a repeated hello within one is not a new life."""
    pids = [it["pid"] for it in lines if it["type"] == "hello"]
    begins = next(at for at, it in enumerate(lines) if it["type"] == "hello" and it["pid"] == pids[-1])
    return [it for it in lines[begins:] if it["type"] == "sample"]


def shown(label, rows, number):
    """Which part of a leak the trace shows from the start to the end: 1, where noise does not hide it."""
    field = SHOWN[label["resource"]]
    having = [it for it in rows if field in it]
    before = [it for it in having if number(it) < label["start_step"]][-1]
    rise = abs(having[-1][field] - before[field]) / (number(having[-1]) - number(before))
    return round(rise / label["bytes_per_step"], 3)
