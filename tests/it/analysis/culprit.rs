//! Checks, reports, alerts and screens show the same line that allocates what grows, and the same holder.

use crate::{
    commands::check::{ACTIVATIONS, check, judged, lines_of, write},
    helpers::{
        browser::{self, Browser},
        story::{GIB, MIB, Story, counters, one_rank, picture, text},
        terminal::PROGRAM,
    },
};
use gpuwatch::{
    facts::{
        event::{
            Event, Fact, Line, ProbeId,
            wire::{Counters, Frame, Holder, Oom, Owner, Place, Site, Sites},
        },
        units::Stamp,
    },
    model::{
        alerts::{NewAlerts, Policy},
        analysis::episode::Resource,
        findings::{Finding, findings},
    },
    screen::{
        theme::Theme,
        ui::{Screen, Ui},
    },
    storage::{
        recording::encode,
        replay::{Replay, find::find},
    },
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const FILE: &str = "/home/ada/train.py";
const LIBRARY: &str = "/home/ada/venv/lib/python3.11/site-packages/torch/nn/functional.py";

/// Returns a capture in which `losses` of a train.py keeps a scalar per step, and two blocks of its graph.
pub(crate) fn sites(at_us: u64, step: u64) -> Sites {
    let frame = |file: &str, line, function: &str| Frame { file: file.into(), line, function: function.into() };
    let place = |line, text: &str| Place { line, text: text.into(), ..Place::default() };
    let list = Holder { by: "item".into(), kind: Some("list".into()), items: Some(1204), ..Holder::default() };
    let name = Some("losses".to_owned());
    let global = Holder { by: "global".into(), name, file: Some(FILE.into()), ..Holder::default() };
    let losses = Site {
        file: FILE.into(),
        line: 40,
        function: "main".into(),
        frames: vec![frame(LIBRARY, 3100, "cross_entropy"), frame(FILE, 40, "main"), frame(FILE, 52, "<module>")],
        bytes: 8 * 512,
        blocks: 8,
        owners: vec![Owner { shape: Vec::new(), dtype: "float32".into(), grad: true, count: 8 }],
        holders: vec![list, global],
        kept: Some(Place { file: FILE.into(), ..place(41, "losses.append(loss)") }),
        source: vec![
            place(38, "    optimizer.zero_grad()"),
            place(39, "    out = model(batch)"),
            place(40, "    loss = F.cross_entropy(out, target)"),
            place(41, "    losses.append(loss)"),
            place(42, "    loss.backward()"),
        ],
        ..Site::default()
    };
    let graph = Site {
        file: "/home/ada/model.py".into(),
        line: 12,
        function: "forward".into(),
        frames: vec![frame(LIBRARY, 1700, "relu"), frame("/home/ada/model.py", 12, "forward")],
        bytes: 32 * MIB,
        blocks: 16,
        autograd: true,
        ..Site::default()
    };
    Sites {
        at_us,
        why: "growth".into(),
        step: Some(step),
        steps: 8,
        sites: vec![graph, losses],
        older_blocks: Some(96),
        older_bytes: Some(192 * MIB),
        held_us: Some(8400),
        longest_us: Some(3000),
        holders_us: Some(120_000),
        history_bytes: Some(70_000),
        ..Sites::default()
    }
}

pub(crate) const SENTENCE: &str = "train.py:41 `losses.append(loss)` keeps 3 blocks a step (4.00 MiB), 2 of them of its graph \
                        (4.00 MiB), allocated at train.py:40, through list `losses` (1,204 items), global of train.py";
pub(crate) const ADVICE: &str = "append `loss.item()`";

const NASTY: &str = "</script><img src=x onerror=alert(1)>\u{202e}\u{1b}]9;x\u{7}";

/// The same from a job that would rather be something else.
pub(crate) fn hostile_sites(at_us: u64, step: u64) -> Sites {
    let mut sites = sites(at_us, step);
    let nasty = || NASTY.repeat(5);
    for it in &mut sites.sites {
        (it.file, it.function) = (nasty(), nasty());
        it.frames.iter_mut().for_each(|it| (it.file, it.function) = (nasty(), nasty()));
        it.source.iter_mut().for_each(|it| it.text = nasty());
        it.kept = Some(Place { file: nasty(), line: 41, text: nasty(), library: false });
        for it in &mut it.holders {
            (it.name, it.kind, it.file) = (Some(nasty()), Some(nasty()), Some(nasty()));
        }
    }
    sites.trouble = Some(nasty());
    sites
}

/// A leak of so many bytes a step, with a capture that finds sites; returns its finding.
fn growing_by(bytes: u64, sites: &[Site]) -> Finding {
    let mut story = one_rank();
    for step in 1..=200 {
        let held = counters(2 * GIB + step * bytes, GIB);
        story.wait(100_000).sample(
            0,
            step,
            Counters { allocated_peak: held.allocated.map(|it| it + 10 * GIB), ..held },
        );
        if step == 100 {
            let own = sites.to_vec();
            let at_us = story.now;
            story.line(
                0,
                Line::Sites(Sites {
                    at_us,
                    why: "growth".into(),
                    step: Some(step),
                    steps: 8,
                    sites: own,
                    ..Sites::default()
                }),
            );
        }
    }
    let all = findings(&story.session()).all;
    all.into_iter().find(|it| it.resource == Some(Resource::Allocated)).unwrap()
}

fn kept_at(line: u64, bytes_per_step: u64, blocks: u64) -> Site {
    Site { file: FILE.into(), line, bytes: 8 * bytes_per_step, blocks, ..Site::default() }
}

#[test]
fn the_lines_with_the_pace_of_the_growth_lead() {
    let first = |bytes, sites: Vec<Site>| growing_by(bytes, &sites).culprit.unwrap().allocated.line;
    // A list that is cleared later, or a buffer that was not full yet, takes more than what is kept.
    assert_eq!(first(64 << 10, vec![kept_at(12, MIB, 8), kept_at(13, 64 << 10, 8)]), 13);
    // Two leaks together have the pace.
    assert_eq!(first(64 << 10, vec![kept_at(12, MIB, 8), kept_at(13, 40 << 10, 8), kept_at(14, 24 << 10, 8)]), 13);
    // What is much less than the growth explains nothing of it.
    assert_eq!(first(400 << 10, vec![kept_at(12, MIB, 8), kept_at(13, 4 << 10, 8)]), 12);
    assert_eq!(first(MIB, vec![kept_at(12, MIB, 8), kept_at(13, 64 << 10, 8)]), 12);
}

#[test]
fn a_tensor_that_is_copied_into_a_larger_one_is_full_when_both_no_longer_fit() {
    let list = growing_by(MIB, &[kept_at(12, MIB, 8)]);
    let copied = growing_by(MIB, &[kept_at(12, MIB, 0)]);
    assert_eq!((list.cause.id(), copied.cause.id()), ("tensors-retained", "growing-tensor"));
    let (list, copied) = (list.full_in_steps.unwrap(), copied.full_in_steps.unwrap());
    // The peak is 10 GiB above what the step leaves.
    assert!(copied.abs_diff((list - 10 * 1024) / 2) <= 1, "{copied} of {list}");
}

/// A recorded leak with a capture.
pub(crate) fn recorded(dir: &Path, sites: impl Fn(u64, u64) -> Sites) -> PathBuf {
    let mut lines = lines_of(ACTIVATIONS, |_| {});
    let printed = lines.iter().filter_map(|it| serde_json::from_str::<Value>(it).ok());
    let at = printed.filter_map(|it| it["at_us"].as_u64()).max().unwrap();
    let line = Box::new(Line::Sites(sites(at, 1200)));
    let mut text = String::new();
    encode(&Event { at: Stamp(at), fact: Fact::Probe { probe: ProbeId(0), line } }, &mut text);
    lines.insert(lines.len() - 1, text);
    let path = dir.join("a.jsonl.zst");
    write(&path, &lines);
    path
}

fn grown(json: &Value) -> &Value {
    json["findings"].as_array().unwrap().iter().find(|it| it["resource"] == "allocated").unwrap()
}

#[test]
fn check_names_the_line_and_who_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = recorded(dir.path(), sites);
    let (code, json) = judged(&path, &[]);
    let found = grown(&json);
    let it = &found["culprit"];
    assert_eq!(code, 1);
    assert_eq!((&it["file"], &it["line"], &it["function"]), (&FILE.into(), &40.into(), &"main".into()), "{found:#}");
    assert_eq!((&it["kept"]["file"], &it["kept"]["line"]), (&FILE.into(), &41.into()));
    assert_eq!((&it["blocks_per_step"], &it["bytes_per_step"]), (&3.0.into(), &(4_194_304.0 + 512.0).into()));
    assert_eq!((&it["sentence"], &it["advice"]), (&SENTENCE.into(), &ADVICE.into()));
    assert_eq!((&found["cause"], &found["advice"]), (&"graph-retained".into(), &ADVICE.into()), "{found:#}");
    assert_eq!(it["holders"][0], "list `losses` (1,204 items), global of train.py");
    assert_eq!((it["frames"].as_array().map(Vec::len), it["source"].as_array().map(Vec::len)), (Some(3), Some(5)));
    let cost = "paused the job for 128 ms in total (longest pause 120 ms), 120 ms of it for the holders; the stacks took about 68.36 KiB";
    assert_eq!(found["account"][1], cost);
    let text = String::from_utf8(check(&path, &[]).stdout).unwrap();
    assert!(text.contains(&format!("\n  culprit: {SENTENCE}\n  {ADVICE}\n")) && text.contains(cost), "{text}");
    assert!(text.contains("96 blocks (192.0 MiB) predate the capture"), "{text}");
}

/// `buffer.append((obs, act))`: two blocks a step of one line, and nobody's graph.
fn pairs(at: u64, step: u64) -> Sites {
    let mut sites = sites(at, step);
    let losses = sites.sites.pop().unwrap();
    let owner = |shape: &[u64]| vec![Owner { shape: shape.to_vec(), dtype: "float32".into(), count: 8, grad: false }];
    let obs = Site { bytes: 32 * MIB, line: 39, owners: owner(&[64, 4096]), ..losses.clone() };
    let act = Site { bytes: 8 * 4096, owners: owner(&[64, 8]), ..losses };
    Sites { sites: vec![obs, act], ..sites }
}

#[test]
fn a_capture_without_a_graph_makes_tensors_the_cause_and_their_holder_the_advice() {
    let dir = tempfile::tempdir().unwrap();
    let (_, json) = judged(&recorded(dir.path(), pairs), &[]);
    let found = grown(&json);
    let advice = "clear `losses` each epoch, bound it, or copy what is needed to the host (`.cpu()`)";
    assert_eq!((&found["cause"], &found["advice"]), (&"tensors-retained".into(), &advice.into()), "{found:#}");
}

/// The capture explains a small part of the growth, and nothing about the rest.
#[test]
fn a_capture_of_a_small_part_of_the_growth_leaves_the_cause_to_the_counters() {
    let dir = tempfile::tempdir().unwrap();
    let scalars = |at, step| {
        let mut sites = sites(at, step);
        sites.sites.retain(|it| !it.autograd);
        sites
    };
    let (_, json) = judged(&recorded(dir.path(), scalars), &[]);
    let found = grown(&json);
    assert_eq!(found["culprit"]["line"], 40);
    assert_eq!(found["cause"], "tensors-retained", "{found:#}");
    assert!(found["advice"].as_str().unwrap().starts_with("find the list"), "{found:#}");
}

#[test]
fn captures_before_the_growth_or_of_another_device_are_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let other = |at, step| {
        let mut sites = sites(at, step);
        sites.sites.iter_mut().for_each(|it| it.device = 7);
        sites
    };
    let (_, json) = judged(&recorded(dir.path(), other), &[]);
    assert_eq!(grown(&json)["culprit"], Value::Null);
    assert_eq!(grown(&json)["account"][0], "in 8 steps no line allocated more than was freed again");
    let (_, json) = judged(&recorded(dir.path(), |at, _| sites(at, 20)), &[]);
    assert_eq!((&grown(&json)["culprit"], &grown(&json)["account"]), (&Value::Null, &Value::Array(Vec::new())));
}

#[test]
fn a_culprit_of_a_hostile_job_cannot_inject_escapes_or_markup() {
    let dir = tempfile::tempdir().unwrap();
    let path = recorded(dir.path(), hostile_sites);
    for arguments in [&[][..], &["--json"]] {
        let text = String::from_utf8(check(&path, arguments).stdout).unwrap();
        assert!(text.contains("culprit") && text.contains("img src=x"), "{text}");
        assert!(!text.chars().any(|it| it.is_control() && it != '\n') && !text.contains('\u{202e}'), "{text:?}");
    }
    for name in ["a.html", "a.json"] {
        let page = dir.path().join(name);
        let made = Command::new(PROGRAM).arg("report").arg(&path).arg("-o").arg(&page).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let page = fs::read_to_string(page).unwrap();
        assert!(!page.chars().any(|it| it.is_control() && it != '\n') && !page.contains('\u{202e}'));
        assert!(name == "a.json" || (page.matches("<script").count() == 2 && !page.contains("<img")), "{name}");
    }
}

#[test]
fn the_report_shows_the_culprit_with_its_lines_and_folds_its_stack() {
    test_tiers::full!("a browser draws the page");
    let browser = test_tiers::needs!(browser::found());
    let dir = tempfile::tempdir().unwrap();
    for (sites, is_nasty) in [(sites as fn(u64, u64) -> Sites, false), (hostile_sites, true)] {
        let page = dir.path().join(format!("{is_nasty}.html"));
        let path = recorded(dir.path(), sites);
        let made = Command::new(PROGRAM).arg("report").arg(&path).arg("-o").arg(&page).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        let mut page = Browser::open(browser, &page, 1200, false);
        assert_eq!(page.troubles(), [""; 0], "nothing is thrown or fetched");
        assert_eq!(page.value("document.querySelectorAll('img').length"), 0);
        let reported = page.text("document.querySelector('#findings').innerText");
        assert!(!reported.contains('\u{202e}') && !reported.contains('\u{1b}'), "{reported}");
        if is_nasty {
            assert!(reported.contains("<img src=x onerror=alert(1)>"), "{reported}");
            continue;
        }
        assert!(
            reported.contains(SENTENCE)
                && reported.contains(ADVICE)
                && reported.contains("▸    41      losses.append(loss)"),
            "{reported}"
        );
        assert!(!reported.contains("site-packages"), "the stack is folded: {reported}");
        page.click("#findings details summary");
        page.until("document.querySelector('#findings details').open");
        let stack = page.text("document.querySelector('#findings details').innerText");
        assert!(stack.contains("site-packages") && stack.contains("train.py:52 in <module>"), "{stack}");
    }
}

/// The line that keeps is in another file, whose lines the probe sends as well, or in a library.
fn apart(at_us: u64, step: u64) -> Sites {
    let mut sites = sites(at_us, step);
    let line = |line, text: &str| Place { file: KEEPER.into(), line, text: text.into(), ..Place::default() };
    for it in sites.sites.iter_mut().filter(|it| it.kept.is_some()) {
        it.kept = Some(line(7, "    kept.append(loss)"));
        it.source.extend([line(6, "def keep(loss):"), line(7, "    kept.append(loss)")]);
    }
    sites
}

fn of_library(at_us: u64, step: u64) -> Sites {
    let mut sites = apart(at_us, step);
    sites.sites.iter_mut().flat_map(|it| &mut it.kept).for_each(|it| it.library = true);
    sites
}

/// An earlier probe sends the line that keeps without those around it.
fn bare(at_us: u64, step: u64) -> Sites {
    let mut sites = apart(at_us, step);
    sites.sites.iter_mut().for_each(|it| it.source.retain(|line| line.file.is_empty()));
    sites
}

const KEEPER: &str = "/home/ada/keep.py";

fn made(path: &Path, page: &Path) {
    let made = Command::new(PROGRAM).arg("report").arg(path).arg("-o").arg(page).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn report_and_screens_blame_one_line_and_show_both_places() {
    let dir = tempfile::tempdir().unwrap();
    let near: fn(u64, u64) -> Sites = sites;
    for (is_apart, sites, blamed) in [
        (false, near, (FILE, 41)),
        (true, apart, (KEEPER, 7)),
        (true, bare, (KEEPER, 7)),
        (true, of_library, (FILE, 40)),
    ] {
        let path = recorded(dir.path(), sites);
        let page = dir.path().join("a.json");
        made(&path, &page);
        let whole: Value = serde_json::from_str(&fs::read_to_string(&page).unwrap()).unwrap();
        fs::remove_file(&page).unwrap();
        let culprit = &grown(&whole["run"])["culprit"];
        let reported = (culprit["leading"]["file"].as_str().unwrap(), culprit["leading"]["line"].as_u64().unwrap());
        let replay = Replay::load(find(&[path]).unwrap().recordings, None, |_, _| {});
        let ui = Ui { screen: Screen::Alerts, ..Ui::default() };
        let screen = text(&picture(replay.shown(), &ui, &Theme::builtin("dusk").unwrap(), 120, 60));
        assert_eq!(reported, blamed, "{culprit:#}");
        let is_marked = |it: &str| it.trim_start().starts_with(&format!("▸ {:>4}  ", blamed.1));
        assert_eq!(screen.lines().filter(|it| is_marked(it)).count(), 1, "{screen}");
        let labels = ["allocated at train.py:40\n", "kept at keep.py:7\n"].map(|it| screen.contains(it));
        assert_eq!(labels, [is_apart; 2], "{screen}");
        let is_shown = |line: u64, text: &str| screen.contains(&format!("{line}  {text}\n"));
        assert!(is_shown(40, "loss = F.cross_entropy(out, target)"), "{screen}");
        assert!(!is_apart || screen.contains("kept.append(loss)\n"), "{screen}");
    }
}

/// Its two places are fourteen lines apart.
#[test]
fn the_keeping_line_is_seen_beside_the_allocating_one_without_scrolling() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tutorial/oom.jsonl.zst");
    let replay = Replay::load(find(&[path]).unwrap().recordings, None, |_, _| {});
    let ui = Ui { screen: Screen::Process, ..Ui::default() };
    let shown = text(&picture(replay.shown(), &ui, &Theme::builtin("dusk").unwrap(), 120, 40));
    assert!(shown.contains("▸   32  outputs.append((logits, tokens))"), "{shown}");
    assert!(shown.contains("·   18      return self.head(self.layers(self.embed(tokens)))"), "{shown}");
}

#[test]
fn the_page_shows_both_places_and_marks_the_line_to_blame() {
    test_tiers::full!("a browser draws the page");
    let browser = test_tiers::needs!(browser::found());
    let dir = tempfile::tempdir().unwrap();
    for (name, sites, marked) in [
        ("apart", apart as fn(u64, u64) -> Sites, "kept.append(loss)"),
        ("library", of_library, "loss = F.cross_entropy"),
    ] {
        let page = dir.path().join(format!("{name}.html"));
        made(&recorded(dir.path(), sites), &page);
        let mut page = Browser::open(browser, &page, 1200, false);
        assert_eq!(page.troubles(), [""; 0]);
        let shown = page.text("document.querySelector('#findings').innerText");
        assert!(shown.contains("allocated at train.py:40:") && shown.contains("kept at keep.py:7:"), "{shown}");
        let lines = page.text("[...document.querySelectorAll('#findings .marked')].map(it => it.innerText).join('|')");
        assert!(lines.contains(marked) && !lines.contains('|'), "{lines}");
    }
}

/// An alert program that starts after the capture receives the line too.
#[test]
fn the_culprit_in_an_alert_fits_into_a_pipe() {
    for (sites, is_nasty) in [(sites(1, 100), false), (hostile_sites(1, 100), true)] {
        let mut story = grown_story();
        story.line(0, Line::Sites(sites)).add(Fact::Second);
        let session = story.session();
        let reported = NewAlerts::default().at(&session, &Policy::default().findings(&session));
        let [message] = reported.as_slice() else { panic!("{reported:?}") };
        let object: Value = serde_json::from_str(&message.object).unwrap();
        let culprit = &object["culprit"];
        assert_eq!((&culprit["line"], &culprit["kept"]), (&40.into(), &41.into()), "{object:#}");
        assert!(is_nasty || (culprit["sentence"] == SENTENCE && culprit["advice"] == ADVICE), "{object:#}");
        assert!(message.object.len() < 4096 && !message.object.contains(char::is_control), "{}", message.object.len());
        let plain = |it: &str| it.chars().all(|c| c.is_alphanumeric() || " -+./:,≈".contains(c));
        assert!(plain(&message.line) && !message.line.contains("img"), "{}", message.line);
    }
}

/// Rank 0 keeps 4 MiB a step.
fn grown_story() -> Story {
    let mut story = one_rank();
    for step in 1..=100 {
        story.wait(100_000).sample(0, step, counters(20 * GIB + step * 4 * MIB, GIB));
    }
    story
}

#[test]
fn the_latest_capture_that_found_a_line_is_reported() {
    let mut story = grown_story();
    let found = |story: &Story| {
        let found = findings(&story.session()).all.remove(0);
        (found.culprit.map(|it| it.leading().line), found.account)
    };
    assert_eq!(found(&story), (None, Vec::new()), "not looked yet");
    story.line(0, Line::Sites(Sites { seq: Some(200), sites: Vec::new(), ..sites(1, 80) }));
    assert!(found(&story).1[0].starts_with("in 8 steps no line"), "{:?}", found(&story));
    story.line(0, Line::Sites(Sites { seq: Some(201), ..sites(2, 90) }));
    assert_eq!(found(&story).0, Some(41));
    let mut later = sites(3, 95);
    later.sites[1].kept.as_mut().unwrap().line = 77;
    story.line(0, Line::Sites(Sites { seq: Some(202), ..later }));
    story.line(0, Line::Sites(Sites { seq: Some(203), sites: Vec::new(), ..sites(4, 99) }));
    assert_eq!(found(&story).0, Some(77), "one that found nothing takes nothing back");
}

#[test]
fn an_out_of_memory_error_lists_the_live_blocks_by_line() {
    let mut story = grown_story();
    let oom = |at_us| Oom { at_us, step: Some(100), tried: Some(80 << 30), ..Oom::default() };
    let at_oom = Sites { why: "oom".into(), steps: 0, ..sites(50_000_000, 100) };
    story.line(0, Line::Oom(oom(50_000_100))).line(0, Line::Sites(at_oom)).line(0, Line::Oom(oom(90_000_000)));
    let found = findings(&story.session()).all;
    let reported: Vec<bool> = found
        .iter()
        .filter(|it| it.kind == gpuwatch::model::findings::Kind::Oom)
        .map(|it| {
            it.account
                .iter()
                .any(|line| line.starts_with("live blocks, by line: model.py:12 32.00 MiB in 16 blocks, train.py:40"))
        })
        .collect();
    assert_eq!(reported, [false, true], "the other error has no account of its own: {found:?}");
    assert!(found.iter().any(|it| it.kind == gpuwatch::model::findings::Kind::Growth), "{found:?}");
    assert!(found.iter().all(|it| it.culprit.is_none()), "the blocks of one moment do not show what grows");
}

#[test]
fn cells_of_notebooks_go_by_their_numbers() {
    let mut python = Command::new("python3");
    python.arg(crate::probe::pytorch::script("cells.py"));
    python.env("PYTHONPATH", format!("{}/probes/python", env!("CARGO_MANIFEST_DIR")));
    assert_eq!(crate::helpers::torch::stdout(&python.output().unwrap()), "cells have their numbers\n");
}
