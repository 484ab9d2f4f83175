"""What holds the memory of a job under `gpuwatch fit`: of what grows from step to step, and of what lives between steps.

The allocator records the stack of each block anyway, so the live blocks are compared at the ends of steps as the probe
does at a viewer's request (`_sites.py`). Nobody waits for this job: the search may take its time.
"""

import time

from ._autograd_graphs import PASSES
from ._captures import Capture, Resting, grown, segments
from ._holders import Terms
from ._oom_blocks import groups, sites
from ._sites_report import Answer, shortened
from ._stacks import named
from ._young_generations import collections

# Comparisons that are kept, and those that an answer needs.
_MOST, _FEWEST = 9, 4
# Levels that are kept, and the steps in which the level has to rise at least once if it grows: some leaks rest.
_LEVELS, _RESTS = 4000, 2
# How many times as long as in a job that others wait for the search may take.
_PATIENCE = 30


class Growth:
    """What is allocated at the ends of steps, and the latest comparisons of live blocks there."""

    def __init__(self, torch, stacks):
        self._torch, self._stacks = torch, stacks
        self._since = time.time()
        self.clear()

    def clear(self):
        """Begins anew."""
        # Bytes at the end of each step, as they are allocated and as they were asked for.
        self.levels, self.asked = [], []
        # The last step that ended with more than any before it, and what that was.
        self._risen, self._highest = 0, 0
        # As (step, comparison, runs of the collector before), and the segments of the latest one.
        self._all, self._held = [], None

    def step(self, number, level, asked, is_open, is_sought=False):
        """A step has ended; returns whether blocks were compared, and whether more and more is allocated then. As long as the
        question is open, blocks are compared where that is so, or where it is sought."""
        if level > self._highest:
            self._risen, self._highest = number, level
        if len(self.levels) < _LEVELS:
            self.levels.append(level)
            self.asked.append(asked)
        rises = number - self._risen < _RESTS
        is_looked = is_open and (rises or is_sought)
        if is_looked:
            with Resting():
                self._held = segments(self._torch, is_ours=True)
                self._all = self._all[1 - _MOST :] + [(number, Capture(self._held), collections())]
        return is_looked, rises

    def is_given_back(self, led):
        """Whether what the steps keep was given back after the one from which on the job was led."""
        after, before = self.levels[led or len(self.levels) :], self.levels[1:led]
        if not after or not before:
            return False
        grown, fallen = before[-1] - before[0], before[-1] - min(after)
        return grown > 0 and grown / 2 <= fallen <= grown * 1.5

    def report(self):
        """Returns which lines allocate what grows and what holds it, in the wire's form; `None` where nothing does."""
        all_, held, self._all, self._held = self._all, self._held, [], None
        if len(all_) < _FEWEST:
            return None
        steps, captures, ran = zip(*all_)
        report = {"why": "growth", "step": steps[-1], "steps": steps[-1] - steps[0], "sites": []}
        with Resting():
            if not grown(captures):
                return None
            before = ran[-2]
            # The graph of all steps so far is hardly longer than what is compared.
            terms = Terms(_PATIENCE, report["steps"])
            of = self._torch, self._stacks, self._since, captures, held, before, report
            answer = Answer(*of, terms=terms)
            while not answer.go_on():
                pass
        return shortened(named(answer.report))


def held(torch, stacks, kept):
    """Returns the largest blocks that live between two steps by the lines that allocated them, with what holds them, in
    the wire's form; without the blocks at the addresses `kept`, by device."""
    found = []
    with Resting():
        all_segments = segments(torch, is_ours=True)
        for device in sorted({it["device"] for it in all_segments}):
            of_device, live = kept.get(device, ()), {}
            for key, blocks in groups(all_segments, device).items():
                blocks = [it for it in blocks if it[0] not in of_device]
                if blocks and key[0]:
                    live[key] = blocks
            if live:
                found += sites(torch, stacks, live, device, time.time(), Terms(_PATIENCE, PASSES))[0]
    return shortened(named([it for it in found if it.get("holders")]))
