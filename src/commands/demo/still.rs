//! The demo's jobs at one moment, computed at once and without processes: the same seed gives the same state.

use super::{
    RANKS,
    driver::Driver,
    job::{Allocator, CAPTURED, Job, Kind, RATE, describe, moment, sites},
};
use crate::{
    facts::{
        event::{
            Event, Fact, Line, ProbeId,
            wire::{Edge, Hello, Live, Mark, PROTOCOL, Sample, Sites},
        },
        units::Stamp,
    },
    model::session::Session,
};

/// The completed steps of each rank at that moment.
const STEPS: u64 = 1_200;

const STEP_US: u64 = 1_000_000 / RATE as u64;

/// Stands for the kernel's pids.
const FIRST_PID: u32 = 4_101;

/// A rank: its behaviour, its number, its hello, its allocators.
struct Rank {
    kind: Kind,
    probe: ProbeId,
    pid: u32,
    hello: Hello,
    allocators: Vec<Allocator>,
}

/// Returns the session at that moment.
pub fn still(seed: u64) -> Session {
    after_each_step(seed, |_| {})
}

/// The same; calls `observe` with the session after each step.
fn after_each_step(seed: u64, observe: impl FnMut(&Session)) -> Session {
    after_steps(STEPS, seed, observe)
}

/// The same after a number of steps.
fn after_steps(steps: u64, seed: u64, mut observe: impl FnMut(&Session)) -> Session {
    let mut fold = Fold { session: Session::default(), driver: Driver::default() };
    let mut ranks: Vec<Rank> =
        (0..).zip(RANKS).map(|(rank, (kind, devices))| made(seed, rank, kind, devices)).collect();
    for rank in &ranks {
        let socket = format!("{}.sock", rank.pid).as_str().into();
        fold.apply(0, Fact::ProbeFound { probe: rank.probe, pid: Some(rank.pid), socket });
        fold.line(0, rank.probe, Line::Hello(rank.hello.clone()));
        fold.line(0, rank.probe, Line::Live(Live::default()));
    }
    for step in 1..=steps {
        let at = step * STEP_US;
        for rank in &mut ranks {
            for (device, allocator) in (0..).zip(&mut rank.allocators) {
                let (counters, step) = (allocator.step(), Some(step));
                let parts = allocator.parts(&counters);
                let sample = Sample { at_us: at, device, edge: Edge::Step, step, counters, parts, ..Sample::default() };
                fold.line(at, rank.probe, Line::Sample(sample));
            }
            if step == CAPTURED && rank.kind == Kind::Leaking {
                fold.line(at, rank.probe, Line::Sites(Sites { at_us: at, ..sites(step) }));
                if let Some(it) = moment(rank.probe, step, &rank.allocators) {
                    fold.apply(at, Fact::PeakMoment(Box::new(it)));
                }
            }
            if step % 500 == 1 {
                let mark = Mark {
                    at_us: at,
                    name: "epoch".to_owned(),
                    value: i64::try_from(step / 500).ok(),
                    ..Mark::default()
                };
                fold.line(at, rank.probe, Line::Mark(mark));
            }
        }
        if step % u64::from(RATE) == 0 {
            fold.apply(at, Fact::Second);
        }
        observe(&fold.session);
    }
    fold.session
}

fn made(seed: u64, rank: u32, kind: Kind, devices: &[u32]) -> Rank {
    let ranks = RANKS.len() as u64;
    let job = Job { seed, rank: rank.into(), ranks, kind, devices: devices.to_vec(), rate: RATE, directory: "".into() };
    let pid = FIRST_PID + rank;
    let hello = describe(&job).hello;
    let hello =
        Hello { run: Some("demo".to_owned()), protocol: PROTOCOL, probe: "gpuwatch-probe".to_owned(), pid, ..hello };
    let allocators = (0..).zip(devices).map(|(place, _)| Allocator::new(&job, place)).collect();
    Rank { kind, probe: ProbeId(rank), pid, hello, allocators }
}

/// Folds events and the simulated driver's into a session.
struct Fold {
    session: Session,
    driver: Driver,
}

impl Fold {
    fn apply(&mut self, at: u64, fact: Fact) {
        let event = Event { at: Stamp(at), fact };
        let derived = self.driver.after(&event);
        for event in std::iter::once(event).chain(derived) {
            self.session.apply(&event);
        }
    }

    fn line(&mut self, at: u64, probe: ProbeId, line: Line) {
        self.apply(at, Fact::Probe { probe, line: Box::new(line) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        commands::demo::{HEAD_START, paced},
        facts::figures::Figure,
        model::{
            analysis::episode::Resource,
            findings::{self, Kind},
        },
    };

    /// The steps of a demo that is watched for ten minutes.
    const WATCHED: u64 = HEAD_START + 600 * RATE as u64;

    #[test]
    fn nothing_that_is_shown_contradicts_itself() {
        let mut frames = 0;
        after_each_step(1, |session| {
            for device in &session.devices {
                let ladder = findings::of_device(session, device).ladder;
                let clash = ladder.rungs.iter().find(|it| it.inconsistent.is_some());
                assert_eq!(clash, None, "{:?} at {:?}", device.id, session.now);
                frames += 1;
            }
        });
        assert!(frames > STEPS, "{frames}");
    }

    /// The bar of the fragmenting rank climbs, so the alert about it stays, and the rate is that of the bar.
    #[test]
    fn growth_lasts_while_the_bar_of_the_fragmenting_rank_climbs() {
        let mut steps = 0;
        after_steps(WATCHED, 1, |session| {
            let rank = &session.processes[2];
            let on = &rank.devices[0];
            steps += 1;
            if steps < HEAD_START || steps % 50 != 0 {
                return;
            }
            let all = findings::findings(session);
            let growing = all.growing(rank.probe, on.ordinal).unwrap_or_else(|| panic!("flat at step {steps}"));
            assert_eq!(growing.resource, Some(Resource::Reserved), "{steps}");
            assert!((1.6..2.4).contains(&(growing.bytes_per_step.unwrap() / f64::from(1 << 20))), "{growing:?}");
            assert_eq!((on.counters.retries, on.counters.ooms), (Some(0), Some(0)), "{steps}");
            let resolved: Vec<_> = all.all.iter().filter(|it| it.kind == Kind::Growth && !it.is_active()).collect();
            assert!(resolved.is_empty(), "{steps}: {resolved:?}");
        });
    }

    /// A device has what its processes have, and each figure of a rank's host memory is the same.
    #[test]
    fn figures_of_the_same_thing_are_the_same() {
        let session = still(1);
        let memory = &session.host.memory.as_ref().unwrap().value;
        for rank in &session.processes {
            let listed = session.figures.get(&rank.any_pid().unwrap()).and_then(|it| it.host.get(Figure::Rss));
            let sampled = rank.devices[0].counters.rss.unwrap();
            assert!(sampled > 5 << 30 && listed.is_some_and(|it| it.abs_diff(sampled) < 64 << 20), "{listed:?}");
            let resident = session.host.trees.get(&rank.any_pid().unwrap()).map(|it| it.own.resident.0);
            assert!(resident.is_some_and(|it| it.abs_diff(sampled) < 64 << 20), "{resident:?}");
        }
        // The machine holds at least what its ranks do.
        let machine = memory.machine;
        let held = session.processes.len() as u64 * (5 << 30);
        assert!(machine.total.0 - machine.available.0 > held && machine.available > machine.free);
    }

    #[test]
    fn a_process_is_as_old_as_its_first_step() {
        let start_us = Some(1_000_000_000);
        let line = Box::new(Line::Hello(Hello { start_us, ..Hello::default() }));
        let event = paced(Event { at: Stamp(0), fact: Fact::Probe { probe: ProbeId(0), line } });
        let Fact::Probe { line, .. } = event.fact else { panic!("another fact") };
        let Line::Hello(hello) = *line else { panic!("another line") };
        assert_eq!(hello.start_us.map(|it| it + HEAD_START * STEP_US), start_us);
    }
}
