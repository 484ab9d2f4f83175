//! What is judged once a second: the metrics of a device are one observation for every process that trains there, and
//! one second of the device's course.
//!
//! The seconds follow from the stamps of events, so that a recording, which has no ticks, gives what the live view
//! gave. Without events nothing is fresh, so a long gap needs no more seconds than a reading stays fresh.

use super::{
    Session,
    device::Device,
    process::{ProbeState, Process},
};
use crate::{
    facts::{
        event::{Event, Fact},
        figures::Figure,
        metrics::Metric,
        units::Stamp,
    },
    model::analysis::{
        skew::{self, Skew},
        stall::{self, Load, StallReading},
    },
};
use std::collections::BTreeMap;

/// Older metrics do not count. The driver's thread sends all of them once a minute.
pub(super) const METRICS_STALE_US: u64 = 150 * SECOND_US;

const SECOND_US: u64 = 1_000_000;

/// Steps by which a rank may be behind the first of its run; ranks further apart do not wait for each other.
const TOGETHER: u64 = 64;

/// The latest sign of life and the highest step of each run.
type Runs = BTreeMap<String, (Stamp, u64)>;

impl Session {
    /// Judges the seconds that have passed before an event.
    pub(super) fn pass(&mut self, event: &Event) {
        // Recordings have no ticks. One that came between two events would make a difference to them.
        if event.fact == Fact::Second {
            return;
        }
        let (from, to) = (self.judged_s, event.at.0 / SECOND_US);
        if to <= from {
            return;
        }
        self.judged_s = to;
        let fresh = usize::try_from(METRICS_STALE_US / SECOND_US).unwrap_or(0) + 1;
        for second in (from + 1..=to).take(fresh) {
            self.second(Stamp(second.saturating_mul(SECOND_US)));
        }
    }

    /// Judges one second.
    fn second(&mut self, at: Stamp) {
        for device in self.devices.iter_mut().filter(|it| it.gone.is_none()) {
            if let Some(reading) = device.metrics.as_ref().filter(|it| at.since(it.at) < METRICS_STALE_US) {
                device.course.second(at, &reading.value);
            }
        }
        for process in self.processes.iter_mut().filter(|it| it.is_alive()) {
            for on in &mut process.devices {
                let device = self.devices.iter().find(|it| it.id == on.device && it.gone.is_none());
                let reading = device.and_then(|it| it.metrics.as_ref()).filter(|it| at.since(it.at) < METRICS_STALE_US);
                if let Some((reading, step)) = reading.zip(on.step) {
                    on.hardware.second(&reading.value, step, at);
                    if let Some(percent) = reading.value.get(Metric::GpuPercent) {
                        on.skew.busy(percent);
                    }
                }
            }
        }
        self.look_for_stalls(at);
        self.look_for_idle(at);
        if at.0.is_multiple_of(skew::EVERY_US) {
            self.compare_ranks(at);
        }
    }

    /// Looks for processes without a sign of life.
    fn look_for_stalls(&mut self, at: Stamp) {
        let runs = self.runs();
        let seen: Vec<Option<StallReading>> = self.processes.iter().map(|it| self.seen(it, &runs, at)).collect();
        for (process, seen) in self.processes.iter_mut().zip(seen) {
            if let Some(seen) = seen {
                process.stall.second(&seen, at);
            }
        }
    }

    fn runs(&self) -> Runs {
        let mut runs = Runs::new();
        for process in self.processes.iter().filter(|it| it.is_alive()) {
            let Some(run) = process.group() else { continue };
            let (life, step) = process.stall.life();
            let known = runs.entry(run).or_default();
            *known = (known.0.max(life), known.1.max(step));
        }
        runs
    }

    /// Returns what is known of a process that is watched live and has steps.
    fn seen(&self, process: &Process, runs: &Runs, at: Stamp) -> Option<StallReading> {
        let (step, _) = process.stall.latest().filter(|_| process.life == ProbeState::Live)?;
        let of_run = process.group().and_then(|it| runs.get(&it)).filter(|it| it.1.saturating_sub(step) <= TOGETHER);
        let figure = |figure| self.figures.get(&process.pid?)?.host.get(figure);
        let load = self.load(process, at);
        let is_idle = load == Some(Load::Idle);
        let is_suspended = process.pid.and_then(|it| self.process_info.get(&it)).is_some_and(|it| it.suspended);
        let works = stall::is_host_at_work(figure(Figure::CpuPercent), figure(Figure::IoWaitPercent));
        Some(StallReading {
            load,
            is_excused: is_suspended || (is_idle && works),
            may_wait: process.hello.as_ref().is_some_and(|it| stall::is_interactive(&it.argv)),
            asleep_us: figure(Figure::Asleep).map(|it| it.saturating_mul(1_000_000)),
            others: of_run.map_or(Stamp(0), |it| it.0),
            usual_us: process.devices.iter().find_map(|it| it.pace.typical()).map(|it| it.us),
        })
    }

    /// Returns the load of the devices that a process trains on; `None` if one is unknown.
    fn load(&self, process: &Process, at: Stamp) -> Option<Load> {
        let trains = process.devices.iter().filter(|it| it.step.is_some());
        let percents: Option<Vec<u64>> = trains
            .map(|on| {
                let device = self.devices.iter().find(|it| it.id == on.device && it.gone.is_none())?;
                self.percent(process, device, at)
            })
            .collect();
        Load::of(percents?)
    }

    /// Returns the percent of time in which a process's kernels ran on a device. The device's own figure has the work
    /// of all processes, so it counts for a process that has the device for itself.
    fn percent(&self, process: &Process, device: &Device, at: Stamp) -> Option<u64> {
        let reading = device.metrics.as_ref().filter(|it| at.since(it.at) < METRICS_STALE_US)?;
        let percent = reading.value.get(Metric::GpuPercent)?;
        let is_alone = device.process_list().is_none_or(|list| list.len() <= 1);
        if is_alone || Load::of([percent]) == Some(Load::Idle) {
            return Some(percent);
        }
        self.figures.get(&process.pid?)?.get(Figure::SmPercent, &device.id)
    }

    /// Compares the ranks of each run that have made enough steps since the time before.
    pub(super) fn compare_ranks(&mut self, at: Stamp) {
        let mut runs: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
        for (place, process) in self.processes.iter().enumerate() {
            if let Some(run) = rank_of(process) {
                runs.entry(run).or_default().push(place);
            }
        }
        for places in runs.into_values().filter(|it| it.len() > 1) {
            self.compare(&places, at);
        }
    }

    fn compare(&mut self, places: &[usize], at: Stamp) {
        let ranks: Vec<&Process> = places.iter().filter_map(|it| self.processes.get(*it)).collect();
        let skews: Vec<&Skew> = ranks.iter().filter_map(|it| own(it)).collect();
        if skews.len() < places.len() || !skews.iter().all(|it| it.is_ready(at)) {
            return;
        }
        // A probe that counts from its attachment numbers steps as no other one does.
        let are_aligned = ranks.iter().all(|it| it.attached_step().is_none_or(|first| first > 1));
        let compared = skew::compare(&skews, are_aligned);
        for (place, compared) in places.iter().zip(compared) {
            let process = self.processes.get_mut(*place);
            let on = process.and_then(|it| it.devices.iter_mut().find(|on| on.step.is_some()));
            if let Some((on, compared)) = on.zip(compared) {
                on.skew.observe(compared, at);
            }
        }
    }
}

impl Process {
    /// Returns what the ranks of its run share: the run, or their number and directory if gpuwatch did not start the
    /// job. `None` for a process on its own.
    pub fn group(&self) -> Option<String> {
        let hello = self.hello.as_ref()?;
        let unnamed = || {
            let (_, size) = hello.rank.zip(hello.world_size.filter(|it| *it > 1))?;
            Some(format!("{size} ranks in {}", hello.cwd.as_deref().unwrap_or_default()))
        };
        hello.run.clone().or_else(unnamed)
    }
}

/// Returns the run and host of a rank that is watched live.
fn rank_of(process: &Process) -> Option<(String, String)> {
    let hello = process.hello.as_ref().filter(|it| it.rank.is_some() && process.life == ProbeState::Live)?;
    Some((process.group()?, hello.host.clone()))
}

fn own(process: &Process) -> Option<&Skew> {
    process.devices.iter().find(|it| it.step.is_some()).map(|it| &it.skew)
}
