//! Which errors are the job's own and which its neighbours' fault: from whole stories to one verdict.

use crate::{
    analysis::culprit,
    commands::check::{HEALTHY, judged, lines_of, write},
    helpers::{
        story::{GIB, MIB, Story, counters, one_rank, steps},
        terminal::PROGRAM,
    },
};
use gpuwatch::{
    facts::event::{
        Line,
        wire::{Counters, Edge, Hello, Oom, PROTOCOL, Parts, Sample, Sites},
    },
    model::{
        alerts::Captures,
        analysis::episode::Resource,
        findings::{Finding, Kind, findings},
    },
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// A healthy run beside which others take more of the device in every step.
fn beside_a_growing_neighbour(dir: &Path) -> PathBuf {
    let path = dir.join("neighbour.jsonl.zst");
    let lines = lines_of(HEALTHY, |line| {
        if let Line::Sample(it) = line {
            it.counters.device_total = Some(140 * GIB);
            it.counters.device_free =
                Some(100 * GIB - it.step.unwrap_or(0) * 4 * MIB - it.counters.reserved.unwrap_or(0));
        }
    });
    write(&path, &lines);
    path
}

#[test]
fn growth_of_a_neighbour_is_found_and_not_counted_as_the_jobs() {
    let home = tempfile::tempdir().unwrap();
    let path = beside_a_growing_neighbour(home.path());
    let (code, json) = judged(&path, &["--fail-on", "never", "--max-growth", "64KiB/step"]);
    let found = json["findings"].as_array().unwrap();
    assert!(found.iter().any(|it| it["resource"] == "device" && it["state"] == "active"), "{json:#}");
    assert_eq!((code, &json["hits"]), (0, &Value::Array(Vec::new())), "{json:#}");

    let alone = home.path().join("alone.jsonl.zst");
    write(&alone, &lines_of(HEALTHY, |_| {}));
    let diff = Command::new(PROGRAM).args(["diff", "--json"]).args([&alone, &path]).output().unwrap();
    let json: Value = serde_json::from_slice(&diff.stdout).unwrap();
    let growth = json["figures"].as_array().unwrap().iter().find(|it| it["name"] == "growth").unwrap();
    assert_eq!((&growth["a"], &growth["b"], diff.status.code()), (&0.0.into(), &0.0.into(), Some(0)), "{json:#}");
}

#[test]
fn diff_names_the_runs_it_took_and_what_it_did_not_see_of_them() {
    let home = tempfile::tempdir().unwrap();
    let store = home.path().join("store");
    fs::create_dir(&store).unwrap();
    let lines = lines_of(HEALTHY, |_| {});
    write(&store.join("whole.jsonl.zst"), &lines);
    let killed = home.path().join("killed.jsonl.zst");
    write(&killed, &lines[..lines.len() - 1]);
    let diff = |arguments: &[&str]| {
        Command::new(PROGRAM).arg("diff").args(arguments).args([&store, &killed]).output().unwrap()
    };
    let reported = diff(&[]);
    let aside = String::from_utf8(reported.stderr).unwrap();
    assert!(aside.contains("reading ") && aside.contains("whole.jsonl.zst"), "{aside}");
    let text = String::from_utf8(reported.stdout).unwrap();
    assert!(text.contains("\nnote: the second: ") && !text.contains("the first: "), "{text}");
    let json: Value = serde_json::from_slice(&diff(&["--json"]).stdout).unwrap();
    assert_eq!(json["notes"].as_array().map(Vec::len), Some(1), "{json:#}");
}

/// A job that holds so much in each step, and a neighbour with 2.53 GiB: then a GiB more does not fit.
fn out_of_memory(allocated: impl Fn(u64) -> u64, sites: Option<Sites>) -> Finding {
    let mut story = one_rank();
    steps(&mut story, 1..=700, &allocated);
    if let Some(sites) = sites {
        story.line(0, Line::Sites(sites));
    }
    let held = allocated(700) + 2 * GIB + 64 * MIB;
    let neighbour = 2_590 * MIB;
    story.device(0, held + neighbour, &[(4242, held), (977, neighbour)]);
    let oom = Oom { at_us: story.now, step: Some(700), tried: Some(GIB), device_free: Some(GIB / 2), ..Oom::default() };
    story.line(0, Line::Oom(oom));
    let found = findings(&story.session()).all;
    found.into_iter().find(|it| it.kind == Kind::Oom).unwrap()
}

#[test]
fn a_leak_is_to_blame_for_running_out_of_memory_and_not_a_small_neighbour() {
    let leak = |step| 20 * GIB + step * 160 * MIB;
    let found = out_of_memory(leak, None);
    assert_eq!(found.cause.id(), "tensors-retained", "{found:#?}");
    let sentence = found.sentence.clone().unwrap();
    assert!(sentence.starts_with("Out of memory: the job's live memory grew by 10"), "{sentence}");
    assert!(sentence.contains(" GiB since step ") && sentence.ends_with(". Other processes hold 2 %."), "{sentence}");
    assert!(found.account.iter().any(|it| it.contains("other processes had 2.53 GiB")), "{found:#?}");

    let found = out_of_memory(leak, Some(culprit::sites(69_000_000, 690)));
    let place = found.culprit.as_ref().unwrap().leading().place();
    let sentence = found.sentence.clone().unwrap();
    assert!(sentence.starts_with(&format!("Out of memory: {place} has kept 10")), "{sentence}");
}

#[test]
fn without_growth_the_neighbour_that_took_the_room_is_to_blame() {
    let found = out_of_memory(|_| 134 * GIB, None);
    assert_eq!((found.cause.id(), &found.culprit), ("other-process", &None), "{found:#?}");
    let printed =
        "Out of memory: other processes hold 2.53 GiB (2 %) of the device. Without them, 1.00 GiB would have fitted.";
    assert_eq!(found.sentence.as_deref(), Some(printed));
    let tiny = out_of_memory(|step| 134 * GIB + step * 512, None);
    assert_eq!(tiny.cause.id(), "other-process", "without that growth the request would not have fitted either");
}

/// A job that can be asked, in which 1 MiB more stays after each step, and the peak rises so many times as fast.
fn with_a_peak(times: u64) -> Story {
    with_a_peak_and(times, Some("ready"))
}

/// The same with another answer of the job to whether it can be asked.
fn with_a_peak_and(times: u64, sites: Option<&str>) -> Story {
    let mut story = Story::default();
    story.device(0, 60 * GIB, &[]).probe(0, 4242, 0, None);
    let hello = Hello { protocol: PROTOCOL, pid: 4242, sites: sites.map(str::to_owned), ..Hello::default() };
    story.line(0, Line::Hello(hello));
    for step in 1..=200 {
        let peak = Some(21 * GIB + times * step * MIB);
        let held = Counters { allocated_peak: peak, blocks: Some(300), ..counters(20 * GIB + step * MIB, 2 * GIB) };
        story.wait(100_000).sample(0, step, held);
    }
    story
}

#[test]
fn a_curriculum_of_lengths_is_larger_inputs_and_starts_no_capture() {
    for (times, cause, asked) in [(9, "larger-inputs", 0), (2, "growing-tensor", 1)] {
        let session = with_a_peak(times).session();
        let found = findings(&session);
        let growth = found.all.iter().find(|it| it.kind == Kind::Growth).unwrap();
        assert_eq!(growth.cause.id(), cause, "{growth:#?}");
        assert_eq!(Captures::default().at(&session, &found).len(), asked, "{cause}");
    }
}

/// Where no line can be named, a finding says why, if the job does.
#[test]
fn a_growth_whose_line_cannot_be_found_says_why() {
    let found = |sites| {
        let session = with_a_peak_and(2, sites).session();
        findings(&session).all.iter().find(|it| it.kind == Kind::Growth).unwrap().account.clone()
    };
    let why = "its allocations are traced";
    assert_eq!(found(Some(why)), [format!("the line cannot be found: {why}")]);
    assert!(found(Some("ready")).is_empty() && found(None).is_empty());
    assert_eq!(found(Some("no\u{1b}[2J")), ["the line cannot be found: no\\u{1b}[2J"]);
}

/// A job whose parts are counted every 25 steps, each a function of the step in MiB.
fn with_parts(parts: impl Fn(u64) -> [u64; 4]) -> Finding {
    let mut story = one_rank();
    for step in 1..=300 {
        let [weights, gradients, optimizer, retained] = parts(step).map(|it| it * MIB);
        let counted = Parts { weights, gradients, optimizer, retained };
        let peak = Some(30 * GIB + step * MIB);
        // Blocks of 1 MiB.
        let (all, blocks) = (counted.sum().unwrap(), counted.sum().map(|it| it / MIB));
        let held = Counters { allocated_peak: peak, blocks, ..counters(all, 2 * GIB) };
        story.wait(100_000).sample_of(0, step, &held, (step % 25 == 0).then_some(counted));
    }
    let found = findings(&story.session()).all;
    found.into_iter().find(|it| it.kind == Kind::Growth).expect("a growth of live memory")
}

#[test]
fn a_model_that_grows_is_told_from_what_is_kept() {
    let grown = |parts: fn(u64) -> [u64; 4]| {
        let found = with_parts(parts);
        (found.cause.id(), found.account.last().cloned().unwrap_or_default(), found.headline(&[]))
    };
    for (parts, why) in [
        ((|step| [4000 + step, 4000 + step, 8000 + 2 * step, 9]) as fn(u64) -> [u64; 4], "parameters are added"),
        (|step| [4000, 2000 + step, 4000 + 2 * step, 9], "layers are no longer frozen"),
        (|step| [4000, 4000, 8000 + 2 * step, 9], "former optimizers, are kept"),
        (|step| [4000 + 2 * step, 100, 200, 9], "parameters are added that are not trained"),
        (|step| [4000, 100 + step, 200, 9], "no optimizer steps them"),
    ] {
        let (cause, account, headline) = grown(parts);
        assert!(cause == "larger-model" && account.ends_with(why), "{why}: {cause}: {account}");
        assert!(headline.starts_with("the model grows "), "{headline}");
    }
    for parts in [
        (|step| [4000, 4000, 8000, 9 + step]) as fn(u64) -> [u64; 4],
        // A copy of the weights, as an average, and a larger model, each made once.
        |step| [4000, 4000, 8000, step + if step > 60 { 4000 } else { 0 }],
        |step| if step < 60 { [4000, 4000, 8000, step] } else { [8000, 8000, 16000, step] },
    ] {
        let (cause, account, _) = grown(parts);
        assert_eq!(
            (cause, account.as_str()),
            ("tensors-retained", "weights, gradients and optimizer state do not grow")
        );
    }
}

#[test]
fn a_leak_beside_a_model_that_grows_keeps_its_cause() {
    let found = with_parts(|step| [4000 + step, 4000 + step, 8000 + 2 * step, 9 + step]);
    assert_eq!(found.cause.id(), "tensors-retained", "{found:#?}");
    assert!(found.account.iter().any(|it| it.starts_with("other memory grows with it, 1.00 MiB")), "{found:#?}");
    assert!(found.account.last().unwrap().ends_with("parameters are added"), "{found:#?}");
}

#[test]
fn layers_that_are_no_longer_frozen_do_not_fill_a_device_with_room_for_all() {
    for (weights, fills) in [(4000, false), (90_000, true)] {
        let found = with_parts(|step| [weights, 200 + step, 400 + 2 * step, 9]);
        assert_eq!(found.cause.id(), "larger-model", "{found:#?}");
        assert!(found.account.iter().any(|it| it.contains("and no more than that")), "{found:#?}");
        let is_alert = found.severity > gpuwatch::model::analysis::severity::Severity::Info;
        assert_eq!((found.full_in_steps.is_some(), is_alert), (fills, fills), "{found:#?}");
    }
}

/// `losses.append(loss)`: 512 bytes of the device and some thousand of the host in each step.
#[test]
fn host_memory_that_grows_with_kept_graphs_is_laid_to_them() {
    let grown = |has_capture: bool| {
        let mut story = one_rank();
        for step in 1..=700 {
            let rss = Some(4 * GIB + step * 64 * 1024);
            story.wait(100_000).sample(0, step, Counters { rss, ..counters(20 * GIB + step * 512, 2 * GIB) });
        }
        if has_capture {
            let mut sites = culprit::sites(story.now, 690);
            sites.sites.retain(|it| !it.autograd);
            story.line(0, Line::Sites(sites));
        }
        let found = findings(&story.session()).all;
        let host = found.iter().find(|it| it.resource == Some(Resource::Host)).unwrap_or_else(|| panic!("{found:#?}"));
        (host.cause.id(), host.remedy().to_owned())
    };
    assert_eq!(grown(true), ("graph-retained", culprit::ADVICE.to_owned()));
    let (cause, advice) = grown(false);
    assert!(cause == "host-growth" && advice.contains("tensors with a grad_fn"), "{cause}: {advice}");
}

/// The third rise is higher, and of private pools, where the first two were of segments in pieces.
#[test]
fn the_cause_of_a_sawtooth_is_that_of_its_newest_release() {
    let mut story = one_rank();
    let mut step = 0;
    for rise in 0..3_u64 {
        for at in 0..200_u64 {
            step += 1;
            let pace = if rise == 2 { 256 * MIB } else { 64 * MIB };
            let more = if at < 120 { at * pace } else { 0 };
            let (pools, cached) = if rise == 2 { (more, 0) } else { (0, more) };
            let base = counters(20 * GIB, GIB);
            let reserved = base.reserved.map(|it| it + more);
            let split = base.inactive_split.map(|it| it + cached);
            let held = Counters { reserved, inactive_split: split, private_pools: Some(pools), ..base };
            story.wait(100_000).sample(0, step, held);
        }
    }
    let found = findings(&story.session()).all;
    let sawtooth = found.iter().find(|it| it.kind == Kind::Sawtooth).unwrap_or_else(|| panic!("{found:#?}"));
    assert_eq!((sawtooth.evidence.get("releases"), sawtooth.cause.id()), (Some(3.0), "graph-pools"), "{sawtooth:#?}");
}

/// Makes runs of one rank that end with an error; each has the bytes held at a step, and the error's unusual fields.
fn ended_with(held: impl Fn(u64) -> Counters, others: u64, oom: Oom) -> Vec<Finding> {
    let mut story = one_rank();
    for step in 1..=700 {
        story.wait(100_000).sample(0, step, held(step));
    }
    let reserved = held(700).reserved.unwrap();
    story.device(0, reserved + others, &[(4242, reserved), (977, others)]);
    let usual = Oom { at_us: story.now, step: Some(700), ..Oom::default() };
    story.line(0, Line::Oom(Oom { at_us: usual.at_us, step: oom.step.or(usual.step), ..oom }));
    findings(&story.session()).all
}

/// Returns the bytes held at a step.
type Held<'a> = &'a dyn Fn(u64) -> Counters;

fn sentence(found: &[Finding]) -> &str {
    found.iter().find_map(|it| it.sentence.as_deref()).unwrap_or_else(|| panic!("{found:#?}"))
}

fn asked(tried: u64, free: u64) -> Oom {
    Oom { tried: Some(tried), device_free: Some(free), ..Oom::default() }
}

#[test]
fn every_error_names_its_reason() {
    let live = |step: u64| counters(10 * GIB + step * 160 * MIB, 2 * GIB);
    let flat = |_: u64| counters(100 * GIB, 2 * GIB);
    let cached = |step: u64| counters(10 * GIB, 2 * GIB + step * 160 * MIB);
    let limit = |it: Oom| Oom { limit: Some(122 * GIB), ..it };
    let cases: [(Held, u64, Oom, &str, &str); 7] = [
        (&live, 0, asked(GIB, GIB / 2), "the job's live memory grew by 10", "No other process uses the device."),
        (&cached, 9 * GIB, asked(GIB, GIB / 2), "what the allocator holds from the driver grew by 10", "hold 6 %."),
        // The limit is the job's own: the device has room.
        (&live, 0, limit(asked(2 * GIB, 9 * GIB)), "the job's live memory grew by 10", "uses the device."),
        // It would not have fitted without the leak, but the leak is what a user can fix.
        (&live, 9 * GIB, asked(120 * GIB, GIB / 2), "the job's live memory grew by 10", "hold 6 %."),
        (&live, 0, asked(200 * GIB, GIB / 2), "200.0 GiB is more than the device has, which is 140.0 GiB.", "device."),
        (&flat, 30 * GIB, asked(8 * GIB, GIB), "other processes hold 30.00 GiB (21 %) of the device.", "have fitted."),
        (&flat, GIB / 4, asked(50 * GIB, 38 * GIB), "50.00 GiB did not fit beside the 100.0 GiB", "less than 1 %."),
    ];
    for (held, others, oom, begins, ends) in cases {
        let found = ended_with(held, others, oom);
        let printed = sentence(&found);
        assert!(
            printed.starts_with(&format!("Out of memory: {begins}")) && printed.ends_with(ends),
            "{begins}: {printed}"
        );
    }
}

/// A job that caught an error at step 300, and another one at step 700 which came twice.
#[test]
fn each_error_is_reported_once_with_the_memory_kept_by_then() {
    let mut story = one_rank();
    for step in 1..=700 {
        story.wait(100_000).sample(0, step, counters(20 * GIB + step * 160 * MIB, 2 * GIB));
        if step == 300 || step == 700 {
            for _ in 0..if step == 700 { 2 } else { 1 } {
                let at_us = story.wait(10).now;
                story.line(0, Line::Oom(Oom { at_us, step: Some(step), ..asked(GIB, GIB / 2) }));
            }
        }
    }
    let found = findings(&story.session()).all;
    let errors: Vec<_> = found.iter().filter(|it| it.kind == Kind::Oom).collect();
    let reported = |it: &&Finding| (it.severity.name(), it.since_step, it.follows.is_some());
    let all: Vec<_> = errors.iter().map(reported).collect();
    assert_eq!(all, [("critical", 700, false), ("info", 700, true), ("warning", 300, false)], "{found:#?}");
    assert!(errors[0].sentence.as_ref().unwrap().contains("grew by 10"), "{:?}", errors[0]);
    assert!(errors[2].sentence.as_ref().unwrap().contains("grew by 4"), "{:?}", errors[2]);
    assert_eq!(found.iter().filter(|it| it.severity > gpuwatch::model::analysis::severity::Severity::Info).count(), 2);
}

/// A leak of the device, and host memory that grows beside it: since when, and by how much a step.
fn beside(leak: u64, since: u64, rate: u64) -> Vec<Finding> {
    let mut story = one_rank();
    for step in 1..=2000_u64 {
        let rss = Some(4 * GIB + step.saturating_sub(since) * rate);
        let held = 20 * GIB + step.saturating_sub(600) * leak;
        story.wait(100_000).sample(0, step, Counters { rss, ..counters(held, 2 * GIB) });
    }
    findings(&story.session()).all
}

#[test]
fn growth_of_host_memory_follows_a_leak_only_where_it_is_small_began_with_it_and_endangers_nothing() {
    const KIB: u64 = 1024;
    for (leak, since, rate, follows) in [
        (4 * MIB, 600, 8 * KIB, true),
        (4 * MIB, 600, 200 * KIB, true),
        (4 * MIB, 600, 900 * KIB, false),
        (4 * MIB, 200, 200 * KIB, false),
        // The host ends before the device is full.
        (512, 600, 200 * KIB, false),
        (512, 600, 8 * KIB, true),
    ] {
        let found = beside(leak, since, rate);
        let host = found.iter().find(|it| it.resource == Some(Resource::Host)).unwrap();
        let what = format!("{leak} {since} {rate}: {host:#?}");
        assert_eq!(host.is_companion(), follows, "{what}");
        assert_eq!(host.severity.name(), if follows || rate < 64 * KIB { "info" } else { "warning" }, "{what}");
        if follows {
            assert_eq!(found[0].resource, Some(Resource::Allocated), "{found:#?}");
        }
    }
}

/// Each device of a process sees all of its host memory.
#[test]
fn host_memory_of_a_process_on_two_devices_is_one_finding() {
    let mut story = Story::default();
    story.device(0, 60 * GIB, &[]).device(1, 60 * GIB, &[]).probe(0, 4242, 0, None);
    for step in 1..=700 {
        let at_us = story.wait(100_000).now;
        for device in 0..2 {
            let counters = Counters { rss: Some(4 * GIB + step * 2 * MIB), ..counters(20 * GIB, 2 * GIB) };
            let sample = Sample { at_us, device, edge: Edge::Step, step: Some(step), counters, ..Sample::default() };
            story.line(0, Line::Sample(sample));
        }
    }
    let found = findings(&story.session()).all;
    assert_eq!(found.iter().filter(|it| it.resource == Some(Resource::Host)).count(), 1, "{found:#?}");
}

/// The driver listed the process before its probe was found, whose past comes afterwards.
#[test]
fn history_from_a_probe_is_not_added_to_the_drivers_figures() {
    let mut story = Story::default();
    story.wait(60_000_000).device(0, 103 * GIB, &[(4242, 103 * GIB)]).probe(0, 4242, 0, None);
    for step in 1..=500_u64 {
        let held = counters(20 * GIB + step * 160 * MIB, GIB);
        let sample =
            Sample { at_us: step * 100_000, edge: Edge::Step, step: Some(step), counters: held, ..Sample::default() };
        story.line(0, Line::Sample(sample));
    }
    let used = |story: &Story| {
        let session = story.session();
        let found = findings(&session);
        (session.devices[0].figures().unwrap().used.0, found.devices[0].processes[0].driver_used.unwrap().0)
    };
    assert_eq!(used(&story), (103 * GIB, 103 * GIB));
    // A tick long after shows what the job took before the driver was asked.
    let before = counters(20 * GIB + 500 * 160 * MIB, GIB);
    story.wait(100_000).sample(0, 501, before);
    assert_eq!(used(&story), (103 * GIB, 103 * GIB));
    // New allocations are added at once, until the driver reports them.
    story.wait(100_000).sample(0, 502, counters(20 * GIB + 500 * 160 * MIB + 7 * GIB, GIB));
    assert_eq!(used(&story), (110 * GIB, 110 * GIB));
    story.device(0, 110 * GIB, &[(4242, 110 * GIB)]);
    assert_eq!(used(&story), (110 * GIB, 110 * GIB));
}
