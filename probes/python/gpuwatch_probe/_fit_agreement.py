"""What the ranks that run on this machine agree on under `gpuwatch fit`, by files in the folder of their reports.

Collectives need all of them: one that ends, or goes on, by its own figures alone leaves the others waiting.
"""

import collections
import os
import sys
import time

# Seconds to wait for the others: one of them may do something else for ever.
_PATIENCE = 30.0
_OFTEN = 0.01


class Agreement:
    """The ranks of one machine."""

    def __init__(self, folder, plan):
        self._folder, self._plan = folder, plan
        # As (ranks that run here, this one), once that is known: a job's groups end before it does.
        self._known = None
        # How often each question was asked.
        self._asked = collections.Counter()

    def count(self):
        """Returns how many ranks run here."""
        return self._place()[0]

    def any(self, question, own):
        """Returns whether a rank says yes, the same to all; no, where they do not come to say it within a while."""
        count, rank = self._place()
        if count < 2:
            return own
        said, agreed = "%s-said-" % question, "%s-agreed" % question
        self._mark("%s%s-%d" % (said, rank, bool(own)))
        votes = [it for it in self._wait(said, count, agreed) if it.startswith(said)]
        return self._first(agreed, len(votes) >= count and any(it.endswith("-1") for it in votes))

    def any_now(self, question, own):
        """The same for a question that all ranks ask again and again, each in its turn."""
        self._asked[question] += 1
        return self.any("%s-%d" % (question, self._asked[question]), own)

    def wait_for_all(self):
        """Returns when all of them are done."""
        count, rank = self._place()
        self._mark("done-%s" % rank)
        self._wait("done-", count)

    def end(self):
        """Tells the other ranks that one has done enough."""
        self._mark("ended")

    def is_ended(self):
        """Whether a rank has done enough."""
        return os.path.exists(os.path.join(self._folder, "ended"))

    def rank(self):
        """Returns this process's rank; `None` where it is alone."""
        if self._plan is not None and self._plan.world is not None:
            return self._plan.rank
        count, rank = self._place()
        return int(rank) if count > 1 else None

    def _place(self):
        """Returns how many ranks run here, and which this one is."""
        if self._plan is not None and self._plan.world is not None:
            return len(self._plan.present(self._plan.world)), self._plan.rank
        rank, distributed = os.environ.get("RANK"), sys.modules.get("torch.distributed")
        # A program that starts its ranks itself need not tell them by variables.
        if rank is None and distributed is not None and distributed.is_available() and distributed.is_initialized():
            self._known = distributed.get_world_size(), distributed.get_rank()
        if self._known is not None:
            return self._known
        return int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE") or 1), rank or 0

    def _mark(self, name):
        open(os.path.join(self._folder, name), "w").close()

    def _first(self, name, is_yes):
        """Writes down what holds, unless another rank has: one may come when others have given up. Returns it."""
        path = os.path.join(self._folder, name)
        beside = "%s.%d" % (path, os.getpid())
        with open(beside, "w") as file:
            file.write("yes" if is_yes else "no")
        try:
            os.link(beside, path)
        except FileExistsError:
            pass
        except OSError:
            # A file system without links: the ranks that came in time agree all the same.
            return is_yes
        with open(path) as file:
            return file.read() == "yes"

    def _wait(self, begin, count, other=None):
        """Returns the names in the folder when so many begin like this, when the other one is there, or after a while."""
        until = time.monotonic() + _PATIENCE
        while True:
            names = os.listdir(self._folder)
            is_there = other in names or sum(it.startswith(begin) for it in names) >= count
            if is_there or time.monotonic() > until:
                return names
            time.sleep(_OFTEN)
