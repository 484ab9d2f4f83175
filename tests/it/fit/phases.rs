//! What comes after training: each later phase has its own peak, and a job is led there in seconds.

use super::{Asked, bytes};
use crate::{
    helpers::{terminal::PROGRAM, torch},
    probe::holders::pythons_of_all_builds,
};
use serde_json::Value;
use std::{path::Path, process::Command};

const JOB: &str = include_str!("../python/phases.py");

/// Trainings that count their steps in their own ways.
const COUNTED: &str = include_str!("../python/counted.py");

/// Trainings written by hand, which need more than their first steps show.
const LATER: &str = include_str!("../python/later.py");

/// The line of a job that has this mark.
fn marked(job: &str, mark: &str) -> String {
    let at = job.lines().position(|it| it.ends_with(&format!("# {mark}"))).unwrap();
    format!("train.py:{}", at + 1)
}

/// Runs one case on a device on which training fits; returns the answer, its exit code and its text.
fn fit(case: &str, twin: &str) -> (Value, i32) {
    fit_job(JOB, case, twin)
}

fn fit_job(job: &str, case: &str, twin: &str) -> (Value, i32) {
    let asked = Asked::new(job);
    let file = asked.home.0.path().join("checkpoint.pt");
    asked.json(&["--gpu", "600MiB"], &[case, twin, file.to_str().unwrap()])
}

fn names(answer: &Value) -> Vec<&str> {
    answer["phases"]["ran"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect()
}

/// Planted: what runs out of memory only later, with its phase and the line of its peak. The healthy twin fits.
#[test]
fn later_phases_that_do_not_fit_are_predicted() {
    let cases = [
        ("epochs", "evaluation", "together"),
        ("workers", "evaluation", "together"),
        ("intervals", "evaluation", "together"),
        ("at_a_step", "training", "late"),
        ("saves", "saving", "copy"),
        ("resumes", "loading", "load"),
        ("generates", "generation", "generate"),
        ("lengths", "training", ""),
        ("modes", "evaluation", ""),
        ("counts", "evaluation", ""),
        ("longer", "training", ""),
    ];
    for (case, phase, line) in test_tiers::vary!(cases, "other later phases, and their healthy twins") {
        check(JOB, case, phase, line);
    }
}

/// The same of what people write: averages, two optimizers, layers that learn late, sampling, folds, curricula.
#[test]
fn what_a_training_needs_late_is_predicted() {
    let cases = [
        ("callbacks", "training", "histogram"),
        ("averages", "training", "copy"),
        ("clips", "training", "clip"),
        ("adversaries", "training", "judge"),
        ("unfreezes", "training", "unfrozen"),
        ("samples", "evaluation", "kept"),
        ("best", "loading", "best"),
        ("merges", "end", "merge"),
        ("views", "evaluation", "views"),
        ("whole_pictures", "evaluation", "whole"),
        ("folds", "training", "step"),
        ("curriculum", "training", "longer"),
        ("validates_with_gradients", "training", "graphs"),
        ("beams", "evaluation", "decode"),
        ("warms_up", "training", ""),
        ("stages", "training", ""),
        ("chooses", "training", ""),
        ("rises", "training", ""),
        ("milestones", "training", ""),
        ("plans", "training", ""),
        ("prefetches", "training", ""),
    ];
    for (case, phase, line) in test_tiers::vary!(cases, "other late needs, and their healthy twins") {
        check(LATER, case, phase, line);
    }
}

/// A counter may be an entry, a variable or an attribute of others, and be tested where it is not counted. What no rule
/// understands is entered once, and functions that end with their loops end.
#[test]
fn evaluations_after_steps_that_others_count_are_predicted() {
    let cases = [
        "trainer",
        "callback",
        "mapping_on_one_line",
        "asked",
        "mapping",
        "cell",
        "closure",
        "module",
        "callback_on_one_line",
        "attribute_of_another",
        "renamed",
        "in_dataclass",
        "kept",
        "library",
        "hours",
        "callback_of_hours",
    ];
    for case in test_tiers::vary!(cases, "other ways to count") {
        check(COUNTED, case, "evaluation", "evaluate");
    }
}

/// What a job would do at a time that nobody knows is named, also if it comes to its end; what its settings leave out
/// is not.
#[test]
fn lines_that_a_led_job_left_out_are_named() {
    for (case, expected) in test_tiers::vary!(
        [("ends_by_itself", &["ends saving", "last saving"][..]), ("switched_off", &[]), ("decorated", &[]),],
        "other lines"
    ) {
        let (answer, code) = fit_job(COUNTED, case, "bad");
        assert_eq!(code, 0, "{case}: {answer:#}");
        let all: Vec<_> =
            answer["phases"]["not_run"].as_array().unwrap().iter().map(|it| (&it["line"], &it["name"])).collect();
        let marks = expected.iter().map(|it| it.rsplit_once(' ').unwrap());
        let wanted: Vec<_> =
            marks.map(|(mark, name)| (Value::from(marked(COUNTED, mark)), Value::from(name))).collect();
        assert_eq!(all, wanted.iter().map(|(line, name)| (line, name)).collect::<Vec<_>>(), "{case}");
    }
}

/// What an epoch keeps of each step is named with the step in which the device is full.
#[test]
fn outputs_that_an_epoch_keeps_are_a_growth() {
    let (bad, code) = fit_job(LATER, "metrics", "bad");
    assert_eq!((bad["fits"].as_str(), code), (Some("unknown"), 2), "{bad:#}");
    let unknown = bad["unknown"].to_string();
    let line = format!("; {} allocates what it keeps", marked(LATER, "outputs"));
    assert!(unknown.contains("grows 1000 KiB a step: full after about ") && unknown.contains(&line), "{bad:#}");
    check_healthy(LATER, "metrics");
}

/// Checks that the first phase that does not fit is this one, with the marked line, and that the healthy twin fits.
fn check(job: &str, case: &str, phase: &str, line: &str) {
    let (bad, code) = fit_job(job, case, "bad");
    assert_eq!((bad["fits"].as_str(), code), (Some("no"), 1), "{case}: {bad:#}");
    let rows = bad["phases"]["ran"].as_array().unwrap();
    // The start contains what is loaded in it.
    let first = rows.iter().find(|it| it["fits"] == "no" && it["name"] != "start");
    assert_eq!(first.map(|it| &it["name"]), Some(&phase.into()), "{case}: {bad:#}");
    if !line.is_empty() {
        let lines = [&bad["peak"]["line"], &first.unwrap()["line"]];
        assert!(lines.contains(&&marked(job, line).into()), "{case}: {bad:#}");
    }
    check_healthy(job, case);
}

/// Checks that the healthy twin of a case fits, and that nothing in it fails.
fn check_healthy(job: &str, case: &str) {
    let (good, code) = fit_job(job, case, "good");
    assert_eq!((good["fits"].as_str(), code), (Some("yes"), 0), "{case}: {good:#}");
    assert!(!good["unknown"].to_string().contains(" failed here"), "{case}: {good:#}");
}

/// Both the tests that later steps would enter and the loops are led; what no step enters is not.
#[test]
fn what_no_step_enters_is_not_entered() {
    let (answer, code) = fit("never", "good");
    assert_eq!(code, 0, "{answer:#}");
    assert_eq!(names(&answer), ["start", "training", "end"], "{answer:#}");
    assert_eq!(answer["phases"]["not_run"].as_array().map(Vec::len), Some(0), "{answer:#}");
}

/// gpuwatch resets the allocator's peaks at each phase; the job still reads the peaks since its own reset.
#[test]
fn the_job_sees_its_own_peaks() {
    let script = "import torch\nnet = torch.nn.Linear(64, 64).cuda()\no = torch.optim.SGD(net.parameters(), 0.1)\n\
                  big = 100 << 20\ntorch.empty(big, device='cuda', dtype=torch.uint8)\n\
                  peaks = [torch.cuda.max_memory_allocated]\nif hasattr(torch, 'accelerator'):\n    \
                  peaks += [torch.accelerator.max_memory_allocated]\n\
                  for step in range(6):\n    net(torch.randn(8, 64, device='cuda')).sum().backward()\n    o.step()\n    \
                  with torch.no_grad():\n        net(torch.randn(8, 64, device='cuda'))\n    \
                  if step == 2:\n        assert all(it() > big for it in peaks)\n        \
                  torch.cuda.reset_peak_memory_stats()\n    \
                  if step > 2:\n        assert all(it() < big for it in peaks)\n";
    let (answer, code) = Asked::new(script).json(&["--steps", "5", "--gpu", "T4"], &[]);
    assert_eq!(code, 0, "{answer:#}");
    assert!(!answer["unknown"].to_string().contains("failed"), "{answer:#}");
    assert!(bytes(&answer["peak"], "allocated") > 100 << 20, "{answer:#}");
}

/// The newest recording is never one of a simulated job.
#[test]
fn recordings_of_simulated_jobs_are_kept_apart() {
    let asked = Asked::new(JOB);
    torch::stdout(&asked.fit(&["--gpu", "T4"], &["fails", "good"]));
    let listed = |folder: &[&Path]| -> Value {
        let mut list = Command::new(PROGRAM);
        list.args(["recordings", "--json"]).args(folder).envs(asked.home.variables());
        serde_json::from_str(&torch::stdout(&list.output().unwrap())).unwrap()
    };
    let all = listed(&[]);
    assert_eq!(all["recordings"].as_array().map(Vec::len), Some(0), "{all:#}");
    let folder = Path::new(all["directory"].as_str().unwrap()).join("fit");
    let own = listed(&[&folder]);
    assert_eq!(own["recordings"].as_array().map(Vec::len), Some(1), "{own:#}");
}

/// The number of its steps is then a value on the device, which a bias correction divides by.
#[test]
fn an_optimizer_resumes_with_its_state_on_the_device() {
    let script = "import sys, torch\nnet = torch.nn.Linear(64, 64).cuda()\no = torch.optim.Adam(net.parameters())\n\
                  for step in range(8):\n    net(torch.randn(8, 64, device='cuda')).sum().backward()\n    o.step()\n    \
                  if step == 1:\n        torch.save(o.state_dict(), sys.argv[1])\n        \
                  o = torch.optim.Adam(net.parameters())\n        \
                  o.load_state_dict(torch.load(sys.argv[1], map_location='cuda'))\n";
    let asked = Asked::new(script);
    let file = asked.home.0.path().join("checkpoint.pt");
    let (answer, code) = asked.json(&["--gpu", "T4"], &[file.to_str().unwrap()]);
    assert_eq!(code, 0, "{answer:#}");
    assert!(names(&answer).contains(&"loading"), "{answer:#}");
}

#[test]
fn a_failure_after_all_that_is_known_leaves_the_answer() {
    let (answer, code) = fit("fails", "good");
    assert_eq!((answer["fits"].as_str(), code), (Some("yes"), 0), "{answer:#}");
    let unknown = answer["unknown"].to_string();
    let phrase =
        format!("failed here at {}, and what comes after it did not run: ValueError no place", marked(JOB, "fails"));
    assert!(unknown.contains(&phrase), "{phrase}: {unknown}");
}

/// Evaluates, and fails before or after it has called a module, with and without anything after it.
const FAILING: &str = "import sys, torch
case = sys.argv[1]
net = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def look(wrong):
    if case == 'mode':
        net.eval()
        raise KeyError(wrong)  # mode
    with torch.no_grad():
        if case == 'early':
            raise KeyError(wrong)  # early
        out = net(torch.randn(8, 256, device='cuda'))
    if case == 'late':
        raise KeyError(wrong)  # late
    return out
for epoch in range(3):
    for _ in range(5):
        net(torch.randn(8, 256, device='cuda')).sum().backward()
        optimizer.step()
    if case == 'between':
        print([1, 2][epoch + 7])  # between
    try:
        with torch.no_grad():
            net(torch.randn(8, 256, device='cuda'))
            raise OSError('is caught')
    except OSError:
        pass
    if case != 'end':
        look('no such column')
if case == 'exits':
    sys.exit('the target was not reached')
if case == 'end':
    print({}['nothing is left'])  # end
";

/// What a phase takes that failed, and what those after it take, is unknown; what fails after all of them is named.
#[test]
fn a_phase_that_fails_is_no_plain_yes() {
    for (case, place) in [
        ("mode", Some("evaluation failed at ")),
        ("early", Some("evaluation failed at ")),
        ("late", Some("evaluation failed at ")),
        ("between", Some("failed at ")),
        ("end", None),
        ("exits", None),
        ("healthy", None),
    ] {
        let (answer, code) = Asked::new(FAILING).json(&["--gpu", "600MiB"], &[case]);
        let (fits, expected) = if place.is_some() { ("unknown", 2) } else { ("yes", 0) };
        assert_eq!((answer["fits"].as_str(), code), (Some(fits), expected), "{case}: {answer:#}");
        let text = answer.to_string();
        if let Some(place) = place {
            let phrase = format!("fits as far as it ran, but {}", if case == "between" { "" } else { place });
            let at = format!("failed at {}", marked(FAILING, case));
            assert!(text.contains(&phrase) && text.contains(&at), "{phrase}, {at}: {answer:#}");
        }
        let ended = "the job ended itself after training, with exit code 1: ";
        assert_eq!(text.contains(ended), case == "exits", "{case}: {answer:#}");
        assert_eq!(text.contains(" failed here"), place.is_some() || case == "end", "{case}: {answer:#}");
    }
}

/// A phase that does not fit is named beside what training takes, and lines that did not run are listed.
#[test]
fn the_text_has_a_row_for_each_phase() {
    let asked = Asked::new(JOB);
    let output = asked.fit(&["--gpu", "600MiB"], &["epochs", "bad"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let place = "evaluation after step ";
    for part in [
        place,
        " does not fit, training alone does (",
        "\nphases: ",
        "  training, ",
        "led out of its loops, the job came to its end\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The command of a remedy is one that a shell takes as it stands.
    let (_, next) = text.split_once("\nnext:\n  gpuwatch fit --advise --gpu 600MiB -- ").unwrap();
    assert!(next.ends_with("  # measures what would save memory\n") && next.lines().count() == 1, "{text}");
    // One step, and what follows it, is all that is asked for here.
    let script = "import torch\nnet = torch.nn.Linear(64, 64).cuda()\no = torch.optim.SGD(net.parameters(), 0.1)\n\
                  def train():\n    while True:\n        net(torch.randn(8, 64, device='cuda')).sum().backward()\n        \
                  o.step()\ntrain()\nnet.eval()\ntorch.save(net, 'x')\n";
    let output = Asked::new(script).fit(&["--gpu", "T4"], &[]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains("next:"), "{text}");
    for part in ["did not run: evaluation at train.py:9", "did not run: saving at train.py:10"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// The whole run continues by itself before it is led on: a staircase is seen that no test in the source shows.
#[test]
fn a_whole_run_sees_what_comes_by_itself() {
    let script = "import torch\nnet = torch.nn.Linear(64, 64).cuda()\no = torch.optim.SGD(net.parameters(), 0.1)\n\
                  kept, more = [], {'217'}\nfor step in range(400):\n    net(torch.randn(8, 64, device='cuda')).sum().backward()\n    \
                  o.step()\n    kept += [torch.zeros(400 << 18, device='cuda') for _ in more if _ == str(step)]\n";
    for (flags, expected) in [(&["--gpu", "400MiB"][..], 0), (&["--whole", "--gpu", "400MiB"], 1)] {
        let (answer, code) = Asked::new(script).json(flags, &[]);
        assert_eq!(code, expected, "{flags:?}: {answer:#}");
    }
}

/// Branches on the lines of their tests, in a function, with counters that must not change for the job.
const LINES: &str = "import sys, torch
net = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.Adam(net.parameters())
def make(mib):
    return torch.empty(mib << 18, device='cuda')
def evaluate(best):
    net.eval()
    with torch.no_grad():
        net(make(8).view(-1, 256))
    net.train()
def train(steps, best):
    step, counted = 0, []
    while True:
        if step >= steps: break
        net(torch.randn(64, 256, device='cuda')).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 500 == 499: make(300)
        if step == 700 and steps > 9: make(500)
        best = max(best, step / 1000000)
        counted.append(step)
        assert len(counted) == step, counted
        if step % 100: continue
        if best > 7: evaluate(best)
        if best > 8:
            torch.save(net.state_dict(), 'best.pt')
        make(700)
class Trainer:
    def __init__(self):
        self.at, self.seen = 0, 0
    def fit(self, epochs):
        for epoch in range(epochs):
            for _ in range(40):
                net(torch.randn(64, 256, device='cuda')).sum().backward()
                optimizer.step()
                self.at += 1
                if self.at % 1000 == 0: make(800)
                self.seen += 1
                assert self.at == self.seen, self.at
if sys.argv[1] == 'plain':
    train(2000, 0)
else:
    Trainer().fit(99)
";

#[test]
fn a_branch_on_the_line_of_its_test_is_entered_and_counters_stay() {
    test_tiers::change!("starts of PyTorch");
    for (case, mib, lines) in [
        ("plain", 700, &["train.py:19: `if step % 500 == 499: make(300)`", "train.py:20: `if step == 700 and"][..]),
        ("trainer", 800, &["train.py:38: `if self.at % 1000 == 0: make(800)`"]),
    ] {
        let output = Asked::new(LINES).fit(&["--json", "--gpu", "2GiB"], &[case]);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let allocated = answer["peak"]["allocated"].as_u64().unwrap();
        assert!((mib << 20..(mib + 40) << 20).contains(&allocated), "{answer:#}");
        let unknown = answer["unknown"].to_string();
        assert!(lines.iter().all(|it| unknown.contains(it)), "{unknown}");
        assert!(!unknown.contains("AssertionError"), "{unknown}");
        // What a function that runs would do later is named by its own lines.
        let missing = answer["phases"]["not_run"].to_string();
        assert!(case != "plain" || ["train.py:25", "train.py:27"].iter().all(|it| missing.contains(it)), "{answer:#}");
    }
}

/// Releases of Python differ in where a jump leads, and in what a frame keeps once it was looked at.
#[test]
fn loops_are_left_in_the_same_way_on_every_python() {
    on_every_python("loop_exit.py", "loops are right\n");
}

/// Whatever a test reads: lists, entries, hooks, numbers of examples, a clock. Not what settings leave out.
#[test]
fn late_branches_are_entered_on_every_python() {
    on_every_python("late_branches.py", "branches are right\n");
}

/// Schedules, tables, objects that count their calls, and what only runs tell.
#[test]
fn later_passes_are_made_on_every_python() {
    on_every_python("later_passes.py", "passes are right\n");
}

fn on_every_python(script: &str, expected: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/python");
    for python in pythons_of_all_builds() {
        let mut command = Command::new(&python);
        command.arg(folder.join(script)).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/probes/python"));
        assert_eq!(torch::stdout(&command.output().unwrap()), expected, "{}", python.display());
    }
}

/// Trains, evaluates and waits, with clocks of its own.
const CLOCKS: &str = "import sys, threading, time, torch
wait, monotonic, calls = threading.Event.wait, time.monotonic, [0]
if sys.argv[1] == 'fast':
    threading.Event.wait = lambda it, seconds=None: wait(it, 0 if seconds and seconds < 60 else seconds)
def late():
    calls[0] += 1
    return monotonic() + 100 * calls[0]
net = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(1000):
    net(torch.randn(64, 512, device='cuda')).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
if sys.argv[1] == 'waits':
    time.monotonic = late
    wait(threading.Event())
with torch.no_grad():
    kept = [net(torch.randn(1024, 512, device='cuda')) for _ in range(100)]
";

/// A machine on which time flies sees all that follows training; what waits for ever is left, and the answer says so.
#[test]
fn what_follows_training_ends_by_what_it_does_and_not_by_the_clock() {
    let answer = |case: &str| {
        let output = Asked::new(CLOCKS).fit(&["--json", "--gpu", "RTX 4090"], &[case]);
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
    };
    let fast = answer("fast");
    assert!(fast["peak"]["allocated"].as_u64().unwrap() > 200 << 20, "{fast:#}");
    let waits = answer("waits");
    let phrase = "what follows training had not ended after a minute, and was left at train.py:16: its peak may be";
    assert!(waits["unknown"].to_string().contains(phrase), "{waits:#}");
}

/// An evaluation that keeps more than any device has.
const LARGE: &str = "import torch
net = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.AdamW(net.parameters())
def batch(rows):
    return torch.empty(rows, 512, device='cuda')
for _ in range(40):
    net(batch(64)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
net.eval()  # evaluated
kept = [net(batch(4 << 20)) for _ in range(100)]
";

/// A job that runs out of memory on the largest simulated device fits no card. The answer is no, and has phases and
/// lines.
#[test]
fn what_runs_out_of_memory_with_all_the_room_does_not_fit() {
    test_tiers::change!("three starts of PyTorch");
    let asked = Asked::new(LARGE);
    let (answer, code) = asked.json(&["--gpu", "24GiB"], &[]);
    assert_eq!((code, &answer["fits"]), (1, &"no".into()), "{answer:#}");
    let ran = answer["phases"]["ran"].as_array().unwrap();
    let last = ran.iter().find(|it| it["name"] == "evaluation").unwrap_or_else(|| panic!("{answer:#}"));
    assert_eq!(last["line"], marked(LARGE, "evaluated"), "{answer:#}");
    let text = String::from_utf8(asked.fit(&["--gpu", "24GiB"], &[]).stdout).unwrap();
    assert!(text.contains("no known card is enough") && text.contains("does not fit"), "{text}");
}

/// Trains with settings, or with batches, of which the largest ones come last or first; or copies its model at the end.
const SETTINGS: &str = "import copy, sys, torch
net = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def train(rows):
    net(torch.randn(rows, 256, device='cuda')).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
def phase(name, steps, rows):
    for step in range(steps):
        train(rows)
def batches(order):
    for step in range(90):
        yield step, torch.zeros(64 * (order[step // 30] + 1), 256)
how, order = sys.argv[1], [0, 1, 7] if sys.argv[2] == 'rising' else [7, 1, 0]
if how == 'phases':
    PLAN = [('phase', 30, 512 * (it + 1)) for it in order]
    for it in PLAN:
        phase(*it)
elif how == 'batches':
    for step, batch in batches(order):
        train(len(batch))
else:
    for step in range(30):
        train(8)
    kept = [copy.deepcopy(it) for it in [net] * 20] if sys.argv[2] == 'rising' else []
    if sys.argv[2] == 'rising':
        more = copy.deepcopy(net)
";

#[test]
fn settings_that_are_handed_on_and_batches_of_generators_are_followed_to_the_largest() {
    test_tiers::change!("five starts of PyTorch");
    let peak = |how: &str, order: &str| {
        let (answer, _) = Asked::new(SETTINGS).json(&["--gpu", "RTX 4090"], &[how, order]);
        bytes(&answer["peak"], "allocated")
    };
    for how in ["phases", "batches"] {
        let (rising, falling) = (peak(how, "rising"), peak(how, "falling"));
        assert!(rising.abs_diff(falling) < falling / 50, "{how}: {rising} {falling}");
    }
    // 21 models of 2.1 MB, and the trained one.
    assert!(peak("copies", "rising") > 40 << 20);
}
