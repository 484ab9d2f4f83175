//! `gpuwatch run --trace`: all allocations of a job, from its start, in the background; and what is replayed of them.

mod advised;

use crate::{
    helpers::{
        terminal::PROGRAM,
        torch::{self, Gpu},
    },
    probe::{launch::Home, pytorch::is_quiet},
    whatif::is_exact,
};
use serde_json::{Value, json};
use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

const DEVICE: &str = "NVIDIA A10:4000MiB:0MiB";

/// A job of `gpuwatch run`, on a machine and in a home of its own.
struct Traced {
    home: Home,
    gpu: Gpu,
    output: Output,
}

impl Traced {
    fn run(script: &str, arguments: &[&str], options: &[&str]) -> Self {
        Self::run_on(DEVICE, script, arguments, options)
    }

    fn run_on(device: &str, script: &str, arguments: &[&str], options: &[&str]) -> Self {
        let (gpu, home) = (Gpu::new(device), Home::new());
        let path = gpu.dir().join("script.py");
        fs::write(&path, script).unwrap();
        let mut command = gpu.command(PROGRAM);
        command.args(["run", "--name", "whole"]).args(options).arg("--").arg(torch::python()).arg(path);
        let output = command.args(arguments).envs(home.variables()).output().unwrap();
        Self { home, gpu, output }
    }

    fn stdout(&self) -> String {
        assert!(is_quiet(&String::from_utf8_lossy(&self.output.stderr)), "{:?}", self.output);
        torch::stdout(&self.output)
    }

    /// Traces in the store.
    fn files(&self) -> Vec<PathBuf> {
        let store = self.home.0.path().join("state/gpuwatch/recordings");
        let folders = fs::read_dir(store).unwrap().map(|it| it.unwrap().path());
        let folders = folders.filter(|it| it.extension().is_some_and(|ending| ending == "trace"));
        folders.flat_map(|it| fs::read_dir(it).unwrap().map(|file| file.unwrap().path())).collect()
    }

    fn whatif(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(["whatif", "whole"]).args(arguments).envs(self.home.variables());
        command.output().unwrap()
    }

    /// The first device of the answer.
    fn answered(&self, arguments: &[&str]) -> Value {
        self.devices(arguments)[0].take()
    }

    /// The devices of the answer.
    fn devices(&self, arguments: &[&str]) -> Value {
        let json = String::from_utf8(self.whatif(&[arguments, &["--json"]].concat()).stdout).unwrap();
        serde_json::from_str::<Value>(&json).unwrap_or_else(|why| panic!("{why}: {json:?}"))["devices"].take()
    }
}

/// Two streams, `record_stream`, an emptied cache, and a request that fits only after a retry.
#[test]
fn a_traced_run_is_replayed_as_the_real_run_under_another_setting() {
    let program = include_str!("program.py");
    let traced = Traced::run(program, &["60", "2560"], &["--trace"]);
    let plain = traced.gpu.script(program).args(["60", "2560"]).output().unwrap();
    assert_eq!(traced.stdout(), torch::stdout(&plain), "its output is as without a trace");
    let recorded: Value = serde_json::from_str(&traced.stdout()).unwrap();
    // The job's own Python is known from the trace.
    let sets = ["--set", "expandable_segments:True", "--set", "", "--set", "max_split_size_mb:64"];
    let device = traced.answered(&[&["--gpu", "4000MiB"], &sets[..]].concat());
    is_exact(&device);
    assert_eq!(device["as_recorded"]["recorded_peak_reserved"], recorded["peak_reserved"], "{device:#}");
    assert!(device["pid"].is_u64() && device["as_recorded"]["settings"] == "", "{device:#}");
    for candidate in test_tiers::vary!(device["candidates"].as_array().unwrap(), "other settings of the allocator") {
        let settings = candidate["settings"].as_str().unwrap();
        let mut script = traced.gpu.script(program);
        script.args(["60", "2560"]).env("PYTORCH_CUDA_ALLOC_CONF", settings);
        let real: Value = serde_json::from_str(&torch::stdout(&script.output().unwrap())).unwrap();
        for figure in ["peak_allocated", "peak_reserved", "cuda_mallocs", "retries"] {
            assert_eq!(candidate[figure], real[figure], "{settings}: {figure}\n{real:#}\n{candidate:#}");
        }
    }
    assert_eq!(device["candidates"].as_array().unwrap().len(), 3);
}

#[test]
fn a_traced_job_on_two_devices_is_replayed_on_each() {
    test_tiers::change!("a snapshot of two devices is quicker");
    let program = include_str!("devices.py");
    let traced = Traced::run_on("NVIDIA A10:4GiB,NVIDIA A10:4GiB", program, &[], &["--trace"]);
    let recorded: Value = serde_json::from_str(&traced.stdout()).unwrap();
    let settings = "expandable_segments:True";
    let devices = traced.devices(&["--set", "", "--set", settings]);
    assert_eq!(devices.as_array().unwrap().len(), 2, "{devices:#}");
    let mut script = traced.gpu.script(program);
    script.env("PYTORCH_CUDA_ALLOC_CONF", settings);
    let real: Value = serde_json::from_str(&torch::stdout(&script.output().unwrap())).unwrap();
    for (ordinal, device) in devices.as_array().unwrap().iter().enumerate() {
        assert_eq!((&device["device"], &device["pid"]), (&json!(ordinal), &devices[0]["pid"]), "{device:#}");
        is_exact(device);
        for (candidate, real) in [&recorded, &real].into_iter().enumerate() {
            for figure in ["peak_allocated", "peak_reserved", "cuda_mallocs", "retries"] {
                let replayed = &device["candidates"][candidate][figure];
                assert_eq!(*replayed, real[ordinal][figure], "device {ordinal}, candidate {candidate}: {figure}");
            }
        }
    }
}

/// Ten pieces of the ring, with the native function and without it.
#[test]
fn pieces_of_a_trace_are_the_whole_run() {
    for how in test_tiers::vary!(["native", "in-python"], "without the native function") {
        let traced = Traced::run(include_str!("traced/paced.py"), &[how], &["--trace"]);
        let printed = traced.stdout();
        let file = fs::read(traced.files().pop().unwrap()).unwrap();
        let text = String::from_utf8_lossy(&file);
        assert!(text.contains(if how == "native" { "\"ring\": 20000" } else { "\"ring\": 2500" }), "{how}");
        let device = traced.answered(&["--set", ""]);
        is_exact(&device);
        let (peak, mallocs) = printed.trim().split_once(' ').unwrap();
        assert_eq!(device["as_recorded"]["replayed_peak_reserved"].to_string(), peak, "{how}");
        assert_eq!(device["candidates"][0]["cuda_mallocs"].to_string(), mallocs, "{how}");
        assert!(device["events"].as_u64().unwrap() > 20_000, "{how}: {device:#}");
    }
}

#[test]
fn a_killed_job_leaves_what_was_written() {
    let traced = Traced::run(include_str!("traced/killed.py"), &[], &["--trace"]);
    let answer = traced.whatif(&["--set", "", "--json"]);
    let aside = String::from_utf8_lossy(&answer.stderr).into_owned();
    assert!(answer.status.code() == Some(1) && aside.contains("ends early: its process was killed"), "{aside}");
    let device = traced.answered(&["--set", ""]);
    is_exact(&device);
    // A piece that is not whole is left out. The last one may be of that kind already.
    let file = traced.files().pop().unwrap();
    let bytes = fs::read(&file).unwrap();
    let mark = b"{\"piece\"";
    let pieces: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(mark)).collect();
    fs::write(&file, &bytes[..pieces[1].midpoint(pieces[2])]).unwrap();
    let less = traced.answered(&["--set", ""]);
    is_exact(&less);
    assert!(less["events"].as_u64() < device["events"].as_u64(), "{less:#}\n{device:#}");
    fs::write(&file, b"{}\n").unwrap();
    let printed = traced.whatif(&[]);
    assert!(String::from_utf8_lossy(&printed.stderr).contains("is not a trace that gpuwatch wrote"), "{printed:?}");
}

/// The job records a history itself: the trace ends before, and the job's has its stacks.
#[test]
fn a_trace_ends_where_the_job_wants_its_history_or_the_bytes_are_used_up() {
    test_tiers::change!("starts PyTorch several times");
    let traced = Traced::run(include_str!("traced/paced.py"), &["own"], &["--trace"]);
    traced.stdout();
    let printed = String::from_utf8(traced.whatif(&["--set", ""]).stderr).unwrap();
    assert!(printed.contains("the job began to record its memory history itself"), "{printed}");
    is_exact(&traced.answered(&["--set", ""]));
    let traced = Traced::run(include_str!("program.py"), &["60", "2560"], &["--trace", "--trace-bytes", "1KiB"]);
    traced.stdout();
    let printed = String::from_utf8(traced.whatif(&["--set", ""]).stderr).unwrap();
    assert!(printed.contains("its limit of bytes is reached"), "{printed}");
    let plain = Traced::run("print(7)", &[], &["--summary", "never"]);
    assert_eq!((plain.stdout().as_str(), plain.files().len()), ("7\n", 0));
    let printed = String::from_utf8(plain.whatif(&[]).stderr).unwrap();
    assert!(printed.contains("record the next run with `gpuwatch run --trace`"), "{printed}");
}

/// In full, on a machine that does nothing else: at most 10 ms at once, and 5 % of a step of 10 ms with 1,000
/// allocations.
#[test]
fn the_cost_of_a_trace_for_the_job() {
    println!("{}", cost_of("trace"));
}

/// The same for a window, which has smaller pieces.
#[test]
fn the_cost_of_a_window_for_the_job() {
    test_tiers::change!("the same for smaller pieces");
    println!("{}", cost_of("window"));
}

/// Returns the figures.
fn cost_of(kind: &str) -> String {
    let (gpu, home) = (torch::machine(), Home::new());
    let full = test_tiers::is_benchmark();
    let (rounds, steps) = if full { ("9", "300") } else { ("2", "20") };
    let path = gpu.dir().join("script.py");
    fs::write(&path, include_str!("traced/cost.py")).unwrap();
    let mut command = gpu.command(PROGRAM);
    command.args(["run", "--summary", "never", "--"]).arg(torch::python()).arg(path).args([rounds, steps]);
    let folder = gpu.dir().join("traces");
    let printed = torch::stdout(&command.arg(&folder).arg(kind).envs(home.variables()).output().unwrap());
    let figures: Value = serde_json::from_str(&printed).unwrap();
    let of = |figure: &str| figures[figure].as_f64().unwrap();
    assert!(!full || of("step_us") <= 500.0 && of("longest_ms") <= 10.0, "{figures}");
    assert_eq!(fs::read_dir(folder).unwrap().count().to_string(), rounds);
    printed
}
