"""Techniques of jobs of several ranks: a rank keeps a share of the states, the gradients, the weights, or keeps its
share in host memory.

`zero:1` to `zero:3` are the stages of ZeRO (Rajbhandari et al., 2020). In a job of DistributedDataParallel, they are
PyTorch's ZeroRedundancyOptimizer and `fully_shard`; in one of DeepSpeed, its own stages.
"""

import functools
import gc
import inspect
import json
import sys
from contextlib import contextmanager

from ._advise_checkpoint import repeated
from ._advise_technique import Refused, Technique, of_all

_FSDP2 = "torch.distributed.fsdp._fully_shard._fully_shard"
_FSDP1 = "torch.distributed.fsdp.fully_sharded_data_parallel"
# A note to the runs that inject a stage.
_DEEPSPEED = {"library": "deepspeed"}
_ALONE = "the job is not distributed: one rank has nobody to share with"


class _Wrappers(Technique):
    """Sees what distributes the job."""

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        # How often the job wrapped a module with what this technique changes, and how often that was changed.
        self._seen = self._done = 0
        self._line = self._why = None

    def on_data_parallel(self):
        """Calls `data_parallel` with each wrapper, before its `__init__`, which it may replace by returning True."""
        cls, technique = self.torch.nn.parallel.DistributedDataParallel, self
        original = cls.__init__

        @functools.wraps(original)
        def made(wrapper, module, *arguments, **named):
            frame = sys._getframe(1)
            if not technique.data_parallel(wrapper, module, named, frame):
                original(wrapper, module, *arguments, **named)

        cls.__init__ = made

    def see(self, frame=None):
        """Counts one wrapper of the job, made at a frame."""
        self._seen += 1
        if self._line is None and frame is not None:
            self._line = self.advise.unknowns.line(frame)

    def counted(self, what, otherwise=_ALONE):
        """Returns how many wrappers were changed, in words."""
        if self._why is not None:
            raise Refused(self._why)
        if not self._seen:
            raise Refused(otherwise)
        return of_all(self._done if self.is_active else self._seen, self._seen, what)


class ZeroOne(_Wrappers):
    """Each rank keeps the states of its share of the parameters."""

    name = "zero:1"
    is_outside_functions = True

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        self._deep = _DeepSpeed(self, 1)
        self._is_data_parallel = self._is_within = False
        self._cls = "Optimizer"

    def install(self):
        self._deep.install()
        self.on_data_parallel()
        base, technique = self.torch.optim.Optimizer, self
        original = base.__init__

        @functools.wraps(original)
        def made(optimizer, *arguments, **named):
            kind = type(optimizer).__name__
            if technique._is_within:
                pass
            elif kind == "ZeroRedundancyOptimizer":
                technique._why = "the job uses ZeroRedundancyOptimizer already"
            elif not technique.is_active:
                technique._cls = kind
                technique.see(sys._getframe(2))
            original(optimizer, *arguments, **named)

        base.__init__ = made
        # DeepSpeed shards the optimizer that it is given.
        if self.is_active and self.advise.notes.get(self.name) != _DEEPSPEED:
            for cls in vars(self.torch.optim).values():
                if isinstance(cls, type) and issubclass(cls, base) and cls is not base:
                    self._replace(cls)

    def data_parallel(self, wrapper, module, named, frame):
        self._is_data_parallel = True
        return False

    def _replace(self, cls):
        technique = self

        def new(kind, *arguments, **named):
            if kind is not cls or technique._is_within:
                return object.__new__(kind)
            technique._cls = cls.__name__
            technique.see(sys._getframe(1))
            if not technique.torch.distributed.is_initialized():
                return object.__new__(kind)
            technique._is_within = True
            try:
                return technique._sharded(cls, *arguments, **named)
            finally:
                technique._is_within = False

        cls.__new__ = new

    def _sharded(self, cls, *arguments, **named):
        from torch.distributed.optim import ZeroRedundancyOptimizer

        values = inspect.signature(cls.__init__).bind(None, *arguments, **named).arguments
        values.pop("self", None)
        params = values.pop("params")
        self._done += 1
        return ZeroRedundancyOptimizer(params, optimizer_class=cls, **values)

    def applied(self):
        if self._deep.is_used:
            self.notes = _DEEPSPEED
            return self._deep.applied()
        text = "torch.distributed.optim.ZeroRedundancyOptimizer(…, optimizer_class=torch.optim.%s)"
        self.edit = [(self._line, text % self._cls)]
        if self._why is None and not self._is_data_parallel:
            raise Refused("the job does not use DistributedDataParallel")
        return self.counted("optimizer", "no optimizer of PyTorch was made")


class ZeroThree(_Wrappers):
    """Each rank keeps its share of weights, gradients and states."""

    name = "zero:3"
    stage = 3
    # Arguments of `fully_shard`, also as they are written.
    options, written = {}, ""

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        self._deep = _DeepSpeed(self, self.stage)
        self._module = "model"
        self._blocks = set()

    def install(self):
        self._deep.install()
        self.on_data_parallel()

    def data_parallel(self, wrapper, module, named, frame):
        self.see(frame)
        why = self._not_shardable(module, named)
        if why is not None:
            self._why = why
            return False
        groups = [group for _, group in repeated(module)]
        self._blocks.update(type(it).__name__ for group in groups for it in group)
        if self.is_active:
            self._shard(wrapper, module, [it for group in groups for it in group])
            self._done += 1
        return self.is_active

    def _not_shardable(self, module, named):
        group, torch = named.get("process_group"), self.torch
        if group is not None and group is not torch.distributed.group.WORLD:
            return "DistributedDataParallel has a process group of its own"
        own = {id(it) for it in module.parameters()}
        for optimizer in _optimizers(torch):
            if any(id(it) in own for group in optimizer.param_groups for it in group["params"]):
                return (
                    "%s is made before DistributedDataParallel, and would keep the whole weights: make it after it"
                    % type(optimizer).__name__
                )
        return None

    def _shard(self, wrapper, module, blocks):
        from torch.distributed.fsdp import fully_shard

        self.torch.nn.Module.__init__(wrapper)
        for it in [*blocks, module]:
            fully_shard(it, **self.options)
        wrapper.module = module
        wrapper.forward = lambda *arguments, **named: module(*arguments, **named)

        @contextmanager
        def no_sync():
            module.set_requires_gradient_sync(False)
            try:
                yield
            finally:
                module.set_requires_gradient_sync(True)

        wrapper.no_sync = no_sync

    def applied(self):
        if self._deep.is_used:
            return self._deep.applied()
        blocks = ", ".join(sorted(self._blocks))
        each = "for each %s: fully_shard(block%s); then " % (blocks, self.written) if blocks else ""
        self.edit = [
            (None, "from torch.distributed.fsdp import fully_shard"),
            (self._line, "%sfully_shard(model%s) instead of DistributedDataParallel" % (each, self.written)),
        ]
        return self.counted("model", "the job uses neither DistributedDataParallel nor DeepSpeed")


class ZeroTwo(ZeroThree):
    """Each rank keeps its share of gradients and states; between forward and backward, the weights are whole."""

    name = "zero:2"
    stage = 2
    options, written = {"reshard_after_forward": False}, ", reshard_after_forward=False"


class Reshard(_Wrappers):
    """FSDP frees the weights of a block after its forward, and gathers them again in backward."""

    name = "reshard"
    is_outside_functions = True

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        self._is_sharded = False
        self._edit = "fully_shard(…)  # without reshard_after_forward=False"

    def install(self):
        self.advise.switches.on_called(_FSDP2, "fully_shard", self._second)
        self.advise.switches.on_made(_FSDP1, "FullyShardedDataParallel", self._first)

    def _second(self, values, frame):
        self._is_sharded = True
        if values.get("reshard_after_forward") is False:
            self.see(frame)
            if self.is_active:
                del values["reshard_after_forward"]
                self._done += 1

    def _first(self, values):
        self._is_sharded = True
        strategy = getattr(values.get("sharding_strategy"), "name", "")
        other = {"SHARD_GRAD_OP": "FULL_SHARD", "_HYBRID_SHARD_ZERO2": "HYBRID_SHARD"}.get(strategy)
        if other is not None:
            self._edit = "sharding_strategy=ShardingStrategy.%s" % other
            self.see(sys._getframe(2))
            if self.is_active:
                values["sharding_strategy"] = type(values["sharding_strategy"])[other]
                self._done += 1

    def applied(self):
        self.edit = [(self._line, self._edit)]
        otherwise = "FSDP frees gathered weights already" if self._is_sharded else "the job does not use FSDP"
        return self.counted("module", otherwise)


class Offload(_Wrappers):
    """Each rank keeps its share in host memory, where the optimizer steps; of DeepSpeed, the states."""

    name = "offload"
    is_outside_functions = True

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        self._deep = _DeepSpeed(self, None)
        self._edit = "fully_shard(…, offload_policy=CPUOffloadPolicy())"
        self._sharded = []
        # What this technique gave FSDP, which hands it to wrappers of blocks.
        self._own = None

    def install(self):
        self._deep.install()
        self.advise.switches.on_called(_FSDP2, "fully_shard", self._second)
        self.advise.switches.on_made(_FSDP1, "FullyShardedDataParallel", self._first)

    def _second(self, values, frame):
        policy = values.get("offload_policy")
        if type(policy).__name__ == "CPUOffloadPolicy":
            self._why = "FSDP keeps shards in host memory already"
            return
        self.see(frame)
        if self.is_active:
            from torch.distributed.fsdp import CPUOffloadPolicy

            values["offload_policy"] = CPUOffloadPolicy()
            self._done += 1
            modules = values["module"]
            self._sharded += modules if isinstance(modules, (list, tuple)) else [modules]

    def _first(self, values):
        given = values.get("cpu_offload")
        if given is not None and given is self._own:
            return
        if getattr(given, "offload_params", False):
            self._why = "FSDP keeps shards in host memory already"
            return
        self._edit = "FullyShardedDataParallel(…, cpu_offload=CPUOffload(offload_params=True))"
        self.see(sys._getframe(2))
        if self.is_active:
            from torch.distributed.fsdp import CPUOffload

            values["cpu_offload"] = self._own = CPUOffload(offload_params=True)
            self._done += 1
            self._sharded.append(values["module"])

    def applied(self):
        if self._deep.is_used:
            return self._deep.applied()
        self.edit = [(self._line, self._edit)]
        self.price = {"host_bytes": self._host_bytes()}
        return self.counted("module", "the job uses neither FSDP nor DeepSpeed")

    def _host_bytes(self):
        """Returns the bytes of weights in host memory; gradients and states come to the same places."""
        all_of = {id(it): it for one in self._sharded for it in one.parameters()}
        locals_ = (getattr(it, "_local_tensor", it) for it in all_of.values())
        return sum(it.numel() * it.element_size() for it in locals_ if it.device.type == "cpu")


class _DeepSpeed:
    """The configuration that a job gives DeepSpeed, with another stage, or with states in host memory."""

    def __init__(self, technique, stage):
        self._technique = technique
        self._stage = stage
        self.is_used = False
        self._why = None
        self._engines = []

    def install(self):
        self._technique.advise.switches.on_called("deepspeed", "initialize", self._initialize, self._engine)

    def _initialize(self, values, frame):
        technique = self._technique
        if not self.is_used:
            # Optimizers that the job makes itself are DeepSpeed's.
            technique._seen = 0
        self.is_used = True
        technique.see(frame)
        name = next((it for it in ("config", "config_params") if values.get(it) is not None), None)
        given = values[name] if name else getattr(values.get("args"), "deepspeed_config", None)
        if isinstance(given, str):
            with open(given) as file:
                given = json.load(file)
        if not isinstance(given, dict):
            self._why = "DeepSpeed's configuration is neither a dictionary nor a file of JSON"
            return
        zero = dict(given.get("zero_optimization") or {})
        if self._stage is not None and zero.get("stage", 0) >= self._stage:
            self._why = "DeepSpeed's stage is %s already" % zero.get("stage", 0)
        elif self._stage is None and (zero.get("offload_optimizer") or {}).get("device", "none") != "none":
            self._why = "DeepSpeed keeps states in host memory already"
        elif self._stage is None and not zero.get("stage", 0):
            self._why = "without a stage of ZeRO, DeepSpeed keeps states where the optimizer does"
        elif technique.is_active:
            values.pop("config_params", None)
            values["config"] = {**given, **self._with(zero)}
            technique._done += 1

    def _with(self, zero):
        if self._stage is not None:
            return {"zero_optimization": {**zero, "stage": self._stage}}
        # DeepSpeed's own Adam for the host needs a compiler.
        offload = {"offload_optimizer": {"device": "cpu"}}
        return {"zero_optimization": {**zero, **offload}, "zero_force_ds_cpu_optimizer": False}

    def _engine(self, result):
        self._engines.append(result[0])

    def applied(self):
        technique = self._technique
        change = '"stage": %s' % self._stage if self._stage is not None else '"offload_optimizer": {"device": "cpu"}'
        technique.edit = [(technique._line, '"zero_optimization": {…, %s} in DeepSpeed\'s configuration' % change)]
        if self._why is not None:
            raise Refused(self._why)
        stages = [it.zero_optimization_stage() for it in self._engines]
        if technique.is_active and self._stage is not None and any(it != self._stage for it in stages):
            raise Refused("DeepSpeed runs with stage %s" % stages[0])
        return of_all(technique._done if technique.is_active else technique._seen, technique._seen, "engine")


def _optimizers(torch):
    """Returns the optimizers that live."""
    # An object's own `__class__` is not asked: what it does is the job's.
    return [it for it in gc.get_objects() if issubclass(type(it), torch.optim.Optimizer)]
