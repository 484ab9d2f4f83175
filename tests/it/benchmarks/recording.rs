//! Measures the cost of a recording: bytes per step, and the time of the thread that writes it.
//!
//! `GPUWATCH_BENCHMARK=full cargo test --profile dist --test it benchmarks::recording:: -- --nocapture` holds it to
//! its budget.

use crate::{analysis::corpus, commands::check::header};
use gpuwatch::{
    facts::{
        event::{
            Event, Fact, Line, ProbeId,
            wire::{Edge, Sample},
        },
        units::Stamp,
    },
    storage::{
        recording::{Closed, encode_closed},
        sink::writing::Writing,
    },
};
use rustix::time::{ClockId, clock_gettime};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use test_tiers::is_benchmark;

/// Where the clock of a machine stands that was not just booted, µs.
const BOOTED_US: u64 = 987_654_321_012;

/// Writes events in order of time like a recorder: flushed each second. Returns the file's growth from each flush:
/// bytes and whole lines.
pub(crate) fn record(path: &Path, events: &[Event]) -> Vec<(usize, usize)> {
    let begun = Instant::now();
    let from = events.first().map_or(Stamp(0), |it| it.at);
    let mut writing = Writing::new(File::create_new(path).unwrap(), begun);
    writing.line(&header()).unwrap();
    let mut second = 0;
    let mut flushed = Vec::new();
    for (place, event) in events.iter().enumerate() {
        while event.at.since(from) >= (second + 1) * 1_000_000 {
            second += 1;
            writing.flush(begun + Duration::from_secs(second)).unwrap();
            flushed.push((usize::try_from(fs::metadata(path).unwrap().len()).unwrap(), place + 1));
        }
        writing.event(event).unwrap();
    }
    writing.line(&encode_closed(&Closed { at_us: events.last().unwrap().at, lost: 0 })).unwrap();
    writing.finish().unwrap();
    flushed
}

/// A trace of the corpus as a probe sends it, at this many steps per second.
pub(crate) fn events_of(trace: &Path, rank: u32, a_second: u64, steps: usize) -> Vec<Event> {
    let lines = corpus::read(trace);
    let samples: Vec<&Sample> = lines.iter().filter_map(sample).take(steps).collect();
    let (first, last) = (samples[0].at_us, samples[samples.len() - 1].at_us);
    let (steps, took) = (samples.len() as u64 - 1, (last - first) * a_second);
    let mut seq = 0;
    let mut events = Vec::new();
    let mut add = |at_us, line| {
        events.push(Event { at: Stamp(at_us), fact: Fact::Probe { probe: ProbeId(rank), line: Box::new(line) } });
    };
    let Fact::Probe { line: hello, .. } = &lines[0].fact else { panic!("a trace begins with its hello") };
    add(BOOTED_US, (**hello).clone());
    for it in samples {
        seq += 1;
        // The steps keep what their times jitter by.
        let at_us = BOOTED_US + 1_000 + (it.at_us - first) * steps * 1_000_000 / took;
        let mut row = Sample { seq: Some(seq), at_us, ..it.clone() };
        // Between steps only are these read.
        let counters = &mut row.counters;
        for absent in [
            &mut counters.pinned_active,
            &mut counters.pinned_reserved,
            &mut counters.device_free,
            &mut counters.device_total,
        ] {
            *absent = None;
        }
        add(at_us, Line::Sample(row));
    }
    events
}

fn sample(event: &Event) -> Option<&Sample> {
    let Fact::Probe { line, .. } = &event.fact else { return None };
    match &**line {
        Line::Sample(it) if it.edge == Edge::Step => Some(it),
        _ => None,
    }
}

/// Bytes a step of a file with one process: the whole file's, its header and what ended it included.
#[test]
fn a_step_takes_few_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let traces: Vec<_> = corpus::traces().into_iter().step_by(if is_benchmark() { 1 } else { 4 }).collect();
    for (a_second, most) in [(1, 45.0), (10, 24.0)] {
        let size = |trace: &PathBuf| {
            let path = dir.path().join(trace.file_name().unwrap());
            let events = events_of(trace, 0, a_second, 400);
            record(&path, &events);
            let bytes = fs::metadata(&path).unwrap().len();
            fs::remove_file(&path).unwrap();
            bytes as f64 / (events.len() - 1) as f64
        };
        let mut sizes: Vec<f64> = traces.iter().map(size).collect();
        sizes.sort_by(f64::total_cmp);
        let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
        let within = sizes.iter().filter(|it| **it <= most).count() as f64 / sizes.len() as f64;
        let (least, worst) = (sizes[0], sizes[sizes.len() - 1]);
        println!(
            "{a_second} steps a second: {mean:.1} bytes a step in {} loops ({least:.1} to {worst:.1}), {:.0} % within {most}",
            sizes.len(),
            within * 100.0
        );
        assert!(mean <= most && within >= 0.8, "{mean:.1} bytes a step, {within:.2} within {most}");
        // Lengths that vary move every counter in every step.
        assert!(worst <= most * 1.35, "{worst:.1} bytes a step");
    }
}

#[test]
fn eight_ranks_of_a_hundred_steps_a_second_cost_little_to_write() {
    let dir = tempfile::tempdir().unwrap();
    let traces = corpus::traces();
    let mut events: Vec<Event> =
        traces.iter().step_by(9).zip(0..8).flat_map(|(trace, rank)| events_of(trace, rank, 100, 400)).collect();
    events.sort_by_key(|it| it.at);
    let seconds = events[events.len() - 1].at.since(events[0].at) as f64 / 1e6;
    let rounds = if is_benchmark() { 10 } else { 1 };
    let begun = cpu_time();
    for round in 0..rounds {
        record(&dir.path().join(format!("{round}.jsonl.zst")), &events);
    }
    let percent = cpu_time().saturating_sub(begun).as_secs_f64() / (seconds * f64::from(rounds)) * 100.0;
    let bytes = fs::metadata(dir.path().join("0.jsonl.zst")).unwrap().len();
    let rate = events.len() as f64 / seconds;
    println!(
        "{rate:.0} lines a second: {percent:.2} % of one core, {:.1} bytes a line",
        bytes as f64 / events.len() as f64
    );
    assert!(rate > 600.0, "{rate:.0} lines a second");
    assert!(!is_benchmark() || percent <= 2.0, "{percent:.2} % of one core");
}

/// Returns the CPU time of this thread, which does not depend on the load of the machine.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}
