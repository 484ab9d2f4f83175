"""Which lines of the job allocate what grows: asked by a viewer, looked for over some steps, told once.

From the step boundary at which somebody asks, the allocator records the Python stack of each allocation; at some of the
next boundaries the live blocks are compared; then the recording ends. It is the one thing that gpuwatch ever switches
on in a job, for so many steps, and never while the job records a history of its own.
"""

import _thread
import inspect
import json
import os
import sys
import time

from ._holders import collect, find
from ._looks import NOWHERE, Look, Resting, blocks_of, grown, is_recorded, segments
from ._native import INVALID
from ._source import is_newer, kept_at, lines
from ._stacks import Stacks

# What the allocator is asked, in the words of gpuwatch_probe.h.
_STEPS, _COLLECT, _GROWTH = (1 << 32) - 1, 1 << 32, 1 << 33

# Steps until the first look: what a step leaves behind and the next one replaces has a stack by then.
_SETTLE = 2

# Looks after the first one.
_LOOKS = 8

# Seconds without a step after which stacks are recorded no longer.
_PATIENCE = 60

# A look that takes longer than this, in seconds, makes the next ones rarer.
_SLOW = 0.04

_SITES = 16
_SIZES = 8
_OWNERS = 8

# Blocks of a group whose holders are looked for.
_SAMPLES = 16

# Characters of a text that are told, as on the wire.
_LONG = 240


def refusal(torch, backend):
    """Why a job's sites cannot be told, or `None`."""
    if os.environ.get("GPUWATCH") == "nosites":
        return "GPUWATCH=nosites forbids it in this job"
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return "this Python runs without its global lock: objects would change while they are looked into"
    if backend != "native":
        return "the allocator %s records no stacks" % backend
    if "stacks" not in _parameters(torch):
        return "PyTorch %s records no stacks that can be switched on in a running job: 2.1 does" % torch.__version__
    return None


def _parameters(torch):
    """What can be said to the function that switches the history; the public one hands it on."""
    function = getattr(torch.cuda.memory, "_record_memory_history_impl", None)
    if function is None:
        return ()
    code = inspect.unwrap(function).__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


class Sites:
    """What is asked of this process, and how far the answer is."""

    def __init__(self, torch, native):
        self._torch = torch
        self._native = native
        self._stacks = Stacks(torch)
        self._history = History(torch)
        self._looking = _thread.allocate_lock()
        self._is_over = False
        # What is written later than this is not what runs.
        self._since = time.time()
        self._clear()

    def _clear(self):
        self._looks, self._plan, self._begun = [], [], None
        self._held, self._steps = [], []
        self._passed = self._waited = 0

    @property
    def is_recording(self):
        """Whether live blocks have stacks by our doing."""
        return self._history.is_ours

    def turn(self, step):
        """A step has ended, or where a job has none, a second has; called while somebody asks."""
        if self._torch._C._cuda_isCurrentStreamCapturing() or not self._looking.acquire(False):
            return
        self._waited = 0
        try:
            with Resting():
                self._turn(step)
        except Exception as error:
            if not self._is_ours(error):
                raise
            self._give_up("it failed: %r" % (error,))
        finally:
            self._looking.release()
            if self._is_over:
                self.end()

    def tick(self, step):
        """A second went by without a step, while somebody asks."""
        if not step:
            self.turn(None)
        elif self._begun is not None:
            self._waited += 1
            if self._waited == _PATIENCE and self._looking.acquire(False):
                try:
                    self._give_up("no step ended within %d s" % _PATIENCE)
                finally:
                    self._looking.release()

    def end(self):
        """The probe ends: nothing stays switched on. Where another thread looks right now, that one sees to it."""
        self._is_over = True
        if self._looking.acquire(False):
            try:
                self._history.end()
            except Exception:
                pass
            finally:
                self._looking.release()

    def at_oom(self, device, step):
        """The live blocks of a device by line, where stacks are recorded; called while an allocation fails."""
        if not (self._history.is_ours or is_recorded(self._torch)):
            return
        with Resting():
            begun = time.perf_counter()
            held = segments(self._torch, self._history.is_ours)
            if held is None:
                return
            look = Look(it for it in held if it["device"] == device)
            live = {group: (_bytes(sizes), sum(sizes.values())) for group, sizes in look.groups.items()}
            older = live.pop((device, NOWHERE), (0, 0))
            most = sorted(live, key=lambda it: -live[it][0])[:_SITES]
            sites = [self._site(group, live[group], look.groups[group]) for group in most]
            held_us = _us(begun)
            told = {"why": "oom", "step": step, "steps": 0, "sites": sites}
            told.update(older_blocks=older[1], older_bytes=older[0], held_us=held_us, longest_us=held_us)
            self._send(told, is_answer=0)

    def _turn(self, step):
        word = self._native.sites_asked()
        if not word:
            return
        if self._begun is None:
            self._begin(word, step)
        elif self._history.was_taken:
            self._give_up("the job began to record its memory history itself")
        else:
            self._passed += 1
            if self._passed >= self._plan[0]:
                self._look(word, step)

    def _begin(self, word, step):
        self._clear()
        if not self._history.begin():
            self._give_up("the job records its memory history itself, which this PyTorch cannot look into")
            return
        self._begun = step or 0
        steps = max(1, word & _STEPS)
        looks = min(steps, _LOOKS)
        self._plan = [_SETTLE + round(it * steps / looks) for it in range(looks + 1)]

    def _look(self, word, step):
        begun = time.perf_counter()
        held = segments(self._torch, is_ours=True)
        self._looks.append(Look(held, is_first=not self._looks))
        self._steps.append(self._passed)
        del self._plan[0]
        if self._plan:
            if time.perf_counter() - begun > _SLOW and len(self._plan) > 2:
                # The last one stays where it is.
                self._plan = self._plan[1::2] if len(self._plan) % 2 == 0 else self._plan[::2]
            self._held.append(_us(begun))
            return
        self._history.end()
        found = grown(self._looks)
        blocks, where = blocks_of(held, found, self._looks[0].addresses) if found else ({}, {})
        self._held.append(_us(begun))
        self._tell(word, step, found, blocks, where)

    def _tell(self, word, step, found, blocks, where):
        begun = time.perf_counter()
        last, looks = self._looks[-1], self._looks
        groups = list(found)[:_SITES]
        samples = [_samples(blocks[it]) for it in groups]
        held = find(self._torch, samples) if groups else {"groups": []}
        sites = []
        for group, of in zip(groups, held["groups"]):
            site = self._site(group, found[group], last.groups[group], of)
            if group in where:
                site["stream"], pool = where[group]
                if pool != (0, 0):
                    site["pool"] = "%d.%d" % pool
            sites.append(site)
        older = [(_bytes(of), sum(of.values())) for (_, stack), of in last.groups.items() if stack == NOWHERE]
        grew = [found[it] for it in found if it[1] == NOWHERE]
        told = {
            "why": _why(word),
            "step": step,
            "steps": self._steps[-1] - self._steps[0],
            "sites": sites,
            "older_blocks": max(0, sum(it[1] for it in older) - sum(it[1] for it in grew)),
            "older_bytes": max(0, sum(it[0] for it in older) - sum(it[0] for it in grew)),
            "held_us": sum(self._held),
            "longest_us": max(self._held),
            "holders_us": _us(begun) if groups else 0,
            "history_bytes": max(it.history for it in looks),
        }
        if word & _COLLECT:
            told["collected_bytes"] = self._collected()
        troubles = [words for is_so, words in ((held.get("cut"), _CUT), (held.get("hidden"), _HIDDEN)) if is_so]
        newer = {os.path.basename(it["file"]) for it in sites if is_newer(it["file"], self._since)}
        if newer:
            troubles.append("written after the job began, so that its lines say nothing: " + ", ".join(sorted(newer)))
        if troubles:
            told["trouble"] = "; ".join(troubles)
        self._answer(told)

    def _collected(self):
        stats = self._torch._C._cuda_memoryStats
        devices = range(self._torch._C._cuda_getDeviceCount())
        devices = [it for it in devices if self._torch._C._cuda_hasPrimaryContext(it)]
        allocated = [stats(it)["allocated_bytes"]["all"]["current"] for it in devices]
        collect()
        now = [stats(it)["allocated_bytes"]["all"]["current"] for it in devices]
        return max(0, sum(allocated) - sum(now))

    def _site(self, group, grew, sizes, held=None):
        device, stack = group
        held = held or {}
        holders = held.get("holders", [])
        frame = self._stacks.site(stack, holders) or ("", 0, "")
        site = {
            "device": device,
            "file": frame[0],
            "line": frame[1],
            "function": frame[2],
            "frames": self._stacks.told(stack),
            "bytes": grew[0],
            "blocks": grew[1],
            "sizes": sorted(sizes.items(), key=lambda it: -it[0] * it[1])[:_SIZES],
            "autograd": held.get("autograd", False),
            "owners": held.get("owners", [])[:_OWNERS],
            "holders": [{name: value for name, value in it.items() if value is not None} for it in holders],
        }
        if stack:
            around = lines(frame[0], frame[1], since=self._since)
            site["source"] = [{"line": line, "text": text} for line, text in around]
        if holders:
            own = [it for it in stack if self._stacks.rank(it[0]) < 2]
            own = own[own.index(frame) :] if frame in own else own
            site["kept"] = kept_at(holders, [{"file": f, "line": n, "function": name} for f, n, name in own], self._since)
        return {name: value for name, value in site.items() if value not in (None, [])}

    def _give_up(self, why):
        try:
            self._history.end()
        except Exception as error:
            if not self._is_ours(error):
                raise
            why += "; the history could not be switched off: %r" % (error,)
        finally:
            word = self._native.sites_asked()
            self._answer({"why": _why(word), "steps": 0, "sites": [], "trouble": why})

    def _answer(self, told):
        self._clear()
        self._send(told, is_answer=1)

    def _send(self, told, is_answer):
        # Longer than a line: what grew least goes first. Without an answer it would be asked for ever.
        while self._native.sites(_encoded(told), is_answer) == INVALID and told["sites"]:
            told["sites"].pop()

    def _is_ours(self, error):
        """Raised in this package or in PyTorch's, and not by a handler of the job's that ran meanwhile."""
        trace = error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        return trace.tb_frame.f_code.co_filename.startswith(self._stacks.machinery)


_CUT = "the search for holders ended early: it took too long"
_HIDDEN = "objects that the job froze (gc.freeze) could not be looked into"


# What switches the history, in both of the ways in which a job may call `_record_memory_history`.
_SWITCHES = ("_cuda_record_memory_history", "_cuda_record_memory_history_legacy")


class History:
    """The allocator's record of who allocates: switched on and off again, unless it is the job's own."""

    def __init__(self, torch):
        self._torch = torch
        # PyTorch's functions by name, and what stands in their places.
        self._watched = {}
        self.is_ours = False
        # The job switched it itself meanwhile.
        self.was_taken = False

    def begin(self):
        """Switches it on; false where nothing could be seen that way. One of the job's own is left as it is."""
        torch = self._torch
        # What a signal handler of the job's interrupted.
        self.end()
        self.was_taken = False
        if is_recorded(torch):
            return segments(torch) is not None
        more = {}
        if "global_record_annotations" in _parameters(torch):
            # Otherwise only the thread that switched it on could switch it off without a word of PyTorch's.
            more["global_record_annotations"] = True
        switch_on = torch.cuda.memory._record_memory_history
        # Said first: a signal handler of the job's may raise in between.
        self.is_ours = True
        switch_on(enabled="state", context="state", stacks="python", max_entries=1, **more)
        # Should the job switch it meanwhile, it is the job's from then on.
        for name in _SWITCHES:
            real = getattr(torch._C, name, None)
            if real is not None:
                self._watched[name] = real, self._watching(real)
                setattr(torch._C, name, self._watched[name][1])
        return True

    def _watching(self, real):
        def switch(*arguments, **named):
            self.was_taken, self.is_ours = True, False
            return real(*arguments, **named)

        return switch

    def end(self):
        """Switches off what was switched on here."""
        torch = self._torch
        while self._watched:
            name, (real, watching) = self._watched.popitem()
            if getattr(torch._C, name) is watching:
                setattr(torch._C, name, real)
        if self.is_ours:
            torch.cuda.memory._record_memory_history(enabled=None)
            self.is_ours = False


def _why(word):
    return "growth" if word & _GROWTH else "asked"


def _samples(blocks):
    """Some of a group's blocks, spread over all of them."""
    stride = max(1, len(blocks) // _SAMPLES)
    return blocks[::stride][:_SAMPLES]


def _bytes(sizes):
    return sum(size * count for size, count in sizes.items())


def _us(begun):
    return int(1e6 * (time.perf_counter() - begun))


def _encoded(told):
    """As the library takes it. Names of files and keys of dictionaries may be no text that anybody could write down."""
    return json.dumps(_shortened(told), separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


def _shortened(told):
    if type(told) is dict:
        return {name: _shortened(it) for name, it in told.items()}
    if type(told) in (list, tuple):
        return [_shortened(it) for it in told]
    if type(told) is not str or len(told) <= _LONG:
        return told
    # Of a path the end says more.
    return "…" + told[1 - _LONG :] if told.startswith("/") else told[:_LONG]
