"""Injects techniques that save memory into a job under `gpuwatch fit --advise`, without a change to its files.

`GPUWATCH_FIT_TRY` names the techniques of a run, with commas. With `none`, every technique is installed but has no
effect: that run shows which ones apply, and its peaks must equal those of a run without them. `GPUWATCH_FIT_NOTES` is
what such a run left for the others, as JSON.

Each technique reports what it changed, counted where the change takes effect, its price, and the lines to write.
"""

import json
import os

from ._advise_attention import FusedAttention
from ._advise_batches import Accumulation
from ._advise_calls import Calls
from ._advise_checkpoint import Checkpoint, CheckpointEverySecond
from ._advise_evaluation import EvalAccumulation, NoGrad
from ._advise_forward import Autocast, ChannelsLast, HalfWeights, SaveOnCpu
from ._advise_kernels import Liger
from ._advise_loss import ChunkedLoss
from ._advise_optimizers import Adafactor, Adam8bit, Foreach, Fused, GradientsToNone, Sgd
from ._advise_settings import BlasWorkspace, CudnnBenchmark, ExpandableSegments
from ._advise_sharding import Offload, Reshard, ZeroOne, ZeroThree, ZeroTwo
from ._advise_steps import InBackward, OnHost
from ._advise_switches import Switches
from ._advise_technique import Refused
from ._fit_phases import is_compiled

# Techniques whose changes a compiled function does not see.
COMPILED = "the job compiles its functions, which do not see a change from outside"


# Safest first.
_ALL = (
    ExpandableSegments,
    BlasWorkspace,
    CudnnBenchmark,
    Foreach,
    Fused,
    GradientsToNone,
    InBackward,
    ChannelsLast,
    FusedAttention,
    Checkpoint,
    CheckpointEverySecond,
    ChunkedLoss,
    SaveOnCpu,
    # Within the wrapper of `InBackward`, which calls it for each parameter.
    OnHost,
    NoGrad,
    EvalAccumulation,
    ZeroOne,
    ZeroTwo,
    ZeroThree,
    Reshard,
    Offload,
    Accumulation,
    Autocast,
    Liger,
    HalfWeights,
    Adam8bit,
    Adafactor,
    Sgd,
)


class Advise:
    """The techniques of one process."""

    def __init__(self, torch, unknowns, asked):
        self.torch = torch
        self.unknowns = unknowns
        self.calls = Calls(torch, unknowns)
        self.switches = Switches()
        try:
            self.notes = json.loads(os.environ.get("GPUWATCH_FIT_NOTES") or "{}")
        except ValueError:
            self.notes = {}
        names = asked.split(",")
        self.is_active = "none" not in names
        chosen = [it for it in _ALL if it.name in names] if self.is_active else _ALL
        self.techniques = [it(self, self.is_active) for it in chosen]
        # Why one could not be installed.
        self._failed = {}

    def install(self):
        """Installs the techniques of this run."""
        self.calls.install()
        for it in self.techniques:
            try:
                it.install()
            except Exception as error:
                self._failed[it.name] = "%s: %s" % (type(error).__name__, error)
        self.switches.install()

    def report(self):
        """Returns what each technique did: {name: {applied, refused, price, edit, notes}}."""
        return {it.name: self._of(it) for it in self.techniques}

    def _of(self, technique):
        applied, refused = None, self._failed.get(technique.name)
        if refused is None and not technique.is_outside_functions and is_compiled("ok"):
            refused = COMPILED
        if refused is None:
            try:
                applied = technique.applied()
            except Refused as why:
                refused = str(why)
            except Exception as error:
                refused = "%s: %s" % (type(error).__name__, error)
        edit = ["%s: %s" % it if it[0] else it[1] for it in technique.edit]
        return {
            "applied": applied,
            "refused": refused,
            "price": technique.price,
            "edit": edit,
            "notes": technique.notes,
        }


def attach(torch, unknowns):
    """Returns the techniques of this process, installed; `None` where `gpuwatch fit` advises nothing."""
    asked = os.environ.get("GPUWATCH_FIT_TRY")
    if not asked:
        return None
    advise = Advise(torch, unknowns, asked)
    advise.install()
    return advise
