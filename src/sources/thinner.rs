//! Thins the samples of fast jobs: of a stretch of time, one sample of each device of a process passes. Every other
//! line passes unchanged.
//!
//! Of the samples that a process makes within a stretch on a device, the one after a step with the most allocated bytes
//! passes. The highest sample of each stretch keeps the trend of a job whose memory alternates from step to step: any
//! regular choice of steps would sample that pattern at changing places, and make slow waves of it. A counter that the
//! sample lacks comes from the others of its stretch, and its peaks are the highest of them.
//!
//! The newest sample of a stretch, if it is lower, is the first of the next one. It passes when no higher one follows
//! there, and before any other line, so that the end of a run, a pause and a mark have their own step and counters.
//!
//! Losses: the lows between the highs, and single steps' durations (a reader has their mean). Counters are current or
//! cumulative, so totals, peaks, retries and errors stay exact, though a retry may show some steps late. A job with at
//! most one step in a stretch loses nothing. The reader learns by a `history` line that it has one of N samples.

use crate::{
    facts::{
        event::{
            Event, Fact, Line, ProbeId,
            wire::{Edge, History, Sample},
        },
        units::Stamp,
    },
    model::session::{PROBES, process::DEVICES},
};
use std::{collections::BTreeMap, mem, ops::RangeInclusive};

/// The stretch of a machine's stream, in µs: at most four samples a second for each device of a process, about 1.5 KB.
pub const STREAM_US: u64 = 250_000;

/// Most devices of processes that are thinned: those that a session keeps. The samples of others pass.
const LANES: usize = PROBES * DEVICES;

/// Thins events.
#[derive(Debug)]
pub struct Thinner {
    /// The stretch of time of which one sample passes, in µs; 0 passes all.
    pub stretch_us: u64,
    lanes: BTreeMap<(ProbeId, u32), Lane>,
}

/// The samples of one process on one device.
#[derive(Debug)]
struct Lane {
    /// The first sample's stamp of the stretch.
    begun: Stamp,
    /// The sample that passes, unless a higher one follows.
    high: Option<Event>,
    /// The newest sample after that.
    newest: Option<Event>,
    /// Number of samples of the stretch.
    seen: u64,
    /// The reader has one of so many samples, at worst.
    stride: u64,
}

impl Thinner {
    /// Creates one that has thinned nothing yet.
    pub fn new(stretch_us: u64) -> Self {
        Self { stretch_us, lanes: BTreeMap::new() }
    }

    /// Takes an event, and sends what passes. A sample waits for the end of its stretch; any other line of its probe
    /// sends it at once, so that the order of steps, marks and errors stays.
    pub fn take(&mut self, event: Event, send: &mut impl FnMut(Event)) {
        let Some((key, at)) = event.sample().map(|(probe, it)| ((probe, it.device), Stamp(it.at_us))) else {
            self.release(&event, send);
            return send(event);
        };
        if self.stretch_us == 0 || !self.has_room(key) {
            self.release(&event, send);
            return send(event);
        }
        let lane = self.lanes.entry(key).or_insert(Lane { begun: at, high: None, newest: None, seen: 0, stride: 1 });
        if !lane.covers(at, self.stretch_us) {
            lane.release(key.0, at, send);
        }
        lane.hold(event);
    }

    /// Sends the samples whose stretch is over.
    pub fn flush(&mut self, now: Stamp, send: &mut impl FnMut(Event)) {
        let stretch_us = self.stretch_us;
        for ((probe, _), lane) in self.lanes.iter_mut().filter(|(_, lane)| !lane.covers(now, stretch_us)) {
            lane.release(*probe, now, send);
        }
    }

    /// Sends all samples, because nothing follows.
    pub fn finish(&mut self, send: &mut impl FnMut(Event)) {
        self.lanes.iter_mut().for_each(|((probe, _), lane)| lane.drain(*probe, send));
    }

    /// Returns whether a sample waits for the end of its stretch.
    pub fn is_holding(&self) -> bool {
        self.lanes.values().any(|it| it.high.is_some())
    }

    fn has_room(&self, key: (ProbeId, u32)) -> bool {
        self.lanes.contains_key(&key)
            || (self.lanes.len() < LANES && self.lanes.range(lanes_of(key.0)).count() < DEVICES)
    }

    /// Sends the samples of the probe that an event is about, and forgets a probe that ends.
    fn release(&mut self, event: &Event, send: &mut impl FnMut(Event)) {
        let (Fact::Probe { probe, .. } | Fact::ProbeGone { probe, .. } | Fact::ProbeFound { probe, .. }) = &event.fact
        else {
            return;
        };
        for (_, lane) in self.lanes.range_mut(lanes_of(*probe)) {
            lane.drain(*probe, send);
        }
        if event.ends_probe() {
            self.lanes.retain(|(it, _), _| it != probe);
        }
    }
}

fn lanes_of(probe: ProbeId) -> RangeInclusive<(ProbeId, u32)> {
    (probe, 0)..=(probe, u32::MAX)
}

impl Lane {
    fn covers(&self, at: Stamp, stretch_us: u64) -> bool {
        at >= self.begun && at.since(self.begun) < stretch_us
    }

    fn hold(&mut self, event: Event) {
        self.seen += 1;
        let Some(high) = &mut self.high else {
            self.high = Some(event);
            return;
        };
        if height(high) <= height(&event) {
            let lower = mem::replace(high, event);
            join(high, &lower);
            self.newest = None;
            return;
        }
        join(high, &event);
        match &mut self.newest {
            // A tick between steps has no step.
            Some(newest) if is_of_step(newest) && !is_of_step(&event) => join(newest, &event),
            newest => *newest = Some(event),
        }
    }

    /// Sends the highest sample, and begins a stretch with the newest one.
    fn release(&mut self, probe: ProbeId, at: Stamp, send: &mut impl FnMut(Event)) {
        let stride = self.seen.next_power_of_two();
        if let Some(high) = self.high.take() {
            if let Some((_, sample)) = high.sample().filter(|_| stride > self.stride) {
                self.stride = stride;
                let history = Line::History(History { from_us: self.begun.0, to_us: sample.at_us, stride });
                send(Event { at: high.at, fact: Fact::Probe { probe, line: Box::new(history) } });
            }
            send(high);
        }
        // The newest one was counted.
        (self.begun, self.high, self.seen) = (at, self.newest.take(), 0);
    }

    /// Sends the highest and the newest sample.
    fn drain(&mut self, probe: ProbeId, send: &mut impl FnMut(Event)) {
        while self.high.is_some() {
            self.release(probe, self.begun, send);
        }
    }
}

/// What decides between two samples: growth is judged after steps, at the highest one.
fn height(event: &Event) -> Option<(bool, Option<u64>)> {
    event.sample().map(|(_, it)| (it.edge != Edge::Tick, it.counters.allocated))
}

fn is_of_step(event: &Event) -> bool {
    event.sample().is_some_and(|(_, it)| it.edge != Edge::Tick)
}

/// Gives a sample the counters that it lacks, and the higher peaks.
fn join(event: &mut Event, other: &Event) {
    let Some((_, Sample { counters: others, .. })) = other.sample() else { return };
    let Fact::Probe { line, .. } = &mut event.fact else { return };
    let Line::Sample(Sample { counters, .. }) = &mut **line else { return };
    counters.complete(others);
    counters.allocated_peak = counters.allocated_peak.max(others.allocated_peak);
    counters.reserved_peak = counters.reserved_peak.max(others.reserved_peak);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::wire::{Bye, Counters, Mark};

    fn sample(at_us: u64, step: u64, allocated: u64) -> Event {
        let counters = Counters { allocated: Some(allocated), ..Counters::default() };
        line(at_us, Line::Sample(Sample { at_us, edge: Edge::Step, step: Some(step), counters, ..Sample::default() }))
    }

    fn line(at_us: u64, line: Line) -> Event {
        Event { at: Stamp(at_us), fact: Fact::Probe { probe: ProbeId(1), line: Box::new(line) } }
    }

    fn thinned(events: Vec<Event>) -> Vec<Event> {
        let (mut thinner, mut out) = (Thinner::new(STREAM_US), Vec::new());
        for it in events {
            thinner.take(it, &mut |event| out.push(event));
        }
        thinner.finish(&mut |event| out.push(event));
        out
    }

    fn steps(events: &[Event]) -> Vec<u64> {
        events.iter().filter_map(|it| it.sample()?.1.step).collect()
    }

    #[test]
    fn a_job_with_four_steps_a_second_loses_nothing() {
        let all: Vec<Event> = (1..100).map(|step| sample(step * STREAM_US, step, step)).collect();
        assert_eq!(thinned(all.clone()), all);
    }

    #[test]
    fn of_a_fast_job_the_highest_sample_of_each_stretch_passes_and_the_reader_learns_it() {
        // Memory alternates: every third step is high.
        let all = (0..1000).map(|step| sample(step * 10_000, step, 100 + step % 3)).collect();
        let out = thinned(all);
        let strides: Vec<u64> = out
            .iter()
            .filter_map(|it| if let Line::History(it) = it.line()?.1 { Some(it.stride) } else { None })
            .collect();
        assert_eq!(strides, [32], "25 samples of a stretch");
        let (newest, highs) = (*steps(&out).last().unwrap(), &steps(&out)[..40]);
        assert!(highs.iter().all(|it| it % 3 == 2), "{highs:?}");
        assert_eq!((newest, steps(&out).len()), (999, 41), "and the end of the run");
    }

    #[test]
    fn every_other_line_passes_at_its_place() {
        let mark = || line(25_000, Line::Mark(Mark { name: "epoch".to_owned(), ..Mark::default() }));
        let bye = line(40_000, Line::Bye(Bye::default()));
        let out = thinned(vec![sample(10_000, 1, 5), sample(20_000, 2, 4), mark(), sample(30_000, 3, 1), bye.clone()]);
        assert_eq!(steps(&out), [1, 2, 3]);
        let place = |event: &Event| out.iter().position(|it| it == event);
        assert_eq!(place(&mark()), Some(3), "after the first samples and the loss");
        assert_eq!(out.last(), Some(&bye));
    }

    #[test]
    fn a_run_ends_with_the_counters_of_its_last_step_and_a_pause_shows_them_too() {
        let with = |at_us: u64, step: u64, allocated: u64, (peak, retries): (u64, u64)| {
            let mut event = sample(at_us, step, allocated);
            if let Fact::Probe { line, .. } = &mut event.fact
                && let Line::Sample(sample) = &mut **line
            {
                sample.counters.allocated_peak = Some(peak);
                sample.counters.retries = Some(retries);
            }
            event
        };
        let figures = |it: &Event| {
            let (_, sample) = it.sample().unwrap();
            (sample.step.unwrap(), sample.counters.allocated_peak.unwrap(), sample.counters.retries.unwrap())
        };
        let tick = || line(40_000, Line::Sample(Sample { at_us: 40_000, ..Sample::default() }));
        let all = || [with(10_000, 96, 10, (11, 0)), with(20_000, 97, 9, (15, 1)), with(30_000, 98, 8, (9, 2)), tick()];
        let bye = line(50_000, Line::Bye(Bye::default()));
        let out = thinned(all().into_iter().chain([bye]).collect());
        let samples: Vec<&Event> = out.iter().filter(|it| it.sample().is_some()).collect();
        assert_eq!(samples.iter().map(|it| figures(it)).collect::<Vec<_>>(), [(96, 15, 0), (98, 9, 2)]);
        // Without a line that follows, the newest one passes a stretch later.
        let (mut thinner, mut out) = (Thinner::new(STREAM_US), Vec::new());
        for it in all() {
            thinner.take(it, &mut |_| ());
        }
        for stretches in 1..=3 {
            thinner.flush(Stamp(20_000 + stretches * STREAM_US), &mut |it| out.push(it));
        }
        assert_eq!(steps(&out), [96, 98]);
        assert!(!thinner.is_holding());
    }

    #[test]
    fn a_probe_that_names_ever_more_devices_is_thinned_on_some_only() {
        let of = |device: u32| line(0, Line::Sample(Sample { device, ..Sample::default() }));
        let (mut thinner, mut passed) = (Thinner::new(STREAM_US), 0);
        (0..1000).for_each(|device| thinner.take(of(device), &mut |_| passed += 1));
        assert_eq!(thinner.lanes.len(), DEVICES);
        assert_eq!(passed, 1000);
    }

    #[test]
    fn a_counter_that_the_highest_sample_lacks_comes_from_its_stretch() {
        let mut tick = Sample { at_us: 20_000, ..Sample::default() };
        tick.counters.rss = Some(77);
        let out = thinned(vec![sample(10_000, 1, 5), line(20_000, Line::Sample(tick))]);
        let counters = out.iter().find_map(|it| it.sample()).unwrap().1.counters;
        assert_eq!((counters.allocated, counters.rss), (Some(5), Some(77)));
    }

    #[test]
    fn stamps_that_fall_or_jump_hold_nothing_back() {
        let out = thinned(vec![sample(900_000, 1, 1), sample(10, 2, 1), sample(1 << 62, 3, 1)]);
        assert_eq!(steps(&out), [1, 2, 3]);
        let mut thinner = Thinner::new(STREAM_US);
        let mut sent = 0;
        thinner.take(sample(1 << 62, 1, 1), &mut |_| sent += 1);
        thinner.flush(Stamp(5), &mut |_| sent += 1);
        assert_eq!(sent, 1);
    }

    #[test]
    fn without_a_stretch_every_sample_passes_at_once() {
        let mut thinner = Thinner::new(STREAM_US);
        let mut out = Vec::new();
        thinner.take(sample(1000, 1, 1), &mut |it| out.push(it));
        assert!(out.is_empty() && thinner.is_holding());
        thinner.stretch_us = 0;
        thinner.take(sample(2000, 2, 1), &mut |it| out.push(it));
        assert_eq!(steps(&out), [1, 2]);
    }
}
