//! Series as rows of an overview. Pure.

use super::{
    Fleet,
    answer::{Figure, Labels},
};
use crate::{
    facts::{
        event::ProbeId,
        text::Foreign,
        units::{self, Bytes, counted},
    },
    model::{
        analysis::severity::Severity,
        cluster::{
            Link,
            overview::{
                Concern, JobRow, NodeRow, Overview, RankRow,
                figure::{Figures, RankFigure},
            },
        },
    },
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// What identifies a rank's series.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The scraped address.
    pub instance: Foreign,
    /// The device's UUID.
    pub device: Foreign,
    /// The global rank; empty without one.
    pub rank: Foreign,
    /// The run; empty without one.
    pub run: Foreign,
    /// The number among several processes with the same labels; empty for the first.
    pub process: Foreign,
}

/// A rank, or a process without one, on whichever of its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    instance: Foreign,
    run: Foreign,
    rank: Foreign,
    host: Foreign,
    pid: Foreign,
    /// The device, if the pid is unknown.
    device: Option<Foreign>,
    /// The number among several of these on one device: containers on one host may have the same pids.
    number: u32,
}

/// The series of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The rank.
    pub id: Identity,
    /// Its series on the device where it has allocated most.
    pub key: Key,
}

/// The series of a rank on a device.
#[derive(Default)]
struct Rank<'a> {
    info: Option<&'a Labels>,
    values: BTreeMap<&'a str, f64>,
    alerts: Vec<(Severity, &'a Labels)>,
}

/// A machine: its host's name, or the scraped address without a process there.
type Host = Foreign;

/// The figures of a device, and its worst alert that is about no rank.
#[derive(Default)]
struct Device {
    total: Option<f64>,
    used: Option<f64>,
    utilisation: Option<f64>,
    celsius: Option<f64>,
    worst: Option<Concern>,
}

impl From<&Labels> for Key {
    fn from(it: &Labels) -> Self {
        Self {
            instance: it.instance.clone(),
            device: it.gpu_uuid.clone(),
            rank: it.rank.clone(),
            run: it.run.clone(),
            process: it.process.clone(),
        }
    }
}

impl Identity {
    fn of(key: &Key, info: Option<&Labels>) -> Self {
        let (host, pid) = info.map(|it| (it.host.clone(), it.pid.clone())).unwrap_or_default();
        let device = pid.is_empty().then(|| key.device.clone());
        let Key { instance, run, rank, .. } = key.clone();
        Self { instance, run, rank, host, pid, device, number: 0 }
    }
}

/// Returns the rows of all series. Without `all_devices`, only the devices of machines with one of the ranks count.
pub(super) fn fleet(ranks: &[Figure], devices: &[Figure], all_devices: bool) -> Fleet {
    let ranks = joined(ranks);
    let devices = of_devices(devices);
    let hosts = Hosts::of(&ranks);
    let known: BTreeSet<&Foreign> = ranks.keys().map(|it| &it.instance).collect();
    let is_known = |it: &&(Foreign, Foreign)| all_devices || known.contains(&it.0);
    let mut names: BTreeSet<Host> = ranks.iter().map(|(key, it)| hosts.of_rank(key, it)).collect();
    names.extend(devices.keys().filter(is_known).map(|it| hosts.find(&it.0, &it.1)));
    let mut nodes: BTreeMap<Host, NodeRow> = names.into_iter().map(|it| (it.clone(), node(it))).collect();
    for (key, device) in devices.iter().filter(|it| is_known(&it.0)) {
        if let Some(it) = nodes.get_mut(&hosts.find(&key.0, &key.1)) {
            it.devices += 1;
            let (used, total) = it.memory.unwrap_or_default();
            let more = device.used.zip(device.total).map(|(used, total)| (whole(used), whole(total)));
            it.memory = more.map(|more| (used.plus(more.0), total.plus(more.1))).or(it.memory);
            worsen(&mut it.worst, device.worst.as_ref());
        }
    }
    let places: BTreeMap<Host, usize> = nodes.keys().cloned().zip(0..).collect();
    let (mut jobs, mut rows, mut series) = (Jobs::default(), Vec::new(), Vec::new());
    for ((id, (key, it)), number) in largest(&ranks).into_iter().zip(0..) {
        let node = hosts.of_rank(key, it);
        let job = jobs.place(key, it, &node);
        let row = row(key, it, devices.get(&(key.instance.clone(), key.device.clone())));
        if let Some(node) = nodes.get_mut(&node) {
            node.probes += u64::from(!row.ended);
            worsen(&mut node.worst, row.worst.as_ref());
        }
        let node = places.get(&node).copied().unwrap_or_default();
        // A number instead of a probe: the host, the rank and the pid may not be enough to select a row by.
        rows.push(RankRow { node, job: Some(job), probe: Some((ProbeId(number), 0)), ..row });
        series.push(Series { id, key: key.clone() });
    }
    Fleet { overview: Overview::new(nodes.into_values().collect(), jobs.rows(), rows), series }
}

/// The hosts of scraped addresses and their devices. One address may have several, behind a gateway.
#[derive(Default)]
struct Hosts<'a> {
    of_devices: BTreeMap<(&'a Foreign, &'a Foreign), &'a Foreign>,
    of_instances: BTreeMap<&'a Foreign, &'a Foreign>,
}

impl<'a> Hosts<'a> {
    fn of(ranks: &BTreeMap<Key, Rank<'a>>) -> Self {
        let mut all = Self::default();
        for info in ranks.values().filter_map(|it| it.info).filter(|it| !it.host.is_empty()) {
            all.of_devices.insert((&info.instance, &info.gpu_uuid), &info.host);
            all.of_instances.insert(&info.instance, &info.host);
        }
        all
    }

    /// Returns the host of a rank. Others may share its device: containers have hosts' names of their own.
    fn of_rank(&self, key: &Key, it: &Rank) -> Host {
        let own = it.info.map(|info| &info.host).filter(|host| !host.is_empty());
        own.cloned().unwrap_or_else(|| self.find(&key.instance, &key.device))
    }

    fn find(&self, instance: &Foreign, device: &Foreign) -> Host {
        let of_device = self.of_devices.get(&(instance, device));
        (*of_device.or_else(|| self.of_instances.get(instance)).unwrap_or(&instance)).clone()
    }
}

/// Brings the series of each rank on each device together.
fn joined(figures: &[Figure]) -> BTreeMap<Key, Rank<'_>> {
    let mut all: BTreeMap<Key, Rank> = BTreeMap::new();
    for Figure { labels, value: (_, value) } in figures {
        let rank = all.entry(labels.into()).or_default();
        match labels.name.raw() {
            "gpuwatch_process_info" => rank.info = Some(labels),
            "gpuwatch_alert" => rank.alerts.extend(severity(labels).map(|it| (it, labels))),
            name => drop(rank.values.insert(name, *value)),
        }
    }
    for it in all.values_mut() {
        it.alerts.sort_by_key(|alert| Reverse(alert.0));
    }
    all
}

fn severity(labels: &Labels) -> Option<Severity> {
    let all = [Severity::Info, Severity::Warning, Severity::Critical];
    all.into_iter().find(|it| it.name() == labels.severity.raw())
}

fn of_devices(figures: &[Figure]) -> BTreeMap<(Foreign, Foreign), Device> {
    let mut all: BTreeMap<_, Device> = BTreeMap::new();
    for Figure { labels, value: (_, value) } in figures {
        let device = all.entry((labels.instance.clone(), labels.gpu_uuid.clone())).or_default();
        match labels.name.raw() {
            "gpuwatch_device_memory_total_bytes" => device.total = Some(*value),
            "gpuwatch_device_memory_used_bytes" => device.used = Some(*value),
            "gpuwatch_device_utilisation_ratio" => device.utilisation = Some(*value),
            "gpuwatch_device_temperature_celsius" => device.celsius = Some(*value),
            "gpuwatch_device_alert" => worsen(&mut device.worst, concern(labels).as_ref()),
            _ => {}
        }
    }
    all
}

/// Returns an alert with its severity; `None` for one that a later release may have.
fn concern(labels: &Labels) -> Option<Concern> {
    severity(labels).map(|severity| Concern { severity, title: title(labels) })
}

/// Takes the other concern if it is worse.
fn worsen(worst: &mut Option<Concern>, other: Option<&Concern>) {
    if other.map(|it| it.severity) > worst.as_ref().map(|it| it.severity) {
        *worst = other.cloned();
    }
}

/// Returns each rank once: on the device where it has allocated most.
fn largest<'a, 'b>(ranks: &'b BTreeMap<Key, Rank<'a>>) -> BTreeMap<Identity, (&'b Key, &'b Rank<'a>)> {
    let allocated = |it: &Rank| it.values.get("gpuwatch_allocated_bytes").copied().unwrap_or(-1.0);
    let mut best: BTreeMap<Identity, (&Key, &Rank)> = BTreeMap::new();
    let mut numbers: BTreeMap<(Identity, &Foreign), u32> = BTreeMap::new();
    for (key, it) in ranks {
        let mut id = Identity::of(key, it.info);
        let number = numbers.entry((id.clone(), &key.device)).or_default();
        id.number = *number;
        *number += 1;
        let held = best.entry(id).or_insert((key, it));
        if allocated(it) > allocated(held.1) {
            *held = (key, it);
        }
    }
    best
}

fn node(host: Host) -> NodeRow {
    NodeRow { host, link: Link::Up, devices: 0, memory: None, probes: 0, worst: None, clock_us: None }
}

fn row(key: &Key, it: &Rank, device: Option<&Device>) -> RankRow {
    let value = |name: &str| it.values.get(name).copied();
    let of_device = |figure: fn(&Device) -> Option<f64>| device.and_then(figure);
    let share = |part: Option<f64>, whole: Option<f64>| {
        part.zip(whole.filter(|it| *it > 0.0)).map(|(part, whole)| part / whole)
    };
    let reserved = value("gpuwatch_reserved_bytes");
    let figures: Figures = [
        (RankFigure::Device, share(of_device(|it| it.used), of_device(|it| it.total))),
        (RankFigure::Allocated, value("gpuwatch_allocated_bytes")),
        (RankFigure::Reserved, reserved),
        (RankFigure::Unused, share(value("gpuwatch_unused_bytes"), reserved)),
        (RankFigure::Growth, value("gpuwatch_growth_bytes_per_step")),
        (RankFigure::Full, value("gpuwatch_full_seconds")),
        (RankFigure::StepTime, value("gpuwatch_step_seconds")),
        (RankFigure::Utilisation, of_device(|it| it.utilisation)),
        (RankFigure::Temperature, of_device(|it| it.celsius)),
    ]
    .into_iter()
    .collect();
    RankRow {
        rank: key.rank.raw().parse().ok(),
        pid: it.info.and_then(|info| info.pid.raw().parse().ok()),
        ended: value("gpuwatch_process_up") == Some(0.0),
        step: value("gpuwatch_step").map(units::whole),
        figures,
        worst: it.alerts.first().and_then(|(_, labels)| concern(labels)),
        ..RankRow::default()
    }
}

/// Returns an alert in a few words: `growth (graph-retained)`.
fn title(labels: &Labels) -> String {
    match labels.cause.raw() {
        "" | "unknown" => labels.kind.to_string(),
        _ => format!("{} ({})", labels.kind, labels.cause),
    }
}

fn whole(value: f64) -> Bytes {
    Bytes(units::whole(value))
}

/// The jobs so far.
#[derive(Default)]
struct Jobs {
    places: BTreeMap<(Foreign, Foreign, Foreign), usize>,
    all: Vec<JobRow>,
    /// Of each job: how many ranks have an alert.
    alerts: BTreeMap<(usize, Reverse<Severity>, String), u64>,
}

impl Jobs {
    /// Returns the place of a rank's job: the batch system's, the run, or its own.
    fn place(&mut self, key: &Key, it: &Rank, host: &Host) -> usize {
        let none = Labels::default();
        let info = it.info.unwrap_or(&none);
        let (id, name) = if !info.scheduler_job.is_empty() && info.scheduler.raw() != "kubernetes" {
            let id = (info.scheduler.clone(), info.scheduler_job.clone(), Foreign::default());
            (id, format!("{} {}", info.scheduler.raw(), info.scheduler_job.raw()))
        } else if key.run.is_empty() {
            let pid = if info.pid.is_empty() { "a process".to_owned() } else { format!("pid {}", info.pid.raw()) };
            ((host.clone(), info.pid.clone(), key.process.clone()), format!("{pid} on {}", host.raw()))
        } else {
            ((key.run.clone(), Foreign::default(), Foreign::default()), format!("run {}", key.run.raw()))
        };
        let place = *self.places.entry(id).or_insert_with(|| {
            let expected = info.world_size.raw().parse().ok().filter(|size| *size > 1);
            self.all.push(JobRow { name: Foreign::new(name), expected, ..JobRow::default() });
            self.all.len() - 1
        });
        for (severity, labels) in &it.alerts {
            *self.alerts.entry((place, Reverse(*severity), title(labels))).or_default() += 1;
        }
        place
    }

    /// Returns the jobs with their alerts, the worst first.
    fn rows(mut self) -> Vec<JobRow> {
        for ((place, Reverse(severity), title), count) in self.alerts {
            if let Some(job) = self.all.get_mut(place) {
                job.findings.push(Concern { severity, title: format!("{title} on {}", counted(count, "rank")) });
            }
        }
        self.all
    }
}

#[cfg(test)]
mod tests;
