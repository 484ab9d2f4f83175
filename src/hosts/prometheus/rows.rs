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
mod tests {
    //! Rows of planted series.

    use super::*;

    fn figure(name: &str, labels: &[(&str, &str)], value: f64) -> Figure {
        let mut all = serde_json::Map::new();
        all.insert("__name__".to_owned(), format!("gpuwatch_{name}").into());
        all.extend(labels.iter().map(|(label, it)| ((*label).to_owned(), (*it).into())));
        let text = serde_json::json!({"metric": all, "value": [1_700_000_000, value.to_string()]});
        serde_json::from_value(text).unwrap()
    }

    const DEVICE: [(&str, &str); 2] = [("instance", "10.0.0.1:9477"), ("gpu_uuid", "GPU-a")];

    fn rank<'a>(rank: &'a str, device: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let own = [("instance", "10.0.0.1:9477"), ("gpu_uuid", device), ("rank", rank), ("run", "r")];
        own.iter().chain(more).copied().collect()
    }

    #[test]
    fn a_rank_is_one_row_on_the_device_where_it_has_most() {
        let info =
            [("host", "node1"), ("pid", "42"), ("scheduler", "slurm"), ("scheduler_job", "7"), ("world_size", "2")];
        let all = [
            figure("process_info", &rank("0", "GPU-a", &info), 1.0),
            figure("process_info", &rank("0", "GPU-b", &info), 1.0),
            figure("allocated_bytes", &rank("0", "GPU-a", &[]), 1e9),
            figure("allocated_bytes", &rank("0", "GPU-b", &[]), 7e9),
            figure("step", &rank("0", "GPU-b", &[]), 12.0),
            figure("growth_bytes_per_step", &rank("0", "GPU-b", &[]), f64::NAN),
            figure("process_up", &rank("0", "GPU-b", &[]), 1.0),
        ];
        let devices =
            [figure("device_memory_total_bytes", &DEVICE, 80e9), figure("device_memory_used_bytes", &DEVICE, 20e9)];
        let Fleet { overview, series } = fleet(&all, &devices, true);
        let [row] = &overview.ranks[..] else { panic!("{overview:#?}") };
        assert_eq!((row.rank, row.pid, row.step, row.ended), (Some(0), Some(42), Some(12), false));
        assert_eq!((row.figures.get(RankFigure::Allocated), row.figures.get(RankFigure::Growth)), (Some(7e9), None));
        assert_eq!((series[0].key.device.raw(), overview.jobs[0].name.raw()), ("GPU-b", "slurm 7"));
        assert_eq!((overview.jobs[0].expected, overview.jobs[0].present), (Some(2), 1));
        let [node] = &overview.nodes[..] else { panic!("{overview:#?}") };
        assert_eq!((node.host.raw(), node.devices, node.probes), ("node1", 1, 1));
        assert_eq!(node.memory, Some((Bytes(20_000_000_000), Bytes(80_000_000_000))));
    }

    #[test]
    fn a_process_is_the_same_on_whichever_device_it_has_most() {
        let both = |on_a: f64, on_b: f64| {
            let info = [("host", "node1"), ("pid", "42")];
            let all = [("GPU-a", "2", on_a), ("GPU-b", "", on_b)].map(|(device, number, bytes)| {
                // Another process comes first on one of the devices.
                let labels =
                    |more: &[(&'static str, &'static str)]| rank("", device, &[&[("process", number)], more].concat());
                [figure("process_info", &labels(&info), 1.0), figure("allocated_bytes", &labels(&[]), bytes)]
            });
            fleet(&all.concat(), &[], true)
        };
        let (before, after) = (both(2e9, 1e9), both(1e9, 2e9));
        assert_eq!((before.overview.ranks.len(), after.overview.ranks.len()), (1, 1));
        assert_eq!((before.series[0].key.device.raw(), after.series[0].key.device.raw()), ("GPU-a", "GPU-b"));
        assert_eq!(before.series[0].id, after.series[0].id);
        assert_eq!(before.overview.ranks[0].id(), after.overview.ranks[0].id());
    }

    #[test]
    fn containers_with_the_same_pid_behind_one_address_are_rows_of_their_own() {
        let container = |host: &'static str, number: &'static str| {
            let own = [&DEVICE[..], &[("process", number), ("pid", "1"), ("host", host)]].concat();
            figure("process_info", &own, 1.0)
        };
        for (hosts, machines) in [(["one", "two"], 2), (["host", "host"], 1)] {
            let all = [container(hosts[0], ""), container(hosts[1], "2")];
            let Fleet { overview, series } = fleet(&all, &[], true);
            let [one, two] = &overview.ranks[..] else { panic!("{overview:#?}") };
            assert!(one.id() != two.id() && series[0].id != series[1].id && one.job != two.job, "{overview:#?}");
            assert_eq!((overview.nodes.len(), overview.nodes[two.node].host.raw()), (machines, hosts[1]));
        }
    }

    #[test]
    fn an_alert_of_a_device_is_its_machines_and_no_ranks() {
        let alert = |device: &'static str, kind: &'static str, severity: &'static str| {
            let own = [("instance", "10.0.0.1:9477"), ("gpu_uuid", device), ("kind", kind), ("severity", severity)];
            figure("device_alert", &own, 1.0)
        };
        let ranks = [
            figure("allocated_bytes", &rank("0", "GPU-a", &[]), 1.0),
            figure("alert", &rank("0", "GPU-a", &[("kind", "growth"), ("severity", "info")]), 1.0),
        ];
        let devices = [
            alert("GPU-a", "stall", "of a later release"),
            alert("GPU-b", "idle-memory", "warning"),
            alert("GPU-b", "hardware", "info"),
        ];
        let Fleet { overview, .. } = fleet(&ranks, &devices, true);
        let title = |it: &Option<Concern>| it.as_ref().map(|worst| worst.title.clone());
        assert_eq!(title(&overview.nodes[0].worst).as_deref(), Some("idle-memory"));
        assert_eq!(title(&overview.ranks[0].worst).as_deref(), Some("growth"));
        assert_eq!((overview.nodes[0].devices, overview.jobs[0].findings.len()), (2, 1));
    }

    #[test]
    fn alerts_are_of_ranks_jobs_and_machines_and_the_worst_comes_first() {
        let alert = |severity| [("kind", "growth"), ("cause", "graph-retained"), ("severity", severity)];
        let all = [
            figure("allocated_bytes", &rank("0", "GPU-a", &[]), 1.0),
            figure("allocated_bytes", &rank("1", "GPU-b", &[]), 1.0),
            figure("alert", &rank("1", "GPU-b", &alert("warning")), 1.0),
            figure("alert", &rank("1", "GPU-b", &alert("critical")), 1.0),
            figure("alert", &rank("0", "GPU-a", &alert("of a later release")), 1.0),
        ];
        let Fleet { overview, .. } = fleet(&all, &[], true);
        let titles: Vec<&str> = overview.jobs[0].findings.iter().map(|it| it.title.as_str()).collect();
        assert_eq!(titles, ["growth (graph-retained) on 1 rank"; 2]);
        assert_eq!(overview.jobs[0].findings[0].severity, Severity::Critical);
        assert_eq!(overview.nodes[0].worst.as_ref().unwrap().severity, Severity::Critical);
        assert_eq!((overview.nodes[0].host.raw(), overview.nodes[0].probes), ("10.0.0.1:9477", 2));
        assert_eq!(overview.rank_order(RankFigure::default()), [1, 0]);
        assert!(overview.ranks[0].worst.is_none());
    }

    #[test]
    fn processes_without_a_run_are_jobs_of_their_own() {
        let process = |number: &'static str, pid: &'static str| {
            [&DEVICE[..], &[("process", number), ("pid", pid), ("host", "node1")]].concat()
        };
        let all = [figure("process_info", &process("", "7"), 1.0), figure("process_info", &process("2", "8"), 1.0)];
        let Fleet { overview, .. } = fleet(&all, &[], true);
        let names: Vec<&str> = overview.jobs.iter().map(|it| it.name.raw()).collect();
        assert_eq!(names, ["pid 7 on node1", "pid 8 on node1"]);
        let devices = [figure("device_memory_total_bytes", &DEVICE, 80e9)];
        assert_eq!(fleet(&[], &devices, true).overview.nodes.len(), 1);
        assert_eq!(fleet(&[], &devices, false).overview, Overview::default());
    }
}
