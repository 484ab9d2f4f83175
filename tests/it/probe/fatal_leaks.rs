//! Real jobs that leak until memory runs out: one verdict, and the same on every surface.

use crate::{
    helpers::{
        story::text,
        terminal::{PATIENCE, PROGRAM, until},
        torch::{self, Gpu},
    },
    house::schemas,
    probe::{launch::Home, pytorch::script},
};
use gpuwatch::{
    facts::units::Bytes,
    model::{
        alerts::NewAlerts,
        analysis::ladder::Gap,
        findings::{Finding, Findings, Kind, findings},
    },
    screen::{
        theme::Theme,
        ui::{Screen, Ui},
    },
    storage::replay::{Replay, find::find},
};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

const MIB: u64 = 1 << 20;

/// The memory of another user's process on the device.
const STRANGER: u64 = 96 * MIB;

/// A job that was recorded, and where.
struct Recorded {
    gpu: Gpu,
    home: Home,
}

impl Recorded {
    fn new(devices: &str) -> Self {
        let gpu = Gpu::new(devices);
        gpu.machine.occupy(0, std::process::id(), STRANGER).unwrap();
        Self { gpu, home: Home::new() }
    }

    /// Starts a job; once the line that leaks was found, or that host memory grows, it may come to its end.
    fn start(&self, how: &str) -> Child {
        let flag = self.gpu.dir().join("seen");
        let mut command = self.gpuwatch(&["run", "--"]);
        command.arg(torch::python()).arg(script("leaky.py")).arg(how).arg(&flag);
        let job = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let wanted = match how {
            "objects" | "copies" => "\"resource\":\"host\"",
            _ => "\"type\":\"sites\"",
        };
        assert!(until(PATIENCE, || self.recorded().contains(wanted)), "{how}: no {wanted}");
        fs::write(&flag, "").unwrap();
        job
    }

    /// Runs a job to its end.
    fn run(devices: &str, how: &str) -> Self {
        let run = Self::new(devices);
        run.start(how).wait().unwrap();
        run
    }

    fn gpuwatch(&self, arguments: &[&str]) -> Command {
        let mut command = self.gpu.command(PROGRAM);
        command.args(arguments).envs(self.home.variables()).env_remove("GPUWATCH_NVML_PATH");
        command
    }

    fn printed(&self, arguments: &[&str]) -> String {
        let done = self.gpuwatch(arguments).arg(self.recording().unwrap()).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    }

    fn judged(&self) -> Value {
        let judged = serde_json::from_str(&self.printed(&["check", "--json"])).unwrap();
        schemas::check("check", &judged);
        judged
    }

    fn report(&self) -> (Value, String) {
        let [json, page] = ["run.json", "run.html"].map(|it| self.home.0.path().join(it));
        for file in [&json, &page] {
            self.printed(&["report", "-o", file.to_str().unwrap()]);
        }
        (serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap(), fs::read_to_string(page).unwrap())
    }

    fn recording(&self) -> Option<PathBuf> {
        let store = self.home.0.path().join("state/gpuwatch/recordings");
        fs::read_dir(store).ok()?.flatten().map(|it| it.path()).find(|it| it.to_string_lossy().ends_with(".zst"))
    }

    /// Returns the entries of the recording that are written so far.
    fn recorded(&self) -> String {
        let bytes = self.recording().and_then(|it| fs::read(it).ok()).unwrap_or_default();
        let mut text = Vec::new();
        // Its last frame may be open.
        let _ = zstd::Decoder::new(&*bytes).map(|mut it| it.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    }

    fn replay(&self) -> Replay {
        load(&self.recording().unwrap())
    }
}

fn load(file: &Path) -> Replay {
    Replay::load(find(&[file.to_owned()]).unwrap().recordings, None, |_, _| {})
}

/// A screen as a replay shows it, its words without line breaks.
fn shown(replay: &Replay, screen: Screen) -> String {
    let (session, found) = (replay.shown(), findings(replay.shown()));
    let progress = gpuwatch::storage::replay::Progress::At(replay.position());
    // A device's sentences are next to its facts on wider ones.
    let width = if screen == Screen::Device { 130 } else { 160 };
    let mut buffer = ratatui::buffer::Buffer::empty(ratatui::layout::Rect::new(0, 0, width, 60));
    let ui = Ui { screen, ..Ui::default() };
    gpuwatch::screen::view::paint(&mut buffer, session, &found, &ui, &Theme::builtin("dusk").unwrap(), Some(&progress));
    text(&buffer).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What allocated memory is split into: its parts, or what was asked for and rounding.
const INSIDE: [Gap; 7] =
    [Gap::Weights, Gap::Gradients, Gap::Optimizer, Gap::Retained, Gap::Transient, Gap::Wanted, Gap::Rounding];

fn inside(found: &Findings, device: usize) -> u64 {
    INSIDE.into_iter().filter_map(|gap| rung(found, device, gap)).sum()
}

fn rung(found: &Findings, device: usize, gap: Gap) -> Option<u64> {
    let rungs = found.devices[device].ladder.by_gap();
    rungs.iter().find(|it| it.gap == gap)?.bytes.map(|Bytes(it)| it)
}

fn of_kind<'a>(json: &'a Value, kind: &str) -> Vec<&'a Value> {
    json["findings"].as_array().unwrap().iter().filter(|it| it["kind"] == kind).collect()
}

/// `Out of memory: leaky.py:35 has kept 3.13 GiB since step 31. Other processes hold 2 %.`
fn is_blamed(sentence: &str) -> bool {
    let rest = sentence.strip_prefix("Out of memory at leaky.py:");
    rest.is_some_and(|it| {
        it.contains(": leaky.py:33 has kept ") && it.contains(" since step ") && it.ends_with(" hold 2 %.")
    })
}

/// One run, on every surface.
#[test]
fn a_leak_that_ran_out_of_memory_is_one_critical_finding_with_one_sentence_everywhere() {
    let run = Recorded::run("NVIDIA A10:4GiB:256MiB", "leak");
    is_one_finding(&run);
    the_report_shows_what_the_error_saw_and_no_staircase(&run);
    a_replay_opens_on_the_last_whole_ladder_with_the_job_marked_as_ended(&run);
}

fn is_one_finding(run: &Recorded) {
    let json = run.judged();
    let [oom] = of_kind(&json, "oom")[..] else { panic!("one error: {json:#}") };
    let sentence = oom["sentence"].as_str().unwrap();
    assert!(is_blamed(sentence), "{sentence}");
    assert_eq!((&oom["cause"], &oom["severity"]), (&"tensors-retained".into(), &"critical".into()));
    assert_eq!(json["findings"][0]["kind"], "oom", "it leads: {json:#}");
    assert_eq!(json["hits"].as_array().map(Vec::len), Some(1), "one leak is one hit: {}", json["hits"]);
    let growth = of_kind(&json, "growth")[0];
    assert_eq!((&growth["severity"], &growth["follows"]["kind"]), (&"info".into(), &"oom".into()), "{growth:#}");
    let check = run.printed(&["check"]);
    assert!(check.contains(&format!("\n  {sentence}\n")), "{check}");

    let (report, page) = run.report();
    let title = format!("1 critical: out of memory at step {}", oom["since_step"]);
    assert_eq!(report["title"].as_str(), Some(&*title));
    assert!(page.contains(&format!("<title>gpuwatch: {title}</title>")) && page.contains(sentence));

    let replay = run.replay();
    for screen in [Screen::Overview, Screen::Device, Screen::Alerts, Screen::Process] {
        let picture = shown(&replay, screen);
        let phrase = sentence.trim_start_matches("Out of memory").trim_start_matches([':', ' ']);
        assert!(picture.contains(phrase), "{screen:?}: {picture}");
        assert!(!picture.contains("gpuwatch run --"), "it was started with it: {picture}");
    }
    let reported = NewAlerts::default().at(replay.session(), &findings(replay.session()));
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].object.contains(sentence), "{}", reported[0].object);
}

fn the_report_shows_what_the_error_saw_and_no_staircase(run: &Recorded) {
    let (report, _) = run.report();
    let timeline = &report["timeline"][0];
    let columns: Vec<_> = timeline["columns"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    let points = timeline["points"].as_array().unwrap();
    let value = |point: &Value, name: &str| {
        columns.iter().position(|it| *it == name).map_or(0, |place| point[place].as_u64().unwrap_or(0))
    };
    let error = points.iter().find(|it| value(it, "out_of_memory") == 1).unwrap();
    let oom = &report["ooms"][0];
    assert_eq!(Some(value(error, "gap free")), oom["free"].as_u64(), "the error's own figure");
    assert_eq!(value(error, "gap others"), STRANGER);
    let inside = |it: &Value| INSIDE.iter().map(|gap| value(it, &format!("gap {}", gap.row().name))).sum::<u64>();
    let printed = points.iter().filter(|it| value(it, "allocated") > 0);
    let cut: Vec<_> = printed.filter(|it| inside(it) != value(it, "allocated")).collect();
    assert!(cut.is_empty(), "allocator figures wait for nobody: {columns:?} {cut:?}");
    let device = &report["run"]["devices"][0];
    let in_use = (4096 - 256) * MIB - oom["free"].as_u64().unwrap();
    // The device keeps so much for itself; what the allocator gave back as it failed was in use before.
    assert!(device["peak"]["used"].as_u64() >= Some(in_use), "{device:#}");
    let grown = points.windows(2).all(|it| value(&it[1], "used") + 64 * MIB >= value(&it[0], "used"));
    assert!(grown || value(points.last().unwrap(), "used") < in_use, "what is in use rises with what is allocated");
}

fn a_replay_opens_on_the_last_whole_ladder_with_the_job_marked_as_ended(run: &Recorded) {
    let replay = run.replay();
    let found = findings(replay.shown());
    let counters = replay.shown().processes[0].devices[0].counters;
    assert_eq!(rung(&found, 0, Gap::Others), Some(STRANGER), "the user's own job is nobody else");
    assert_eq!(Some(inside(&found, 0)), counters.allocated);
    assert_eq!(found.devices[0].ladder.sum(), found.devices[0].ladder.total.unwrap());
    assert!(found.devices[0].ladder.rungs.iter().all(|it| it.inconsistent.is_none()), "{found:#?}");
    let picture = shown(&replay, Screen::Overview);
    for phrase in ["when the job ended", "ended: python", "exit code 1"] {
        assert!(picture.contains(phrase), "{phrase}: {picture}");
    }

    // Its recorder was killed before the job ended, so the job still counts as running.
    let cut = run.home.0.path().join("cut.jsonl.zst");
    let whole = zstd::decode_all(fs::File::open(run.recording().unwrap()).unwrap()).unwrap();
    let lines: Vec<&[u8]> = whole.split_inclusive(|it| *it == b'\n').collect();
    let is_sample = |it: &&[u8]| it.starts_with(b"{\"type\":\"sample\"");
    let last = lines.iter().rposition(is_sample).unwrap() - 5;
    fs::write(&cut, zstd::encode_all(&*lines[..last].concat(), 1).unwrap()).unwrap();
    let replay = load(&cut);
    let found = findings(replay.shown());
    assert_eq!(rung(&found, 0, Gap::Others), Some(STRANGER));
    assert_eq!(replay.shown(), replay.session(), "nothing ended");
    let picture = shown(&replay, Screen::Overview);
    assert!(!picture.contains("when the job ended") && picture.contains("not closed"), "{picture}");
}

/// Two ranks on devices of their own, of which one leaks.
#[test]
fn the_leaking_rank_is_blamed_after_all_ranks_have_ended() {
    let run = Recorded::run("NVIDIA A10:4GiB:256MiB;NVIDIA A10:4GiB:256MiB", "ranks");
    let json = run.judged();
    let [oom] = of_kind(&json, "oom")[..] else { panic!("one error: {json:#}") };
    assert!(is_blamed(oom["sentence"].as_str().unwrap()) && oom["rank"] == 0, "{oom:#}");
    assert_eq!(json["hits"].as_array().map(Vec::len), Some(1), "{}", json["hits"]);
    assert!(run.report().0["title"].as_str().unwrap().ends_with(" (rank 0)"));
    let replay = run.replay();
    let found = findings(replay.shown());
    for device in 0..2 {
        let others = if device == 0 { STRANGER } else { 0 };
        assert_eq!(rung(&found, device, Gap::Others), Some(others), "{:#?}", found.devices[device]);
        assert!(inside(&found, device) > 0, "{:#?}", found.devices[device]);
    }
}

#[test]
fn a_caught_error_has_the_same_message_as_a_fatal_one() {
    test_tiers::change!("starts PyTorch again");
    let run = Recorded::new("NVIDIA A10:4GiB:256MiB");
    let mut job = run.start("caught");
    let mut printed = String::new();
    BufReader::new(job.stdout.take().unwrap()).read_line(&mut printed).unwrap();
    assert_eq!(printed, "goes on\n");
    let once = String::from_utf8(run.gpuwatch(&["once"]).output().unwrap().stdout).unwrap();
    let sentence =
        once.lines().find_map(|it| it.trim_start().strip_prefix("warning: Out of")).unwrap_or_else(|| panic!("{once}"));
    assert!(is_blamed(&format!("Out of{sentence}")), "{once}");
    assert!(sentence.contains(" kept 3.") && sentence.contains(" GiB since"), "what was kept by then: {once}");
    let json: Value = serde_json::from_slice(&run.gpuwatch(&["once", "--json"]).output().unwrap().stdout).unwrap();
    schemas::check("once", &json);
    assert_eq!(json["probes"][0]["ooms"][0]["sentence"], format!("Out of{sentence}"), "{json:#}");
    writeln!(job.stdin.take().unwrap()).unwrap();
    assert!(job.wait().unwrap().success());
    let json = run.judged();
    let [oom] = of_kind(&json, "oom")[..] else { panic!("one error: {json:#}") };
    assert_eq!((&oom["severity"], oom["sentence"].as_str()), (&"warning".into(), Some(&*format!("Out of{sentence}"))));
    assert!(of_kind(&json, "growth").iter().all(|it| it["follows"]["kind"] != "oom"), "{json:#}");
}

fn host(found: &[Finding]) -> &Finding {
    let is_host = |it: &&Finding| it.kind == Kind::Growth && it.device.is_none();
    found.iter().find(is_host).unwrap_or_else(|| panic!("{found:#?}"))
}

/// The objects are larger than what rings by itself.
#[test]
fn host_memory_that_grows_with_kept_tensors_is_not_a_separate_leak() {
    let run = Recorded::run("NVIDIA A10:4GiB:256MiB", "objects");
    let json = run.judged();
    let hits = json["hits"].as_array().unwrap();
    assert!(hits.len() == 1 && hits[0].as_str().unwrap().contains("allocated"), "{hits:?}");
    assert_eq!(json["findings"][0]["resource"], "allocated", "{json:#}");
    let replay = run.replay();
    let found = findings(replay.session()).all;
    assert!(host(&found).is_companion(), "{found:#?}");
    let reported = shown(&replay, Screen::Alerts);
    assert!(reported.contains("follows from growth of allocated"), "{reported}");
    assert!(
        shown(&replay, Screen::Process).contains("follows from growth of allocated"),
        "{}",
        shown(&replay, Screen::Process)
    );
    assert!(run.printed(&["check"]).contains("\n  follows from growth of allocated\n"));
}

#[test]
fn an_independent_leak_of_host_memory_is_a_separate_leak() {
    test_tiers::change!("starts PyTorch again");
    let run = Recorded::run("NVIDIA A10:4GiB:256MiB", "copies");
    let json = run.judged();
    assert_eq!(json["hits"].as_array().map(Vec::len), Some(2), "{json:#}");
    let found = findings(run.replay().session()).all;
    let host = host(&found);
    assert!(
        host.follows.is_none() && host.severity == gpuwatch::model::analysis::severity::Severity::Warning,
        "{host:#?}"
    );
}
