//! What a screen of many machines draws: a row for each machine, job and rank, wherever they come from. Pure.
//!
//! [`Overview::of`] makes it of a cluster's sessions. Another source fills the rows and calls [`Overview::new`], which
//! derives what follows from them: a job's machines and steps, and how many steps a rank is behind.

/// The figures that the screen compares.
pub mod figure;

/// How a figure is spread over ranks.
pub mod spread;

use super::{
    Cluster, Link, Node,
    findings::{self as of_jobs, ClusterFindings, JobFinding},
    jobs::{Job, Rank, jobs},
};
use crate::model::statistics;
use crate::{
    facts::{
        event::ProbeId,
        metrics::Metric,
        text::Foreign,
        units::{Bytes, counted},
    },
    model::{
        analysis::{fragmentation, severity::Severity},
        findings::{Finding, Findings, is_open},
        session::{Session, device::Device, process::OnDevice},
    },
};
use figure::{Figures, RankFigure};
use spread::Spread;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// All rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overview {
    /// The machines, in the source's order.
    pub nodes: Vec<NodeRow>,
    /// The jobs.
    pub jobs: Vec<JobRow>,
    /// The ranks, and processes without one.
    pub ranks: Vec<RankRow>,
}

/// A finding in a few words.
#[derive(Clone, Debug, PartialEq)]
pub struct Concern {
    /// How much it matters.
    pub severity: Severity,
    /// Its description. Text from outside in it is escaped.
    pub title: String,
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeRow {
    /// Its name.
    pub host: Foreign,
    /// The state of its link, with the reason.
    pub link: Link,
    /// Number of its devices.
    pub devices: u64,
    /// The used bytes of its devices, and all; `None` before the driver's first reading.
    pub memory: Option<(Bytes, Bytes)>,
    /// Number of its living processes with a probe.
    pub probes: u64,
    /// Its worst open finding.
    pub worst: Option<Concern>,
    /// How far its wall clock is ahead of this machine's, in µs.
    pub clock_us: Option<i64>,
}

/// What the screen of several hosts shows of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobRow {
    /// Its name.
    pub name: Foreign,
    /// The number of its ranks, as they report it.
    pub expected: Option<u64>,
    /// Its findings, the worst first.
    pub findings: Vec<Concern>,
    /// Number of its ranks that run. Derived.
    pub present: u64,
    /// Number of its machines. Derived.
    pub nodes: u64,
    /// The steps of the rank that is last, and of the one that is first. Derived.
    pub steps: Option<(u64, u64)>,
}

/// A rank of a job, on the device where it wants most memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankRow {
    /// The machine's place in `nodes`.
    pub node: usize,
    /// The job's place in `jobs`.
    pub job: Option<usize>,
    /// The probe of its machine's session, and the probe's ordinal of the device; without a session, a number that
    /// separates it from the machine's other processes, or `None`.
    pub probe: Option<(ProbeId, u32)>,
    /// Its global rank.
    pub rank: Option<u64>,
    /// Its pid.
    pub pid: Option<u32>,
    /// Whether it has ended.
    pub ended: bool,
    /// Steps completed.
    pub step: Option<u64>,
    /// Its figures. [`Overview::new`] sets how many steps it is behind.
    pub figures: Figures,
    /// Its worst open finding.
    pub worst: Option<Concern>,
}

/// What a rank keeps in every overview: the rows of a job that begins or ends move the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankId {
    /// The machine's place in `nodes`.
    pub node: usize,
    /// The probe.
    pub probe: Option<ProbeId>,
    /// The global rank.
    pub rank: Option<u64>,
    /// The pid.
    pub pid: Option<u32>,
}

impl RankRow {
    /// Returns its identity.
    pub fn id(&self) -> RankId {
        RankId { node: self.node, probe: self.probe.map(|it| it.0), rank: self.rank, pid: self.pid }
    }
}

impl Overview {
    /// Returns the overview of a cluster.
    pub fn of(cluster: &Cluster, found: &ClusterFindings) -> Self {
        let none = Findings::default();
        let found_of = |place: usize| found.of(place).unwrap_or(&none);
        let nodes = cluster.nodes.iter().enumerate().map(|(place, it)| node(it, found_of(place)));
        let known = jobs(cluster);
        let rows = known.iter().map(|it| job(cluster, it, &of_jobs::findings(cluster, it, found)));
        let ranks = known.iter().enumerate().flat_map(|(place, it)| it.ranks.iter().map(move |rank| (place, rank)));
        let ranks = ranks.filter_map(|(place, it)| {
            let session = &cluster.nodes.get(it.node)?.session;
            Some(rank(place, it, session, found_of(it.node)))
        });
        Self::new(nodes.collect(), rows.collect(), ranks.collect())
    }

    /// Returns an overview of rows, with what follows from them.
    pub fn new(nodes: Vec<NodeRow>, jobs: Vec<JobRow>, ranks: Vec<RankRow>) -> Self {
        let mut it = Self { nodes, jobs, ranks };
        it.derive();
        it
    }

    /// Returns the spread of a figure over the running ranks of a job, or of all jobs.
    pub fn spread(&self, figure: RankFigure, job: Option<usize>) -> Option<Spread> {
        let of_job = self.ranks.iter().filter(|it| job.is_none() || it.job == job);
        Spread::of(figure, of_job.filter(|it| !it.ended).filter_map(|it| it.figures.get(figure)))
    }

    /// Returns the places of the ranks whose figure is much worse than the median of their job.
    pub fn outliers(&self, figure: RankFigure) -> BTreeSet<usize> {
        // Thousands of processes may be jobs of their own, so collect the values of all jobs at once.
        let mut values: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for it in self.ranks.iter().filter(|it| !it.ended) {
            it.job.into_iter().for_each(|job| values.entry(job).or_default().extend(it.figures.get(figure)));
        }
        let spreads = values.into_iter().filter_map(|(job, values)| Some((job, Spread::of(figure, values)?)));
        let spreads: BTreeMap<usize, Spread> = spreads.collect();
        let is_outlier = |it: &RankRow| {
            let spread = spreads.get(&it.job?)?;
            it.figures.get(figure).filter(|value| !it.ended && spread.is_outlier(*value))
        };
        (0..).zip(&self.ranks).filter(|(_, it)| is_outlier(it).is_some()).map(|(place, _)| place).collect()
    }

    /// Returns the places of the ranks, those that need attention first: by their worst findings, then outliers of a
    /// figure, then by the figure. Ended ranks without findings come last.
    pub fn rank_order(&self, figure: RankFigure) -> Vec<usize> {
        let outliers = self.outliers(figure);
        let mut order: Vec<(usize, &RankRow)> = self.ranks.iter().enumerate().collect();
        let first = |(place, it): &(usize, &RankRow)| {
            (Reverse(it.worst.as_ref().map(|worst| worst.severity)), it.ended, !outliers.contains(place))
        };
        let bad = |it: &RankRow| it.figures.get(figure).map_or(f64::NEG_INFINITY, |value| figure.badness(value));
        order.sort_by(|one, other| {
            let by_figure = || bad(other.1).total_cmp(&bad(one.1));
            let by_name = || (one.1.job, one.1.rank, one.0).cmp(&(other.1.job, other.1.rank, other.0));
            first(one).cmp(&first(other)).then_with(by_figure).then_with(by_name)
        });
        order.into_iter().map(|it| it.0).collect()
    }

    /// Returns the places of the machines, those that need attention first: by their worst finding, where a link that
    /// is not up counts as a warning.
    pub fn node_order(&self) -> Vec<usize> {
        let mut order: Vec<(usize, &NodeRow)> = self.nodes.iter().enumerate().collect();
        order.sort_by_key(|(place, it)| (Reverse(it.severity()), *place));
        order.into_iter().map(|it| it.0).collect()
    }

    /// Returns the places of the jobs, those with the worst findings first, then those with the most ranks.
    pub fn job_order(&self) -> Vec<usize> {
        let mut order: Vec<(usize, &JobRow)> = self.jobs.iter().enumerate().collect();
        order.sort_by_key(|(place, it)| {
            (Reverse(it.findings.first().map(|worst| worst.severity)), Reverse(it.present), *place)
        });
        order.into_iter().map(|it| it.0).collect()
    }

    /// Sets what follows from the rows.
    fn derive(&mut self) {
        let mut members: BTreeMap<usize, Vec<&RankRow>> = BTreeMap::new();
        for it in self.ranks.iter().filter(|it| !it.ended) {
            it.job.into_iter().for_each(|job| members.entry(job).or_default().push(it));
        }
        let mut medians = BTreeMap::new();
        for (job, ranks) in members {
            let Some(row) = self.jobs.get_mut(job) else { continue };
            let mut steps: Vec<u64> = ranks.iter().filter_map(|it| it.step).collect();
            steps.sort_unstable();
            row.present = ranks.len() as u64;
            row.nodes = ranks.iter().map(|it| it.node).collect::<BTreeSet<_>>().len() as u64;
            row.steps = steps.first().copied().zip(steps.last().copied());
            medians.extend(statistics::middle(&steps).map(|it| (job, it)));
        }
        for it in &mut self.ranks {
            let median = it.job.and_then(|job| medians.get(&job)).filter(|_| !it.ended);
            let behind = median.zip(it.step).map(|(median, step)| median.saturating_sub(step) as f64);
            it.figures.set(RankFigure::Behind, behind);
        }
    }
}

impl NodeRow {
    /// Returns how much the machine needs attention; `None` if it does not.
    pub fn severity(&self) -> Option<Severity> {
        let link = self.link.why().map(|_| Severity::Warning);
        self.worst.as_ref().map(|it| it.severity).max(link)
    }
}

impl From<&JobFinding> for Concern {
    fn from(it: &JobFinding) -> Self {
        Self { severity: it.severity, title: it.sentence.clone() }
    }
}

impl From<&Finding> for Concern {
    fn from(it: &Finding) -> Self {
        // The row has the rank.
        Self { severity: it.severity, title: it.brief() }
    }
}

fn node(it: &Node, found: &Findings) -> NodeRow {
    let session = &it.session;
    // A MIG device's memory is a part of its parent's.
    let devices = || session.devices.iter().filter(|it| it.gone.is_none() && it.parent.is_none());
    let memory = devices().filter_map(Device::figures).map(|it| (it.used, it.total));
    NodeRow {
        host: it.host.clone(),
        link: it.link.clone(),
        devices: devices().count() as u64,
        memory: memory.reduce(|sum, it| (sum.0.plus(it.0), sum.1.plus(it.1))),
        probes: session.processes.iter().filter(|it| it.is_alive()).count() as u64,
        worst: worst(found, session, |_| true),
        clock_us: it.clock.wall_ahead_us(),
    }
}

fn job(cluster: &Cluster, it: &Job, found: &[JobFinding]) -> JobRow {
    let name = it.name().unwrap_or_else(|| unnamed(cluster, it));
    JobRow {
        name: Foreign::new(name),
        expected: it.world_size.filter(|size| *size > 1),
        findings: found.iter().map(Concern::from).collect(),
        ..JobRow::default()
    }
}

/// Returns the name of a job that has none: its only process, or the number of its ranks.
fn unnamed(cluster: &Cluster, it: &Job) -> String {
    let [only] = &it.ranks[..] else { return counted(it.ranks.len() as u64, "rank") };
    let host = cluster.nodes.get(only.node).map_or_else(String::new, |node| format!(" on {}", node.host));
    only.process.any_pid().map_or_else(|| format!("a process{host}"), |pid| format!("pid {pid}{host}"))
}

fn rank(job: usize, it: &Rank, session: &Session, found: &Findings) -> RankRow {
    let (process, on) = (it.process, it.on());
    let ordinal = on.or(process.devices.first()).map(|on| on.ordinal);
    RankRow {
        node: it.node,
        job: Some(job),
        probe: ordinal.map(|ordinal| (process.probe, ordinal)),
        rank: it.rank(),
        pid: process.any_pid(),
        ended: !process.is_alive() && !process.has_left(),
        step: it.step(),
        figures: on.map_or_else(Figures::default, |on| figures(it, on, session, found)),
        worst: worst(found, session, |finding| finding.is_of(process)),
    }
}

fn figures(it: &Rank, on: &OnDevice, session: &Session, found: &Findings) -> Figures {
    let (process, counters) = (it.process, &on.counters);
    let device = session.device(&on.device);
    let memory = device.and_then(Device::figures).filter(|it| it.total.0 > 0);
    let growing = found.growing(process.probe, on.ordinal);
    let whole = |value: Option<u64>| value.map(|it| it as f64);
    let metric = |metric: Metric| whole(device.and_then(|it| it.metric(metric)));
    let fragmentation = fragmentation::fragmentation(counters, process.is_expandable());
    Figures::from_iter([
        (RankFigure::Device, memory.map(|it| it.used.0 as f64 / it.total.0 as f64)),
        (RankFigure::Allocated, whole(counters.allocated)),
        (RankFigure::Reserved, whole(counters.reserved)),
        (RankFigure::Unused, fragmentation.share()),
        (RankFigure::Growth, found.rate_per_step(process.probe, on)),
        (RankFigure::Full, whole(growing.and_then(|it| it.full_in_us)).map(|us| us / 1e6)),
        (RankFigure::StepTime, whole(on.pace.typical().map(|it| it.us).or(on.pace.latest_us())).map(|us| us / 1e6)),
        (RankFigure::Utilisation, metric(Metric::GpuPercent).map(|percent| percent / 100.0)),
        (RankFigure::Temperature, metric(Metric::CelsiusNow)),
    ])
}

/// Returns the worst open finding that matters, of those that `is_own` accepts.
fn worst(found: &Findings, session: &Session, is_own: impl Fn(&Finding) -> bool) -> Option<Concern> {
    let mut open = found.all.iter().filter(|it| is_own(it) && !it.is_allowed() && is_open(it, session));
    open.next().map(Concern::from)
}

#[cfg(test)]
mod tests {
    //! Orders, and what follows from rows.

    use super::*;

    fn node(host: &str, link: Link, severity: Option<Severity>) -> NodeRow {
        let worst = severity.map(|severity| Concern { severity, title: "x".to_owned() });
        NodeRow { host: host.into(), link, devices: 8, memory: None, probes: 8, worst, clock_us: None }
    }

    fn rank(node: usize, job: usize, rank: u64, allocated: f64) -> RankRow {
        let figures = [(RankFigure::Allocated, Some(allocated))].into_iter().collect();
        RankRow { node, job: Some(job), rank: Some(rank), step: Some(100), figures, ..RankRow::default() }
    }

    fn overview(nodes: usize, ranks: Vec<RankRow>) -> Overview {
        let nodes = (0..nodes).map(|it| node(&format!("node{it}"), Link::Up, None));
        Overview::new(nodes.collect(), vec![JobRow::default(), JobRow::default()], ranks)
    }

    const GIB: f64 = 1_073_741_824.0;

    #[test]
    fn machines_that_need_attention_come_first() {
        let nodes = vec![
            node("fine", Link::Up, None),
            node("info", Link::Up, Some(Severity::Info)),
            node("refused", Link::refused("no route".to_owned()), None),
            node("new", Link::Connecting, None),
            node("critical", Link::Up, Some(Severity::Critical)),
            node("warning", Link::Up, Some(Severity::Warning)),
        ];
        let it = Overview::new(nodes, Vec::new(), Vec::new());
        let order: Vec<&str> = it.node_order().into_iter().map(|place| it.nodes[place].host.raw()).collect();
        assert_eq!(order, ["critical", "refused", "warning", "info", "fine", "new"]);
    }

    #[test]
    fn ranks_come_by_severity_then_as_outliers_of_their_job_then_by_the_figure() {
        // The ranks of the second job all have more than the outlier of the first.
        let mut ranks: Vec<RankRow> = (0..8).map(|it| rank(0, 0, it, if it == 5 { 2.0 * GIB } else { GIB })).collect();
        ranks.extend((0..4).map(|it| rank(1, 1, it, 40.0 * GIB)));
        ranks[1].worst = Some(Concern { severity: Severity::Critical, title: "x".to_owned() });
        ranks[8].ended = true;
        let it = overview(2, ranks);
        let order = it.rank_order(RankFigure::Allocated);
        assert_eq!(order, [1, 5, 9, 10, 11, 0, 2, 3, 4, 6, 7, 8]);
        assert_eq!(it.outliers(RankFigure::Allocated), [5].into());
        assert_eq!(it.rank_order(RankFigure::Temperature).len(), 12, "ranks without a value are listed");
        let spread = it.spread(RankFigure::Allocated, Some(0)).unwrap();
        assert_eq!((spread.worst, spread.median, spread.count), (2.0 * GIB, GIB, 8));
        assert_eq!(it.spread(RankFigure::Allocated, None).unwrap().count, 11);
    }

    #[test]
    fn a_job_has_its_machines_its_steps_and_how_far_each_rank_is_behind() {
        let mut ranks: Vec<RankRow> = (0..4).map(|it| rank(usize::from(it > 1), 0, it, GIB)).collect();
        ranks[3].step = Some(60);
        ranks[0].step = Some(101);
        let it = overview(2, ranks);
        let job = &it.jobs[0];
        assert_eq!((job.present, job.nodes, job.steps), (4, 2, Some((60, 101))));
        let behind: Vec<_> = it.ranks.iter().map(|it| it.figures.get(RankFigure::Behind)).collect();
        assert_eq!(behind, [Some(0.0), Some(0.0), Some(0.0), Some(40.0)]);
        assert_eq!((it.jobs[1].present, it.jobs[1].steps), (0, None));
    }

    #[test]
    fn rows_that_name_no_machine_and_no_job_change_nothing() {
        let it = overview(1, vec![rank(9, 9, 0, GIB), RankRow::default()]);
        assert_eq!((it.rank_order(RankFigure::Behind).len(), it.jobs[0].present), (2, 0));
        assert_eq!(Overview::default().rank_order(RankFigure::Device), Vec::<usize>::new());
    }
}
