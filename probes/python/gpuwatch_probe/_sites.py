"""Captures call stacks at a viewer's request, and reports once which lines of the job allocate the memory that grows.

From a step boundary on, the allocator records the Python stack of each allocation, and some boundaries compare the live
blocks. Then the recording ends, and the next step boundaries search for the holders of what grew. gpuwatch switches
this recording on for a limited number of steps, and never while the job records a memory history itself.
"""

import _thread
import time

from ._capture_plan import plan
from ._captures import NOWHERE, Capture, Resting, blocks_of, grown, segments
from ._holders import steps_begin
from ._memory_history import History
from ._oom_blocks import bytes_of, sites as holding
from ._sites_report import Answer, send
from ._stacks import Stacks
from ._young_generations import collections

# The bits of a request, as in gpuwatch_probe.h.
_STEPS, _COLLECT, _GROWTH = (1 << 32) - 1, 1 << 32, 1 << 33

# Seconds without a step after which the recording stops. The longer one allows for an evaluation between rises.
_PATIENCE, _LONG_PATIENCE = 60, 3600

# Seconds after which one rise is enough for an answer.
_LONG_WAIT = 600

# After a comparison that takes longer than this, in seconds of CPU time, the next ones are rarer.
_SLOW = 0.012

# The most blocks to compare: each takes about a microsecond.
_MOST_BLOCKS = 40_000

# Comparisons that an answer needs if the job ends before the last one.
_FEWEST_CAPTURES = 4


class Sites:
    """The current request to this process, and the progress of its answer.

    `refusal` is why this job's sites cannot be captured; `None` if they can.
    """

    def __init__(self, torch, native, refusal):
        self._torch = torch
        self._native = native
        self._refusal = refusal
        self._stacks = Stacks(torch)
        self._history = History(torch)
        self._capturing = _thread.allocate_lock()
        self._is_over = False
        # A source file changed after this time is not the code that runs.
        self._since = time.time()
        self._clear()

    def _clear(self):
        self._captures, self._plan, self._answer, self._request = [], None, None, 0
        # Microseconds of each pause of the job: by comparisons, and by parts of the search.
        self._held, self._searched, self._begun = [], [], 0.0
        self._steps, self._collections = [], []
        self._passed = self._waited = 0
        self._step, self._is_recorded, self._is_last, self._is_repeated = None, False, False, False

    @property
    def is_recording(self):
        """Whether the probe itself switched the history on."""
        return self._history.is_ours

    def turn(self, step):
        """Handles the end of a step (in jobs without steps, of a second) while a request is open."""
        if self._refusal is None and self._torch._C._cuda_isCurrentStreamCapturing():
            return
        if not self._capturing.acquire(False):
            return
        self._waited = 0
        begun = time.perf_counter()
        try:
            with Resting():
                self._turn(step, begun)
        except Exception as error:
            if not self._is_ours(error):
                raise
            self._give_up("it failed: %r" % (error,))
        finally:
            self._capturing.release()
            if self._is_over:
                self.end()

    def tick(self, step):
        """Handles a second without a step while a request is open."""
        if not step or self._answer is not None:
            self.turn(step or None)
        elif self._plan is not None and self._history.is_ours:
            self._waited += 1
            patience = _LONG_PATIENCE if self._plan.is_rare else _PATIENCE
            if self._waited == patience and self._capturing.acquire(False):
                try:
                    self._give_up("no step ended within %d s" % patience)
                finally:
                    self._capturing.release()

    def end(self):
        """Ends with the probe: sends a partial answer and stops the recording. If another thread is at work on the
        request, that thread does it."""
        self._is_over = True
        if self._capturing.acquire(False):
            try:
                try:
                    self._answer_early()
                finally:
                    self._history.end()
            except Exception:
                pass
            finally:
                self._capturing.release()

    def bar(self):
        """Returns whether no capture runs; if so, none begins until `unbar`."""
        if self.is_recording or not self._capturing.acquire(False):
            return False
        if not self.is_recording:
            return True
        self._capturing.release()
        return False

    def unbar(self):
        """Takes `bar` back."""
        self._capturing.release()
        if self._is_over:
            self.end()

    def _answer_early(self):
        """Sends the lines and the holders found so far."""
        if self._answer is None and len(self._captures) >= _FEWEST_CAPTURES:
            # The variables that held the blocks are gone, so do not search for holders.
            self._is_last = True
            self._answer_of([], self._step, time.perf_counter())
        if self._answer is not None:
            self._answer.end()
        while self._answer is not None:
            self._go_on(time.perf_counter())

    @property
    def stacks(self):
        """What distinguishes the user's frames from others."""
        return self._stacks

    def at_oom(self, device, step, live):
        """Sends a device's live blocks by line, or by size, with their holders; called while an allocation fails."""
        with Resting():
            begun = time.perf_counter()
            sites, searched = holding(self._torch, self._stacks, live, device, self._since)
            report = {"why": "oom", "step": step, "steps": 0, "sites": sites, "holders_us": searched}
            bare = [of for (stack, _), of in live.items() if stack == NOWHERE]
            report["older_blocks"], report["older_bytes"] = sum(map(len, bare)), sum(map(bytes_of, bare))
            report["held_us"] = report["longest_us"] = max(0, _us(begun) - searched)
            send(self._native, report, is_answer=0)

    def _turn(self, step, begun):
        request = self._native.sites_asked()
        if not request:
            return
        if self._request and request != self._request:
            # A user asks while the plan waits for a rise.
            self._stop_recording()
            self._clear()
        if self._answer is not None:
            self._go_on(begun)
            # The plan continues meanwhile.
            self._passed += 1
        elif self._plan is None:
            if self._begin(request, step):
                self._follow_plan(step, begun)
        elif self._history.was_taken:
            self._give_up("the job began to record its memory history itself")
        else:
            self._passed += 1
            self._follow_plan(step, begun)

    def _begin(self, request, step):
        """Makes the plan; returns whether there is one."""
        self._clear()
        if self._refusal is not None:
            self._give_up(self._refusal)
            return False
        blocks = self._live_blocks()
        if blocks > _MOST_BLOCKS:
            self._give_up("%d live blocks are too many to be compared between two steps" % blocks)
            return False
        steps_begin()
        self._request, self._begun = request, time.monotonic()
        self._plan = plan(max(1, request & _STEPS), _rises(self._native.sites_rises()), step)
        return True

    def _live_blocks(self):
        inner = self._torch._C
        devices = [it for it in range(inner._cuda_getDeviceCount()) if inner._cuda_hasPrimaryContext(it)]
        return sum(inner._cuda_memoryStats(it)["allocation"]["all"]["current"] for it in devices)

    def _follow_plan(self, step, begun):
        if self._plan.is_recorded(self._passed) and not self._is_recorded:
            if not self._history.begin():
                self._give_up("the job records its memory history itself, which this PyTorch cannot look into")
                return
            self._is_recorded = True
        if self._is_recorded and self._plan.is_due(self._passed):
            self._capture(step, begun)
        if self._plan is not None:
            if self._is_recorded and not self._plan.is_recorded(self._passed):
                self._stop_recording()
            self._held.append(_us(begun))

    def _stop_recording(self):
        self._is_recorded = False
        self._history.end()

    def _capture(self, step, begun):
        computed = time.thread_time()
        held = segments(self._torch, is_ours=True)
        captures = self._captures
        captures.append(Capture(held))
        if len(captures) > 3:
            # Only the first and the last two comparisons need all of their addresses.
            captures[-3].addresses.clear()
        has_grown = self._plan.is_rare and bool(grown(captures[-2:]))
        self._steps.append(self._passed)
        self._step = step
        self._collections.append(collections())
        is_slow = time.thread_time() - computed > _SLOW
        goes_on = self._plan.captured(has_grown, is_slow)
        if has_grown and time.monotonic() - self._begun > _LONG_WAIT:
            goes_on = False
        if not goes_on and self._fell_on_a_collection():
            return self._repeat(step)
        self._is_last = not goes_on
        if self._is_last:
            self._stop_recording()
        if self._is_last or has_grown:
            # The job may end before the next rise of a staircase, so the first one has an answer as well.
            self._answer_of(held, step, begun)

    def _earlier(self, group, blocks, recent, held):
        """Returns a group's blocks, or if all are of the latest rise, those of its sizes from before the request: the
        rises before it, if they are at least as many."""
        if len(recent) < len(blocks):
            return blocks
        sizes = {size for _, size in blocks}
        nowhere = group[0], NOWHERE
        before = blocks_of(held, {nowhere: sizes})[0][nowhere]
        return before if len(before) >= len(blocks) else blocks

    def _fell_on_a_collection(self):
        """Returns whether nothing of what a viewer saw grow did, because the collector freed it: once in a request."""
        is_known = self._request & _GROWTH and not self._is_repeated
        return bool(is_known and self._collections[0] != self._collections[-1] and not grown(self._captures))

    def _repeat(self, step):
        """Begins the comparisons again; the recording continues."""
        self._is_repeated = True
        self._captures, self._steps, self._collections = [], [], []
        self._plan, self._passed = plan(max(1, self._request & _STEPS), _rises(self._native.sites_rises()), step), 0

    def _answer_of(self, held, step, begun):
        captures = self._captures
        report = {
            "why": _why(self._request),
            "step": step,
            "steps": self._plan.steps or self._steps[-1] - self._steps[0],
            "sites": [],
        }
        earlier = (lambda group, of, recent: self._earlier(group, of, recent, held)) if self._plan.is_rare else None
        ran = self._collections[-2]
        self._answer = Answer(self._torch, self._stacks, self._since, captures, held, ran, report, earlier)
        self._answer.collects = bool(self._request & _COLLECT)
        if self._is_last:
            captures.clear()
        if self._answer.is_empty:
            self._held.append(_us(begun))
            self._go_on(time.perf_counter())

    def _go_on(self, begun):
        is_complete = self._answer.go_on()
        self._searched.append(_us(begun))
        if is_complete:
            report = self._answer.report
            report.update(held_us=sum(self._held), longest_us=max(self._held))
            report.update(holders_us=sum(self._searched), holders_longest_us=max(self._searched))
            if self._is_last:
                self._clear()
                send(self._native, report, is_answer=1)
            else:
                self._answer = None
                send(self._native, report, is_answer=0)

    def _give_up(self, why):
        try:
            self._stop_recording()
        except Exception as error:
            if not self._is_ours(error):
                raise
            why += "; the history could not be switched off: %r" % (error,)
        finally:
            request = self._native.sites_asked()
            self._clear()
            send(self._native, {"why": _why(request), "steps": 0, "sites": [], "trouble": why}, is_answer=1)

    def _is_ours(self, error):
        """Whether this package or PyTorch raised it, not a handler of the job that ran meanwhile."""
        trace = error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        return trace.tb_frame.f_code.co_filename.startswith(self._stacks.machinery)


def _why(request):
    return "growth" if request & _GROWTH else "asked"


def _rises(packed):
    """Decodes `(every, phase, slack)` from the library's number; `None` if no rises are known."""
    return (packed >> 40, packed >> 16 & 0xFFFFFF, packed & 0xFFFF) if packed else None


def _us(begun):
    return int(1e6 * (time.perf_counter() - begun))
