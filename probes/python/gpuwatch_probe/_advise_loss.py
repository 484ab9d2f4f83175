"""Cross-entropy in pieces: of its temporaries, only one piece's are live at a time."""

import functools
import sys

from ._advise_technique import Refused, Technique

_PIECES = 8


class ChunkedLoss(Technique):
    """Cross-entropy of classes in eight pieces, each of which the backward computes again."""

    name = "chunked-loss"

    def __init__(self, advise, is_active):
        super().__init__(advise, is_active)
        # Calls that autograd follows, those that can be split, and those that were.
        self._count = self._able = self._done = 0
        self._line = None

    def install(self):
        functional, technique = self.torch.nn.functional, self
        original = functional.cross_entropy

        @functools.wraps(original)
        def cross_entropy(input, target, weight=None, *arguments, **named):
            if not input.requires_grad or arguments:
                return original(input, target, weight, *arguments, **named)
            technique._count += 1
            if technique._line is None:
                technique._line = technique.advise.unknowns.line(sys._getframe(1))
            if not technique._can_split(input, target, weight, named):
                return original(input, target, weight, **named)
            technique._able += 1
            if not technique.is_active:
                return original(input, target, weight, **named)
            technique._done += 1
            return technique._split(original, input, target, named)

        functional.cross_entropy = cross_entropy

    def _can_split(self, input, target, weight, named):
        plain = weight is None and set(named) <= {"ignore_index", "reduction", "label_smoothing"}
        is_sum = named.get("reduction", "mean") in ("mean", "sum")
        classes = input.dim() == 2 and target.dim() == 1 and not target.is_floating_point()
        return plain and is_sum and classes and input.shape[0] >= _PIECES and not is_sum_of_one(input)

    def _split(self, original, input, target, named):
        from torch.utils.checkpoint import checkpoint

        reduction = named.pop("reduction", "mean")
        total = None
        for piece, classes in zip(input.chunk(_PIECES), target.chunk(_PIECES)):
            part = checkpoint(original, piece, classes, reduction="sum", use_reentrant=False, **named)
            total = part if total is None else total + part
        if reduction == "mean":
            total = total / (target != named.get("ignore_index", -100)).sum()
        return total

    def applied(self):
        pieces = "zip(logits.chunk(%d), classes.chunk(%d))" % (_PIECES, _PIECES)
        call = "checkpoint(F.cross_entropy, *it, reduction='sum', use_reentrant=False)"
        self.edit = [
            (None, "from torch.utils.checkpoint import checkpoint"),
            (None, "# logits, classes: its arguments; `del logits` before backward, if a variable keeps them"),
            (self._line, "sum(%s for it in %s) / classes.numel()  # of a mean, without ignored ones" % (call, pieces)),
        ]
        if not self._count:
            raise Refused("the job calls no F.cross_entropy in training")
        if not self._able:
            raise Refused("its F.cross_entropy is not one of a class for each row")
        if not self.is_active:
            return "%d calls" % self._able
        if self._done < self._able:
            raise Refused("took effect in %d of %d calls only" % (self._done, self._able))
        return "every F.cross_entropy"


def is_sum_of_one(input):
    """Whether rows are too small for pieces to matter."""
    return input.numel() < 1 << 16
