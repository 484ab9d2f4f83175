//! The series of a session. What is unknown has none.

use super::families::Family;
use crate::{
    facts::{event::DriverState, maker::Maker, metrics::Metric, text::Foreign, units::Stamp},
    model::{
        analysis::{
            host::{self, Limit, LimitOf},
            ladder::Rung,
        },
        findings::{DeviceFindings, Finding, Findings, ProcessFindings},
        session::{
            Session,
            device::Device,
            process::{OnDevice, Process},
        },
    },
};
use std::collections::BTreeMap;

/// How long an ended process keeps its figures, in µs: a scrape may come once a minute.
const KEPT_US: u64 = 300 * 1_000_000;

/// Most alerts of a process on a device, or of a device, the worst first.
const ALERTS: usize = 6;

/// A series of a family, with its latest value.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its family.
    pub family: Family,
    /// Its labels; those without a value are left out.
    pub labels: Vec<(&'static str, Foreign)>,
    /// Its value, in the family's unit.
    pub value: f64,
}

/// Returns every series of a session. `findings` are those with the user's rules.
pub fn series(session: &Session, findings: &Findings) -> Vec<Series> {
    let mut out = SeriesList::default();
    out.add(Family::Build, &vec![("version", env!("CARGO_PKG_VERSION").into())], Some(1.0));
    let is_up = |state: &DriverState| match state {
        DriverState::Up { .. } => Some(1.0),
        DriverState::Off => None,
        DriverState::Stalled { .. } | DriverState::Absent { .. } => Some(0.0),
    };
    // NVML need not be there where no device is NVIDIA's.
    let has_nvml = session.driver_shown().is_some_and(|it| it.0 == Maker::Nvidia);
    out.add(Family::DriverUp, &Vec::new(), session.driver.as_ref().filter(|_| has_nvml).and_then(is_up));
    for (maker, state) in &session.kernel_drivers {
        out.add(Family::DriverUp, &vec![("maker", maker.row().name.into())], is_up(state));
    }
    out.host(session, findings);
    let mut known = BTreeMap::new();
    let devices = session.devices.iter().zip(&findings.devices).filter(|it| it.0.gone.is_none());
    for (device, found) in devices {
        out.device(device, found);
        let is_here = |it: &Finding| it.device.as_ref() == Some(&device.id);
        let is_nobodys = |it: &Finding| !session.processes.iter().any(|process| it.is_of(process));
        let own = vec![("gpu_uuid", Foreign::new(device.id.0.as_str()))];
        out.alerts(Family::DeviceAlert, &own, findings, |it| is_here(it) && is_nobodys(it));
        for (place, own) in found.processes.iter().enumerate() {
            let process = session.process(own.probe).filter(|it| is_kept(it, session.now));
            let on = process.and_then(|it| it.devices.iter().find(|on| on.ordinal == own.ordinal));
            if let Some((process, on)) = process.zip(on) {
                let labels = labels(device, process, &mut known);
                let rungs = found.ladder.rungs.iter().filter(|it| it.owner == Some(place));
                out.gaps(Family::Gap, &labels, rungs);
                out.process(&labels, process, on, own, findings);
            }
        }
    }
    out.0
}

fn is_kept(process: &Process, now: Stamp) -> bool {
    process.hello.is_some() && process.ended_at().is_none_or(|it| now.since(it) < KEPT_US)
}

type Labels = Vec<(&'static str, Foreign)>;

/// Returns the labels that no other process on the device has. Processes without a rank of their own are numbered.
fn labels(device: &Device, process: &Process, known: &mut BTreeMap<[String; 3], u64>) -> Labels {
    let run = process.hello.as_ref().and_then(|it| it.run.clone()).unwrap_or_default();
    let rank = process.rank().map(|it| it.to_string()).unwrap_or_default();
    let number = known.entry([device.id.0.clone(), rank.clone(), run.clone()]).or_default();
    *number += 1;
    let mut labels: Labels = vec![
        ("gpu_uuid", Foreign::new(device.id.0.as_str())),
        ("rank", Foreign::new(rank)),
        ("run", Foreign::new(run)),
    ];
    if *number > 1 {
        labels.push(("process", Foreign::new(number.to_string())));
    }
    labels
}

#[derive(Default)]
struct SeriesList(Vec<Series>);

impl SeriesList {
    fn add(&mut self, family: Family, labels: &Labels, value: Option<f64>) {
        if let Some(value) = value {
            let labels = labels.iter().filter(|it| !it.1.is_empty()).cloned().collect();
            self.0.push(Series { family, labels, value });
        }
    }

    fn gaps<'a>(&mut self, family: Family, labels: &Labels, rungs: impl Iterator<Item = &'a Rung>) {
        for it in rungs {
            let mut labels = labels.clone();
            labels.push(("rung", it.gap.row().id.into()));
            self.add(family, &labels, it.bytes.map(|it| it.0 as f64));
        }
    }

    fn host(&mut self, session: &Session, findings: &Findings) {
        let Some(memory) = session.host.memory.as_ref().map(|it| &it.value) else { return };
        let labels = |of: &LimitOf| -> Labels {
            let path = if let LimitOf::Group(path) | LimitOf::Slowed(path) = of { path.as_str() } else { "" };
            vec![("limit", of.id().into()), ("path", Foreign::new(path))]
        };
        // A process's address space has its pid for a name.
        let shown = |it: &Limit| !matches!(it.of, LimitOf::AddressSpace(_));
        for it in host::limits(memory).iter().filter(|it| shown(it)) {
            let own = labels(&it.of);
            self.add(Family::HostLimit, &own, Some(it.size as f64));
            self.add(Family::HostUsed, &own, Some(it.used as f64));
            let filling = session.host.fillings().find(|known| *known.0 == it.of);
            let period = filling.and_then(|it| it.1.periods().last().copied()).filter(|it| it.resolved.is_none());
            self.add(Family::HostFull, &own, period.map(|it| it.full_at.since(session.now) as f64 / 1e6));
        }
        for it in host::ladders(memory, &session.own_memory()) {
            for part in &it.parts {
                let mut labels = labels(&it.limit.of);
                labels.push(("rung", part.rung.row().id.into()));
                self.add(Family::HostRung, &labels, part.bytes.map(|it| it.0 as f64));
            }
        }
        let kills: u64 = session.host.kills.iter().map(|it| it.count).sum();
        self.add(Family::HostKills, &Vec::new(), Some(kills as f64));
        let is_nobodys = |it: &Finding| !session.processes.iter().any(|process| it.is_of(process));
        self.alerts(Family::HostAlert, &Vec::new(), findings, |it| {
            it.device.is_none() && it.probe.is_none() && is_nobodys(it)
        });
    }

    fn device(&mut self, device: &Device, found: &DeviceFindings) {
        let own: Labels = vec![("gpu_uuid", Foreign::new(device.id.0.as_str()))];
        let mut named = own.clone();
        named.push(("index", Foreign::new(device.index.map(|it| it.to_string()).unwrap_or_default())));
        if let Some(Err(trouble)) = device.memory.as_ref().map(|it| &it.value) {
            let mut labels = named.clone();
            labels.push(("reason", trouble.id().into()));
            self.add(Family::DeviceError, &labels, Some(1.0));
        }
        named.push(("name", device.name.clone()));
        self.add(Family::DeviceInfo, &named, Some(1.0));
        let memory = device.memory.as_ref().and_then(|it| it.value.as_ref().ok());
        self.add(Family::DeviceTotal, &own, memory.map(|it| it.total.0 as f64));
        self.add(Family::DeviceUsed, &own, memory.map(|it| it.used.0 as f64));
        self.add(Family::DeviceFree, &own, memory.map(|it| it.free.0 as f64));
        let metric = |metric| device.metric(metric).map(|it| it as f64);
        self.add(Family::DeviceUtilisation, &own, metric(Metric::GpuPercent).map(|it| it / 100.0));
        self.add(Family::DeviceTemperature, &own, metric(Metric::CelsiusNow));
        self.gaps(Family::DeviceGap, &own, found.ladder.rungs.iter().filter(|it| it.owner.is_none()));
    }

    fn process(&mut self, own: &Labels, process: &Process, on: &OnDevice, found: &ProcessFindings, all: &Findings) {
        let counters = &on.counters;
        let growing = all.growing(found.probe, found.ordinal);
        let rate = all.rate_per_step(found.probe, on);
        let whole = |count: Option<u64>| count.map(|it| it as f64);
        let seconds = |us: Option<u64>| us.map(|it| it as f64 / 1e6);
        for (family, value) in [
            (Family::Allocated, whole(counters.allocated)),
            (Family::Reserved, whole(counters.reserved)),
            (Family::Unused, whole(found.fragmentation.cached.map(|it| it.0))),
            (Family::AllocatedPeak, whole(counters.allocated_peak)),
            (Family::ReservedPeak, whole(counters.reserved_peak)),
            (Family::Step, whole(on.step)),
            (Family::StepTime, seconds(on.pace.latest_us())),
            (Family::Growth, rate),
            (Family::Full, seconds(growing.and_then(|it| it.full_in_us))),
            (Family::Retries, whole(counters.retries)),
            (Family::Ooms, whole(counters.ooms)),
            (Family::Lost, whole(Some(process.lost))),
            (Family::Up, Some(f64::from(u8::from(process.is_alive())))),
        ] {
            self.add(family, own, value);
        }
        let mut info = own.clone();
        info.extend(described(process));
        self.add(Family::Process, &info, Some(1.0));
        // Findings of its host memory are on its first device.
        let is_first = process.devices.first().is_some_and(|it| it.ordinal == found.ordinal);
        let is_here = |it: &Finding| it.ordinal.map_or(is_first, |ordinal| ordinal == found.ordinal);
        self.alerts(Family::Alert, own, all, |it| it.is_of(process) && is_here(it));
    }

    /// Counts the open findings that `is_own` selects.
    fn alerts(&mut self, family: Family, own: &Labels, all: &Findings, is_own: impl Fn(&Finding) -> bool) {
        let mut counts: Vec<([&str; 3], u64)> = Vec::new();
        for it in all.all.iter().filter(|it| it.is_active() && !it.is_allowed() && is_own(it)) {
            let words = [it.kind.name(), it.cause.id(), it.severity.name()];
            if let Some((_, count)) = counts.iter_mut().find(|known| known.0 == words) {
                *count += 1;
            } else if counts.len() < ALERTS {
                counts.push((words, 1));
            }
        }
        for ([kind, cause, severity], count) in counts {
            let mut labels = own.clone();
            labels.extend([("kind", kind.into()), ("cause", cause.into()), ("severity", severity.into())]);
            self.add(family, &labels, Some(count as f64));
        }
    }
}

/// Returns what identifies a process for people, without arguments, which may hold secrets.
fn described(process: &Process) -> Labels {
    let Some(hello) = process.hello.as_deref() else { return Vec::new() };
    let number = |known: Option<u64>| Foreign::new(known.map(|it| it.to_string()).unwrap_or_default());
    let words = |it: Option<&str>| Foreign::new(it.unwrap_or_default());
    let job = hello.job.as_ref();
    vec![
        ("pid", number(process.any_pid().map(u64::from))),
        ("host", Foreign::new(hello.host.as_str())),
        ("script", words(process.script())),
        ("framework", words(hello.framework.as_deref())),
        ("framework_version", words(hello.framework_version.as_deref())),
        ("scheduler", words(job.map(|it| it.scheduler.as_str()))),
        ("scheduler_job", words(job.map(|it| it.id.as_str()))),
        ("world_size", number(hello.world_size)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::analysis::ladder::{Gap, Place};

    #[test]
    fn a_rank_with_every_figure_has_at_most_33_series_and_30_without_parts() {
        let is_once = |family| !matches!(family, Family::Gap | Family::Alert);
        let once = Family::TABLE.iter().filter(|it| it.labels.contains(&"rank") && is_once(it.family)).count();
        // Of allocated memory, either its parts are known or what was wanted and rounded.
        let parts = [Gap::Weights, Gap::Gradients, Gap::Optimizer, Gap::Retained, Gap::Transient];
        let others = [Gap::Wanted, Gap::Rounding, Gap::Allocated];
        // Only a snapshot shows pools that the job made apart from those of graphs.
        let is_live = |gap: &&Gap| gap.row().place != Place::Device && **gap != Gap::MemPools;
        let gaps = |left_out: &[Gap]| Gap::ALL.iter().filter(is_live).filter(|it| !left_out.contains(it)).count();
        assert!(once + gaps(&parts) + ALERTS <= 30, "{}", once + gaps(&parts) + ALERTS);
        assert!(once + gaps(&others) + ALERTS <= 33, "{}", once + gaps(&others) + ALERTS);
    }
}
