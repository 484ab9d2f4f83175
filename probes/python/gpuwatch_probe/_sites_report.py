"""Builds the answer to a request for sites, in parts between steps, from the captures of live blocks."""

import json
import os
import time

from ._captures import NOWHERE, before_rise, blocks_of, grown, replacing, risen, was_there
from ._frames import is_free_threaded
from ._holders import BETWEEN_STEPS, Search, collect
from ._native import INVALID
from ._source import Sources, is_newer, kept_at, lines
from ._stacks import OWN, named, wire_frame

_SITES = 16
_SIZES = 8
_OWNERS = 8

# Blocks of a group whose holders are searched for: a sample of all, and of the latest.
_SAMPLES, _RECENT = 16, 8

# Characters of a text, as on the wire.
_LONG = 240

# Seconds after which the next site waits for the next step.
_AT_ONCE = 0.01

_CUT = "the holder of some was not found in the time that a search may take"
_ENDED = "the job ended before the holder of some was found"
_FREE = "this build of Python can do without its global lock, and holders of some kinds are not found there"


class Answer:
    """The answer, sent once the holders are known; it keeps no object of the job alive.

    `captures` are compared, `held` has the segments of the last one, `collections` the collector's runs before the
    latest blocks came, `report` the other fields. `earlier(group, blocks, recent)` returns the blocks of a group to search
    instead of these.
    """

    def __init__(self, torch, stacks, since, captures, held, collections, report, earlier=None, terms=BETWEEN_STEPS):
        self._torch, self._stacks, self._since = torch, stacks, since
        self._found, self._sizes = grown(captures), captures[-1].groups
        self._replacing = replacing(captures, self._found)
        blocks, recent = self._blocks(captures, held)
        if earlier is not None:
            blocks = {group: earlier(group, of, recent[group]) for group, of in blocks.items()}
        report["history_bytes"] = max(it.history for it in captures)
        report.update(older(captures[-1], self._found))
        self._groups, found = list(self._found)[:_SITES], self._found
        # Of the latest blocks, what the step works on now may be all that holds them.
        late = [set(recent[it]) for it in self._groups]
        aged = [[block for block in blocks[it] if block not in of] for it, of in zip(self._groups, late)]
        recent = [recent[it][-_RECENT:] for it in self._groups]
        samples = [_samples(of or blocks[it]) for it, of in zip(self._groups, aged)]
        # Blocks that each step replaces are gone after the next step, so search for their holders at once.
        lasting = [bool(found[it][1]) for it in self._groups]
        self._at_once = None
        if not all(lasting):
            once = [[] if it else of for it, of in zip(lasting, samples)]
            self._at_once = Search(torch, once, stacks.rank, None, terms)
            self._at_once.slice()
        samples = [of if it else [] for it, of in zip(lasting, samples)]
        recent = [of if it else [] for it, of in zip(lasting, recent)]
        self._search = None
        if self._groups:
            self._search = Search(torch, samples, stacks.rank, (collections, recent), terms)
        # The search's result for each group, and the sites built from it.
        self._held, self._sites = None if self._groups else [], []
        self._sources = Sources(since)
        self.report = report
        self.collects, self._has_ended = False, False

    def _blocks(self, captures, held):
        """Returns the blocks of what grew, and the latest of them, by group."""
        sizes = {group: risen(captures, group) for group in self._found}
        blocks, self._where = blocks_of(held, sizes, captures[0].addresses) if sizes else ({}, {})
        before = {group: before_rise(captures, group, sizes[group]) for group in blocks}
        recent = {group: [it for it in of if not was_there(it, group, before[group])] for group, of in blocks.items()}
        return blocks, recent

    @property
    def is_empty(self):
        """Whether nothing grew."""
        return not self._found

    def go_on(self):
        """Does the next part within one permitted pause; returns whether the answer is complete."""
        if self._held is None:
            if self._search.slice():
                # Source lines are read after the next step.
                self._held = self._search.result()
                if self._at_once is not None:
                    self._held = [one if one["owners"] else it for one, it in zip(self._at_once.result(), self._held)]
            return False
        until = time.thread_time() + _AT_ONCE
        if self._replacing:
            self._replace()
        while len(self._sites) < len(self._groups):
            at = len(self._sites)
            self._sites.append(self._site(self._groups[at], self._held[at]))
            if time.thread_time() > until and at + 1 < len(self._groups):
                return False
        if self.collects:
            self.report["collected_bytes"] = _collected(self._torch)
        self.report["sites"] = self._sites
        self._trouble()
        return True

    def _replace(self):
        """Decides which blocks have replaced those that went: what lies in a full container; otherwise a part of each
        group's."""
        full = {group for group, of in zip(self._groups, self._held) if any(it.get("full") for it in of["holders"])}
        for (_, size), (gone, came) in self._replacing.items():
            for group in full & set(came):
                taken = min(gone, came[group])
                gone -= taken
                self._take(group, taken, size)
            others = {it: blocks for it, blocks in came.items() if it not in full}
            for group, blocks in others.items():
                self._take(group, blocks * gone // sum(others.values()), size)
        self._replacing = {}
        left = [at for at, it in enumerate(self._groups) if self._found[it][0] > 0]
        order = sorted(left, key=lambda at: -self._found[self._groups[at]][0])
        self._groups, self._held = [self._groups[at] for at in order], [self._held[at] for at in order]

    def _take(self, group, blocks, size):
        bytes_, all_ = self._found[group]
        self._found[group] = max(0, bytes_ - blocks * size), max(0, all_ - blocks)

    def end(self):
        """Stops the search for holders, as the job ends; `go_on` completes the answer with those found."""
        if self._held is None:
            self._held, self._has_ended = self._search.result(), True

    def _site(self, group, held):
        made = site(self._stacks, self._sources, group, self._found[group], self._sizes[group], held, self.report["steps"])
        if group in self._where:
            made["stream"], pool = self._where[group]
            if pool != (0, 0):
                made["pool"] = "%d.%d" % pool
        return made

    def _trouble(self):
        troubles = [_CUT] if self._search and self._search.is_cut else []
        is_named = all(it["holders"] or it["autograd"] for it in self._held)
        if self._has_ended and not is_named:
            troubles = [_ENDED]
        if not is_named and is_free_threaded():
            troubles.append(_FREE)
        newer = {os.path.basename(it["file"]) for it in self._sites if is_newer(it["file"], self._since)}
        if newer:
            troubles.append("written after the job began, so that its lines say nothing: " + ", ".join(sorted(newer)))
        if troubles:
            self.report["trouble"] = "; ".join(troubles)


def site(stacks, sources, group, grew, sizes, held=None, steps=0):
    """Returns the site of one stack, in the wire's form; what grows did so in that many steps."""
    device, stack = group
    held = held or {}
    holders = held.get("holders", [])
    frame = stacks.site(stack) or ("", 0, "")
    report = {
        "device": device,
        "file": frame[0],
        "line": frame[1],
        "function": frame[2],
        "frames": stacks.frames(stack),
        "bytes": grew[0],
        "blocks": grew[1],
        "sizes": sorted(sizes.items(), key=lambda it: -it[0] * it[1])[:_SIZES],
        "autograd": held.get("autograd", False),
        "owners": held.get("owners", [])[:_OWNERS],
        "holders": [{name: of for name, of in it.items() if of is not None and name != "full"} for it in holders],
    }
    if stack:
        library = stacks.library(stack)
        report["library"] = library and wire_frame(library)
        report["source"] = excerpts(sources, frame[0], frame[1])
    if holders:
        owners = report["owners"]
        has_graph = bool(owners) and all(it["grad"] for it in owners)
        rises = min(steps, grew[1])
        kept = kept_at(holders, [wire_frame(it) for it in stacks.near(stack)], sources, has_graph, rises)
        for it in kept:
            it.update({"library": True} if stacks.rank(it["file"]) != OWN else {})
        report["kept"], report["kept_or"] = kept[0] if kept else None, kept[1:]
        if stack and kept:
            report["source"] = excerpts(sources, frame[0], frame[1], kept[0])
    return {name: value for name, value in report.items() if value not in (None, [])}


def excerpts(sources, file, line, kept=None):
    """Returns the lines around the allocating one, and around the line that keeps, in order; another file last."""
    found = {(file, at): text for at, text in lines(file, line, sources=sources)}
    if kept:
        found.update({(kept["file"], at): text for at, text in lines(kept["file"], kept["line"], sources=sources)})
    order = sorted(found, key=lambda it: (it[0] != file, it[1]))
    return [dict({"line": at, "text": found[of, at]}, **({} if of == file else {"file": of})) for of, at in order]


def send(native, report, is_answer):
    """Sends the report to all viewers."""
    # Too long for a line: drop the site that grew least. Without an answer, viewers would keep asking.
    while native.sites(_encoded(report), is_answer) == INVALID and report["sites"]:
        report["sites"].pop()


def older(capture, found=()):
    """Counts the blocks without a stack, and their bytes."""
    known = [(size_of(of), sum(of.values())) for (_, stack), of in capture.groups.items() if stack == NOWHERE]
    grew = [found[it] for it in found if it[1] == NOWHERE]
    return {
        "older_blocks": max(0, sum(it[1] for it in known) - sum(it[1] for it in grew)),
        "older_bytes": max(0, sum(it[0] for it in known) - sum(it[0] for it in grew)),
    }


def size_of(sizes):
    """Returns the total bytes of blocks counted by size."""
    return sum(size * count for size, count in sizes.items())


def _collected(torch):
    stats = torch._C._cuda_memoryStats
    devices = range(torch._C._cuda_getDeviceCount())
    devices = [it for it in devices if torch._C._cuda_hasPrimaryContext(it)]
    allocated = [stats(it)["allocated_bytes"]["all"]["current"] for it in devices]
    collect()
    now = [stats(it)["allocated_bytes"]["all"]["current"] for it in devices]
    return max(0, sum(allocated) - sum(now))


def _samples(blocks):
    """Samples a group's blocks evenly."""
    stride = max(1, len(blocks) // _SAMPLES)
    return blocks[::stride][:_SAMPLES]


def _encoded(report):
    """Encodes the report for the library. File names and dictionary keys may not be valid UTF-8."""
    return json.dumps(shortened(named(report)), separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def shortened(report):
    """Returns a report whose texts are as long as the wire takes."""
    if type(report) is dict:
        return {name: shortened(it) for name, it in report.items()}
    if type(report) in (list, tuple):
        return [shortened(it) for it in report]
    if type(report) is not str or len(report) <= _LONG:
        return report
    # The end of a path identifies it best.
    return "…" + report[1 - _LONG :] if report.startswith("/") else report[:_LONG]
