//! What a traced job's findings carry of its replays.

use super::{DEVICE, Traced};
use crate::{
    helpers::{
        terminal::{PATIENCE, PROGRAM, Terminal, until},
        torch::{self, Gpu},
    },
    probe::launch::Home,
};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

const STUCK: &str = include_str!("stuck.py");

/// The replays run at the lowest priority: on a busy machine they take minutes.
const LONG: Duration = Duration::from_secs(300);

/// Memory for the loop: 620 MiB of segments, and the rest for one large request.
const SMALL: &str = "NVIDIA A10:2000MiB:0MiB";

impl Traced {
    fn recording(&self) -> PathBuf {
        recording(&self.home)
    }

    /// Waits for answers, and returns the latest for a kind of finding.
    fn answer(&self, kind: &str) -> Value {
        let path = self.recording();
        assert!(until(LONG, || !answers(&path, kind).is_empty()), "no answer in {}", path.display());
        answers(&path, kind).pop().unwrap()
    }

    fn check(&self) -> String {
        let mut command = Command::new(PROGRAM);
        let output = command.arg("check").arg(self.recording()).envs(self.home.variables()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

fn recording(home: &Home) -> PathBuf {
    let store = home.0.path().join("state/gpuwatch/recordings");
    let mut all = fs::read_dir(store).into_iter().flatten().map(|it| it.unwrap().path());
    all.find(|it| it.extension().is_some_and(|ending| ending == "zst")).unwrap_or_default()
}

/// The answers of replays in a recording, as far as it is written.
fn answers(path: &PathBuf, kind: &str) -> Vec<Value> {
    let Ok(file) = fs::File::open(path) else { return Vec::new() };
    let lines = BufReader::new(zstd::Decoder::new(file).unwrap()).lines().map_while(Result::ok);
    let replayed = lines.filter(|it| it.contains("\"type\":\"replayed\""));
    let parsed = replayed.map(|it| serde_json::from_str::<Value>(&it).unwrap());
    parsed.filter(|it| it["finding"]["kind"] == kind).collect()
}

fn real(gpu: &Gpu, arguments: &[&str], settings: &str) -> Value {
    let mut script = gpu.script(STUCK);
    script.args(arguments).env("PYTORCH_CUDA_ALLOC_CONF", settings);
    serde_json::from_str(&torch::stdout(&script.output().unwrap())).unwrap()
}

/// While it runs, and again when it is over.
#[test]
fn the_finding_of_a_traced_job_carries_what_the_best_settings_reserve() {
    let (gpu, home) = (Gpu::new(DEVICE), Home::new());
    let path = gpu.dir().join("stuck.py");
    fs::write(&path, STUCK).unwrap();
    let mut command = gpu.command(PROGRAM);
    command.args(["run", "--name", "whole", "--trace", "--summary", "never", "--"]).arg(torch::python()).arg(path);
    command.args(["90", "0", "wait"]).envs(home.variables()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let job = command.spawn().unwrap();
    let found = until(LONG, || answers(&recording(&home), "fragmentation").len() == 1);
    fs::write(gpu.dir().join("enough"), "").unwrap();
    let output = job.wait_with_output().unwrap();
    let run: Value = serde_json::from_str(&torch::stdout(&output)).unwrap();
    assert!(found && output.stderr.is_empty(), "{output:?}");
    assert!(until(LONG, || answers(&recording(&home), "fragmentation").len() == 2), "the run as a whole");
    let best = real(&gpu, &["90", "0"], "expandable_segments:True");
    for answer in answers(&recording(&home), "fragmentation") {
        let it = &answer["comparison"];
        assert_eq!(it["best"]["settings"], "expandable_segments:True", "{answer:#}");
        assert!(it["error_ppm"] == 0 && it["window"].is_null() && it["until_step"].as_u64() > Some(60), "{answer:#}");
        assert!(answer["cost"]["cpu_us"].as_u64() > Some(0) && answer["cost"]["trace_bytes"].is_u64(), "{answer:#}");
        for figure in ["peak_allocated", "peak_reserved", "cuda_mallocs", "retries"] {
            assert_eq!(it["current"][figure], run[figure], "{figure}: {answer:#}");
            assert_eq!(it["best"][figure], best[figure], "{figure}: {answer:#}");
        }
    }
    let traced = Traced { home, gpu, output };
    let words = traced.check();
    assert!(words.contains("with expandable_segments:True the run reserves 242.0 MiB at its peak"), "{words}");
    assert!(words.contains("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"), "{words}");
}

#[test]
fn an_error_shows_the_settings_that_avoid_it_or_that_none_do() {
    test_tiers::change!("starts PyTorch eight times");
    let fits = "`expandable_segments:True` would have fit";
    for (last, helps) in [("1300", true), ("1480", false)] {
        let traced = Traced::run_on(SMALL, STUCK, &["90", last], &["--trace"]);
        let plain = traced.gpu.script(STUCK).args(["90", last]).output().unwrap();
        assert_eq!((traced.output.status.code(), &traced.output.stdout), (Some(1), &plain.stdout));
        let it = &traced.answer("oom")["comparison"];
        assert_eq!(it["current"]["fails_at"]["step"], "step 90", "{it:#}");
        let words = traced.check();
        assert_eq!((words.contains(fits), it["best"].is_object()), (helps, helps), "{words}");
        assert!(helps || words.contains("the run fits under none of"), "{words}");
        let mut real = traced.gpu.script(STUCK);
        real.args(["90", last]).env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
        assert_eq!(real.output().unwrap().status.success(), helps);
    }
}

#[test]
fn a_finding_without_an_answer_names_the_reason() {
    let options = ["--trace", "--trace-bytes", "1KiB"];
    let traced = Traced::run_on(SMALL, STUCK, &["90", "1300"], &options);
    assert_eq!(traced.output.status.code(), Some(1));
    let answer = traced.answer("oom");
    let why = answer["why"].as_str().unwrap();
    assert!(why.contains("does not contain the error") && why.contains("its limit of bytes is reached"), "{why}");
    let words = traced.check();
    assert!(words.contains(why) && !words.contains("would have fit"), "{words}");
}

/// Where a user sees the summary, it has the answer; `Ctrl-C` ends the wait, and the job's exit code stays.
#[test]
fn at_a_terminal_the_summary_has_the_answer_to_an_error() {
    test_tiers::change!("starts PyTorch four times");
    for is_interrupted in [false, true] {
        let (gpu, home) = (Gpu::new(SMALL), Home::new());
        let path = gpu.dir().join("stuck.py");
        fs::write(&path, STUCK).unwrap();
        let environment = gpu.environment().into_iter().chain(home.variables().map(|it| (it.0, it.1.into())));
        let environment: Vec<_> = environment.map(|it| (it.0, it.1.into_string().unwrap())).collect();
        let environment: Vec<_> = environment.iter().map(|it| (it.0, it.1.as_str())).collect();
        let python = torch::python();
        let job = ["run", "--trace", "--", python.to_str().unwrap(), path.to_str().unwrap(), "90", "1300"];
        let mut terminal = Terminal::start(&job, &environment);
        terminal.shows("replaying the job's allocations");
        if is_interrupted {
            terminal.press("\x03");
        } else {
            terminal.shows("`expandable_segments:True` would have fit");
        }
        assert_eq!(terminal.ends(PATIENCE), 1);
        // The process continues without anybody.
        assert!(until(LONG, || answers(&recording(&home), "oom").len() == 1));
    }
}
