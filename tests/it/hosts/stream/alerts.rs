//! Alerts of several machines: those of a job once, those of a machine with its name.

use super::cluster::{STEADY, cluster, run};
use crate::{
    helpers::story::{GIB, MIB, Story},
    house::schemas,
};
use gpuwatch::{
    facts::{
        event::{
            Line, ProbeId,
            wire::{Bye, Hello},
        },
        units::Stamp,
    },
    model::{
        alerts::{Message, Name, NewClusterAlerts, Policy},
        analysis::{cause::Cause, severity::Severity},
        cluster::{Cluster, HostUpdate, Link, Node, What, findings::ClusterFindings, overview::Overview},
        findings::{Finding, Findings, Kind},
    },
};

const SECOND: u64 = 1_000_000;

/// The alerts that are new at an instant.
fn at(news: &mut NewClusterAlerts, cluster: &mut Cluster, second: u64, policy: &Policy) -> Vec<Message> {
    cluster.apply(HostUpdate { node: 0, at: Stamp(second * SECOND), what: What::Second });
    news.at(cluster, &policy.found(cluster))
}

/// The same without a policy.
fn lines(news: &mut NewClusterAlerts, cluster: &mut Cluster, second: u64) -> Vec<String> {
    at(news, cluster, second, &Policy::default()).into_iter().map(|it| it.line).collect()
}

fn leaking(ranks: &'static [u32]) -> Cluster {
    cluster(4, 600, run, |rank, step| Some(20 * GIB + if ranks.contains(&rank) { step * MIB } else { 0 }))
}

#[test]
fn a_leak_of_several_ranks_is_one_alert_whenever_each_is_found() {
    let mut news = NewClusterAlerts::default();
    let all = at(&mut news, &mut leaking(&[1]), 100, &Policy::default());
    assert_eq!(all.len(), 1, "{all:#?}");
    let [first] = &all[..] else { unreachable!() };
    assert!(first.line.starts_with("warning: run r: memory grows") && first.line.ends_with("rank 1 on node0"));
    assert!(first.environment.contains(&("GPUWATCH_ALERT_RANK", "1".to_owned())));
    let object = serde_json::from_str(&first.object).unwrap();
    schemas::check("job-alert", &object);
    assert_eq!((&object["kind"], &object["job"], &object["ranks"][0]), (&"growth".into(), &"run r".into(), &1.into()));
    for second in 101..130 {
        assert_eq!(lines(&mut news, &mut leaking(&[1, 6]), second), [""; 0]);
    }
    // After a long time without it, it is a new one.
    assert_eq!(lines(&mut news, &mut cluster(4, 60, run, STEADY), 2_000), [""; 0]);
    assert_eq!(lines(&mut news, &mut leaking(&[1, 6]), 2_001).len(), 1);
}

#[test]
fn a_rank_that_ends_first_is_an_alert_only_while_others_go_on() {
    let mut cluster = cluster(2, 60, run, STEADY);
    let end = |cluster: &mut Cluster, machine: u32, local: u32| {
        let mut story = Story { now: 7 * SECOND, ..Story::default() };
        story.line(local, Line::Bye(Bye { at_us: story.now, reason: "exit".to_owned(), ..Bye::default() }));
        super::cluster::add(cluster, machine, &story);
    };
    let mut news = NewClusterAlerts::default();
    end(&mut cluster, 1, 1);
    for second in 10..20 {
        assert_eq!(lines(&mut news, &mut cluster, second), [""; 0]);
    }
    let mut others = (news.clone(), cluster.clone());
    assert_eq!(lines(&mut news, &mut cluster, 20), ["warning: run r: rank 3 on node1 ended (exit) while 3 ranks run"]);
    for (machine, local) in [(0, 0), (0, 1), (1, 0)] {
        end(&mut others.1, machine, local);
    }
    assert_eq!(lines(&mut others.0, &mut others.1, 20), [""; 0]);
}

/// The findings of each machine, with those that a leak on rank 1 is replaced by.
fn replaced(cluster: &Cluster, by: impl Fn(&Finding) -> Vec<Finding>) -> ClusterFindings {
    let of = |node: &Node| {
        let found = Policy::default().findings(&node.session);
        let leaks = found.all.iter().filter(|it| it.kind == Kind::Growth && it.rank == Some(1));
        Findings { all: leaks.flat_map(&by).collect(), ..found }
    };
    ClusterFindings { machines: cluster.nodes.iter().map(of).collect(), ..ClusterFindings::default() }
}

#[test]
fn a_finding_without_a_probe_is_one_alert_of_its_job_or_of_its_machine() {
    let mut cluster = leaking(&[1]);
    let idle = |pid: fn(&Finding) -> Option<u32>| {
        move |it: &Finding| {
            vec![Finding {
                kind: Kind::IdleMemory,
                cause: Cause::OrphanedRank,
                probe: None,
                pid: pid(it),
                ..it.clone()
            }]
        }
    };
    let mut news = NewClusterAlerts::default();
    let mut at = |cluster: &mut Cluster, second: u64, found: &ClusterFindings| {
        cluster.apply(HostUpdate { node: 0, at: Stamp(second * SECOND), what: What::Second });
        let all = news.at(cluster, found);
        all.into_iter().map(|it| it.line).collect::<Vec<_>>()
    };
    // A rank with a probe, and a process without one.
    let found = replaced(&cluster, idle(|it| it.pid));
    let lines = at(&mut cluster, 100, &found);
    assert!(
        lines.len() == 1 && lines[0].starts_with("warning: run r: ") && lines[0].contains("rank 1 on node0"),
        "{lines:?}"
    );
    let found = replaced(&cluster, idle(|_| Some(4_000_000)));
    let lines = at(&mut cluster, 101, &found);
    assert!(lines.len() == 1 && lines[0].starts_with("node0: warning: "), "{lines:?}");
    // Another stream of the machine shows the same, found at another time.
    assert_eq!(at(&mut cluster, 102, &ClusterFindings::default()), [""; 0]);
    let later = |it: &Finding| {
        let again = idle(|_| Some(4_000_000))(it).remove(0);
        vec![Finding { first_alert_at: Stamp(200 * SECOND), first_alert_step: 7, ..again }]
    };
    let found = replaced(&cluster, later);
    assert_eq!(at(&mut cluster, 200, &found), [""; 0]);
}

#[test]
fn an_error_of_another_rank_is_reported_again() {
    let mut cluster = leaking(&[1]);
    let error = |rank: u64| {
        move |it: &Finding| {
            let found = Finding { kind: Kind::Oom, severity: Severity::Critical, ..it.clone() };
            if rank == 1 { vec![found] } else { vec![found.clone(), Finding { probe: Some(ProbeId(0)), ..found }] }
        }
    };
    let mut news = NewClusterAlerts::default();
    let counts = [(100, 1), (101, 1), (130, 0), (161, 0), (162, 0), (230, 0)].map(|(second, rank)| {
        cluster.apply(HostUpdate { node: 0, at: Stamp(second * SECOND), what: What::Second });
        news.at(&cluster, &replaced(&cluster, error(rank))).len()
    });
    assert_eq!(counts, [1, 0, 0, 1, 0, 0], "a minute later at the soonest");
}

#[test]
fn the_object_of_a_job_is_short_whatever_its_processes_report() {
    let hostile = |hello: &mut Hello| {
        hello.run = Some("r".repeat(4000));
        hello.world_size = Some(u64::MAX);
    };
    let mut cluster = cluster(2, 60, hostile, STEADY);
    cluster.apply(HostUpdate { node: 1, at: Stamp(9 * SECOND), what: What::Link(Link::Silent { why: "9 s".into() }) });
    let mut news = NewClusterAlerts::default();
    let all: Vec<Message> = (10..25).flat_map(|it| at(&mut news, &mut cluster, it, &Policy::default())).collect();
    let [only] = &all[..] else { panic!("{all:#?}") };
    let object = serde_json::from_str(&only.object).unwrap();
    schemas::check("job-alert", &object);
    assert_eq!(object["kind"], "rank-missing");
    assert!(object["count"].as_u64() > Some(60_000) && only.object.len() < 4096 && only.line.len() < 512, "{only:#?}");
}

#[test]
fn silenced_and_expected_findings_are_no_alerts_and_the_screen_shows_the_silenced() {
    let uneven = |rank: u32, _: u64| Some(if rank == 5 { 80 * GIB } else { 40 * GIB });
    let last = |policy: &Policy, mut cluster: Cluster| {
        let mut news = NewClusterAlerts::default();
        (30..=45).flat_map(|second| at(&mut news, &mut cluster, second, policy)).count()
    };
    let name = |it: &str| vec![Name::read(it).unwrap()];
    let absent = |hello: &mut Hello| {
        run(hello);
        hello.world_size = Some(9);
    };
    let mut away = cluster(4, 60, absent, STEADY);
    away.apply(HostUpdate { node: 1, at: Stamp(9 * SECOND), what: What::Link(Link::Silent { why: "9 s".into() }) });
    let all = [("imbalance", cluster(4, 60, run, uneven)), ("growth", leaking(&[1])), ("rank-missing", away)];
    for (kind, cluster) in all {
        assert_eq!(last(&Policy::default(), cluster.clone()), 1, "{kind}");
        let allowed = Policy { allow: name(kind), ..Policy::default() };
        let silenced = Policy { silence: name(kind), ..Policy::default() };
        assert_eq!((last(&allowed, cluster.clone()), last(&silenced, cluster.clone())), (0, 0), "{kind}");
        let shown = |it: &Policy| Overview::of(&cluster, &it.found(&cluster)).jobs[0].findings.len();
        assert_eq!((shown(&allowed), shown(&silenced)), (0, 1), "{kind}");
    }
}

#[test]
fn text_from_machines_is_escaped() {
    let hostile = |hello: &mut Hello| hello.run = Some("\u{1b}]0;owned\u{7}".to_owned());
    let mut cluster = cluster(2, 600, hostile, |_, step| Some(20 * GIB + step * MIB));
    let all = at(&mut NewClusterAlerts::default(), &mut cluster, 100, &Policy::default());
    assert_eq!(all.len(), 1, "{all:#?}");
    assert!(all.iter().all(|it| !it.line.chars().any(char::is_control) && !it.object.contains('\u{1b}')), "{all:#?}");
}
