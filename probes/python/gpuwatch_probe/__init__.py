"""gpuwatch's probe in a PyTorch process: streams the allocator's counters of every training step.

Under `gpuwatch run` nothing of this needs to be called. For those who prefer code:

    import gpuwatch_probe
    gpuwatch_probe.start()           # probes this process as soon as it initialises its devices
    gpuwatch_probe.step()            # ends a step, in loops without a torch.optim optimizer
    gpuwatch_probe.mark("epoch", 3)  # names an instant, with a whole number if it has one
    gpuwatch_probe.figures()         # the latest figures of this process, for an experiment tracker
    gpuwatch_probe.stop()            # ends the probe for good

No call raises, prints, synchronises, or initialises a device. `GPUWATCH=off` in the environment turns them all into
nothing.
"""

import os as _os
import sys as _sys

__all__ = ["start", "step", "mark", "figures", "stop"]

_probe = None


def start():
    """Probes this process once its devices are initialised; does nothing where that has been asked for already."""
    torch = _sys.modules.get("torch")
    if torch is None:
        try:
            import torch
        except Exception:
            return
    _attach(torch)


def step():
    """Ends a step. From the first call on, steps are counted by these calls and no longer by optimizers."""
    if _probe is not None:
        _probe.call()


def mark(name, value=None):
    """Names this instant, as in `mark("epoch", 3)`; nothing before devices are initialised."""
    if _probe is not None:
        _probe.mark(name, value)


def figures(device=None):
    """Returns the latest counters, ladder and open findings of this process on a device, as a flat dictionary.

    Without a number, it is the first device that the process uses. What is unknown is `None`: without a recorder of the
    job, as `gpuwatch run` is, the ladder, the growth and the findings. Without a probe the dictionary is empty.
    """
    native = None if _probe is None or _probe.off else _probe.native
    if native is None:
        return {}
    try:
        from ._figures import figures

        return figures(native, device)
    except Exception:
        return {}


def stop():
    """Ends the probe of this process for good."""
    if _probe is not None:
        _probe.stop("stop")


def _attach(torch, late=None):
    global _probe
    if _probe is not None or "off" in _os.environ.get("GPUWATCH", "").split(","):
        return
    try:
        from ._torch import Probe

        probe = Probe(torch, late)
        _probe = probe
        probe.wait_for_devices()
        if _os.environ.get("GPUWATCH_FIT"):
            from . import _fit_groups, _fit_ranks
            from ._fit import attach

            _fit_groups.install(torch, _fit_ranks.plan)
            attach(torch, _fit_ranks.plan)
    except Exception as error:
        from ._native import log

        log("the probe is off: %r" % (error,))
