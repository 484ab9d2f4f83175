"""The probe and its process: the process's role in its program, and starting the probe while it runs."""

import os
import sys
import time

from . import _accelerators, _native


def is_data_worker():
    worker = sys.modules.get("torch.utils.data._utils.worker")
    return worker is not None and worker.get_worker_info() is not None


def ranks():
    """Returns the ranks from torch.distributed, for launchers that do not set them in the environment."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_initialized():
            return {"rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
    except Exception:
        pass
    return {}


def at_end_of_multiprocessing_child(stop):
    """Children of `multiprocessing` leave by `os._exit`, which runs no `atexit`, but they do run finalizers."""
    util = sys.modules.get("multiprocessing.util")
    process = sys.modules.get("multiprocessing.process")
    if util is not None and process is not None and process.parent_process() is not None:
        util.Finalize(None, stop, args=("exit",), exitpriority=-1000)


def start(order):
    """Starts the probe in a running job, for `gpuwatch attach`.

    Returns `started`, or `refused` and the reason, or `idle` where no device is used yet.
    """
    import gpuwatch_probe as package

    torch = sys.modules.get("torch")
    accelerator = torch and _accelerators.found(torch)
    if accelerator is None:
        return "refused has not imported a PyTorch for GPUs"
    if "off" in os.environ.get("GPUWATCH", "").split(","):
        return "refused has GPUWATCH=off in its environment: start the next job without it"
    if accelerator.is_in_bad_fork() or is_data_worker():
        parent = os.getppid()
        return "refused is a worker of process %d: `gpuwatch attach %d`" % (parent, parent)
    if not accelerator.is_initialized():
        return "idle has not initialised a GPU: attach once it uses one"
    before = package._probe
    if before is not None and not before.off:
        return "refused has a probe already: gpuwatch shows it"
    if before is not None:
        before.leave()
        package._probe = None
    _native.LIBRARY = os.fsdecode(order["library"])
    late = [("attached_us", int(time.time() * 1e6)), ("run", order["run"])]
    late += [("directory", os.fsdecode(it)) for it in order["directories"]]
    package._attach(torch, late)
    probe = package._probe
    if probe is not None and probe.native is not None and not probe.off:
        return "started"
    if probe is not None:
        probe.leave()
        package._probe = None
    why = probe and probe.trouble or "%s says why" % _native.log_file()
    return "refused could not start its probe: %s" % why
