"""Finds the role of a process in its program: a rank, a data worker, a child of `multiprocessing`."""

import sys


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
