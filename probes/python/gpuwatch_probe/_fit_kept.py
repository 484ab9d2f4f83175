"""What a job keeps on its devices, for `gpuwatch fit`: where its parameters, buffers, gradients and optimizers' states
are, and when.

The allocator reuses addresses. So each look has a time: it belongs to the block that lived at the address at that moment.
"""

import time

_KINDS = "weights", "buffers", "optimizer", "gradients"


class Kept:
    """The addresses of what is kept, by kind and device, at each look."""

    def __init__(self, torch, makers):
        self._torch, self._makers = torch, makers
        self.clear()

    def clear(self):
        """Begins anew."""
        # {kind: {device: {address: [[look, line], …]}}}; the looks of each kind, in µs since 1970.
        self._kinds = {it: {} for it in _KINDS}
        self._looks = {it: [] for it in _KINDS}
        # Lines that make what is kept, with their numbers.
        self._lines = {}

    def look_at_gradients(self, optimizers):
        """A step begins: the gradients are there."""
        self._begin("gradients")
        for one in list(optimizers):
            for group in one.param_groups:
                for it in group["params"]:
                    grad = getattr(it, "grad", None)
                    if grad is not None:
                        self._note("gradients", grad, self._makers.line(it))

    def look(self, optimizers):
        """Notes all but the gradients."""
        for kind in _KINDS[:3]:
            self._begin(kind)
        for it in self._makers.look(self._torch):
            try:
                for kind, own in (("weights", "_parameters"), ("buffers", "_buffers")):
                    for one in list(it.__dict__[own].values()):
                        self._note(kind, one, self._makers.line(one))
            except Exception:
                continue
        for one in list(optimizers):
            for group in one.param_groups:
                for it in group["params"]:
                    self._note("weights", it, self._makers.line(it))
            for owner, state in list(one.state.items()):
                self._walk(state, 3, self._makers.line(one) or self._makers.line(owner))

    def addresses(self):
        """Returns all addresses by device."""
        found = {}
        for of in self._kinds.values():
            for device, addresses in of.items():
                found.setdefault(device, set()).update(addresses)
        return found

    def report(self):
        """Returns what was found, for JSON."""
        return {"looks": self._looks, "lines": list(self._lines), "blocks": self._kinds}

    def _begin(self, kind):
        self._looks[kind].append(time.time_ns() // 1000)

    def _walk(self, it, depth, line):
        if issubclass(type(it), self._torch.Tensor):
            self._note("optimizer", it, line)
        elif depth and isinstance(it, dict):
            for value in it.values():
                self._walk(value, depth - 1, line)
        elif depth and isinstance(it, (list, tuple)):
            for value in it:
                self._walk(value, depth - 1, line)

    def _note(self, kind, tensor, line):
        # A distributed tensor's own part.
        tensor = getattr(tensor, "_local_tensor", tensor)
        if tensor is None or not tensor.is_cuda:
            return
        # One that consists of others, such as a quantized one.
        parts = getattr(tensor, "__tensor_flatten__", None)
        if parts is not None:
            for name in parts()[0]:
                self._note(kind, getattr(tensor, name), line)
            return
        number = None if line is None else self._lines.setdefault(line, len(self._lines))
        of_device = self._kinds[kind].setdefault(tensor.device.index, {})
        looks = of_device.setdefault(tensor.untyped_storage().data_ptr(), [])
        now = [len(self._looks[kind]) - 1, number]
        if not looks or looks[-1][0] != now[0]:
            looks.append(now)
        elif number is not None:
            looks[-1] = now
