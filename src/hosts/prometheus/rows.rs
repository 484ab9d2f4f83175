//! Series as rows of an overview. Pure.

use super::{
    Fleet,
    answer::{Figure, Labels},
};
use crate::{
    facts::{
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

/// The series of a rank on a device.
#[derive(Default)]
struct Rank<'a> {
    info: Option<&'a Labels>,
    values: BTreeMap<&'a str, f64>,
    alerts: Vec<(Severity, &'a Labels)>,
}

/// A machine: its host's name, or the scraped address without a process there.
type Host = Foreign;

/// The memory of a device.
#[derive(Clone, Copy, Default)]
struct Device {
    total: Option<f64>,
    used: Option<f64>,
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

/// Returns the rows of all series. Without `all_devices`, only the devices of machines with one of the ranks count.
pub(super) fn fleet(ranks: &[Figure], devices: &[Figure], all_devices: bool) -> Fleet {
    let ranks = joined(ranks);
    let devices = memories(devices);
    let hosts = Hosts::of(&ranks);
    let known: BTreeSet<&Foreign> = ranks.keys().map(|it| &it.instance).collect();
    let is_known = |it: &&(Foreign, Foreign)| all_devices || known.contains(&it.0);
    let mut names: BTreeSet<Host> = ranks.keys().map(|it| hosts.find(&it.instance, &it.device)).collect();
    names.extend(devices.keys().filter(is_known).map(|it| hosts.find(&it.0, &it.1)));
    let mut nodes: BTreeMap<Host, NodeRow> = names.into_iter().map(|it| (it.clone(), node(it))).collect();
    for (key, device) in devices.iter().filter(|it| is_known(&it.0)) {
        if let Some(it) = nodes.get_mut(&hosts.find(&key.0, &key.1)) {
            it.devices += 1;
            let (used, total) = it.memory.unwrap_or_default();
            let more = device.used.zip(device.total).map(|(used, total)| (whole(used), whole(total)));
            it.memory = more.map(|more| (used.plus(more.0), total.plus(more.1))).or(it.memory);
        }
    }
    let places: BTreeMap<Host, usize> = nodes.keys().cloned().zip(0..).collect();
    let (mut jobs, mut rows, mut series) = (Jobs::default(), Vec::new(), Vec::new());
    for (key, it) in largest(&ranks) {
        let node = hosts.find(&key.instance, &key.device);
        let job = jobs.place(key, it, &node);
        let row = row(key, it, devices.get(&(key.instance.clone(), key.device.clone())));
        if let Some(node) = nodes.get_mut(&node) {
            node.probes += u64::from(!row.ended);
            let is_worse = |worst: &Concern| row.worst.as_ref().is_some_and(|own| own.severity > worst.severity);
            if node.worst.as_ref().is_none_or(is_worse) {
                node.worst.clone_from(&row.worst);
            }
        }
        rows.push(RankRow { node: places.get(&node).copied().unwrap_or_default(), job: Some(job), ..row });
        series.push(key.clone());
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

fn memories(figures: &[Figure]) -> BTreeMap<(Foreign, Foreign), Device> {
    let mut all: BTreeMap<_, Device> = BTreeMap::new();
    for Figure { labels, value: (_, value) } in figures {
        let device = all.entry((labels.instance.clone(), labels.gpu_uuid.clone())).or_default();
        match labels.name.raw() {
            "gpuwatch_device_memory_total_bytes" => device.total = Some(*value),
            _ => device.used = Some(*value),
        }
    }
    all
}

/// Returns each rank once: on the device where it has allocated most.
fn largest<'a, 'b>(ranks: &'b BTreeMap<Key, Rank<'a>>) -> impl Iterator<Item = (&'b Key, &'b Rank<'a>)> {
    let allocated = |it: &Rank| it.values.get("gpuwatch_allocated_bytes").copied().unwrap_or(-1.0);
    let mut best: BTreeMap<_, (&Key, &Rank)> = BTreeMap::new();
    for (key, it) in ranks {
        let pid = it.info.map(|info| &info.pid);
        // Processes without a pid here are distinguished by their devices.
        let device = pid.is_none().then_some(&key.device);
        let held = best.entry((&key.instance, &key.run, &key.rank, pid, device)).or_insert((key, it));
        if allocated(it) > allocated(held.1) {
            *held = (key, it);
        }
    }
    best.into_values()
}

fn node(host: Host) -> NodeRow {
    NodeRow { host, link: Link::Up, devices: 0, memory: None, probes: 0, worst: None, clock_us: None }
}

fn row(key: &Key, it: &Rank, device: Option<&Device>) -> RankRow {
    let value = |name: &str| it.values.get(name).copied();
    let memory = device.and_then(|it| it.used.zip(it.total)).filter(|it| it.1 > 0.0);
    let figures: Figures = [
        (RankFigure::Device, memory.map(|(used, total)| used / total)),
        (RankFigure::Allocated, value("gpuwatch_allocated_bytes")),
        (RankFigure::Reserved, value("gpuwatch_reserved_bytes")),
        (RankFigure::Growth, value("gpuwatch_growth_bytes_per_step")),
        (RankFigure::Full, value("gpuwatch_full_seconds")),
        (RankFigure::StepTime, value("gpuwatch_step_seconds")),
    ]
    .into_iter()
    .collect();
    RankRow {
        rank: key.rank.raw().parse().ok(),
        pid: it.info.and_then(|info| info.pid.raw().parse().ok()),
        ended: value("gpuwatch_process_up") == Some(0.0),
        step: value("gpuwatch_step").map(units::whole),
        figures,
        worst: it.alerts.first().map(|(severity, labels)| Concern { severity: *severity, title: title(labels) }),
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
            ((key.instance.clone(), info.pid.clone(), key.process.clone()), format!("{pid} on {}", host.raw()))
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
