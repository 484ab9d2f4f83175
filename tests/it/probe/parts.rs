//! What allocated memory consists of: counted in the job, recorded, shown, and at a step's highest moment by line.

use std::{fs, process::Command};

use serde_json::Value;

use crate::{
    helpers::{
        terminal::PROGRAM,
        torch::{self, Gpu},
    },
    house::schemas,
    probe::{
        holders::pythons,
        launch::Home,
        pytorch::{Job, script},
    },
};

#[test]
fn weights_gradients_and_optimizer_state_are_those_that_a_script_counts() {
    let gpu = torch::machine();
    for (name, printed) in
        [("parts.py", "parts are right\n"), ("parts_kinds.py", "kinds are right\n"), ("looks.py", "looks are short\n")]
    {
        let mut python = gpu.command(torch::python());
        python.arg(script(name)).env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/probes/python"));
        assert_eq!(torch::stdout(&python.output().unwrap()), printed);
    }
}

#[test]
fn each_rank_counts_its_own_replica_and_its_own_shards() {
    test_tiers::change!("starts PyTorch on two ranks");
    let gpu = Gpu::new(&[torch::H200; 2].join(";"));
    let mut python = gpu.command(torch::python());
    python.args(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", &script("parts_ranks.py")]);
    python.env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/probes/python"));
    assert_eq!(torch::stdout(&python.output().unwrap()), "shards are right\n");
}

const PARTS: [&str; 4] = ["weights", "gradients", "optimizer", "retained"];

#[test]
fn the_parts_sum_to_what_is_allocated_on_the_ladder_and_in_exports() {
    let mut job = Job::start(&[&script("consists.py")]);
    let expected = job.next();
    let once = job.gpuwatch(&["once", "--json"]);
    schemas::check("once", &once);
    let next = once["next"][0]["command"].as_str().unwrap_or_default();
    assert_eq!(next, format!("gpuwatch peak {}", once["probes"][0]["pid"]), "{:#}", once["next"]);
    let on = &once["probes"][0]["devices"][0];
    for part in &PARTS[..3] {
        assert_eq!(on["parts"][part], expected["parts"][part], "{part}: {on:#}");
    }
    // The loss is alive at the end of a step.
    assert!(on["parts"]["retained"].as_u64() >= expected["parts"]["retained"].as_u64(), "{on:#}");
    assert!(on["parts_step"].as_u64() >= Some(1), "{on:#}");
    let rungs = once["devices"][0]["ladder"]["rungs"].as_array().unwrap();
    let rung = |gap: &str| rungs.iter().find(|it| it["gap"] == gap).and_then(|it| it["bytes"].as_u64()).unwrap_or(0);
    let sum: u64 = PARTS.map(rung).into_iter().sum::<u64>() + rung("transient");
    assert_eq!(Some(sum), on["counters"]["allocated"].as_u64(), "{rungs:#?}");
    assert_eq!(Some(rung("weights")), expected["parts"]["weights"].as_u64());
    let home = job.ended();
    let mut files = fs::read_dir(home.0.path().join("state/gpuwatch/recordings")).unwrap().map(|it| it.unwrap().path());
    let path = files.find(|it| it.to_string_lossy().ends_with(".jsonl.zst")).unwrap();
    schemas::check_recording(&path);
    let mut export = Command::new(PROGRAM);
    export.arg("export").arg(&path).args(["--format", "jsonl"]).envs(home.variables());
    let rows = torch::stdout(&export.output().unwrap());
    let rows: Vec<Value> = rows.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let counted: Vec<_> = rows.iter().filter(|it| it["weights"].is_u64()).collect();
    assert!(!counted.is_empty() && counted.len() < rows.len() / 2, "{} of {}", counted.len(), rows.len());
    for row in counted {
        let sum: u64 = PARTS.iter().map(|it| row[it].as_u64().unwrap()).sum();
        assert_eq!((Some(sum), row["edge"].as_str()), (row["allocated"].as_u64(), Some("step")), "{row}");
    }
}

/// The trainings of `changing.py`.
const CHANGING: [&str; 26] = [
    "stochastic_average",
    "moving_average",
    "adapters",
    "unfrozen",
    "groups",
    "larger",
    "accumulated",
    "several",
    "replaced",
    "zeroed",
    "tied",
    "sparse",
    "complex_numbers",
    "flat",
    "other_types",
    "parametrized",
    "normalised",
    "functional",
    "capturable",
    "fused",
    "foreach",
    "one_by_one",
    "factored",
    "orthogonal",
    "quasi_newton",
    "copied",
];

/// Unusual trainings, before and after they change, are counted as they count themselves.
#[test]
fn a_training_that_changes_is_counted_again() {
    for name in test_tiers::vary!(CHANGING, "other trainings") {
        println!("{name}");
        let mut job = Job::start(&[&script("consists.py"), name]);
        let first = job.next();
        counted(&job, name, &first["parts"]);
        let peak = whole_step(&job, &first["pid"].to_string())["parts"].clone();
        job.send("parts");
        let parts = job.next();
        for part in ["weights", "optimizer"] {
            assert_eq!(peak[part], parts[part], "{name}: {peak:#}");
        }
        // Gradients that no optimizer steps are some as well.
        assert!(peak["other"].as_u64() <= parts["retained"].as_u64(), "{name}: {peak:#} of {parts:#}");
        job.send("change");
        let then = job.next();
        counted(&job, name, &then);
        job.ended();
    }
}

/// How often a job is asked for its parts, which are counted again ten seconds after other memory has changed.
const COUNTS: usize = 200;

/// Waits until the parts are those that the script counted.
fn counted(job: &Job, name: &str, expected: &Value) {
    let mut found = Value::Null;
    for _ in 0..COUNTS {
        found = job.gpuwatch(&["once", "--json"])["probes"][0]["devices"][0].clone();
        if PARTS[..3].iter().all(|part| found["parts"][part] == expected[part]) {
            return;
        }
    }
    panic!("{name}: {found:#} is not {expected:#}");
}

/// How often a job is asked for a whole step.
const ATTEMPTS: usize = 30;

/// Asks for the highest moment until a whole step was traced: on a busy machine, the pauses may reach their limit
/// before, or events may be lost because the trace is written down too late.
fn whole_step(job: &Job, pid: &str) -> Value {
    (0..ATTEMPTS).filter_map(|_| look(job, pid)).find(|it| !it["step"].is_null()).expect("a whole step in one attempt")
}

/// Asks for the highest moment once; `None` if the pauses reached their limit before a step was traced.
fn look(job: &Job, pid: &str) -> Option<Value> {
    let out = job.asks(&["peak", pid, "--json"]);
    if out.status.success() {
        let found = serde_json::from_slice(&out.stdout).unwrap();
        schemas::check("peak", &found);
        return Some(found);
    }
    let aside = String::from_utf8_lossy(&out.stderr);
    assert!(aside.contains("was paused for as long as it may be while its "), "{aside}");
    None
}

#[test]
fn the_highest_moment_of_a_step_is_that_of_a_history_of_pytorch_by_line() {
    let mut job = Job::start(&[&script("consists.py")]);
    let first = job.next();
    let pid = first["pid"].to_string();
    let found = compared(&mut job, &first);
    let lines = found["lines"].as_array().unwrap();
    let module = |line: &Value| line["module"].as_str().map(str::to_owned);
    assert!(lines.iter().any(|it| module(it).as_deref() == Some("layers.*")), "{found:#}");
    assert!(found["step"].as_u64() > Some(8), "{found:#}");
    let text = job.output_of(&["peak", &pid]);
    for words in ["allocated at the highest moment of step", "activations, inputs and outputs", "consists.py:"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    job.ended();
}

/// Compares the highest moment of a step, by part and line, with PyTorch's own history of another step.
fn compared(job: &mut Job, first: &Value) -> Value {
    let found = whole_step(job, &first["pid"].to_string());
    job.send("peak");
    let expected = job.next();
    let expected = expected["lines"].as_object().unwrap();
    // What is older than the step is in the window as well, where it began before it.
    let lines = found["lines"].as_array().unwrap();
    let of_step = lines.iter().filter(|it| it["part"] == "activations" || it["part"] == "temporaries");
    let mine: serde_json::Map<_, _> =
        of_step.map(|it| (it["line"].as_str().unwrap().to_owned(), it["bytes"].clone())).collect();
    let (mine, expected) = (Value::from(mine), Value::from(expected.clone()));
    assert_eq!(mine, expected, "{mine} is not {expected}: {found:#}");
    let parts = found["parts"].as_object().unwrap();
    let sum = |of: &str| found[of].as_object().unwrap().values().map(|it| it.as_u64().unwrap()).sum::<u64>();
    assert_eq!([sum("parts"), sum("phases")], [found["allocated"].as_u64().unwrap(); 2]);
    assert!(found["phases"]["forward"].as_u64() > Some(0) && found["phase"].is_string(), "{found:#}");
    assert_eq!(
        (&parts["weights"], &parts["optimizer"]),
        (&first["parts"]["weights"], &first["parts"]["optimizer"]),
        "{found:#}"
    );
    found
}

/// The trainings of `moments.py`.
const TRAININGS: [&str; 11] = [
    "pictures",
    "language",
    "recomputed",
    "recurrent",
    "mixed",
    "accumulated",
    "adversaries",
    "averaged",
    "frozen",
    "rewarded",
    "deep",
];

#[test]
fn the_highest_moments_of_other_trainings_are_those_of_histories_too() {
    for name in test_tiers::vary!(TRAININGS, "other trainings") {
        println!("{name}");
        let mut job = Job::start(&[&script("consists.py"), name]);
        let first = job.next();
        compared(&mut job, &first);
        job.ended();
    }
}

#[test]
fn many_looks_leave_the_job_running() {
    test_tiers::change!("traces a step of a large model ten times");
    let mut job = Job::start(&[&script("consists.py"), "deep"]);
    let pid = job.next()["pid"].to_string();
    assert_eq!((0..100).filter_map(|_| look(&job, &pid)).take(10).count(), 10);
    job.send("parts");
    assert!(job.next()["weights"].as_u64() > Some(0));
    job.ended();
}

/// Keeps so many small blocks that writing them down would take longer than a job may be paused.
const MANY_BLOCKS: &str = "import json, os, sys, threading, torch
net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.Adam(net.parameters())
kept = [torch.empty(512, dtype=torch.uint8, device='cuda') for _ in range(60_000)]
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
print(json.dumps({'pid': os.getpid()}), flush=True)
while not over.wait(0.005):
    net(torch.ones(8, 64, device='cuda')).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
";

#[test]
fn a_job_with_too_many_live_blocks_is_told_so_and_looked_at_where_pauses_may_be_long() {
    let mut job = Job::start(&["-c", MANY_BLOCKS]);
    let pid = job.next()["pid"].to_string();
    let out = job.asks(&["peak", &pid, "--json"]);
    let aside = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1), "{aside}");
    assert!(aside.contains(" live blocks would pause it for about 180 ms (--long-pauses allows that)"), "{aside}");
    let answer = job.gpuwatch(&["peak", &pid, "--json", "--long-pauses"]);
    schemas::check("peak", &answer);
    assert!(answer["step"].as_u64().is_some() && answer["parts"]["other"].as_u64() >= Some(60_000 * 512), "{answer:#}");
    job.ended();
}

#[test]
fn releases_of_pytorch_that_drop_references_take_nothing_that_is_in_use() {
    for python in pythons() {
        let mut command = Command::new(&python);
        command.arg(script("snapshots.py")).env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/probes/python"));
        assert_eq!(torch::stdout(&command.output().unwrap()), "snapshots are right\n", "{}", python.display());
    }
}

#[test]
fn a_moment_that_was_traced_is_recorded_shown_and_compared() {
    let mut job = Job::start(&[&script("consists.py")]);
    let pid = job.next()["pid"].to_string();
    let mut asked = whole_step(&job, &pid);
    without_next(&mut asked);
    kept_and_shown(job, Some(&asked));
}

#[test]
fn a_job_that_has_settled_is_looked_at_once() {
    test_tiers::full!("trains for a minute");
    let mut job = Job::start(&[&script("consists.py")]);
    job.next();
    kept_and_shown(job, None);
}

/// Takes the commands that follow from an answer out of it, which only `gpuwatch peak` has.
fn without_next(answer: &mut Value) {
    assert!(answer.as_object_mut().unwrap().remove("next").is_some(), "{answer:#}");
}

/// Waits until the recorder of a job has a moment, lets the job fail, and reads all that shows it.
fn kept_and_shown(mut job: Job, asked: Option<&Value>) {
    let moment = loop {
        let once = job.gpuwatch(&["once", "--json"]);
        schemas::check("once", &once);
        let it = &once["probes"][0]["devices"][0]["peak"];
        if it.is_object() {
            assert!(asked.is_none_or(|asked| asked == it), "{asked:?} is not {it:#}");
            break it.clone();
        }
        assert!(once["probes"][0]["state"] != "ended", "{once:#}");
    };
    let mut files = fs::read_dir(job.home.0.path().join("state/gpuwatch/recordings")).unwrap();
    let path = files.find_map(|file| {
        Some(file.unwrap().path()).filter(|path| path.extension().is_some_and(|ending| ending == "zst"))
    });
    let path = path.unwrap();
    let gpuwatch = |home: &Home, command: &str, arguments: &[&str]| {
        Command::new(PROGRAM).arg(command).arg(&path).args(arguments).envs(home.variables()).output().unwrap()
    };
    // The recorder reads it within a second.
    while !gpuwatch(&job.home, "peak", &[]).status.success() {}
    job.send("fails");
    assert_eq!(job.next()["failed"], true);
    let home = job.ended();
    schemas::check_recording(&path);
    let json = |command: &str, arguments: &[&str]| -> Value {
        serde_json::from_slice(&gpuwatch(&home, command, arguments).stdout).unwrap()
    };
    let mut kept = json("peak", &["--json"]);
    without_next(&mut kept);
    assert_eq!(kept, moment);
    let report = json("report", &["--json", "--output", "-"]);
    schemas::check("report", &report);
    assert_eq!((&report["peaks"][0]["lines"], &report["peaks"][0]["rank"]), (&moment["lines"], &Value::Null));
    let account = report["ooms"][0]["account"].to_string();
    if moment["step"].is_null() {
        assert!(moment["cost"]["paused_us"].as_u64() > Some(30_000), "{moment:#}");
        return;
    }
    let words = format!("the highest moment of step {} had", moment["step"]);
    assert!(account.contains(&words), "{account}");
    let diff = String::from_utf8(gpuwatch(&home, "diff", &[&path.to_string_lossy()]).stdout).unwrap();
    let part = diff.lines().find(|it| it.starts_with("peak: activations")).unwrap_or_else(|| panic!("{diff}"));
    assert!(part.ends_with("  same"), "{diff}");
}
