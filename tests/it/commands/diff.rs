//! `gpuwatch diff` distinguishes a run that needs more memory from one that does not.

use crate::{
    commands::check::{HEALTHY, SCALARS, lines_of, write},
    helpers::terminal::PROGRAM,
    house::schemas,
};
use gpuwatch::{
    facts::{
        event::{
            Line, PeakMoment, ProbeId,
            anatomy::{Anatomy, AnatomyPart, LineShare, PeakCost},
        },
        units::Stamp,
    },
    storage::recording::encode,
};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A run of the corpus, in which everything was allocated once more for every hundredth.
fn run(dir: &Path, name: &str, trace: &str, hundredths: u64) -> PathBuf {
    let path = dir.join(name);
    let lines = lines_of(trace, |line| {
        if let Line::Sample(it) = line {
            let counters = &mut it.counters;
            let held = [&mut counters.allocated, &mut counters.reserved, &mut counters.allocated_peak];
            for bytes in held.into_iter().flatten() {
                *bytes += *bytes * hundredths / 100;
            }
        }
    });
    write(&path, &lines);
    path
}

fn diff(arguments: &[&str], a: &Path, b: &Path) -> Output {
    Command::new(PROGRAM).arg("diff").args(arguments).args([a, b]).output().unwrap()
}

fn figures(output: &Output) -> Value {
    let compared = serde_json::from_slice(&output.stdout).unwrap();
    schemas::check("diff", &compared);
    compared
}

fn worse(output: &Output) -> Vec<String> {
    let all = figures(output);
    let figures = all["figures"].as_array().unwrap().iter().filter(|it| it["worse"] == true);
    figures.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_run_that_needs_more_fails_and_one_that_needs_as_much_passes() {
    let home = tempfile::tempdir().unwrap();
    let first = run(home.path(), "a.jsonl.zst", HEALTHY, 0);
    let same = diff(&["--json"], &first, &first);
    assert_eq!((same.status.code(), figures(&same)["verdict"].as_str()), (Some(0), Some("pass")));
    assert!(figures(&same)["figures"].as_array().unwrap().iter().all(|it| it["a"] == it["b"]), "{same:?}");

    let more = run(home.path(), "b.jsonl.zst", HEALTHY, 50);
    let failed = diff(&["--json"], &first, &more);
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(worse(&failed), ["peak allocated", "peak reserved", "steady allocated"]);
    assert_eq!(diff(&["--tolerance", "60%"], &first, &more).status.code(), Some(0));
    assert_eq!(diff(&[], &more, &first).status.code(), Some(0), "less is not worse");
    let text = String::from_utf8(diff(&[], &first, &more).stdout).unwrap();
    let line = text.lines().find(|it| it.starts_with("steady allocated")).unwrap();
    assert!(line.ends_with("more than tolerated") && line.contains('+'), "{text}");

    let leak = run(home.path(), "c.jsonl.zst", SCALARS, 0);
    let grows = diff(&["--json", "--tolerance", "100%"], &first, &leak);
    // 512 bytes on the device are below what is judged; Python's objects take more.
    assert!(worse(&grows).contains(&"growth of host memory".to_owned()), "{:?}", figures(&grows));
    assert_eq!(grows.status.code(), Some(1));
}

/// Memory of the host that grows is not taken for the device's.
#[test]
fn growth_of_the_host_has_a_row_of_its_own() {
    let home = tempfile::tempdir().unwrap();
    let hosts = |name: &str, more: u64| {
        let path = home.path().join(name);
        let lines = lines_of(HEALTHY, |line| {
            if let Line::Sample(it) = line {
                it.counters.rss = Some((4 << 30) + it.step.unwrap_or(0) * more);
            }
        });
        write(&path, &lines);
        path
    };
    let (flat, grows) = (hosts("a.jsonl.zst", 0), hosts("b.jsonl.zst", 8 << 20));
    let found = diff(&["--json"], &flat, &grows);
    assert_eq!(worse(&found), ["growth of host memory"], "{:#}", figures(&found));
    let checked = Command::new(PROGRAM).arg("check").arg(&grows).output().unwrap();
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(text.contains("growth of host, +8.00 MiB/step") && !text.contains("the device would be"), "{text}");
}

/// A share says nothing across sizes: 30 % of a little may be less than 5 % of much.
#[test]
fn a_larger_share_is_stuck_for_worse_only_if_it_is_more_memory() {
    let home = tempfile::tempdir().unwrap();
    let stuck = |name: &str, times: u64, share: u64| {
        let path = home.path().join(name);
        let lines = lines_of(HEALTHY, |line| {
            if let Line::Sample(it) = line {
                let reserved = it.counters.reserved.unwrap_or(0) * times;
                it.counters.reserved = Some(reserved);
                (it.counters.allocated, it.counters.active) = (Some(reserved / 2), Some(reserved / 2));
                it.counters.requested = None;
                it.counters.inactive_split = Some(reserved * share / 100);
            }
        });
        write(&path, &lines);
        path
    };
    let (large, small, worst) =
        (stuck("a.jsonl.zst", 40, 5), stuck("b.jsonl.zst", 1, 30), stuck("c.jsonl.zst", 40, 30));
    let of = |a: &Path, b: &Path| worse(&diff(&["--json"], a, b)).contains(&"stuck".to_owned());
    assert!(
        !of(&large, &small) && of(&large, &worst) && !of(&worst, &large),
        "{:?}",
        figures(&diff(&["--json"], &large, &worst))
    );
}

#[test]
fn runs_that_cannot_be_compared_do_not_pass() {
    let home = tempfile::tempdir().unwrap();
    let first = run(home.path(), "a.jsonl.zst", HEALTHY, 0);
    let garbage = home.path().join("b.jsonl.zst");
    fs::write(&garbage, "\u{1b}[2J").unwrap();
    let refused = diff(&[], &first, &garbage);
    let printed = String::from_utf8(refused.stdout).unwrap();
    assert!(refused.status.code() == Some(2) && printed.starts_with("not compared: "), "{printed}");
    let empty = home.path().join("c.jsonl.zst");
    let lines = lines_of(HEALTHY, |_| ());
    write(&empty, &[&lines[..2], &lines[lines.len() - 1..]].concat());
    assert_eq!(diff(&[], &first, &empty).status.code(), Some(2));
    assert_eq!(diff(&["--tolerance", "much"], &first, &first).status.code(), Some(2));
}

#[test]
fn a_page_or_json_goes_into_a_new_file_with_the_same_exit_code() {
    let home = tempfile::tempdir().unwrap();
    let (first, more) = (run(home.path(), "a.jsonl.zst", HEALTHY, 0), run(home.path(), "b.jsonl.zst", HEALTHY, 50));
    let into = |name: &str| {
        let file = home.path().join(name);
        let output = diff(&["-o", file.to_str().unwrap()], &first, &more);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.stdout.is_empty(), "{output:?}");
        (output.status.code(), printed, fs::read_to_string(&file).unwrap())
    };
    let (code, printed, page) = into("page.html");
    assert_eq!((code, printed.contains("wrote ")), (Some(1), true), "{printed}");
    for part in
        ["steady allocated", "more than tolerated", "a.jsonl.zst", "b.jsonl.zst", "<polyline", "needs more memory"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("<script") && !page.contains("://"), "it needs no network: {page}");
    let (code, _, json) = into("page.JSON");
    schemas::check("diff", &serde_json::from_str(&json).unwrap());
    assert_eq!(code, Some(1));
    let (code, printed, same) = into("page.html");
    assert!(code == Some(2) && printed.contains("exists already") && same == page, "{printed}");
}

/// `gpuwatch check --against` compares two runs in the form of `fit --against`.
#[test]
fn check_compares_a_run_with_an_earlier_one_within_a_budget() {
    let home = tempfile::tempdir().unwrap();
    let first = run(home.path(), "a.jsonl.zst", HEALTHY, 0);
    let more = run(home.path(), "b.jsonl.zst", HEALTHY, 50);
    // On the same card.
    let leaky = run(home.path(), "c.jsonl.zst", "l_cat-1620", 0);
    let check = |flags: &[&str], now: &Path| {
        let output = Command::new(PROGRAM).args(["check", "--against"]).arg(&first).args(flags).arg(now).output();
        let output = output.unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
    };
    let (same, code) = check(&["--json"], &first);
    let same: Value = serde_json::from_str(&same).unwrap();
    schemas::check("fit-against", &same);
    assert_eq!((code, &same["within"], &same["difference"]["allocated"]), (Some(0), &true.into(), &0.into()));
    let (text, code) = check(&[], &more);
    assert!(code == Some(1) && text.starts_with("over the budget of 0 B: allocated +"), "{text}");
    assert_eq!(check(&["--budget", "60%"], &more).1, Some(0));
    let (text, code) = check(&["--budget", "1TiB", "--markdown"], &leaky);
    assert!(code == Some(1) && text.contains("grows ") && text.contains("the baseline does not grow"), "{text}");
    let (text, code) = check(&["--json"], Path::new("none.jsonl.zst"));
    assert!(code == Some(2) && text.contains("\"within\":null") && text.contains("none.jsonl.zst"), "{text}");
}

/// A run of which the highest moment of step 40 was traced, with these lines and the bytes of their activations.
fn traced(dir: &Path, name: &str, lines: &[(&str, &str, u64)]) -> PathBuf {
    let share = |&(line, module, bytes): &(&str, &str, u64)| LineShare {
        line: line.into(),
        bytes,
        blocks: 1,
        part: AnatomyPart::Activations,
        module: Some(module.into()),
    };
    let of_lines: u64 = lines.iter().map(|it| it.2).sum();
    let anatomy = Anatomy {
        step: Some(40),
        allocated: of_lines + 4096,
        parts: [(AnatomyPart::Weights, 4096), (AnatomyPart::Activations, of_lines)].into(),
        lines: lines.iter().map(share).collect(),
        ..Anatomy::default()
    };
    let moment = PeakMoment { probe: ProbeId(0), device: 0, anatomy, cost: PeakCost::default() };
    let mut all = lines_of(HEALTHY, |_| {});
    let mut text = String::new();
    encode(&moment.event(Stamp(u64::MAX >> 20)), &mut text);
    all.insert(all.len() - 1, text);
    let path = dir.join(name);
    write(&path, &all);
    path
}

#[test]
fn check_compares_what_the_highest_moments_of_two_runs_consist_of() {
    let home = tempfile::tempdir().unwrap();
    let lines = [("model.py:211", "head", 6 << 20), ("model.py:20", "layers.*", 3 << 20)];
    let first = traced(home.path(), "a.jsonl.zst", &lines);
    // Two lines were added above, and the head holds more.
    let more =
        traced(home.path(), "b.jsonl.zst", &[("model.py:213", "head", 8 << 20), ("model.py:22", "layers.*", 3 << 20)]);
    let against = |flags: &[&str], now: &Path| {
        let mut command = Command::new(PROGRAM);
        let output = command.args(["check", "--against"]).arg(&first).args(flags).arg(now).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let found: Value = serde_json::from_str(&against(&["--json"], &more)).unwrap();
    schemas::check("fit-against", &found);
    assert_eq!(found["parts"], json!({"activations": 2 << 20}));
    let line = &found["lines"][0];
    assert_eq!((&line["line"], &line["was"]), (&"model.py:213".into(), &"model.py:211".into()), "{found:#}");
    assert_eq!((&line["bytes"], &line["module"]), (&(2 << 20).into(), &"head".into()), "{found:#}");
    assert_eq!(found["lines"].as_array().map(Vec::len), Some(1), "{found:#}");
    let text = against(&[], &more);
    for part in [
        "  activations, inputs and outputs       9.00 MiB     11.00 MiB     +2.00 MiB\n",
        "+2.00 MiB  model.py:213 (was model.py:211)\n              activations, inputs and outputs\n              module head\n",
        "parts and lines are those of step 40 of the earlier run, and step 40 of this one\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let without = run(home.path(), "c.jsonl.zst", HEALTHY, 0);
    let text = against(&[], &without);
    let why = "not compared: parts and lines: this run does not have the highest moment of a\n  whole step on record";
    assert!(text.contains(why) && !text.contains("lines that hold"), "{text}");
}
