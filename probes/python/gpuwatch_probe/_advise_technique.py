"""What every technique of `gpuwatch fit --advise` has."""


class Refused(Exception):
    """A technique that does not apply: why."""


class Technique:
    """One technique in one process; `is_active` unless the run only observes."""

    name = ""
    # Whether a compiled job sees the change.
    is_outside_functions = False

    def __init__(self, advise, is_active):
        self.advise = advise
        self.torch = advise.torch
        self.is_active = is_active
        # What the run leaves for others.
        self.notes = {}
        # Counts of the price.
        self.price = {}
        # Lines to write: place and text.
        self.edit = []

    def install(self):
        """Follows the job from now on, which has just imported PyTorch."""

    def applied(self):
        """Returns how far the technique took effect, in words; where it only observes, how far it would.

        Raises `Refused` where it does not apply, or took effect in a part only.
        """
        raise NotImplementedError


def of_all(done, count, what):
    """Returns `24 of 24 blocks`; raises `Refused` where some are left."""
    text = "%d of %d %s" % (done, count, what if count == 1 else what + "s")
    if done < count:
        raise Refused("took effect in %s only" % text)
    return text
