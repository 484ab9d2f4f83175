"""The simulated machine of a pytest session: its libraries are loaded into this process before torch is imported."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import sysconfig

_FIRST, _ALL = "libsimgpu.so", "libsimgpu-all.so"


class MachineError(Exception):
    """Why there is no machine, for the user."""


def program():
    """Returns the path of the program `gpuwatch`: the one that was installed with this package, or another one."""
    named = os.environ.get("GPUWATCH_PROGRAM")
    beside = os.path.join(sysconfig.get_path("scripts"), "gpuwatch")
    found = named or (beside if os.access(beside, os.X_OK) else shutil.which("gpuwatch"))
    if not found:
        raise MachineError("the program gpuwatch is not installed: pip install gpuwatch-tui")
    return found


def ask(request):
    """Asks the program; raises `MachineError` with its message if it fails."""
    done = subprocess.run(
        [program(), "pytest"], input=json.dumps(request).encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    if done.returncode:
        raise MachineError(done.stderr.decode(errors="replace").strip() or "gpuwatch failed")
    return json.loads(done.stdout)


def simulate(gpu, folder):
    """Gives this process a machine with a GPU; its state lies in a folder. Returns the GPU's name."""
    if "torch" in sys.modules:
        raise MachineError("torch was imported before pytest could simulate a GPU: a plugin of pytest imports it")
    machine = ask({"machine": {"gpu": gpu, "python": sys.executable}})
    libraries = machine["libraries"]
    for name in list(os.environ):
        if name.startswith("SIMGPU_") or name == "CUDA_VISIBLE_DEVICES":
            del os.environ[name]
    os.environ["SIMGPU_DIR"], os.environ["SIMGPU_DEVICES"] = folder, machine["devices"]
    # Processes that a test starts find the libraries by this path. Where PyTorch's wheel brings NVIDIA's own along, it
    # would find these first: the `sitecustomize` of the probe, which is itself off there, loads the others before.
    _put_first("LD_LIBRARY_PATH", libraries)
    _put_first("PYTHONPATH", machine["boot"])
    os.environ["SIMGPU_FIRST"] = os.path.join(libraries, _ALL)
    os.environ["GPUWATCH"] = "off"
    # The loader read that path when this process began, so each library is loaded by its own, the device first.
    files = sorted(it for it in os.listdir(libraries) if ".so" in it)
    try:
        for name in [_FIRST] + files:
            ctypes.CDLL(os.path.join(libraries, name), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise MachineError("cannot simulate a GPU here: %s" % error)
    return machine["name"]


def _put_first(variable, folder):
    """Puts a folder first on a path."""
    others = [it for it in os.environ.get(variable, "").split(":") if it and it != folder]
    os.environ[variable] = ":".join([folder] + others)
