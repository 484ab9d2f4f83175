//! Jobs whose steps have stopped although their processes live.
//!
//! A job shows that it works by *signs of life*: a step, a mark, an error, counters of the allocator that change, host
//! memory that moves, work of the CPU beside an idle device, and a device that is neither idle nor fully busy all the
//! time. Each of them begins the wait again. What remains is a process in which nothing moves, with a device at 0 % or
//! at 100 %: it waits for data or a lock, or its kernels spin in a collective that never completes.
//!
//! A pause that the program itself chose, by one sleep that lasts the whole wait, raises nothing either. Many short
//! sleeps do: a loop that asks again and again waits for something that does not come.
//!
//! A job whose live memory has fallen below half of what it held after every step has finished: a script that then
//! writes a report, or waits at its end, raises nothing. A hung job frees nothing.
//!
//! The wait is long, and longer than anything that the job has shown before: several times its longest pause, so that
//! checkpoints and evaluations that come again raise nothing. The ranks of a run share their signs of life, because
//! ranks that wait for the one that evaluates look as if they had stalled.

use super::pace::ENOUGH;
use crate::facts::{
    event::wire::{Counters, Edge, Sample},
    units::Stamp,
};
use serde::{Deserialize, Serialize};

/// Percents of utilisation: an idle device has at most the first, one that spins at least the second.
const IDLE: u64 = 2;
const BUSY: u64 = 98;

/// The shortest waits, in µs: for a busy device whose allocator is seen not to move, and for all others.
const SPINS_US: u64 = 300 * SECOND_US;
const LEAST_US: u64 = 600 * SECOND_US;
const SECOND_US: u64 = 1_000_000;

/// The wait in longest pauses and in usual steps.
const PAUSES: u64 = 3;
const STEPS: u64 = 10;

/// The utilisation must have been the same for so long, in µs.
const STEADY_US: u64 = 60 * SECOND_US;

/// A sleep is seen so much later than it begins, at most, in µs: it is read each ten seconds, in whole minutes.
const SLEEP_SEEN_US: u64 = 90 * SECOND_US;

/// After so long without a second, gpuwatch itself has been suspended or its machine was, in µs.
const GAP_US: u64 = 60 * SECOND_US;

/// The allocator has been seen if its counters are at most so old, in µs; the probe reads them each second.
const SEEN_US: u64 = 10 * SECOND_US;

/// Bytes by which host memory moves when something uses it.
const MOVES: u64 = 64 << 20;

/// Percent of a core, or of time in waits for disks, from which on the host works.
const WORKS: u64 = 30;

/// Most stalls remembered.
const SPELLS: usize = 4;

/// How busy the devices of a process are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Load {
    /// Nothing runs on any of them.
    Idle,
    /// Kernels run all the time on at least one of them, and nothing on the others.
    Busy,
    /// They work.
    Between,
}

impl Load {
    /// Returns the load of several devices, from the percents of time in which kernels ran.
    pub fn of(percents: impl IntoIterator<Item = u64>) -> Option<Self> {
        let each = percents.into_iter().map(|it| match it {
            ..=IDLE => Self::Idle,
            BUSY.. => Self::Busy,
            _ => Self::Between,
        });
        each.reduce(|one, other| match (one, other) {
            (Self::Between, _) | (_, Self::Between) => Self::Between,
            (Self::Busy, _) | (_, Self::Busy) => Self::Busy,
            _ => Self::Idle,
        })
    }
}

/// What is known of a process besides its samples, once a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct StallReading {
    /// The load of its devices; `None` if one of them is unknown.
    pub load: Option<Load>,
    /// Whether its host shows that it works, or a signal or a debugger suspends it.
    pub is_excused: bool,
    /// Whether it waits for a user or for requests when its device is idle.
    pub may_wait: bool,
    /// How long its main thread has been in one sleep of its own choice, in µs; 0 if in none, `None` if unknown.
    pub asleep_us: Option<u64>,
    /// The latest sign of life of the other ranks of its run.
    pub others: Stamp,
    /// The usual duration of its steps, in µs.
    pub usual_us: Option<u64>,
}

/// A time without a sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StallPeriod {
    /// The latest step.
    pub step: u64,
    /// When it was completed.
    pub stepped: Stamp,
    /// When the stall was raised.
    pub first_alert_at: Stamp,
    /// The step and time at which it was over; `None` while it lasts.
    pub resolved: Option<(u64, Stamp)>,
    /// Whether the device was busy.
    pub is_busy: bool,
    /// The wait before it was raised, in µs.
    pub waited_us: u64,
}

/// The detector, for one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// The steps seen.
    steps: u64,
    latest: Option<(u64, Stamp)>,
    /// Whether the job marks its steps by calls of its own.
    calls: bool,
    /// The latest sign of life.
    life: Stamp,
    /// When the probe last read the allocator between steps.
    read: Stamp,
    /// The longest time without a sign of life among the first steps, and since, in µs.
    warm_us: u64,
    longest_us: u64,
    /// The host memory at the latest sign of life.
    rss: Option<u64>,
    /// When it was last in a sleep that had lasted since the latest sign of life. Other ranks do not share it.
    slept: Stamp,
    /// The latest second, and the first one without a gap before it.
    seconds: Option<(Stamp, Stamp)>,
    load: Option<(Load, Stamp)>,
    /// The least live memory at the end of a step, in bytes.
    least: Option<u64>,
    /// Whether the job has given back most of what every step needs: it has finished, although its process lives.
    is_finished: bool,
    spells: Vec<StallPeriod>,
}

impl Stall {
    /// Takes a sample, and the counters before it.
    pub fn sample(&mut self, sample: &Sample, before: &Counters) {
        let at = Stamp(sample.at_us);
        match sample.step.filter(|_| sample.edge != Edge::Tick) {
            Some(step) => {
                self.rss = sample.counters.rss.or(self.rss);
                self.is_finished = false;
                let lower = [self.least, sample.counters.allocated];
                self.least = lower.into_iter().flatten().min();
                self.step(step, at, sample.edge);
            }
            None => self.between(&sample.counters, before, at),
        }
    }

    fn step(&mut self, step: u64, at: Stamp, edge: Edge) {
        self.sign(at);
        if self.latest.is_some_and(|(_, then)| at < then) {
            return;
        }
        // A process on several devices reports each step once for each of them.
        if self.latest.is_none_or(|(before, _)| before != step) {
            self.steps = self.steps.saturating_add(1);
        }
        self.latest = Some((step, at));
        self.calls = edge == Edge::Call;
        self.end(at);
    }

    /// Takes the counters between two steps.
    fn between(&mut self, now: &Counters, before: &Counters, at: Stamp) {
        if let (Some(least), Some(now), Some(before)) = (self.least, now.allocated, before.allocated) {
            self.is_finished = now < least / 2 && (self.is_finished || before >= least / 2);
        }
        self.read = self.read.max(at);
        let has_memory_moved = now.rss.zip(self.rss).is_some_and(|(now, then)| now.abs_diff(then) >= MOVES);
        if moves(now, before) || has_memory_moved {
            self.rss = now.rss.or(self.rss);
            self.word(at);
        } else {
            self.rss = self.rss.or(now.rss);
        }
    }

    /// Takes a mark or an error of the job.
    pub fn word(&mut self, at: Stamp) {
        self.sign(at);
        self.end(at);
    }

    /// Takes the regular end of its process, which has not been stuck.
    pub fn finish(&mut self, at: Stamp) {
        self.end(at);
    }

    /// Takes what is known at a second.
    pub fn second(&mut self, seen: &StallReading, at: Stamp) {
        self.sign(seen.others);
        let begun = self.seconds.filter(|it| at.since(it.0) < GAP_US).map_or(at, |it| it.1);
        self.seconds = Some((at, begun));
        let Some(load) = seen.load else { return };
        if self.load.is_none_or(|(before, _)| before != load) {
            if self.load.is_some() {
                self.sign(at);
            }
            self.load = Some((load, at));
        }
        if load == Load::Between || seen.is_excused {
            self.sign(at);
        }
        if load == Load::Idle && seen.asleep_us.is_some_and(|us| self.has_slept_since(us, begun, at)) {
            self.slept = at;
        }
        if !self.is_active() && self.is_due(load, seen, at) {
            self.raise(load, at);
        }
    }

    /// Returns the latest sign of life and the latest step.
    pub fn life(&self) -> (Stamp, u64) {
        (self.life, self.latest.map_or(0, |(step, _)| step))
    }

    /// Returns when the latest step was completed, and the step.
    pub fn latest(&self) -> Option<(u64, Stamp)> {
        self.latest
    }

    /// Returns the latest stalls, oldest first.
    pub fn spells(&self) -> &[StallPeriod] {
        &self.spells
    }

    /// Returns whether the main thread's sleep is the reason why nothing moves: it has lasted since the latest sign of
    /// life, or since gpuwatch sees the process, and began after the latest step, which may be another thread's. What
    /// sleeps again and again waits for something.
    fn has_slept_since(&self, us: u64, begun: Stamp, at: Stamp) -> bool {
        let stepped = self.latest.map_or(Stamp(0), |(_, at)| at);
        us > 0 && us <= at.since(stepped) && us.saturating_add(SLEEP_SEEN_US) >= at.since(self.life.max(begun))
    }

    /// Returns the latest sign of life, or moment of the sleep after it.
    fn since(&self) -> Stamp {
        self.life.max(self.slept)
    }

    fn is_active(&self) -> bool {
        self.spells.last().is_some_and(|it| it.resolved.is_none())
    }

    fn is_due(&self, load: Load, seen: &StallReading, at: Stamp) -> bool {
        let is_judged =
            self.steps >= ENOUGH as u64 && !self.is_finished && !(load == Load::Idle && (seen.may_wait || self.calls));
        let begun = self.seconds.map_or(at, |it| it.1);
        let is_steady = self.load.is_some_and(|(_, since)| at.since(since) >= STEADY_US)
            && (load == Load::Busy || at.since(begun) >= SLEEP_SEEN_US);
        let is_seen = at.since(self.read) <= SEEN_US;
        let least = if load == Load::Busy && is_seen { SPINS_US } else { LEAST_US };
        let usual = seen.usual_us.unwrap_or(0);
        let wait = least.max(self.warm_us).max(self.longest_us.saturating_mul(PAUSES)).max(usual.saturating_mul(STEPS));
        is_judged && is_steady && at.since(self.since()) >= wait
    }

    fn raise(&mut self, load: Load, at: Stamp) {
        let Some((step, stepped)) = self.latest else { return };
        if self.spells.len() == SPELLS {
            self.spells.remove(0);
        }
        let (is_busy, waited_us) = (load == Load::Busy, at.since(self.since()));
        self.spells.push(StallPeriod { step, stepped, first_alert_at: at, resolved: None, is_busy, waited_us });
    }

    fn sign(&mut self, at: Stamp) {
        if at <= self.life {
            return;
        }
        let pause = if self.life == Stamp(0) { 0 } else { at.since(self.since()) };
        let longest = if self.steps < ENOUGH as u64 { &mut self.warm_us } else { &mut self.longest_us };
        *longest = pause.max(*longest);
        self.life = at;
    }

    fn end(&mut self, at: Stamp) {
        let step = self.latest.map_or(0, |(step, _)| step);
        if let Some(spell) = self.spells.last_mut().filter(|it| it.resolved.is_none()) {
            spell.resolved = Some((step, at));
        }
    }
}

/// Returns whether the host of a process works, by the percents of a core and of waits for disks.
pub fn is_host_at_work(cpu: Option<u64>, io_wait: Option<u64>) -> bool {
    [cpu, io_wait].into_iter().flatten().any(|it| it >= WORKS)
}

/// Returns whether a program waits for a user between two cells or lines: a notebook, or an interactive interpreter.
pub fn is_interactive(argv: &[String]) -> bool {
    const KERNELS: [&str; 4] = ["ipykernel", "ipython", "jupyter", "colab"];
    let names = || argv.iter().take(4).map(|it| it.rsplit('/').next().unwrap_or_default().to_ascii_lowercase());
    let is_python = names().next().is_some_and(|it| it.starts_with("python"));
    let has_kernel = names().any(|it| KERNELS.iter().any(|kernel| it.contains(kernel)));
    has_kernel || (is_python && argv.get(1).is_none_or(|it| it == "-i"))
}

/// Whether a sample differs from the one before it in a counter of the allocator.
fn moves(now: &Counters, before: &Counters) -> bool {
    let own = |it: &Counters| Counters { device_free: None, device_total: None, rss: None, ..*it }.values();
    own(now).iter().zip(own(before)).any(|(now, before)| now.is_some() && *now != before)
}

#[cfg(test)]
mod tests;
