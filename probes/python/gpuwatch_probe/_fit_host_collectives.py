"""Collectives of the host's tensors under `gpuwatch fit`, between ranks of which some are absent.

The ranks that run exchange bytes through the group's store; an absent rank brings what the rank below it that runs
brings, or the first one. It is the same rule by which the simulated NCCL answers (`simgpu`, `nccl/matching.rs`).
"""

import ctypes
import functools


class HostCollectives:
    """The functions that are put in the place of `torch.distributed`'s for a group without a communicator."""

    def __init__(self, torch, c10d, plan, wrap):
        self._torch, self._c10d, self._plan, self._wrap = torch, c10d, plan, wrap
        # The backends that stand for gloo's.
        self._alone = []
        # How many exchanges each group has had.
        self._numbers = {}

    def install(self):
        self._replace_gloo()
        for name in (
            "all_reduce",
            "reduce",
            "broadcast",
            "all_gather",
            "all_gather_into_tensor",
            "all_gather_single",
            "gather",
            "scatter",
            "reduce_scatter",
            "reduce_scatter_tensor",
            "reduce_scatter_single",
            "all_to_all",
            "all_to_all_single",
            "barrier",
            "monitored_barrier",
            "send",
            "recv",
            "isend",
            "irecv",
        ):
            self._wrap(name, functools.partial(self._called, name, getattr(self, "_" + name)))

    def _replace_gloo(self):
        """Makes groups that do not communicate where gloo's would wait for every rank."""
        original, alone = getattr(self._c10d, "ProcessGroupGloo", None), self._alone
        if original is None:
            return
        store, fake = self._torch.distributed.HashStore, self._torch._C._distributed_c10d.FakeProcessGroup
        # From PyTorch 2.15 on, a group is as large as what it communicates with; before, that has to be gloo's.
        is_open = hasattr(self._c10d.Backend, "_ensure_backend_registered")

        class Kind(type):
            """PyTorch asks whether what it made is of gloo's class."""

            def __call__(cls, its_store, rank, size, *rest, **named):
                made = fake._create_internal(rank, size) if is_open else original(store(), 0, 1, *rest, **named)
                alone.append(made)
                return made

            def __instancecheck__(cls, it):
                return isinstance(it, original) or any(it is one for one in alone)

            def __getattr__(cls, name):
                return getattr(original, name)

        self._c10d.ProcessGroupGloo = Kind(original.__name__, (), {"__module__": original.__module__})

    def _called(self, name, own, original, *arguments, **named):
        """Calls one's own function for a group without a communicator and a tensor of the host's."""
        bound = bind(original, arguments, named)
        group = bound.get("group") or self._c10d._get_default_group()
        if not self._is_of_host(group, bound):
            return original(*arguments, **named)
        if self._is_assumed(name, group, bound):
            self._plan.assume()
        own(group, bound)
        return _Done(self._torch) if bound.get("async_op") or name in ("isend", "irecv") else None

    def _is_assumed(self, name, group, bound):
        """Whether this rank gets what absent ranks would send."""
        size, _, present = self._members(group)
        if name in ("broadcast", "scatter", "recv", "irecv"):
            return self._place(group, bound, "src", "group_src") not in present
        return len(present) < size and name not in ("barrier", "monitored_barrier", "send", "isend")

    def _is_of_host(self, group, bound):
        first = next((it for it in bound.values() if isinstance(it, (list, self._torch.Tensor)) and len_of(it)), None)
        if isinstance(first, list):
            first = first[0]
        try:
            device = self._torch.device("cpu")
            if isinstance(first, self._torch.Tensor) and first.device.type != "cpu":
                return False
            backend = group._get_backend(device) if first is not None else self._only(group)
            return any(backend is it for it in self._alone)
        except Exception:
            return False

    def _only(self, group):
        """Returns a barrier's backend: that of the device where the group has one."""
        kinds = {it.type for it in group._device_types}
        return group._get_backend(self._torch.device("cuda" if "cuda" in kinds else "cpu"))

    # Exchanges

    def _members(self, group):
        """Returns the group's size, this process's place in it, and the places of the ranks that run."""
        ranks = self._c10d.get_process_group_ranks(group)
        present = [at for at, it in enumerate(ranks) if self._plan.is_whole([it])]
        return len(ranks), ranks.index(self._plan.rank), present

    def _exchange(self, group, sent):
        """Returns the bytes that each rank of the group brings."""
        size, own, present = self._members(group)
        found = {own: sent}
        if len(present) > 1:
            store = self._c10d._world.pg_map[group][1]
            number = self._numbers[group] = self._numbers.get(group, -1) + 1
            store.set("gpuwatch/%d/%d" % (number, own), sent)
            for it in present:
                if it != own:
                    found[it] = store.get("gpuwatch/%d/%d" % (number, it))
        below, all_ = found[present[0]], []
        for it in range(size):
            below = found.get(it, below)
            all_.append(below)
        return all_

    def _bytes(self, tensor):
        tensor = tensor.detach().contiguous()
        return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())

    def _put(self, tensor, data):
        """Writes bytes into a tensor, as far as they go."""
        whole = tensor if tensor.is_contiguous() else tensor.contiguous()
        ctypes.memmove(whole.data_ptr(), data, min(len(data), whole.numel() * whole.element_size()))
        if whole is not tensor:
            tensor.copy_(whole)

    def _reduced(self, group, tensor, op):
        torch, names = self._torch, self._c10d.ReduceOp
        result = None
        all_ = self._exchange(group, self._bytes(tensor))
        for data in all_:
            one = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
            self._put(one, data)
            if result is None:
                result = one
            elif op == names.MAX:
                result = torch.maximum(result, one)
            elif op == names.MIN:
                result = torch.minimum(result, one)
            elif op == names.PRODUCT:
                result = result * one
            elif op in (names.BAND, names.BOR, names.BXOR):
                result = {names.BAND: result & one, names.BOR: result | one, names.BXOR: result ^ one}[op]
            else:
                result = result + one
        return result / len(all_) if op == names.AVG else result

    def _place(self, group, bound, rank, in_group):
        """Returns the place in the group of a rank that is named."""
        if bound.get(in_group) is not None:
            return bound[in_group]
        ranks = self._c10d.get_process_group_ranks(group)
        return ranks.index(bound[rank]) if bound.get(rank) in ranks else 0

    # Collectives

    def _all_reduce(self, group, bound):
        tensor = bound["tensor"]
        tensor.detach().copy_(self._reduced(group, tensor, bound["op"]))

    def _reduce(self, group, bound):
        result = self._reduced(group, bound["tensor"], bound["op"])
        if self._place(group, bound, "dst", "group_dst") == self._members(group)[1]:
            bound["tensor"].detach().copy_(result)

    def _broadcast(self, group, bound):
        data = self._exchange(group, self._bytes(bound["tensor"]))
        self._put(bound["tensor"], data[self._place(group, bound, "src", "group_src")])

    def _all_gather(self, group, bound):
        for into, data in zip(bound["tensor_list"], self._exchange(group, self._bytes(bound["tensor"]))):
            self._put(into, data)

    def _all_gather_into_tensor(self, group, bound):
        self._put(bound["output_tensor"], b"".join(self._exchange(group, self._bytes(bound["input_tensor"]))))

    # Its name from PyTorch 2.15 on, as that of the scattering one below.
    _all_gather_single = _all_gather_into_tensor

    def _gather(self, group, bound):
        for into, data in zip(bound.get("gather_list") or (), self._exchange(group, self._bytes(bound["tensor"]))):
            self._put(into, data)

    def _scatter(self, group, bound):
        own = b"".join(self._bytes(it) for it in bound.get("scatter_list") or ())
        data = self._exchange(group, own)[self._place(group, bound, "src", "group_src")]
        self._put(bound["tensor"], self._part(group, data))

    def _part(self, group, data):
        size, own, _ = self._members(group)
        each = len(data) // size
        return data[own * each : (own + 1) * each]

    def _reduce_scatter(self, group, bound):
        whole = self._torch.cat([it.reshape(-1) for it in bound["input_list"]])
        self._put(bound["output"], self._part(group, self._bytes(self._reduced(group, whole, bound["op"]))))

    def _reduce_scatter_tensor(self, group, bound):
        self._put(bound["output"], self._part(group, self._bytes(self._reduced(group, bound["input"], bound["op"]))))

    _reduce_scatter_single = _reduce_scatter_tensor

    def _all_to_all(self, group, bound):
        sent = b"".join(self._bytes(it) for it in bound["input_tensor_list"])
        for into, data in zip(bound["output_tensor_list"], self._exchange(group, sent)):
            self._put(into, self._part(group, data))

    def _all_to_all_single(self, group, bound):
        all_ = self._exchange(group, self._bytes(bound["input"]))
        self._put(bound["output"], b"".join(self._part(group, it) for it in all_))

    def _barrier(self, group, bound):
        self._exchange(group, b"1")

    _monitored_barrier = _barrier

    def _isend(self, group, bound):
        peer = self._place(group, bound, "dst", "group_dst")
        own = self._members(group)[1]
        self._c10d._world.pg_map[group][1].set(self._letter(group, own, peer), self._bytes(bound["tensor"]))

    def _irecv(self, group, bound):
        _, own, present = self._members(group)
        peer = self._place(group, bound, "src", "group_src")
        if peer in present:
            self._put(bound["tensor"], self._c10d._world.pg_map[group][1].get(self._letter(group, peer, own)))

    _send, _recv = _isend, _irecv

    def _letter(self, group, sender, receiver):
        key = group, sender, receiver
        number = self._numbers[key] = self._numbers.get(key, -1) + 1
        return "gpuwatch/%d-%d/%d" % (sender, receiver, number)


class _Done:
    """An operation that is over."""

    def __init__(self, torch):
        self._torch = torch

    def wait(self, timeout=None):
        return True

    def is_completed(self):
        return True

    is_success = is_completed

    def get_future(self):
        future = self._torch.futures.Future()
        future.set_result(None)
        return future


def len_of(it):
    """Whether a list or tensor shows where an operation runs."""
    return len(it) if isinstance(it, list) else 1


def bind(function, arguments, named):
    """Returns a call's arguments by name, with the defaults."""
    import inspect

    bound = inspect.signature(function).bind(*arguments, **named)
    bound.apply_defaults()
    return bound.arguments
