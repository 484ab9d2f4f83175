//! What gpuwatch reports of out-of-memory errors without growth: each kind has its figures, its lines and its advice.

use crate::{
    analysis::step_time::recorded,
    helpers::{
        story::{GIB, MIB, Story, counters},
        terminal::PROGRAM,
        torch,
    },
    probe::{launch::Home, oom::machine, pytorch::script},
};
use gpuwatch::{
    facts::event::{
        Fact, Line,
        wire::{Bye, Counters, Edge, Frame, Holder, Oom, Sample, Site, Sites},
    },
    model::{
        analysis::cause::Cause,
        findings::{Finding, Kind, findings},
    },
};
use serde_json::Value;
use std::{collections::BTreeMap, fs, process::Command};

/// Runs jobs, one after the other, beside a stranger; returns what `check` reports of the errors of each, and its exit
/// code.
fn reported(stranger: u64, jobs: &[&str]) -> (BTreeMap<String, Vec<Value>>, i32) {
    let (gpu, home) = (machine(stranger), Home::new());
    let mut command = gpu.command(PROGRAM);
    command.args(["run", "--summary", "never", "--"]).arg(torch::python()).arg(script("errors.py"));
    command.args(["--batch-size", "48", "--how"]).args(jobs).envs(home.variables()).env_remove("GPUWATCH_NVML_PATH");
    let done = command.output().unwrap();
    let out = String::from_utf8_lossy(&done.stdout);
    let store = home.0.path().join("state/gpuwatch/recordings");
    let mut files = fs::read_dir(store).unwrap().flatten().map(|it| it.path());
    let file = files.find(|it| it.to_string_lossy().ends_with(".zst")).unwrap_or_else(|| panic!("{done:?}"));
    let judged = gpu.command(PROGRAM).args(["check", "--json"]).arg(&file).envs(home.variables()).output().unwrap();
    let json: Value = serde_json::from_slice(&judged.stdout).unwrap();
    let found = json["findings"].as_array().unwrap();
    let started = out.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
    let errors = started.map(|job| {
        let own = found.iter().filter(|it| it["kind"] == "oom" && it["pid"] == job["pid"]);
        (job["how"].as_str().unwrap().to_owned(), own.cloned().collect())
    });
    (errors.collect(), judged.status.code().unwrap())
}

/// All text of a finding.
fn text(it: &Value) -> String {
    let account = it["account"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
    let all = [it["sentence"].as_str().unwrap_or_default()].into_iter().chain(account);
    all.chain(it["advice"].as_str()).collect::<Vec<_>>().join("\n")
}

/// A job, the cause of its error, and what the report of it has to contain.
pub(crate) const REPORTS: [(&str, &str, &[&str]); 11] = [
    (
        "retry_inside",
        "failed-attempt",
        &[
            "Out of memory at errors.py:25 in Encoder.forward(): 2.29 GiB of the attempt that failed before are live",
            "leave the `except` block before you retry",
            "in the forward pass",
        ],
    ),
    ("retry_kept", "failed-attempt", &["of the attempt that failed before are live", "keeps"]),
    (
        "retry_after",
        "larger-inputs",
        &["step 21 needed more than any before it", "MiB --vary batch=1..48 -- ", "--batch-size '{batch}' "],
    ),
    (
        "evaluation",
        "outputs-gathered",
        &["since step 25, without gradients and without another step", "key `scores` of dict `answers`", "`.cpu()`"],
    ),
    (
        "joined",
        "outputs-gathered",
        &["errors.py:116 in joined()", "since step 25", "held by local `every` of joined()"],
    ),
    (
        "collected",
        "outputs-gathered",
        &[
            "errors.py:126 in Collected.add()",
            "since step 25, without another step",
            "held by attribute `rows` of Collected",
        ],
    ),
    (
        "stairs",
        "tensors-retained",
        &[
            "rose by 660.0 MiB 4 times, once in about 15 steps, and never fell",
            "list `history` (",
            "local of stairs()",
            "free what the epoch",
        ],
    ),
    (
        "cache",
        "tensors-retained",
        &["blocks of 2.93 MiB are live", "dict `known` (", "local of cache()", "bound `known`"],
    ),
    (
        "longer",
        "larger-inputs",
        &["step 31 needed more than any before it", "the 30 steps before needed", "bound the size"],
    ),
    ("first", "oom", &["No step has fitted yet", "smaller batch or sequence", "--batch-size '{batch}' "]),
    (
        "weights",
        "oom",
        &[
            "errors.py:171 in weights(): the parameters of the module do not fit",
            "while a module is moved",
            "gpuwatch fit -- ",
        ],
    ),
];

/// A stranger has 4 % of the device, which explains none of them.
#[test]
fn each_kind_of_error_is_explained_by_what_the_job_keeps() {
    let (errors, code) = reported(160 * MIB, &REPORTS.map(|it| it.0));
    assert_eq!(code, 1);
    for (how, cause, words) in REPORTS {
        let found =
            errors[how].iter().find(|it| it["follows"].is_null()).unwrap_or_else(|| panic!("{how}: {errors:#?}"));
        let text = text(found);
        assert_eq!((&found["cause"], &found["severity"]), (&cause.into(), &"critical".into()), "{how}: {text}");
        for it in words {
            assert!(text.contains(it), "{how}: {it} is not in\n{text}");
        }
        assert!(text.contains("the request came from errors.py:"), "{how}: {text}");
    }
}

#[test]
fn errors_of_a_search_for_a_size_that_fits_are_one_line_of_information() {
    let (errors, code) = reported(0, &["search", "tuner"]);
    assert_eq!(code, 0, "{errors:#?}");
    let cases: [(&str, [&str; 2]); 2] = [
        ("search", ["3 attempts ran out of memory at errors.py:25", "that fitted, with rows = 250000; no error"]),
        ("tuner", ["1 attempt ran out of", ", with rows = "]),
    ];
    for (how, words) in cases {
        let [found] = &errors[how][..] else { panic!("{how}: {errors:#?}") };
        assert_eq!((&found["severity"], &found["cause"]), (&"info".into(), &"size-search".into()), "{how}");
        assert!(words.iter().all(|it| text(found).contains(it)), "{how}: {found:#}");
    }
}

/// The errors of a story so far.
fn found(story: &Story) -> Vec<Finding> {
    findings(&story.session()).all.into_iter().filter(|it| it.kind == Kind::Oom).collect()
}

fn fails(story: &mut Story, step: Option<u64>) {
    let at_us = story.wait(500_000).now;
    story.line(0, Line::Oom(Oom { at_us, step, tried: Some(GIB), device_free: Some(MIB), ..Oom::default() }));
}

/// A rank that has failed three times before its first step.
fn failing() -> Story {
    let mut story = Story::default();
    story.device(0, 60 * GIB, &[]).probe(0, 4242, 0, None);
    story.sample(0, 0, counters(20 * GIB, GIB));
    for _ in 0..3 {
        fails(&mut story, None);
    }
    story
}

#[test]
fn an_early_error_of_a_running_job_is_open_until_steps_follow_or_the_job_ends() {
    let severities = |story: &Story| found(story).iter().map(|it| it.severity.name()).collect::<Vec<_>>();
    let mut story = failing();
    assert_eq!(severities(&story), ["info"; 3], "it may be handled");
    let mut ended = failing();
    let at_us = ended.wait(1000).now;
    ended.line(0, Line::Bye(Bye { at_us, reason: "exit".into(), ..Bye::default() }));
    assert_eq!(severities(&ended)[0], "critical", "it was not");
    let mut waiting = failing();
    waiting.wait(61_000_000).add(Fact::Second);
    assert_eq!(severities(&waiting)[0], "critical", "nothing happens any more");
    // A server whose requests fail again and again searches nothing, however soon the next one fails.
    let mut serving = failing();
    for _ in 0..12 {
        serving.wait(29_500_000);
        fails(&mut serving, None);
    }
    assert_eq!(severities(&serving)[0], "critical", "every request fails");
    for step in 1..=100 {
        story.wait(100_000).sample(0, step, Counters { allocated_peak: Some(70 * GIB), ..counters(20 * GIB, GIB) });
    }
    let [searched] = &found(&story)[..] else { panic!("{:#?}", found(&story)) };
    assert_eq!((searched.severity.name(), searched.cause.id(), searched.is_active()), ("info", "size-search", false));
    assert!(searched.sentence.as_ref().unwrap().starts_with("3 attempts ran out of memory"), "{searched:#?}");
    let sentence = |story: &Story| found(story).last().unwrap().sentence.clone().unwrap();
    assert!(sentence(&story).ends_with("before the first step that fitted; no error came after it."), "{searched:#?}");
    fails(&mut story, Some(100));
    assert_eq!(severities(&story), ["critical", "info"], "an error after training has settled is none of the search");
    assert!(sentence(&story).ends_with("before the first step that fitted."), "{}", sentence(&story));
}

/// A batch that is too large comes once an epoch; the program retries with less.
#[test]
fn errors_that_are_caught_at_one_line_are_one_finding() {
    let mut story = Story::default();
    story.device(0, 60 * GIB, &[]).probe(0, 4242, 0, None);
    let mut failed = 0;
    let mut train = |story: &mut Story, until: u64, tried: u64, line: u64| {
        for step in until - 50..until {
            // Each error leaves something, as its traceback does.
            let held = Counters { retries: Some(failed), ..counters(20 * GIB + failed * GIB, GIB) };
            story.wait(100_000).sample(0, step, held);
        }
        failed += 1;
        let at_us = story.wait(10_000).now;
        let frames = vec![Frame { file: "/a/train.py".into(), line, function: "run".into() }];
        let (step, free) = (Some(until - 1), Some(100 * GIB));
        let tried = Some(tried);
        story.line(0, Line::Oom(Oom { at_us, step, tried, device_free: free, frames, ..Oom::default() }));
    };
    for epoch in 1..=6 {
        train(&mut story, epoch * 50 + 1, 200 * GIB, 10);
    }
    train(&mut story, 351, 300 * GIB, 99);
    for step in 351..400 {
        let held = Counters { retries: Some(7), ..counters(27 * GIB, GIB) };
        story.wait(100_000).sample(0, step, held);
    }
    let all = found(&story);
    assert_eq!(all.len(), 2, "{all:#?}");
    let often = all.iter().find(|it| it.sentence.as_ref().unwrap().contains("train.py:10")).unwrap();
    assert!(often.account[0].contains("caught 6 errors at this line, the last one at step 300"), "{often:#?}");
    for it in &all {
        // Nothing that the job keeps matters to a request that no empty device could serve.
        assert!(it.sentence.as_ref().unwrap().contains("is more than the device has"), "{it:#?}");
    }
    let others = findings(&story.session()).all;
    assert!(others.iter().all(|it| it.kind != Kind::Retries), "{others:#?}");
    // What ended well had no fatal error.
    let mut ended = story;
    fails(&mut ended, Some(399));
    let worst = |story: &Story| found(story).iter().map(|it| it.severity).max().unwrap().name();
    assert_eq!(worst(&ended), "critical");
    ended.add(Fact::JobEnded { code: Some(0), signal: None });
    assert_eq!(worst(&ended), "critical", "its step never ended: another process of the command ended well");
    ended.events.pop();
    ended.wait(100_000).sample(0, 400, counters(27 * GIB, GIB));
    assert_eq!(worst(&ended), "critical");
    ended.add(Fact::JobEnded { code: Some(0), signal: None });
    assert_eq!(worst(&ended), "warning");
}

/// The recorder ended with the machine, so nothing shows whether the job went on.
#[test]
fn a_run_whose_recording_ends_soon_after_an_early_error_is_not_judged() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("run.jsonl.zst");
    recorded(&failing(), &file);
    let output = Command::new(PROGRAM).args(["check", "--json"]).arg(&file).output().unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let doubts = json["doubts"].to_string();
    assert!(output.status.code() == Some(2) && doubts.contains("does not show whether the job handled it"), "{json:#}");
}

/// The allocator flushes its cache before each attempt fails.
#[test]
fn retries_of_a_search_are_a_part_of_it() {
    let kinds = |is_search: bool| {
        let mut story = Story::default();
        story.device(0, 60 * GIB, &[]).probe(0, 4242, 0, None);
        let retried = |retries| Counters { retries: Some(retries), ..counters(20 * GIB, GIB) };
        story.sample(0, 0, retried(0));
        for step in 1..=10 {
            story.wait(100_000).sample(0, step, retried(step));
            if is_search {
                fails(&mut story, Some(step));
            }
        }
        for step in 11..=100 {
            story.wait(100_000).sample(0, step, retried(10));
        }
        findings(&story.session()).all.into_iter().map(|it| (it.kind, it.cause)).collect::<Vec<_>>()
    };
    assert_eq!(kinds(true), [(Kind::Oom, Cause::SizeSearch)]);
    assert!(kinds(false).iter().any(|it| it.0 == Kind::Retries), "{:?}", kinds(false));
}

/// An evaluation with gradients: what it keeps is held by the graphs of its outputs, which stay with copies on the
/// host, too.
#[test]
fn outputs_that_keep_their_graphs_are_evaluated_without_them() {
    let explained = |by: &str| {
        let mut story = Story::default();
        story.device(0, 130 * GIB, &[]).probe(0, 7, 0, None);
        for step in 1..=40 {
            let held = Counters { allocated_peak: Some(3 * GIB), ..counters(2 * GIB, 0) };
            story.wait(100_000).sample(0, step, held);
        }
        let at_us = story.wait(30_000_000).now;
        let held = |by: &str, kind: &str, items: u64| Holder {
            by: by.to_owned(),
            kind: Some(kind.to_owned()),
            items: Some(items),
            ..Holder::default()
        };
        let local = Holder {
            name: Some("outputs".into()),
            function: Some("evaluate".into()),
            items: None,
            ..held("local", "function", 0)
        };
        let held = [held("graph", "Tensor", 350), held("item", "list", 12), local];
        let site = Site {
            bytes: 120 * GIB,
            blocks: 1000,
            sizes: vec![(120 * GIB / 1000, 1000)],
            holders: held.into_iter().filter(|it| it.by != "graph" || by == "graph").collect(),
            ..Site::default()
        };
        let tick = Sample { at_us: at_us - 1, edge: Edge::Tick, counters: counters(138 * GIB, 0), ..Sample::default() };
        let sites = Sites { at_us, why: "oom".into(), step: Some(40), sites: vec![site], ..Sites::default() };
        let (tried, phase) = (Some(GIB), Some("forward".to_owned()));
        let error = Oom { at_us, step: Some(40), tried, device_free: Some(GIB / 2), phase, ..Oom::default() };
        story.line(0, Line::Sample(tick)).line(0, Line::Oom(error)).line(0, Line::Sites(sites));
        let all = findings(&story.session()).all;
        let found = all.into_iter().find(|it| it.kind == Kind::Oom).unwrap();
        (found.cause, found.remedy().to_owned(), found.sentence)
    };
    let (cause, remedy, sentence) = explained("graph");
    assert_eq!(cause, Cause::GraphRetained, "{sentence:?}");
    assert!(remedy.starts_with("evaluate under torch.no_grad()"), "{remedy}");
    let (cause, remedy, sentence) = explained("list");
    assert!(cause == Cause::OutputsGathered && remedy.contains("`.cpu()`"), "{cause:?} {remedy} {sentence:?}");
}
