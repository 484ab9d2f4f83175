//! Jobs that span machines, and their findings, each raised once.

use crate::helpers::story::{GIB, MIB, Story, counters};
use gpuwatch::{
    facts::{
        event::{
            Line,
            wire::{Bye, Hello, Job as Scheduled},
        },
        units::Stamp,
    },
    model::{
        alerts::Policy,
        analysis::severity::Severity,
        cluster::{
            Cluster, HostUpdate, Link, What,
            findings::{JobFinding, Subject, findings as of_job},
            jobs::{Job, jobs},
            overview::{Overview, figure::RankFigure},
        },
        findings::Kind,
    },
};

/// Two ranks on each machine; a rank's counters from its number and its step.
pub(super) fn cluster(
    machines: u32,
    steps: u64,
    change: impl Fn(&mut Hello),
    held: impl Fn(u32, u64) -> Option<u64>,
) -> Cluster {
    let names = (0..machines).map(|it| format!("node{it}"));
    let mut cluster = Cluster::new(names, Stamp(0));
    for machine in 0..machines {
        let mut story = Story::default();
        for local in 0..2 {
            story.device(local, 80 * GIB, &[]).probe(local, 4240 + local, local, None);
        }
        for event in &mut story.events {
            if let gpuwatch::facts::event::Fact::Probe { probe, line } = &mut event.fact
                && let Line::Hello(hello) = &mut **line
            {
                hello.rank = Some(u64::from(2 * machine + probe.0));
                hello.world_size = Some(u64::from(2 * machines));
                change(hello);
            }
        }
        for step in 1..=steps {
            story.wait(100_000);
            for local in 0..2 {
                if let Some(held) = held(2 * machine + local, step) {
                    story.sample(local, step, counters(held, GIB));
                }
            }
        }
        add(&mut cluster, machine, &story);
    }
    cluster
}

pub(super) fn add(cluster: &mut Cluster, machine: u32, story: &Story) {
    for event in &story.events {
        let (node, at) = (machine as usize, event.at);
        cluster.apply(HostUpdate { node, at, what: What::Event(event.clone()) });
    }
}

pub(super) fn run(hello: &mut Hello) {
    hello.run = Some("r".to_owned());
}

pub(super) const STEADY: fn(u32, u64) -> Option<u64> = |_, _| Some(40 * GIB);

fn found(cluster: &Cluster) -> Vec<JobFinding> {
    let jobs = jobs(cluster);
    assert_eq!(jobs.len(), 1);
    of_job(cluster, &jobs[0], &Policy::default().found(cluster))
}

fn ranks(job: &Job) -> Vec<(u64, usize)> {
    job.ranks.iter().map(|it| (it.rank().unwrap(), it.node)).collect()
}

#[test]
fn processes_are_one_job_by_their_run_their_batch_job_or_their_master() {
    let slurm = |hello: &mut Hello| {
        hello.run = hello.rank.map(|rank| format!("of machine {}", rank / 2));
        hello.job = Some(Scheduled { scheduler: "slurm".to_owned(), id: "7".to_owned() });
    };
    let master = |address: &'static str| move |hello: &mut Hello| hello.master = Some(format!("{address}:29500"));
    for cluster in [cluster(2, 3, run, STEADY), cluster(2, 3, slurm, STEADY), cluster(2, 3, master("node0"), STEADY)] {
        let jobs = jobs(&cluster);
        assert_eq!(jobs.len(), 1);
        assert_eq!(ranks(&jobs[0]), [(0, 0), (1, 0), (2, 1), (3, 1)]);
        assert_eq!((jobs[0].world_size, jobs[0].missing()), (Some(4), vec![]));
    }
    // A loopback address is every machine's own; so is nothing at all.
    for change in [&master("127.0.0.1") as &dyn Fn(&mut Hello), &master("localhost"), &|_: &mut Hello| ()] {
        let cluster = cluster(2, 3, change, STEADY);
        assert!(jobs(&cluster).iter().all(|it| it.nodes().len() == 1));
    }
}

#[test]
fn two_names_of_one_machine_show_its_processes_once() {
    let change = |hello: &mut Hello| {
        run(hello);
        hello.instance = hello.rank.map(|it| format!("instance {}", it % 2));
    };
    let cluster = cluster(2, 3, change, STEADY);
    assert_eq!(jobs(&cluster)[0].ranks.len(), 2);
}

#[test]
fn a_job_without_trouble_has_no_findings() {
    assert_eq!(found(&cluster(4, 300, run, STEADY)), []);
}

#[test]
fn a_leak_of_some_ranks_is_one_finding_of_their_job() {
    let leak = |rank: u32, step: u64| Some(20 * GIB + if rank == 1 || rank == 6 { step * MIB } else { 0 });
    let all = found(&cluster(4, 600, run, leak));
    assert_eq!(all.len(), 1, "{all:#?}");
    assert_eq!((all[0].subject, all[0].ranks.as_slice()), (Subject::Ranks(Kind::Growth), &[1, 6][..]));
    let hosts: Vec<_> = all[0].hosts.iter().map(|it| it.raw().to_owned()).collect();
    assert_eq!(hosts, ["node0", "node3"]);
    assert!(all[0].sentence.contains("on rank ") && all[0].sentence.contains("2 of 8 ranks"), "{}", all[0].sentence);
}

#[test]
fn a_rank_that_wants_much_more_than_the_others_is_found_over_all_machines() {
    let uneven = |rank: u32, _: u64| Some(if rank == 5 { 80 * GIB } else { 40 * GIB });
    let all = found(&cluster(4, 60, run, uneven));
    assert_eq!(all.len(), 1, "{all:#?}");
    assert_eq!((all[0].subject, all[0].ranks.as_slice()), (Subject::Imbalance, &[5][..]));
    assert_eq!(all[0].sentence, "rank 5 on node2 wants 80.00 GiB, 2.0 × the median");
}

#[test]
fn a_rank_that_stays_behind_is_found() {
    let late = |rank: u32, step: u64| if rank == 3 && step > 50 { None } else { Some(40 * GIB) };
    let all = found(&cluster(2, 300, run, late));
    assert_eq!(all.len(), 1, "{all:#?}");
    assert_eq!((all[0].subject, all[0].ranks.as_slice()), (Subject::Behind, &[3][..]));
    assert!(all[0].sentence.starts_with("rank 3 on node1 is 250 steps behind the median"), "{}", all[0].sentence);
}

#[test]
fn a_rank_that_ended_while_others_run_is_found() {
    let mut cluster = cluster(2, 60, run, STEADY);
    let mut story = Story { now: 7_000_000, ..Story::default() };
    story.line(1, Line::Bye(Bye { at_us: 7_000_000, reason: "exit".to_owned(), ..Bye::default() }));
    add(&mut cluster, 1, &story);
    let all = found(&cluster);
    assert_eq!((all[0].subject, all[0].ranks.as_slice()), (Subject::Ended, &[3][..]));
    assert_eq!(all[0].sentence, "rank 3 on node1 ended (exit) while 3 ranks run");
}

#[test]
fn a_rank_whose_probe_ended_before_it_has_not_ended() {
    let mut cluster = cluster(2, 60, run, STEADY);
    let mut story = Story { now: 7_000_000, ..Story::default() };
    story.line(1, Line::Bye(Bye { at_us: 7_000_000, reason: "detach".to_owned(), ..Bye::default() }));
    add(&mut cluster, 1, &story);
    assert!(found(&cluster).iter().all(|it| it.subject != Subject::Ended));
}

#[test]
fn ranks_that_no_machine_reports_are_found_with_the_machine_that_does_not_answer() {
    let larger = |hello: &mut Hello| {
        run(hello);
        hello.world_size = Some(6);
    };
    let mut cluster = cluster(2, 60, larger, STEADY);
    let all = found(&cluster);
    assert_eq!(
        (all[0].subject, all[0].severity, all[0].ranks.as_slice()),
        (Subject::Missing, Severity::Info, &[4, 5][..])
    );
    // The list has a third machine, which refuses.
    let third = Cluster::new(["node2".to_owned()], Stamp(0)).nodes.remove(0);
    cluster.nodes.push(third);
    cluster.apply(HostUpdate { node: 2, at: Stamp(1), what: What::Link(Link::refused("no".to_owned())) });
    let all = found(&cluster);
    assert_eq!(all[0].severity, Severity::Warning);
    assert_eq!(all[0].sentence, "2 of 6 ranks are not seen: 4, 5; node2 is refused");
}

#[test]
fn the_overview_has_a_row_for_each_machine_job_and_rank_with_its_figures() {
    let leak = |rank: u32, step: u64| Some(20 * GIB + if rank == 5 { step * MIB } else { 0 });
    let mut cluster = cluster(4, 600, run, leak);
    cluster.apply(HostUpdate { node: 1, at: Stamp(1), what: What::Link(Link::refused("no route".to_owned())) });
    let all = Overview::of(&cluster, &Policy::default().found(&cluster));
    assert_eq!(all.node_order(), [1, 2, 0, 3], "a refused machine, then the one of the leak");
    let node = &all.nodes[2];
    assert_eq!((node.host.raw(), node.devices, node.probes), ("node2", 2, 2));
    let (used, total) = node.memory.unwrap();
    assert!(used.0 > 0 && total.0 > used.0, "{node:?}");
    let worst = node.worst.as_ref().unwrap();
    assert!(worst.severity >= Severity::Warning && worst.title.starts_with("memory grows"), "{worst:?}");
    let [job] = &all.jobs[..] else { panic!("{:?}", all.jobs) };
    assert_eq!((job.name.raw(), job.present, job.expected, job.nodes), ("run r", 8, Some(8), 4));
    assert_eq!((job.steps, job.findings.len()), (Some((600, 600)), 1));
    let first = &all.ranks[all.rank_order(RankFigure::Device)[0]];
    assert_eq!((first.rank, first.node, first.ended), (Some(5), 2, false));
    assert_eq!(first.worst.as_ref().map(|it| &it.title), Some(&worst.title));
    let even = all.ranks.iter().find(|it| it.rank == Some(0)).unwrap();
    assert!(even.worst.is_none());
    let figure = |figure| even.figures.get(figure).unwrap();
    assert_eq!((figure(RankFigure::Allocated), figure(RankFigure::Growth)), ((20 * GIB) as f64, 0.0));
    assert!((figure(RankFigure::StepTime) - 0.1).abs() < 1e-9 && figure(RankFigure::Device) > 0.0);
    assert_eq!((figure(RankFigure::Behind), even.figures.get(RankFigure::Full)), (0.0, None));
    let growth = first.figures.get(RankFigure::Growth).unwrap();
    assert!((growth / MIB as f64 - 1.0).abs() < 0.1 && first.figures.get(RankFigure::Full).is_some(), "{growth}");
    assert_eq!(all.outliers(RankFigure::Growth).len(), 1);
}
