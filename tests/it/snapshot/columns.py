# Prints the contents of a snapshot, read by CPython, line by line in the format of `columns.rs`.
import gzip
import pickle
import sys


def frames(of):
    return ";".join(f"{it['name']}@{it['filename']}:{it['line']}" for it in of.get("frames", []))


def known(value):
    return "-" if value is None else value


def pool(of, key):
    value = of.get(key)
    return "-" if value is None else f"{value[0]}.{value[1]}"


def event(it):
    where = it.get("addr", it.get("device_free"))
    columns = [it["action"], known(where), known(it.get("size")), known(it.get("stream")), known(it.get("time_us"))]
    return " ".join(map(str, [*columns, pool(it, "pool_id"), frames(it)]))


def segment(it):
    device = "-" if it["device"] < 0 else it["device"]
    figures = [it[key] for key in ("address", "total_size", "allocated_size", "active_size")]
    figures += [it.get("requested_size"), it["stream"], it["segment_type"] == "small", it.get("is_expandable", False)]
    yield " ".join(map(str, ["segment", device, *map(known, figures), pool(it, "segment_pool_id"), frames(it)]))
    address = it["address"]
    for block in it["blocks"]:
        address = block.get("address", address)
        columns = [address, block["size"], known(block.get("requested_size")), block["state"], frames(block)]
        yield " ".join(map(str, ["block", *columns]))
        address += block["size"]


def lines(whole):
    for ordinal, trace in enumerate(whole.get("device_traces", [])):
        yield f"device {ordinal}"
        yield from map(event, trace)
    if whole.get("host_traces"):
        yield "host"
        yield from map(event, whole["host_traces"])
    for key in ("segments", "host_segments"):
        for it in whole.get(key, []):
            yield from segment(it)
    for it in whole.get("external_annotations", []):
        yield f"note {it['stage']} {it['name']} {it['device']} {it['time_us']}"
    for key, value in whole.get("allocator_settings", {}).items():
        if isinstance(value, dict):
            value = ",".join(f"{size}={it}" for size, it in value.items())
        yield f"setting {key} {value}"


with (gzip.open if sys.argv[1].endswith(".gz") else open)(sys.argv[1], "rb") as file:
    whole = pickle.load(file)
sys.stdout.write("".join(f"{it}\n" for it in lines(whole)))
