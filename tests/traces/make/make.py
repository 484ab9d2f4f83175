"""Makes the traces: runs each loop under the simulated GPU and the real probe, and keeps the probe's lines.

    python3 make.py --target TARGET --python PYTHON --out DIR [NAME…]

TARGET is cargo's build folder with `gpuwatch` and `simgpu`, PYTHON one with PyTorch. See README.md.
"""

import argparse
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time

from labels import labelled, thinned, wire

HERE = pathlib.Path(__file__).resolve().parent
EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
ASYNC = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
CARDS = ["NVIDIA H200:143771MiB:615MiB", "NVIDIA A100-SXM4-80GB:81920MiB:600MiB", "NVIDIA L40S:46068MiB:500MiB"]

# Family and seed, and what is special: environment, a late viewer's step, lives, a neighbour.
PLAN = [
    *[(name, seed, {}) for name, *seeds in (
        ("hooked", 7501, 7502), ("state_carried", 7511), ("running_mean", 7521), ("loss_kept", 7531), ("bank", 7541),
        ("by_sample", 7551), ("small_in_lengths", 7561, 7562), ("begins_late", 7571), ("two_at_once", 7581),
        ("validations", 7591), ("locals_kept", 7601), ("prototypes", 7611), ("now_and_then", 7621, 7622),
        ("under_epochs", 7631),
    ) for seed in seeds],
    ("lengths_vary", 7143, {"env": EXPANDABLE}),
    ("lengths_vary", 7144, {"env": ASYNC}),
    ("bank", 7542, {"env": EXPANDABLE}),
    ("plain_outputs", 7641, {"env": ASYNC}),
    ("plain_outputs", 7642, {"env": EXPANDABLE}),
    ("restarted", 7651, {"lives": 2}),
    ("restarted_leaks", 7652, {"lives": 2}),
    ("overrun", 7661, {}),
    ("overrun_leaks", 7662, {}),
    ("tiny", 7801, {"late": 105_000, "stride": 16}),
    ("long_lengths", 7811, {"late": 103_000, "stride": 8}),
    ("long_outputs", 7802, {"late": 80_000, "stride": 16}),
    ("staging", 7701, {}),
    ("arrays", 7711, {}),
    ("batches_kept", 7721, {}),
    ("neighbour_moves", 7731, {"neighbour": ("moves", "4")}),
    ("neighbour_grows", 7732, {"neighbour": ("grows", "12")}),
    ("serving", 7741, {}),
    ("serving_leaks", 7742, {}),
    *[(name, seed, {}) for name, *seeds in (
        ("vision", 7101, 7102), ("accumulating", 7111, 7112), ("alternating", 7121, 7122), ("best_outputs", 7131),
        ("lengths_vary", 7141, 7142), ("resizing", 7151), ("tabular", 7161, 7162), ("frames_kept", 7171),
        ("averaged", 7181), ("loaded_by_workers", 7191), ("weak_registry", 7201),
        ("replay", 7301, 7302), ("lru", 7311), ("memo", 7321, 7322), ("quasi_newton", 7331), ("unfreezing", 7341),
        ("stops", 7351, 7352), ("window", 7361), ("epoch_metric", 7401, 7402), ("cycles", 7411), ("decoding", 7421),
    ) for seed in seeds],
]  # fmt: skip

# Variations of what is hardest to judge, in a folder of their own; the last seeds of each were made after all
# thresholds.
VARIED = [
    (name, seed, {}) for name, *seeds in (
        ("cat_in_lengths", 8101, 8102, 8103, 8104, 8105, 8106, 8107, 8108), ("tokens_kept", 8111, 8112, 8113),
        ("small_under_epochs", 8121, 8122, 8123, 8124, 8125, 8126), ("small_under_cycles", 8131, 8132, 8133),
        ("lengths_grow", 8201, 8202, 8203, 8204, 8205, 8206), ("lengths_grow_by_stages", 8211, 8212, 8213),
        ("sorted_lengths", 8221, 8222, 8223), ("batches_grow", 8231, 8232, 8233),
        ("requests_grow", 8301, 8302, 8303), ("replay_in_lengths", 8401, 8402, 8403),
    ) for seed in seeds
]  # fmt: skip


class Failed(Exception):
    """A trace could not be made."""


def job(python, name, seed, special, printed):
    """The command that trains: a shell's, if the job has several lives."""
    asked = {"name": name, "seed": seed, "late": special.get("late"), "out": str(printed)}
    lives = [json.dumps({**asked, "life": life}) for life in range(special.get("lives", 1))]
    program = [str(python), str(HERE / "harness.py")]
    if len(lives) == 1:
        return [*program, *lives]
    # `$0` and `$1` are the program, and each life has an argument of its own.
    script = 'TORCHELASTIC_RESTART_COUNT=0 "$0" "$1" "$2" && TORCHELASTIC_RESTART_COUNT=1 "$0" "$1" "$3"'
    return ["sh", "-c", script, *program, *lives]


def make(options, name, seed, special):
    """Runs one loop; gives the wire's lines, the label, and which part of the leak the lines show."""
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        printed, beside = scratch / "said.json", scratch / "neighbour.json"
        torch = next((options.python.parent.parent / "lib").glob("python*/site-packages/torch"))
        environment = {
            **os.environ,
            **special.get("env", {}),
            "GPUWATCH_SOCKET_DIR": str(scratch / "sockets"),
            "XDG_STATE_HOME": str(scratch / "state"),
            "OMP_NUM_THREADS": "1",
        }
        # The libraries that take PyTorch's imports are made once; the machine's state is each trace's own.
        (options.machine / "state").unlink(missing_ok=True)
        simgpu = [options.target / "simgpu", "run", "--devices", CARDS[seed % len(CARDS)]]
        simgpu += ["--torch", torch, "--dir", options.machine, "--"]
        neighbour = None
        if "neighbour" in special:
            line = [*simgpu, options.python, HERE / "neighbour.py", *special["neighbour"], beside]
            neighbour = subprocess.Popen(line, env=environment)
        try:
            training = job(options.python, name, seed, special, printed)
            running = subprocess.Popen([*simgpu, options.target / "gpuwatch", "run", "--", *training], env=environment)
            received = viewer(running, scratch / "sockets", printed.with_suffix(".door")) if "late" in special else None
            if running.wait() != 0:
                raise Failed("the job failed")
        finally:
            if neighbour:
                neighbour.kill()
                neighbour.wait()
        if received is None:
            recording = next((scratch / "state").rglob("*.jsonl.zst"))
            received = subprocess.run(["zstd", "-dcq", recording], check=True, stdout=subprocess.PIPE).stdout.splitlines()
        words = json.loads(printed.read_text())
        lines = thinned(wire(map(json.loads, received), words["end_us"]), special.get("stride", 1))
        grown = json.loads(beside.read_text()) if special.get("neighbour", [""])[0] == "grows" else {}
        return lines, *labelled(words, lines, grown)


def viewer(running, sockets, door):
    """A viewer that connects late: yields the lines of the probe's history, then its live lines, to the end."""
    while not door.exists():
        if running.poll() is not None:
            raise Failed("the job ended before its late viewer came")
        time.sleep(0.01)
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(next(sockets.glob("*.sock"))))
        stream.shutdown(socket.SHUT_WR)
        file = stream.makefile("rb")
        lines = [file.readline()]
        for line in file:
            lines.append(line)
            if b'"type":"live"' in line:
                break
        door.unlink()
        lines += file.readlines()
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", type=pathlib.Path, required=True)
    parser.add_argument("--python", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--machine", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "simgpu-traces")
    parser.add_argument("--varied", action="store_true", help="make the variations instead")
    parser.add_argument("names", nargs="*", help="traces to make, as in labels.json [default: those that lack]")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    table = options.out / "labels.json"
    labels = json.loads(table.read_text()) if table.exists() else {}
    failed = []
    for name, seed, special in VARIED if options.varied else PLAN:
        trace = f"{name}-{seed}"
        if trace not in options.names if options.names else trace in labels:
            continue
        try:
            lines, label, shown = make(options, name, seed, special)
        except Failed as failure:
            print(f"{trace}: {failure}", flush=True)
            failed.append(trace)
            continue
        text = "".join(json.dumps(it, separators=(",", ":")) + "\n" for it in lines)
        path = options.out / f"{trace}.jsonl.zst"
        subprocess.run(["zstd", "-q", "-f", "--ultra", "-22", "-o", path], check=True, input=text.encode())
        labels[trace] = label
        table.write_text(json.dumps(dict(sorted(labels.items())), indent=1) + "\n")
        grows = "" if shown is None else f", {label['bytes_per_step']:.1f} B a step, of which it shows {shown}"
        print(f"{trace}: {label['class']}, {label['steps']} steps, {path.stat().st_size} bytes{grows}", flush=True)
    if failed:
        raise SystemExit("not made: " + " ".join(failed))


if __name__ == "__main__":
    main()
