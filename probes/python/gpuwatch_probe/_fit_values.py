"""Answers to reads of values that a simulated device does not compute: those of a healthy training.

Operations on truth values and constants are followed through PyTorch's dispatcher, below autograd, so that a NaN check
finds none and a mask that is full of ones stays so. A number is finite. Where the size of a result depends on values,
it is the largest one (`GPUWATCH_FIT_VALUES=least`: the smallest). All other reads get answers with which the program
continues (`_fit_branches.py`), and other ones once the same line has read many times between two steps.
"""

import functools
import math
import os
import sys
import threading
import weakref

from ._fit_branches import Branches

# The answer to reads within operations whose results depend on values in size.
SIZE = object()
# Reads of one line between two steps, after which it gets other answers.
_MANY = 1000


def _open(function):
    """Returns the function for known values: where one is not known, or where it fails, its result is not known."""

    def opened(*arguments):
        try:
            return None if arguments[0] is None else function(*arguments)
        except Exception:
            return None

    return opened


class Values:
    """What is known of tensors on the device, and how their reads are answered."""

    def __init__(self, torch, unknowns):
        self._torch = torch
        self._unknowns = unknowns
        self.branches = Branches(unknowns.trees)
        # Constants: {address of a storage: (weak reference to it, the value of each element)}.
        self._known = {}
        self._counts = {}
        self._here = threading.local()
        self._library = None
        self.is_least = os.environ.get("GPUWATCH_FIT_VALUES") == "least"
        self._many = 1 if self.is_least else _MANY

    def install(self):
        """Follows the operations from now on."""
        torch = self._torch
        aten = torch.ops.aten
        self._library = torch.library.Library("aten", "IMPL")

        def use(name, function):
            # A PyTorch that lacks one of them continues without it.
            try:
                self._library.impl(name, function, "CUDA")
            except Exception:
                pass

        for name in ("eq", "ne", "lt", "le", "gt", "ge"):
            op = getattr(aten, name)
            use(name + ".Scalar", self._comparison(name, op.Scalar_out))
            use(name + ".Tensor", self._comparison(name, op.Tensor_out))
        for name in ("bitwise_and", "bitwise_or"):
            op = getattr(aten, name)
            use(name + ".Tensor", self._binary(name, op.Tensor_out, None))
            use(name + "_.Tensor", self._in_place(name, op.Tensor_out))
        for name in ("logical_and", "logical_or"):
            use(name, self._binary(name, getattr(aten, name).out, torch.bool))
            use(name + "_", self._in_place(name, getattr(aten, name).out))
        use("bitwise_not", self._unary(aten.bitwise_not.out, _inverse, None))
        use("logical_not", self._unary(aten.logical_not.out, _open(lambda it: not it), torch.bool))
        use("all", self._unary(aten.all.all_out, _open(bool), torch.bool, keeps_bytes=True))
        use("any", self._unary(aten.any.all_out, _open(bool), torch.bool, keeps_bytes=True))
        for name in ("all", "any"):
            op = getattr(aten, name)
            use(name + ".dim", self._over(op.out))
            use(name + ".dims", self._over(getattr(op, "dims_out", None)))
        use("max", self._unary(aten.max.unary_out, lambda it: it, None))
        use("min", self._unary(aten.min.unary_out, lambda it: it, None))
        use("sum", self._sum)
        use("isfinite", self._isfinite)
        use("fill_.Scalar", self._fill)
        use("nonzero", self._nonzero)
        use("_local_scalar_dense", self._read)
        if hasattr(aten._to_copy.default, "_op_dk"):
            use("_to_copy", self._copy)
        self._assign()
        self._sized("_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive")

    def step(self):
        """An optimizer step has ended."""
        self._counts.clear()

    def _copy(self, tensor, **named):
        """Copies; what is copied to the host is there what it is known to be, and of truth values that are not known,
        all are true: a mask selects the most."""
        torch = self._torch
        kernel = torch.ops.aten._to_copy.default._op_dk
        copied = kernel(torch._C.DispatchKey.CompositeExplicitAutograd, tensor, **named)
        if tensor.is_cuda and copied.device.type == "cpu" and copied.numel():
            value = self._value(tensor)
            if isinstance(value, _Count):
                value = None
            if value is None and tensor.dtype is torch.bool and tensor.numel() > 1:
                value = True
            if value is not None:
                copied.fill_(value)
        return copied

    # What is known

    def _note(self, tensor, value):
        if value is None:
            return tensor
        storage = tensor.untyped_storage()
        address = storage.data_ptr()

        def gone(reference):
            if self._known.get(address, (None,))[0] is reference:
                del self._known[address]

        self._known[address] = weakref.ref(storage, gone), value
        return tensor

    def _value(self, it):
        """Returns the value of each element of a tensor, or a number itself; `None` if it is not known."""
        if not isinstance(it, self._torch.Tensor):
            return it
        if not it.is_cuda:
            return it.item() if it.dim() == 0 else None
        found = self._known.get(it.untyped_storage().data_ptr())
        return found and found[1] if found is None or found[0]() is not None else None

    def _forget(self, tensor):
        self._known.pop(tensor.untyped_storage().data_ptr(), None)

    # Operations. Their variants with `out` allocate as they do.

    def _empty(self, like, dtype):
        return self._torch.empty(0, dtype=dtype, device=like.device)

    def _operands(self, *all_):
        """Returns operands as tensors: a number that PyTorch had made one for an operator arrives as a number."""
        torch = self._torch
        return [it if isinstance(it, torch.Tensor) else torch.tensor(it, device="cpu") for it in all_]

    def _comparison(self, name, op):
        bool_, scalars = self._torch.bool, (getattr(self._torch.ops.aten, name).Scalar_out,)
        compare = {
            "eq": lambda a, b: a == b,
            "ne": lambda a, b: a != b,
            "lt": lambda a, b: a < b,
            "le": lambda a, b: a <= b,
            "gt": lambda a, b: a > b,
            "ge": lambda a, b: a >= b,
        }[name]

        def compared(self_, other):
            one, two = self._operands(self_, other)
            out = self._empty(one if one.is_cuda else two, bool_)
            return self._note(op(one, other if op in scalars else two, out=out), result(self_, other))

        @_open
        def result(one, other):
            a, b = self._value(one), self._value(other)
            if isinstance(a, _Count) or isinstance(b, _Count):
                return None
            if a is not None and b is not None:
                return bool(compare(a, b))
            if _is_same(self._torch, one, other):
                return name in ("eq", "le", "ge")
            # Every number is finite.
            for known, is_first in ((a, True), (b, False)):
                if isinstance(known, float) and not math.isfinite(known):
                    return bool(compare(known, 1.0) if is_first else compare(1.0, known))
            return None

        return compared

    @_open
    def _decided(self, name, one, other):
        a, b = self._value(one), self._value(other)
        if isinstance(a, _Count) or isinstance(b, _Count):
            return None
        is_and = name.endswith("and")
        if a is not None and b is not None:
            if name.startswith("bitwise"):
                return a & b if is_and else a | b
            return bool(a and b) if is_and else bool(a or b)
        known = a if a is not None else b
        if is_and and known is not None and not known:
            return known
        return known if not is_and and known is True else None

    def _binary(self, name, op, dtype):
        def combined(self_, other):
            one, two = self._operands(self_, other)
            out = self._empty(one if one.is_cuda else two, dtype or self._torch.result_type(self_, other))
            return self._note(op(one, two, out=out), self._decided(name, self_, other))

        return combined

    def _in_place(self, name, op):
        def combined(self_, other):
            value = self._decided(name, self_, other)
            self._forget(self_)
            return self._note(op(*self._operands(self_, other), out=self_), value)

        return combined

    def _unary(self, op, result, dtype, keeps_bytes=False):
        """`keeps_bytes`: a result of bytes is of bytes."""

        def applied(self_):
            value = self._value(self_)
            is_bytes = keeps_bytes and self_.dtype is self._torch.uint8
            out = op(self_, out=self._empty(self_, self_.dtype if is_bytes else dtype or self_.dtype))
            return self._note(out, None if isinstance(value, _Count) else result(value))

        return applied

    def _over(self, op):
        def applied(self_, dim=None, keepdim=False):
            kind = self_.dtype if self_.dtype is self._torch.uint8 else self._torch.bool
            value = self._value(self_)
            out = op(self_, dim, keepdim, out=self._empty(self_, kind))
            return self._note(out, None if value is None or isinstance(value, _Count) else bool(value))

        return applied

    def _sum(self, self_, *, dtype=None):
        out = self._torch.ops.aten.sum.dim_IntList(self_, None, False, dtype=dtype)
        value = self._value(self_)
        if isinstance(value, (bool, int)):
            return self._note(out, value * self_.numel())
        return self._note(out, _Count(self_.numel()) if self_.dtype is self._torch.bool else None)

    def _isfinite(self, self_):
        return self._note(self._torch.ops.aten.isfinite.default.decompose(self_), True)

    def _fill(self, self_, value):
        # The kernel is the same, and this way to it does not lead back here.
        kind = self._torch.float64 if isinstance(value, float) else None
        self._torch.ops.aten.fill_.Tensor(self_, self._torch.tensor(value, dtype=kind, device="cpu"))
        is_whole = self_.numel() * self_.element_size() == self_.untyped_storage().nbytes()
        self._forget(self_)
        if is_whole and isinstance(value, (bool, int, float)):
            self._note(self_, _as(self._torch, self_.dtype, value))
        return self_

    # Sizes

    def _nonzero(self, self_):
        out = self._empty(self_, self._torch.int64)
        selected = getattr(self._here, "selected", None)
        if selected is not None:
            sized = _Sized(self._here, min(selected, self_.numel()), Answer(selected, True, False, False))
        else:
            sized = _Sized(self._here, 0 if self.is_least else self_.numel())
        with sized:
            return self._torch.ops.aten.nonzero.out(self_, out=out)

    def _assign(self):
        """Has a mask select as many elements as are assigned to it, as in `expected[mask] = values`."""
        tensors, here, assign = self._torch.Tensor, self._here, self._torch.Tensor.__setitem__

        @functools.wraps(assign)
        def assigned(self_, index, value):
            masks = [it for it in (index if type(index) is tuple else (index,)) if isinstance(it, tensors)]
            is_mask = len(masks) == 1 and masks[0].dtype is self._torch.bool
            if not is_mask or not isinstance(value, tensors) or not value.dim() or value.shape[0] < 2:
                return assign(self_, index, value)
            here.selected = value.shape[0]
            try:
                return assign(self_, index, value)
            finally:
                here.selected = None

        tensors.__setitem__ = assigned

    def _sized(self, *names):
        """Has the results of operations be as large as their input."""
        below = self._torch._C._AutoDispatchBelowAutograd

        def wrap(op):
            def sized(self_, *arguments, **named):
                # The smallest has one element, because there is one.
                size = min(1, self_.numel()) if self.is_least else self_.numel()
                with below(), _Sized(self._here, size):
                    return op(self_, *arguments, **named)

            return sized

        for name in names:
            op = getattr(self._torch.ops.aten, name, None)
            if op is not None:
                try:
                    self._library.impl(name, wrap(op.default), "AutogradCUDA")
                except Exception:
                    pass

    # Reads

    def _read(self, self_):
        """Reads one value: what a program copied in, or an answer."""
        here = self._here
        if getattr(here, "sizes", None):
            return _host(self._torch, self_)
        frame = _caller()
        here.answer, here.frame, here.is_used = self._answer(self_, frame), frame, False
        try:
            host = _host(self._torch, self_)
        finally:
            answer, is_used = here.answer, here.is_used
            here.answer = here.frame = None
        return answer.value if is_used else host

    def read(self):
        """Answers a read of a few bytes whose value was not computed: (a whole number, the read's frame, its answer).

        Within an operation whose result has a size that depends on values, the answer is that size, and `SIZE`.
        """
        here = self._here
        if getattr(here, "sizes", None):
            return here.sizes[-1]
        if getattr(here, "answer", None) is not None:
            here.is_used = True
            return 0, here.frame, here.answer
        return 0, None, None

    def _answer(self, tensor, frame):
        torch, dtype = self._torch, tensor.dtype
        known = self._value(tensor)
        reader = self._unknowns.reader(frame)
        # PyTorch's own Python code decides as well.
        at = reader or frame
        count = isinstance(known, _Count)
        if count:
            value = 0 if self.is_least else known.most
        elif known is not None:
            value = known
        elif dtype is torch.bool:
            value = bool(at and self.branches.wanted(at))
        elif dtype.is_floating_point:
            # PyTorch's own tests ask for errors (`found_inf`); an optimizer computes with the number of its step.
            is_high = self.branches.is_high(at) if at else None
            is_error = reader is None and (at is None or self.branches.decides(at))
            value = float(is_high if is_high is not None else not is_error)
        else:
            value = 0
        if not value and (known is None or count) and dtype is not torch.bool and at and self.branches.divides(at):
            value = 1
        times = self._count(at)
        is_many = times > self._many and self.branches.may_repeat(at)
        if is_many:
            value = _other(_as(torch, dtype, value), times - self._many)
        value = _as(torch, dtype, value)
        return Answer(value, known is not None and not count and not is_many, is_many, count)

    def _count(self, frame):
        if frame is None:
            return 0
        key = frame.f_code, frame.f_lineno
        times = self._counts[key] = self._counts.get(key, 0) + 1
        return times


class Answer:
    """The answer to one read."""

    __slots__ = ("value", "is_known", "is_many", "is_most")

    def __init__(self, value, is_known, is_many, is_most):
        self.value, self.is_known, self.is_many = value, is_known, is_many
        # Whether it is the highest possible number.
        self.is_most = is_most

    @property
    def is_number(self):
        """Whether it may become a size, and is not what the program would compute."""
        return not isinstance(self.value, bool) and not self.is_known


class _Count:
    """How many of some elements are true: at most all."""

    __slots__ = ("most",)

    def __init__(self, most):
        self.most = most


class _Sized:
    """Reads within an operation get the size of its result."""

    def __init__(self, here, size, answer=SIZE):
        self._here, self._size, self._answer = here, size, answer

    def __enter__(self):
        if not hasattr(self._here, "sizes"):
            self._here.sizes = []
        self._here.sizes.append((self._size, _caller(), self._answer))

    def __exit__(self, *error):
        self._here.sizes.pop()


def _other(value, beyond):
    """Returns another answer than the first one; it changes with the number of reads beyond the most."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return 0.0 if value and beyond <= _MANY else 1e30
    return beyond


def _as(torch, dtype, value):
    """Returns a number as an element of that type."""
    if dtype is torch.bool:
        return bool(value)
    return float(value) if dtype.is_floating_point else complex(value) if dtype.is_complex else int(value)


@_open
def _inverse(value):
    return not value if isinstance(value, bool) else ~value


def _is_same(torch, one, other):
    """Whether two tensors are one: the same elements of the same memory."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor) or not one.is_cuda:
        return False
    return (
        other.is_cuda
        and one.data_ptr() == other.data_ptr()
        and one.shape == other.shape
        and one.stride() == other.stride()
        and one.dtype is other.dtype
    )


def _host(torch, tensor):
    """Copies one value to the host, which reads the device."""
    host = torch.empty((), dtype=tensor.dtype, device="cpu")
    host.copy_(tensor.detach().view(()))
    return host.item()


def _caller():
    """Returns the innermost Python frame outside of the probe; `None` in PyTorch's own threads."""
    return outside(sys._getframe(1))


def outside(frame):
    """Returns the frame, or the next one outside of the probe."""
    own = os.path.dirname(__file__)
    while frame is not None and os.path.dirname(frame.f_code.co_filename) == own:
        frame = frame.f_back
    return frame
