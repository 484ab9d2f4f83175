//! Strain on jobs besides growth, from events to findings: raised once, resolved when it is gone.

use crate::helpers::story::{GIB, MIB, Story, counters, device, picture, text};
use gpuwatch::{
    facts::event::{
        Fact, Line, ProbeId,
        wire::{Counters, Device, Hello, Live, PROTOCOL},
    },
    model::{
        analysis::{cause::Cause, severity::Severity},
        findings::{Finding, Kind, findings},
    },
    screen::{
        theme::Theme,
        ui::{Screen, Ui},
    },
};

/// Two ranks of one run, each on a device of its own.
fn two_ranks() -> Story {
    let mut story = Story::default();
    for it in 0..2 {
        story.device(it, 20 * GIB, &[]);
        story.add(Fact::ProbeFound { probe: ProbeId(it), pid: Some(4000 + it), socket: "/tmp/x.sock".into() });
        let hello = Hello {
            protocol: PROTOCOL,
            pid: 4000 + it,
            run: Some("one".to_owned()),
            rank: Some(u64::from(it)),
            devices: vec![Device { ordinal: 0, uuid: Some(device(it).0), ..Device::default() }],
            ..Hello::default()
        };
        story.line(it, Line::Hello(hello)).line(it, Line::Live(Live::default()));
    }
    story
}

/// So many more steps of both ranks; a second each.
fn go_on(
    story: &mut Story,
    steps: std::ops::Range<u64>,
    each: impl Fn(&mut Story, u64),
    own: impl Fn(u32, u64) -> Counters,
) {
    for step in steps {
        story.wait(1_000_000);
        each(story, step);
        for it in 0..2 {
            story.sample(it, step, own(it, step));
        }
    }
}

fn found(story: &Story) -> Vec<Finding> {
    findings(&story.session()).all
}

fn same(_: u32, _: u64) -> Counters {
    counters(30 * GIB, 2 * GIB)
}

#[test]
fn a_rank_that_touches_another_ones_device_has_a_context_there_until_it_is_gone() {
    let mut story = two_ranks();
    let held = 33 * GIB;
    let lists = |context: bool| {
        move |story: &mut Story, _: u64| {
            let first = [(4000, held), (4001, 500 * MIB)];
            story.device(0, 40 * GIB, if context { &first } else { &first[..1] });
            story.device(1, 40 * GIB, &[(4001, held)]);
        }
    };
    go_on(&mut story, 1..4, lists(true), same);
    assert!(found(&story).is_empty(), "three readings are the start of a job");
    go_on(&mut story, 4..40, lists(true), same);
    let all = found(&story);
    let [it] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((it.kind, it.cause, it.severity), (Kind::ExtraContext, Cause::ExtraContext, Severity::Info));
    assert_eq!((it.rank, it.pid, it.device.as_ref()), (Some(1), Some(4001), Some(&device(0))));
    assert_eq!(it.evidence.get("used"), Some((500 * MIB) as f64));
    let raised = (it.first_alert_step, it.first_alert_at);
    // A reading that misses it changes nothing, and one that has it again begins nothing.
    for step in 40..60 {
        go_on(&mut story, step..step + 1, lists(step % 2 == 0), same);
    }
    assert_eq!(found(&story).len(), 1);
    assert!(found(&story)[0].is_active());
    go_on(&mut story, 60..80, lists(false), same);
    let all = found(&story);
    assert_eq!(all.len(), 1);
    assert_eq!((all[0].first_alert_step, all[0].first_alert_at), raised);
    assert!(all[0].resolved_step.is_some_and(|it| (65..75).contains(&it)), "{all:?}");
}

#[test]
fn only_the_fullest_rank_is_reported() {
    let mut story = two_ranks();
    let own = |rank: u32, _: u64| counters(if rank == 0 { 60 * GIB } else { 40 * GIB }, 2 * GIB);
    go_on(&mut story, 1..200, |_, _| {}, own);
    let all = found(&story);
    let [it] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((it.kind, it.cause, it.rank), (Kind::Imbalance, Cause::RankImbalance, Some(0)));
    assert_eq!((it.is_active(), it.evidence.get("against_the_other_ranks")), (true, Some(1.5)));
    assert_eq!(it.brief(), "imbalance: wants 60.00 GiB, the others 40.00 GiB");
    let shown = text(&picture(&story.session(), &Ui::default(), &Theme::builtin("dusk").unwrap(), 120, 40));
    assert!(shown.contains("rank 0 on GPU 0: imbalance, wants 60.00 GiB, the others 40.00 GiB\n"), "{shown}");
    // The text reports it once.
    let ui = Ui { screen: Screen::Alerts, ..Ui::default() };
    let shown = text(&picture(&story.session(), &ui, &Theme::builtin("dusk").unwrap(), 120, 40));
    assert!(shown.contains("wants 1.5 × the other ranks' median"), "{shown}");
    assert!(shown.contains("rank 0 on GPU 0: imbalance\n") && !shown.contains("imbalance, rank"), "{shown}");
    go_on(&mut story, 200..400, |_, _| {}, same);
    let all = found(&story);
    assert_eq!((all.len(), all[0].resolved_step), (1, Some(299)));
    assert_eq!(all[0].brief(), all[0].cause.entry().title, "figures of now are not of then");
}

#[test]
fn a_cache_emptied_in_every_step_warns_once() {
    let mut story = two_ranks();
    let own = |rank: u32, step: u64| {
        let frees = if rank == 1 { step.min(300) * 4 } else { step / 100 };
        Counters { device_frees: Some(frees), retries: Some(0), ..same(rank, step) }
    };
    go_on(&mut story, 1..200, |_, _| {}, own);
    let all = found(&story);
    let [it] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((it.kind, it.cause, it.severity, it.rank), (Kind::Retries, Cause::Churn, Severity::Warning, Some(1)));
    go_on(&mut story, 200..400, |_, _| {}, own);
    let all = found(&story);
    assert_eq!((all.len(), all[0].severity, all[0].is_active()), (1, Severity::Info, false));
}

#[test]
fn stuck_memory_warns_where_it_is_missed() {
    let own = |_: u32, _: u64| {
        let it = counters(18 * GIB, 60 * GIB);
        Counters { inactive_split: Some(44 * GIB), ..it }
    };
    let reported = |free: u64| {
        let mut story = two_ranks();
        let used = 140 * GIB - GIB / 2 - free;
        let full = |story: &mut Story, _: u64| {
            story.device(0, used, &[]).device(1, used, &[]);
        };
        go_on(&mut story, 1..100, full, own);
        let all = found(&story);
        let all: Vec<_> = all.iter().filter(|it| it.kind == Kind::Fragmentation).collect();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].cause, Cause::Fragmentation);
        assert!(all[0].evidence.get("stuck_at_most").is_some_and(|it| (0.5..0.6).contains(&it)));
        all[0].severity
    };
    assert_eq!((reported(42 * GIB), reported(10 * GIB)), (Severity::Warning, Severity::Warning));
    assert_eq!(reported(60 * GIB), Severity::Info);
}
