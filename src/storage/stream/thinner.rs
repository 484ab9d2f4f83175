//! Thins the samples of fast jobs at the sender: a stream has at most four samples a second for each device of a
//! process, about 1.5 KB. Every other line passes unchanged.
//!
//! Of the samples that a process makes within a quarter of a second on a device, the one after a step with the most
//! allocated bytes passes. The highest sample of each stretch keeps the trend of a job whose memory alternates from
//! step to step: any regular choice of steps would sample that pattern at changing places, and make slow waves of it. A
//! counter that the sample lacks comes from the others of its stretch.
//!
//! Losses: the lows between the highs, single steps' durations (a reader has their mean), and the order of samples
//! within a quarter of a second. Counters are current or cumulative, so totals, peaks, retries and errors stay exact. A
//! job with at most four steps a second loses nothing. The reader learns by a `history` line that it has one of N
//! samples.

use crate::facts::{
    event::{
        Event, Fact, Line, ProbeId,
        wire::{Counters, Edge, History, Sample},
    },
    units::Stamp,
};
use std::collections::BTreeMap;

/// The stretch of time of which one sample passes, in µs.
pub const WINDOW_US: u64 = 250_000;

/// Most devices of processes that are thinned; the samples of others pass.
const LANES: usize = 16 << 10;

/// Thins a machine's events.
#[derive(Debug, Default)]
pub struct Thinner {
    lanes: BTreeMap<(ProbeId, u32), Lane>,
}

/// The samples of one process on one device.
#[derive(Debug)]
struct Lane {
    /// The first sample's stamp of the stretch.
    begun: Stamp,
    /// The sample that passes, unless a higher one follows.
    held: Option<(Stamp, Sample)>,
    /// Number of samples of the stretch.
    seen: u64,
    /// The reader has one of so many samples, at worst.
    stride: u64,
}

impl Thinner {
    /// Takes an event, and sends what passes. A sample waits for the end of its stretch; any other line of its probe
    /// sends it at once, so that the order of steps, marks and errors stays.
    pub fn take(&mut self, event: &Event, send: &mut impl FnMut(&Event)) {
        let Some((probe, sample)) = event.sample() else {
            self.release(event, send);
            return send(event);
        };
        let key = (probe, sample.device);
        if self.lanes.len() >= LANES && !self.lanes.contains_key(&key) {
            return send(event);
        }
        let at = Stamp(sample.at_us);
        let lane = self.lanes.entry(key).or_insert(Lane { begun: at, held: None, seen: 0, stride: 1 });
        if !lane.covers(at) {
            lane.release(probe, send);
            lane.begun = at;
        }
        lane.hold(event.at, sample);
    }

    /// Sends the samples whose stretch is over.
    pub fn flush(&mut self, now: Stamp, send: &mut impl FnMut(&Event)) {
        for ((probe, _), lane) in self.lanes.iter_mut().filter(|(_, lane)| !lane.covers(now)) {
            lane.release(*probe, send);
        }
    }

    /// Sends the samples of the probe that an event is about, and forgets a probe that ends.
    fn release(&mut self, event: &Event, send: &mut impl FnMut(&Event)) {
        let (Fact::Probe { probe, .. } | Fact::ProbeGone { probe, .. } | Fact::ProbeFound { probe, .. }) = &event.fact
        else {
            return;
        };
        let own = (*probe, 0)..=(*probe, u32::MAX);
        for (_, lane) in self.lanes.range_mut(own) {
            lane.release(*probe, send);
        }
        if event.ends_probe() {
            self.lanes.retain(|(it, _), _| it != probe);
        }
    }
}

impl Lane {
    fn covers(&self, at: Stamp) -> bool {
        at >= self.begun && at.since(self.begun) < WINDOW_US
    }

    fn hold(&mut self, at: Stamp, sample: &Sample) {
        self.seen += 1;
        self.held = Some(match self.held.take() {
            Some((then, held)) if height(&held) > height(sample) => (then, filled(&held, &sample.counters)),
            Some((_, held)) => (at, filled(sample, &held.counters)),
            None => (at, sample.clone()),
        });
    }

    fn release(&mut self, probe: ProbeId, send: &mut impl FnMut(&Event)) {
        let Some((at, sample)) = self.held.take() else { return };
        let stride = std::mem::take(&mut self.seen).next_power_of_two();
        let mut line = |line| send(&Event { at, fact: Fact::Probe { probe, line: Box::new(line) } });
        if stride > self.stride {
            self.stride = stride;
            line(Line::History(History { from_us: self.begun.0, to_us: sample.at_us, stride }));
        }
        line(Line::Sample(sample));
    }
}

/// What decides between two samples: growth is judged after steps, at the highest one.
fn height(sample: &Sample) -> (bool, Option<u64>) {
    (sample.edge != Edge::Tick, sample.counters.allocated)
}

/// Returns the sample with the counters that it lacks.
fn filled(sample: &Sample, others: &Counters) -> Sample {
    let mut values = sample.counters.values();
    for (value, other) in values.iter_mut().zip(others.values()) {
        *value = value.or(other);
    }
    Sample { counters: Counters::from_values(&values), ..*sample }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::wire::{Bye, Mark};

    fn sample(at_us: u64, step: u64, allocated: u64) -> Event {
        let counters = Counters { allocated: Some(allocated), ..Counters::default() };
        line(at_us, Line::Sample(Sample { at_us, edge: Edge::Step, step: Some(step), counters, ..Sample::default() }))
    }

    fn line(at_us: u64, line: Line) -> Event {
        Event { at: Stamp(at_us), fact: Fact::Probe { probe: ProbeId(1), line: Box::new(line) } }
    }

    fn thinned(events: Vec<Event>) -> Vec<Event> {
        let (mut thinner, mut out) = (Thinner::default(), Vec::new());
        for it in events {
            thinner.take(&it, &mut |event| out.push(event.clone()));
        }
        thinner.flush(Stamp(u64::MAX), &mut |event| out.push(event.clone()));
        out
    }

    fn steps(events: &[Event]) -> Vec<u64> {
        events.iter().filter_map(|it| it.sample()?.1.step).collect()
    }

    #[test]
    fn a_job_with_four_steps_a_second_loses_nothing() {
        let all: Vec<Event> = (1..100).map(|step| sample(step * WINDOW_US, step, step)).collect();
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
        assert_eq!(steps(&out).len(), 40);
        assert!(steps(&out).iter().all(|it| it % 3 == 2), "{:?}", steps(&out));
    }

    #[test]
    fn every_other_line_passes_at_its_place() {
        let mark = || line(25_000, Line::Mark(Mark { name: "epoch".to_owned(), ..Mark::default() }));
        let bye = line(40_000, Line::Bye(Bye::default()));
        let out = thinned(vec![sample(10_000, 1, 5), sample(20_000, 2, 4), mark(), sample(30_000, 3, 1), bye.clone()]);
        assert_eq!(steps(&out), [1, 3]);
        let place = |event: &Event| out.iter().position(|it| it == event);
        assert_eq!(place(&mark()), Some(2), "after the first samples and the loss");
        assert_eq!(out.last(), Some(&bye));
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
        let mut thinner = Thinner::default();
        let mut sent = 0;
        thinner.take(&sample(1 << 62, 1, 1), &mut |_| sent += 1);
        thinner.flush(Stamp(5), &mut |_| sent += 1);
        assert_eq!(sent, 1);
    }
}
