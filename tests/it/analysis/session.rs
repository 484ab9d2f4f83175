//! The fold: joining, life cycles, bounds; and what it costs.

use crate::{
    benchmarks::recording::cpu_time,
    helpers::story::{GIB, MIB, Story, counters, device, hostile, picture, usual},
};
use gpuwatch::{
    facts::{
        event::{
            DeviceMemory, Event, Fact, Line, ProbeId, ProcessUse, Unread,
            wire::{Bye, Counters, Device, Edge, Hello, History, Live, Lost, Mark, Oom, OomMessage, PROTOCOL, Sample},
        },
        units::{Bytes, Stamp},
    },
    model::{
        analysis::{episode::Resource, ladder::Gap},
        findings::{Kind, findings},
        peaks::Peaks,
        session::{self, Session, process::ProbeState},
    },
    screen::{theme::Theme, ui::Ui, view},
};
use proptest::prelude::*;
use ratatui::{buffer::Buffer, layout::Rect};
use std::time::Duration;
use test_tiers::Tier;

#[test]
fn the_same_events_make_the_same_session() {
    for story in [usual(), hostile()] {
        assert_eq!(story.session(), story.session());
        assert_eq!(findings(&story.session()), findings(&story.session()));
        let mut repeated = story.session();
        repeated.apply(story.events.last().unwrap());
        assert_eq!(findings(&repeated), findings(&story.session()));
    }
}

#[test]
fn every_rung_of_every_device_sums_to_its_total() {
    for (story, known) in [(usual(), 2), (hostile(), 4)] {
        let found = findings(&story.session()).devices;
        let whole: Vec<_> = found.iter().filter_map(|it| Some((it, it.ladder.total?))).collect();
        assert_eq!(whole.len(), known, "devices whose total is known");
        for (it, total) in whole {
            assert_eq!(it.ladder.sum(), total, "{it:?}");
        }
    }
}

#[test]
fn a_leak_is_charged_to_its_rank_and_the_other_is_flat() {
    let found = findings(&usual().session());
    let growing = found.growing(ProbeId(0), 0).unwrap();
    assert_eq!((growing.resource, growing.slope().as_deref()), (Some(Resource::Allocated), Some("+4.00 MiB/step")));
    assert_eq!(found.growing_on(&found.devices[0]), Some(growing));
    assert_eq!((found.growing(ProbeId(1), 0), found.growing_on(&found.devices[1])), (None, None));
    assert!(!found.devices[0].processes[0].approximate && found.devices[1].processes[0].approximate);
}

#[test]
fn in_a_container_nothing_is_guessed() {
    // The probe is pid 42 here; the driver reports the host's pid 98765.
    let mut story = Story::default();
    story.device(0, GIB, &[]).probe(0, 42, 0, None).wait(10);
    story.sample(0, 1, counters(8 * GIB, GIB)).wait(10);
    story.device(0, 11 * GIB, &[(98_765, 10 * GIB)]);
    let found = findings(&story.session()).devices.remove(0);
    assert!(found.foreign_pids);
    let size = |gap| found.ladder.by_gap().iter().find(|it| it.gap == gap).and_then(|it| it.bytes);
    assert_eq!((size(Gap::Others), size(Gap::NonTorch)), (None, None));
    assert_eq!(found.ladder.sum(), Bytes(140 * GIB));
    // From the host the kernel translates the pid, and everything has its place.
    story.add(Fact::ProbeFound { probe: ProbeId(0), pid: Some(98_765), socket: "".into() });
    let found = findings(&story.session()).devices.remove(0);
    assert!(!found.foreign_pids);
    assert_eq!(found.processes[0].driver_used, Some(Bytes(10 * GIB)));
}

#[test]
fn a_probe_newer_than_the_process_list_is_not_counted_as_foreign() {
    let mut story = Story::default();
    story.device(0, GIB, &[(7, GIB)]).probe(0, 42, 0, None).wait(10);
    story.sample(0, 1, counters(GIB, GIB));
    assert!(!findings(&story.session()).devices[0].foreign_pids);
}

#[test]
fn a_probe_lives_leaves_and_comes_back() {
    let mut story = Story::default();
    story.probe(0, 42, 0, None).sample(0, 1, counters(GIB, GIB));
    let life = |story: &Story| story.session().processes[0].life.clone();
    assert_eq!(life(&story), ProbeState::Live);
    story.add(Fact::ProbeGone { probe: ProbeId(0), why: "connection reset".into() });
    assert!(matches!(life(&story), ProbeState::Gone { .. }));
    // Repeated lines do not count twice.
    let printed = [
        Line::History(History { stride: 8, ..History::default() }),
        Line::Mark(Mark { seq: Some(5), name: "epoch".to_owned(), ..Mark::default() }),
        Line::Oom(Oom { seq: Some(6), ..Oom::default() }),
        Line::OomMessage(OomMessage { seq: Some(7), message: "none".to_owned(), ..OomMessage::default() }),
        Line::Lost(Lost { seq: Some(8), samples: 3, ..Lost::default() }),
    ];
    for _ in 0..2 {
        story.add(Fact::ProbeFound { probe: ProbeId(0), pid: Some(42), socket: "".into() });
        for line in &printed {
            story.line(0, line.clone());
        }
        assert_eq!(life(&story), ProbeState::Found);
    }
    story.line(0, Line::Live(Live::default()));
    let session = story.session();
    let process = &session.processes[0];
    assert_eq!((process.marks.iter().len(), process.ooms.iter().len(), process.lost), (1, 1, 3));
    assert_eq!((process.stride, &process.life), (8, &ProbeState::Live));
    story.line(0, Line::Bye(Bye { reason: "exit".to_owned(), ..Bye::default() }));
    story.add(Fact::ProbeGone { probe: ProbeId(0), why: "end of file".into() });
    assert!(matches!(life(&story), ProbeState::Ended { .. }));
    assert!(findings(&story.session()).devices[0].processes.is_empty());
}

#[test]
fn a_message_belongs_to_the_latest_error_of_its_device() {
    let mut story = Story::default();
    story.probe(0, 42, 0, None).sample(0, 1, counters(GIB, GIB));
    let oom =
        |seq, device| Line::Oom(Oom { seq: Some(seq), device, step: Some(100), tried: Some(seq), ..Oom::default() });
    let message_of = |seq, device, message: &str| {
        Line::OomMessage(OomMessage { seq: Some(seq), device, message: message.to_owned(), ..OomMessage::default() })
    };
    let printed = |story: &Story| {
        let session = story.session();
        let ooms = session.processes[0].ooms.iter().map(|it| (it.figures.tried, it.reported.message.clone()));
        ooms.collect::<Vec<_>>()
    };
    // The message of an unknown error, before and after there is one.
    story.line(0, message_of(9, 0, "?")).line(0, oom(10, 0)).line(0, message_of(11, 1, "?"));
    assert_eq!(printed(&story), [(Some(10), None)]);
    story
        .line(0, oom(12, 1))
        .line(0, message_of(13, 0, "a"))
        .line(0, message_of(14, 1, "b"))
        .line(0, message_of(15, 1, "c"));
    assert_eq!(printed(&story), [(Some(10), Some("a".to_owned())), (Some(12), Some("b".to_owned()))]);
    // An error that PyTorch caught has no message; repeated messages belong to earlier errors.
    story.line(0, oom(16, 0)).line(0, message_of(13, 0, "a")).line(0, oom(17, 0)).line(0, message_of(18, 0, "d"));
    assert_eq!(printed(&story)[2..], [(Some(16), None), (Some(17), Some("d".to_owned()))]);
    let found = findings(&story.session()).all;
    assert_eq!(found.iter().filter(|it| it.kind == Kind::Oom).count(), 3, "those of the device that is known");
}

#[test]
fn another_version_of_the_wire_is_named_and_otherwise_ignored() {
    let mut story = Story::default();
    let hello = Hello { protocol: PROTOCOL + 1, pid: 9, devices: vec![Device::default()], ..Hello::default() };
    story.line(3, Line::Hello(hello)).sample(3, 1, counters(GIB, GIB));
    let session = story.session();
    assert_eq!(session.processes[0].life, ProbeState::Incompatible { protocol: PROTOCOL + 1 });
    assert!(session.processes[0].devices.is_empty() && session.devices.is_empty());
}

#[test]
fn a_device_without_a_name_is_kept_until_it_gets_one() {
    let mut story = Story::default();
    story.line(3, Line::Hello(Hello { protocol: PROTOCOL, ..Hello::default() }));
    story.sample(3, 1, counters(GIB, GIB));
    assert_eq!(story.session().devices.len(), 1);
    let devices = vec![Device { uuid: Some(device(0).0), ..Device::default() }];
    story.line(3, Line::Hello(Hello { protocol: PROTOCOL, devices, ..Hello::default() }));
    let session = story.session();
    assert_eq!(session.devices.iter().map(|it| it.id.clone()).collect::<Vec<_>>(), [device(0)]);
    assert_eq!(session.probed(Some(&device(0))).len(), 1);
}

#[test]
fn a_tick_keeps_what_only_a_step_knows_and_the_other_way_round() {
    let mut story = Story::default();
    story.probe(0, 42, 0, None).wait(1);
    story.sample(0, 1, counters(GIB, GIB)).wait(1);
    let free = Counters { device_free: Some(7), ..Counters::default() };
    story.sample(0, 2, free);
    let session = story.session();
    let id = device(0);
    let (_, it) = session.probed(Some(&id))[0];
    assert_eq!((it.counters.allocated, it.counters.device_free, it.at), (Some(GIB), Some(7), Stamp(1)));
}

#[test]
fn time_that_repeats_or_goes_back_changes_no_present() {
    let mut story = usual();
    let before = findings(&story.session());
    story.now = 5;
    story.sample(0, 1, counters(GIB, GIB)).sample(0, 0, Counters::default()).sample(0, 700, counters(GIB, GIB));
    let after = findings(&story.session());
    assert_eq!(after.devices[0].ladder, before.devices[0].ladder);
}

#[test]
fn memory_is_bounded_whatever_comes() {
    let mut session = Session::default();
    let mut add = |at, fact| session.apply(&Event { at: Stamp(at), fact });
    let most = u32::try_from(session::PROBES).unwrap();
    for it in 0..most + 500 {
        let probe = ProbeId(it);
        add(u64::from(it), Fact::ProbeFound { probe, pid: Some(it), socket: "".into() });
        add(u64::from(it), Fact::DeviceGone { device: device(it) });
        add(u64::from(it), Fact::Notice("again".into()));
        for _ in 0..100 {
            add(u64::from(it), Fact::Probe { probe, line: Box::new(Line::Mark(Mark::default())) });
            add(u64::from(it), Fact::Probe { probe, line: Box::new(Line::Oom(Oom::default())) });
        }
        add(u64::from(it), Fact::ProbeGone { probe, why: "it ended".into() });
    }
    assert_eq!((session.processes.len(), session.devices.len()), (session::PROBES, session::DEVICES));
    assert_eq!(session.notices.iter().len(), session::NOTICES);
    assert!(session.processes.iter().all(|it| it.marks.iter().len() == session::process::MARKS));
    assert!(session.processes.iter().all(|it| it.ooms.iter().len() == session::process::OOMS));
    // The session keeps the latest ended processes, and counts the others.
    assert!(session.processes.iter().all(|it| it.probe.0 >= 500));
    let losses = &session.losses;
    assert_eq!((losses.ended, losses.processes.count(), losses.devices.count()), (500, 0, 500));
}

/// Probes that took turns would each be watched for too short a time to be judged.
#[test]
fn probes_that_live_keep_their_place_and_those_without_one_are_counted() {
    let mut session = Session::default();
    let most = u32::try_from(session::PROBES).unwrap();
    for at in 0..3 {
        for it in 0..most + 7 {
            let sample = Line::Sample(Sample { at_us: at, ..Sample::default() });
            session.apply(&Event { at: Stamp(at), fact: Fact::Probe { probe: ProbeId(it), line: Box::new(sample) } });
        }
    }
    assert!(session.processes.iter().all(|it| it.probe.0 < most));
    assert_eq!((session.losses.processes.count(), session.losses.ended), (7, 0));
    session.apply(&Event { at: Stamp(9), fact: Fact::Unread { what: Unread::Sockets, count: 12 } });
    session.apply(&Event { at: Stamp(9), fact: Fact::Unread { what: Unread::Sockets, count: 0 } });
    let messages = session.losses.words();
    assert!(messages[0].starts_with("probed processes that were not watched: 7;"), "{messages:?}");
    assert!(
        messages[1].starts_with("sockets of probes that were not read: 12;"),
        "what was missed stays missed: {messages:?}"
    );
}

#[test]
fn processes_of_the_driver_alone_are_counted() {
    let mut story = Story::default();
    story.device(0, 3 * GIB, &[(1, GIB), (2, GIB)]);
    let list = vec![ProcessUse { pid: 1, used: None }, ProcessUse { pid: 2, used: Some(Bytes(GIB)) }];
    assert_eq!(findings(&story.session()).devices[0].unprobed, Some(2));
    story.add(Fact::Processes { device: device(0), reading: Ok(list) });
    let found = findings(&story.session());
    let others = found.devices[0].ladder.by_gap().iter().find(|it| it.gap == Gap::Others).and_then(|it| it.bytes);
    assert_eq!(others, None, "one unknown part makes the sum unknown");
}

/// Eight jobs for a day (in lower tiers, a part of it), of which one leaks and one marks what it does, with a step and
/// a reading each second.
#[test]
fn a_day_of_eight_jobs_takes_no_more_memory_than_its_first_hours() {
    let hours: u64 = match test_tiers::tier() {
        Tier::Quick => 4,
        Tier::Change => 6,
        Tier::Full => 24,
    };
    if hours < 24 {
        test_tiers::leave_out!("tier full: the other hours of a day");
    }
    let mut story = Story::default();
    for it in 0..8 {
        story.device(it, 70 * GIB, &[(4000 + it, 60 * GIB)]).probe(it, 4000 + it, it, None);
    }
    let (mut session, theme, ui) = (story.session(), Theme::builtin("dusk").unwrap(), Ui::default());
    // What is kept, written out: the most of each hour, because intervals are merged when they run out.
    let mut kept = Vec::new();
    for second in 1..=hours * 3600 {
        story.events.clear();
        story.wait(1_000_000).add(Fact::Second);
        for it in 0..8 {
            let leaked = if it == 0 { second << 16 } else { (second * u64::from(it) % 17) << 20 };
            story.sample(it, second, counters(30 * GIB + leaked, GIB));
        }
        if second % 10 == 0 {
            for it in 0..8 {
                story.device(it, 70 * GIB, &[(4000 + it, 60 * GIB)]);
            }
            let at_us = story.now;
            story.line(1, Line::Mark(Mark { at_us, name: format!("epoch {second}"), ..Mark::default() }));
        }
        story.events.iter().for_each(|it| session.apply(it));
        if second % 600 == 0 {
            let hour = usize::try_from((second - 1) / 3600).unwrap();
            kept.resize(hour + 1, 0);
            kept[hour] = kept[hour].max(format!("{session:?}").len());
            picture(&session, &ui, &theme, 80, 24);
        }
    }
    let (first, later) = kept.split_at(3);
    let (early, late) = (first.iter().max().unwrap(), later.iter().max().unwrap());
    assert!(late * 4 < early * 5, "{kept:?}");
    let found = findings(&session);
    assert!(found.growing(ProbeId(0), 0).is_some() && found.growing(ProbeId(2), 0).is_none());
}

/// `GPUWATCH_BENCHMARK=full cargo test --profile dist --test it benchmark_eight -- --nocapture`: what a second of a run
/// takes does not grow with the run.
#[test]
fn benchmark_eight_probes_at_a_hundred_steps_a_second() {
    let mut story = Story::default();
    for it in 0..8 {
        story.device(it, 70 * GIB, &[(4000 + it, 60 * GIB)]).probe(it, 4000 + it, it, None);
    }
    let (mut session, theme, ui) = (story.session(), Theme::builtin("dusk").unwrap(), Ui::default());
    let mut buffer = Buffer::empty(Rect::new(0, 0, 200, 50));
    let mut took: Vec<[Duration; 2]> = Vec::new();
    let seconds = if test_tiers::is_benchmark() { 200 } else { 20 };
    for tenth in 0..seconds * 10 {
        story.events.clear();
        for it in 0..8 {
            for step in 0..10 {
                story.wait(10).sample(it, tenth * 10 + step + 1, counters(GIB + (tenth + step) * GIB / 9999, GIB));
            }
            story.device(it, 70 * GIB, &[(4000 + it, 60 * GIB)]);
        }
        let start = cpu_time();
        story.events.iter().for_each(|it| session.apply(it));
        let folded = cpu_time();
        let found = findings(&session);
        buffer.reset();
        view::draw(&mut buffer, &session, &found, &ui, &theme);
        took.push([folded.saturating_sub(start), cpu_time().saturating_sub(folded)]);
    }
    // The best second of the run's second quarter, when all curves have their length, and of its last.
    let quarter = took.len() / 4;
    let best = |from: usize, part: usize| {
        let of_second = |it: &[[Duration; 2]]| it.iter().map(|durations| durations[part]).sum::<Duration>();
        took[from..from + quarter].chunks_exact(10).map(of_second).min().unwrap().as_secs_f64()
    };
    for (part, name) in ["folding", "findings and drawing"].into_iter().enumerate() {
        let (early, late) = (best(quarter, part), best(3 * quarter, part));
        println!("{name}: {:.2} % of one core, {:.2} times what it took early in the run", late * 100.0, late / early);
        assert!(!test_tiers::is_benchmark() || late < early * 1.3, "{name}: {late} s, {early} s early in the run");
    }
    assert!(session.processes.iter().all(|it| it.devices[0].growth.curve(Resource::Allocated).is_some()));
}

prop_compose! {
    fn any_fact()(
        kind in 0..9_u8,
        number in 0..3_u32,
        values in prop::collection::vec(prop_oneof![Just(None), any::<u64>().prop_map(Some), (0..9_u64).prop_map(Some)], 24),
    ) -> (u64, Fact) {
        let value = |place: usize| values[place].unwrap_or(0);
        let probe = ProbeId(number);
        let line = |line| Fact::Probe { probe, line: Box::new(line) };
        let figures = std::array::from_fn(|it| values[it]);
        let memory =
            DeviceMemory { total: Bytes(value(0)), used: Bytes(value(1)), free: Bytes(value(2)), reserved: values[3].map(Bytes), unified: None };
        let pid = u32::try_from(value(4) % 9).unwrap();
        let fact = match kind {
            0 => Fact::Memory { device: device(number), reading: Ok(memory) },
            1 => Fact::Processes {
                device: device(number),
                reading: Ok(vec![ProcessUse { pid, used: values[5].map(Bytes) }]),
            },
            2 => Fact::ProbeFound { probe, pid: Some(pid), socket: "".into() },
            3 => line(Line::Hello(Hello {
                protocol: PROTOCOL,
                rank: values[6],
                devices: vec![Device { uuid: Some(device(pid % 3).0), ordinal: pid % 2, ..Device::default() }],
                ..Hello::default()
            })),
            4 => Fact::ProbeGone { probe, why: "".into() },
            5 => line(Line::Lost(Lost { samples: value(7), seq: values[8], ..Lost::default() })),
            _ => line(Line::Sample(Sample {
                at_us: value(9),
                device: pid % 2,
                edge: Edge::Step,
                step: values[10],
                counters: Counters::from_values(&figures),
                ..Sample::default()
            })),
        };
        (value(11), fact)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn no_event_can_break_the_fold_the_findings_or_the_picture(facts in prop::collection::vec(any_fact(), 0..60)) {
        let story = Story {
            events: facts.into_iter().map(|(at, fact)| Event { at: Stamp(at), fact }).collect(),
            ..Story::default()
        };
        let session = story.session();
        prop_assert_eq!(&session, &story.session());
        for found in findings(&session).devices {
            let exact: u128 = found.ladder.rungs.iter().filter_map(|it| it.bytes).map(|it| u128::from(it.0)).sum();
            prop_assert!(found.ladder.total.is_none_or(|it| u128::from(it.0) == exact));
        }
        picture(&session, &Ui::default(), &Theme::default(), 80, 24);
    }
}

/// A job takes memory steadily, its samples come once a second, and the driver is read between them: what lies beyond
/// its allocator stays what it is, and no more was ever used than there was.
#[test]
fn what_a_job_takes_between_a_sample_and_a_reading_counts_once() {
    for (beyond, share) in [(100 * MIB, 3), (600 * MIB, 1), (3 * GIB, 2)] {
        let (mut story, mut held) = (Story::default(), GIB);
        let of = |held| counters(held, 0).reserved.unwrap();
        story.device(0, of(held) + beyond, &[(7, of(held) + beyond)]).probe(0, 7, 0, None);
        let (mut session, mut peaks, mut most) = (Session::default(), Peaks::default(), 0);
        for _ in 0..40 {
            let used = of(held + share * GIB / 4) + beyond;
            story.wait(share * 250_000).device(0, used, &[(7, used)]);
            held += GIB;
            let counters = counters(held, 0);
            story.wait((4 - share) * 250_000);
            let at_us = story.now;
            story.line(0, Line::Sample(Sample { at_us, edge: Edge::Tick, counters, ..Sample::default() }));
            most = of(held) + beyond;
        }
        for event in &story.events {
            session.apply(event);
            peaks.apply(event, &session);
        }
        let on = &session.processes[0].devices[0];
        let curve = on.growth.curve(Resource::Driver).unwrap();
        let highest = curve.buckets().iter().map(|it| it.high).max();
        assert!(highest.is_some_and(|it| it <= beyond + MIB), "{beyond}: {highest:?}");
        let used = peaks.devices.values().filter_map(|it| it.used).max().unwrap().0;
        assert!(used <= most && used + GIB >= most, "{beyond}: {used} of {most}");
    }
}
