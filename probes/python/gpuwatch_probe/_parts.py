"""Counts what the allocated memory consists of, at the ends of steps: weights, gradients, optimizer state.

Weights are the parameters of the optimizers whose steps the probe sees, and of the modules that have one of them: the
frozen base of an adapter as well. Gradients are those of all these parameters. Optimizer state is what the optimizers
keep for them. Each storage counts once, on its device, rounded up as the allocator does; all other memory is the
rest, which the viewer calls retained. Buffers, copies of models and what optimizers keep elsewhere are in the rest.

The count takes microseconds for each tensor, so it is made seldom (`_is_due`) and in slices, each at the end of a step:
at most a millisecond, and a hundredth of a step. No code of the job's classes runs. Nothing is copied or moved, and
between two slices the walk refers only to objects that its optimizers and modules hold.
"""

import sys
import weakref
from time import monotonic, perf_counter
from types import MemberDescriptorType

from ._captures import Resting
from ._frames import is_library, is_own, values_here
from ._oom import is_ours
from ._optimizers import own
from ._references import is_a, namespace, namespaces

# The allocator rounds a block up to a multiple of this.
ROUND = 512

# Optimizers at once, and tensors of a walk: a job with more is not counted.
_MOST, _MOST_TENSORS = 16_384, 400_000

# Optimizers whose groups and states are looked at for changes.
_MOST_READ = 32

# Seconds of a slice, and the part of a step that it may take.
SLICE, SHARE = 0.000_6, 0.01

# Steps from the beginning at which every change is counted at once.
_FIRST = 4

# Seconds between walks: after a change of what optimizers have, of the allocated bytes, and without a change.
_AFTER_CHANGE, _AFTER_LEVEL, _ANYWAY = 1, 10, 60

# Parameters that are counted between two looks at the clock.
_TOGETHER = 8

# States of an optimizer of which those of other keys than parameters are searched for.
_MOST_OTHERS = 512

# Levels of containers within an optimizer's state, and of tensors within tensors.
_DEPTH = 4

# Frames in which models are searched for, those between two looks at the clock, and variables of a module or an object.
_MOST_FRAMES, _FRAMES_TOGETHER, _MOST_GLOBALS = 40, 2, 2000

# Models that are kept in mind.
_MOST_MODELS = 64

WEIGHTS, GRADIENTS, OPTIMIZER = range(3)


class Parts:
    """The walks over the optimizers of a job, one at a time; on the threads that train.

    `round_to` is what the allocator rounds blocks up to.
    """

    def __init__(self, torch, round_to=ROUND, clock=monotonic, timer=perf_counter):
        self._torch, self._round, self._clock, self._timer = torch, round_to, clock, timer
        # By id: optimizers compare as the job likes.
        self._optimizers, self._models = {}, {}
        self._walk, self._reader = None, None
        self._is_off = self._is_in = False
        # When the latest walk ended, and what was there then; and the latest boundary with the number of its step.
        self._ended_at, self._shape, self._levels = None, None, None
        self._boundary = None
        # Slices, and the longest one in seconds.
        self.slices, self.longest = 0, 0.0

    @property
    def is_walking(self):
        """Whether a walk waits for the end of the next step."""
        return self._walk is not None

    def see(self, optimizer):
        """Takes note of an optimizer whose step ended."""
        known = self._optimizers.get(id(optimizer))
        if known is None or known() is not optimizer:
            self._add(optimizer)

    def turn(self, number, is_due, levels):
        """Continues a walk at the end of a step, or begins one where `is_due`, a second since the last time, or one of
        the first steps. `levels()` returns the allocated bytes of the devices.

        Returns {device: (weights, gradients, optimizer)} in bytes where a walk is complete, and `None` otherwise.
        """
        if self._is_off or self._is_in or not (self._walk or is_due) or not self._optimizers:
            return None
        self._is_in = True
        try:
            return self._turn(number, is_due, levels)
        except Exception as error:
            if not is_ours(error):
                raise
            # Objects of another kind: this job's parts stay unknown.
            self._is_off, self._walk = True, None
        finally:
            self._is_in = False
        return None

    def models(self):
        """Returns the models that were found."""
        return [it for it in (ref() for ref in self._models.values()) if it is not None]

    def optimizers(self):
        """Returns the optimizers whose steps were seen."""
        return self._living()

    def forget(self):
        """Ends it for good."""
        self._is_off, self._walk = True, None
        self._optimizers, self._models = {}, {}

    def _add(self, optimizer):
        self._optimizers = {key: it for key, it in self._optimizers.items() if it() is not None}
        if len(self._optimizers) >= _MOST:
            self._is_off = True
            return
        try:
            self._optimizers[id(optimizer)] = weakref.ref(optimizer)
        except TypeError:
            pass  # A class without weak references; what it has is in the rest.

    def _turn(self, number, is_due, levels):
        now = self._clock()
        before, self._boundary = self._boundary, (now, number)
        if self._walk is None:
            if not self._is_due(now, number, levels):
                return None
            self._walk = self._steps()
        elif self._shape_now() != self._shape:
            # What is counted changed meanwhile.
            self._shape = self._shape_now()
            self._walk = self._steps()
        budget = SLICE
        if before is not None and number > before[1]:
            budget = min(SLICE, SHARE * (now - before[0]) / (number - before[1]))
        with Resting(), self.without_overrides():
            return self._slice(budget, levels)

    def _slice(self, budget, levels):
        begun, timer = self._timer(), self._timer
        self.slices += 1
        try:
            for _ in self._walk:
                if timer() - begun >= budget:
                    return None
        finally:
            self.longest = max(self.longest, timer() - begun)
        self._walk = None
        self._ended_at, self._levels = self._clock(), levels()
        return self._reader.found()

    def _is_due(self, now, number, levels):
        shape = self._shape_now()
        waited = None if self._ended_at is None else now - self._ended_at
        if waited is None or shape != self._shape:
            is_due = waited is None or waited >= _AFTER_CHANGE or number <= _FIRST
        elif levels() != self._levels:
            is_due = waited >= _AFTER_LEVEL or number <= _FIRST
        else:
            is_due = waited >= _ANYWAY
        if is_due:
            self._shape = shape
        return is_due

    def _shape_now(self):
        """Returns how many groups, parameters and states the optimizers have; of very many, only how many they are."""
        groups_, parameters, states = 0, 0, 0
        if len(self._optimizers) > _MOST_READ:
            return (len(self._optimizers),)
        for optimizer in self._living():
            for group in list.__iter__(_groups(optimizer)):
                groups_, parameters = groups_ + 1, parameters + list.__len__(_parameters(group))
            state = own(optimizer, "state")
            states += dict.__len__(state) if is_a(state, dict) else 0
        return len(self._optimizers), groups_, parameters, states

    def _living(self):
        return [it for it in (ref() for ref in self._optimizers.values()) if it is not None]

    def without_overrides(self):
        """Returns a context in which tensors' attributes are read without `__torch_function__`."""
        return getattr(self._torch._C, "DisableTorchFunction", Resting)()

    def _steps(self):
        """Yields after each small part of the work. In between it holds nothing of the job's but weakly: a job may
        drop an optimizer or a model and expect its memory back."""
        self._reader = Reader(self._torch, self._round)
        place = 0
        while place is not None:
            place = self._find_models(place)
            yield
        yield from self.walk(self._reader)

    def walk(self, reader, has_models=True):
        """Gives a reader all parameters, what optimizers keep for them, and the other parameters of models; yields
        after each small part of the work, and holds nothing in between."""
        optimizers, trained = list(self._optimizers.values()), set()
        for ref in optimizers:
            place, states = (0, 0), 0
            while place is not None:
                place, found = _next_parameters(ref, place, reader, trained)
                states += found
                yield
            _other_states(ref, states, reader, trained)
            yield
        for ref in list(self._models.values()) if has_models else ():
            yield from _of_model(ref, reader, trained)

    def _find_models(self, place):
        """Takes note of the models that functions of the training thread have at hand; reads some frames from a place
        on, counted from the innermost one. Returns the next place."""
        frame, at = sys._getframe(1), 0
        while frame is not None and at < _MOST_FRAMES:
            if not is_own(frame):
                if at >= place + _FRAMES_TOGETHER:
                    return at
                if at >= place:
                    self._find_in(frame)
                at += 1
            frame = frame.f_back
        return None

    def _find_in(self, frame):
        module, space = self._torch.nn.Module, frame.f_globals
        self._find_among(values_here(frame), module)
        if not is_library(frame.f_code.co_filename) and type(space) is dict and len(space) <= _MOST_GLOBALS:
            self._find_among(list(space.values()), module)

    def _find_among(self, found, module):
        self._models = {key: it for key, it in self._models.items() if it() is not None}
        for it in found:
            if is_a(it, type):
                continue
            if is_a(it, module):
                self._model(it)
            elif not is_a(it, (dict, list, tuple, str, int, float)):
                space = namespace(it)
                if space is not None and len(space) <= _MOST_GLOBALS:
                    for inner in list(dict.values(space)):
                        if is_a(inner, module):
                            self._model(inner)

    def _model(self, it):
        if id(it) not in self._models and len(self._models) < _MOST_MODELS:
            self._models[id(it)] = weakref.ref(it)


class Reader:
    """Adds up storages, each once."""

    def __init__(self, torch, round_to):
        c = torch._C
        base = self._base = c.TensorBase
        self._round = round_to
        self._storage, self._size, self._id = base.untyped_storage, c.StorageBase.nbytes, c.StorageBase._cdata.__get__
        self._grad, self._bytes = base.__dict__["grad"].__get__, base.__dict__["nbytes"].__get__
        self._device, self._sparse = base.get_device, base.__dict__["is_sparse"].__get__
        self._indices, self._values = base._indices, base._values
        # A tensor hashes by its address, and a dictionary compares elements only of those with the same hash.
        self._hash = torch.Tensor.__dict__["__hash__"]
        # By the id of a type: whether it consists of other tensors, and whether it hashes by address.
        self._kinds = {}
        # By the same: the slots of types that consist of others.
        self._members = {}
        self._storages, self._parameters, self._sums, self._tensors = set(), set(), {}, 0

    def found(self):
        """Returns {device: (weights, gradients, optimizer)}."""
        return {device: tuple(it) for device, it in self._sums.items()}

    def parameter(self, it):
        """Counts a parameter and its gradient."""
        if id(it) in self._parameters or self._kind(it) is None:
            return
        self._parameters.add(id(it))
        self._tensor(WEIGHTS, it)
        gradient = self._grad(it)
        if gradient is not None:
            self._tensor(GRADIENTS, gradient)

    def other_parameter(self, it):
        """Counts a parameter of a model that no optimizer has."""
        self.parameter(it)

    def is_hashed_by_address(self, it):
        """Returns whether it is a tensor that a dictionary finds without code of the job's."""
        kind = self._kind(it)
        return kind is not None and kind[1]

    def state(self, of, depth=_DEPTH):
        """Counts what an optimizer keeps for a parameter."""
        if is_a(of, dict):
            for it in list(dict.values(of)) if depth else ():
                self.state(it, depth - 1)
        elif is_a(of, (list, tuple)):
            for it in (list if is_a(of, list) else tuple).__iter__(of) if depth else ():
                self.state(it, depth - 1)
        elif self._kind(of) is not None:
            self._tensor(OPTIMIZER, of)

    def _kind(self, it):
        """Returns whether a tensor's type consists of other tensors, and whether it hashes by address; `None` for
        anything but a tensor."""
        kind = type(it)
        known = self._kinds.get(id(kind), self)
        if known is self:
            known = None
            if issubclass(kind, self._base):
                space = next((one for one in namespaces(kind) if "__hash__" in one), {})
                consists = any("__tensor_flatten__" in one for one in namespaces(kind))
                known = consists, space.get("__hash__") is self._hash
            self._kinds[id(kind)] = known
        return known

    def _tensor(self, part, it, depth=_DEPTH):
        self._tensors += 1
        if self._tensors > _MOST_TENSORS:
            raise OverflowError("too many tensors")
        if self._kind(it)[0]:
            for one in self._inner(it) if depth else ():
                if self._kind(one) is not None:
                    self._tensor(part, one, depth - 1)
            return
        device = self._device(it)
        if device < 0:
            return
        try:
            storage = self._storage(it)
        except NotImplementedError:
            # Another layout; of those, optimizers know one.
            for one in (self._indices(it), self._values(it)) if self._sparse(it) and depth else ():
                self._tensor(part, one, 0)
            return
        size = self._size(storage)
        # A gradient may be another block at the next slice, at the place of one that was counted. Only those that
        # share a storage stay where they are.
        if part != GRADIENTS or self._bytes(it) < size:
            key = self._id(storage)
            if key in self._storages:
                return
            self._storages.add(key)
        if size:
            self._count(part, device, storage, it)

    def _inner(self, it):
        """Returns what a tensor that consists of others has in its dictionary and its slots."""
        members = self._members.get(id(type(it)))
        if members is None:
            found = (member for space in namespaces(type(it)) for member in list(space.values()))
            members = self._members[id(type(it))] = [one for one in found if type(one) is MemberDescriptorType]
        space = namespace(it)
        inner = list(dict.values(space)) if space else []
        for member in members:
            try:
                inner.append(member.__get__(it))
            except AttributeError:
                pass  # An empty slot.
        return inner

    def _count(self, part, device, storage, it):
        sums = self._sums.get(device)
        if sums is None:
            sums = self._sums[device] = [0, 0, 0]
        sums[part] += -(-self._size(storage) // self._round) * self._round


class Addresses(Reader):
    """Lists addresses in the blocks of tensors instead of adding up their bytes."""

    def __init__(self, torch):
        super().__init__(torch, 1)
        self._address, self._at = torch._C.StorageBase.data_ptr, self._base.data_ptr
        self._is_cow = getattr(torch._C, "_is_cow_tensor", None)
        self._tensors_type, self._parameters_type = torch.Tensor, torch.nn.Parameter
        self._has_gradient = self._base.__dict__["requires_grad"].__get__
        # `(device, part, address)`, and references to parameters that no optimizer has, and that get a gradient.
        self.found, self.others = [], []

    def parameter(self, it):
        """Lists a parameter."""
        self._list(WEIGHTS, it)

    def other_parameter(self, it):
        self.parameter(it)
        if self._kind(it) is not None and self._has_gradient(it):
            self.others.append(weakref.ref(it))

    def state(self, of, depth=_DEPTH):
        if is_a(of, dict) and depth:
            for it in list(dict.values(of)):
                if not self._is_listed(OPTIMIZER, it):
                    super().state(it, depth - 1)
        else:
            super().state(of, depth)

    def _list(self, part, it):
        if not self._is_listed(part, it) and self._kind(it) is not None:
            self._tensor(part, it)

    def _is_listed(self, part, it):
        """Lists a tensor of a usual type; returns false for all else."""
        kind = type(it)
        if kind is not self._tensors_type and kind is not self._parameters_type:
            return False
        if self._is_cow is None or self._is_cow(it):
            return False
        device = self._device(it)
        if device >= 0:
            try:
                self.found.append((device, part, self._at(it)))
            except RuntimeError:
                # Another layout.
                return False
        return True

    def _count(self, part, device, storage, it):
        # To read the address of a copy that is made when it is written to would make it.
        if self._is_cow is None or not self._is_cow(it):
            self.found.append((device, part, self._address(storage)))


class GradientAddresses(Addresses):
    """Lists those of gradients."""

    def parameter(self, it):
        """Lists the gradient of a parameter."""
        gradient = None if self._kind(it) is None else self._grad(it)
        if gradient is not None:
            self._list(GRADIENTS, gradient)

    def state(self, of, depth=_DEPTH):
        """Lists nothing."""


def addresses(parts, torch, others):
    """Yields lists of `(device, part, address)`: of the parameters of a job's optimizers and models and of optimizer
    state. Adds references to parameters that get a gradient, and that no optimizer has, to `others`."""
    reader = Addresses(torch)
    reader.others = others
    for _ in parts.walk(reader):
        yield _new(reader)


def gradients(parts, torch, others):
    """Yields the same of the gradients of optimizers' parameters and of the others."""
    reader = GradientAddresses(torch)
    for _ in parts.walk(reader, False):
        yield _new(reader)
    for ref in others:
        reader.parameter(ref())
        yield _new(reader)


def _new(reader):
    new, reader.found = reader.found, []
    return [it for it in new if it[2]]


def _groups(optimizer):
    """Returns the groups of parameters."""
    groups = own(optimizer, "param_groups")
    return groups if is_a(groups, list) else []


def _parameters(group):
    """Returns the list of parameters of a group."""
    parameters = dict.get(group, "params") if is_a(group, dict) else None
    return parameters if is_a(parameters, list) else []


def _next_parameters(ref, place, reader, trained):
    """Counts some parameters of an optimizer from a place on, with what it keeps for them; returns the next place, and
    for how many it keeps something."""
    (group, at), found = place, 0
    optimizer = ref()
    if optimizer is None:
        return None, 0
    groups, state = _groups(optimizer), own(optimizer, "state")
    states = state if is_a(state, dict) else {}
    for _ in range(_TOGETHER):
        if group >= list.__len__(groups):
            return None, found
        parameters = _parameters(list.__getitem__(groups, group))
        if at >= list.__len__(parameters):
            group, at = group + 1, 0
            continue
        it = list.__getitem__(parameters, at)
        at += 1
        trained.add(id(it))
        reader.parameter(it)
        if reader.is_hashed_by_address(it):
            of = dict.get(states, it)
            found += of is not None
            reader.state(of)
    return (group, at), found


def _other_states(ref, found, reader, trained):
    """Counts what an optimizer keeps under other keys than its parameters, for which `found` were found."""
    state = own(ref(), "state")
    if is_a(state, dict) and found < dict.__len__(state) <= _MOST_OTHERS:
        for key, of in list(dict.items(state)):
            if id(key) not in trained or not reader.is_hashed_by_address(key):
                reader.state(of)


def _of_model(ref, reader, trained):
    """Counts the parameters of a model that has a trained one; yields after each module."""
    modules, seen, parameters = [ref], set(), []
    is_trained = False
    while modules:
        found, inner = _of_module(modules.pop(), seen)
        modules += inner
        is_trained = is_trained or any(id(it) in trained for it in found)
        parameters += [weakref.ref(it) for it in found if id(it) not in trained]
        del found
        yield
    for it in parameters if is_trained else ():
        reader.other_parameter(it())
        yield


def _of_module(ref, seen):
    """Returns the parameters of a module, and references to the modules in it."""
    module = ref()
    if module is None or id(module) in seen or len(seen) > _MOST_TENSORS:
        return [], []
    seen.add(id(module))
    space = namespace(module) or {}
    parameters, inner = dict.get(space, "_parameters"), dict.get(space, "_modules")
    found = [it for it in dict.values(parameters) if it is not None] if is_a(parameters, dict) else []
    modules = [weakref.ref(it) for it in dict.values(inner) if it is not None] if is_a(inner, dict) else []
    return found, modules
