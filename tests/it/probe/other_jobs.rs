//! Jobs that are not PyTorch: each shows the rungs that its allocator can know, and nothing for the rest.

#[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
mod aarch64;
/// Plain Python: JAX, CuPy, and whatever else has an allocator.
mod plain;

use crate::{
    helpers::{
        terminal::{PATIENCE, PROGRAM, Terminal, until},
        torch::{stdout, target},
    },
    house::schemas,
    probe::launch::Home,
};
use ::simgpu::{Machine, prepare_driver};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

const MIB: u64 = 1 << 20;

/// The size of a context on the simulated machine, in bytes.
const CONTEXT: u64 = 512 * MIB;

const STEPS: &str = "100";

/// The driver's and NVML's libraries, made once.
fn libraries() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("driver-{}", std::process::id()));
        prepare_driver(&folder).unwrap();
        folder
    })
}

fn probes(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("probes").join(name)
}

/// A machine with one device, and who is watched there.
struct Bench {
    machine: Machine,
    home: Home,
}

impl Bench {
    fn new() -> Self {
        let home = Home::new();
        let machine = Machine::new("NVIDIA H200:143771MiB:615MiB", &home.0.path().join("machine")).unwrap();
        Self { machine, home }
    }

    fn uuid(&self) -> String {
        self.machine.cards().unwrap()[0].uuid.clone()
    }

    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.envs(self.machine.environment(libraries())).env("SIMGPU_STRICT", "1").envs(self.home.variables());
        command.env("GPUWATCH_NVML_PATH", libraries().join("libnvidia-ml.so.1"));
        command.env_remove("GPUWATCH").env_remove("CUDA_VISIBLE_DEVICES");
        command
    }

    /// A script on the stand-in of a library, with the probe for that library.
    fn python(&self, library: &str, steps: &str) -> Command {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/probe/other_jobs");
        let mut command = self.command("python3");
        command.arg(here.join("train.py")).args([library, steps]).env("PYTHONPATH", probes("python"));
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    fn gpuwatch(&self, arguments: &[&str]) -> String {
        stdout(&self.command(PROGRAM).args(arguments).output().unwrap())
    }

    fn once(&self) -> Value {
        let once = serde_json::from_str(&self.gpuwatch(&["once", "--json"])).unwrap();
        schemas::check("once", &once);
        once
    }
}

/// A job that made its steps, and waits for Enter.
struct Job(Child);

impl Job {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let job = Self(child);
        if line.ends_with("steps are done; Enter ends the job.\n") {
            return job;
        }
        panic!("{line}{:?}", job.ended());
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Lets it end: with success, and with nothing on standard error.
    fn end(self) {
        let (success, errors) = self.ended();
        assert!(success && errors.is_empty(), "{errors}");
    }

    fn ended(mut self) -> (bool, String) {
        // One that ended already reads nothing.
        let _ = self.0.stdin.take().unwrap().write_all(b"\n");
        let output = self.0.wait_with_output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// The one device and the one probe on it, whose rungs are these: bytes, or what is not known.
fn check(bench: &Bench, framework: &str, rungs: &[(&str, Option<u64>)]) -> Value {
    let reported = bench.once();
    assert_eq!(reported["probes"][0]["hello"]["framework"], framework, "{reported:#}");
    assert_eq!(reported["probes"].as_array().unwrap().len(), 1, "{reported:#}");
    assert_eq!(reported["devices"].as_array().unwrap().len(), 1, "{reported:#}");
    let ladder = &reported["devices"][0]["ladder"];
    assert_eq!(ladder["sum"], ladder["total"], "every byte has a place");
    let found: Vec<(&str, Option<u64>)> = ladder["rungs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|it| it["probe"] == 0)
        .map(|it| (it["gap"].as_str().unwrap(), it["bytes"].as_u64()))
        .collect();
    assert_eq!(found, rungs, "{framework}");
    let text = bench.gpuwatch(&["once"]);
    for (gap, bytes) in rungs {
        let row = text.lines().find(|it| it.trim_start().starts_with(&gap.replace("non_torch", "non-torch"))).unwrap();
        assert_eq!(row.ends_with(" –"), bytes.is_none(), "{row}");
    }
    reported["probes"][0]["devices"][0].clone()
}

/// A job without a probe runs as usual, and no viewer finds it.
fn check_off(bench: &Bench, mut command: Command) {
    command.env("GPUWATCH", "off");
    let job = Job::start(command);
    let sockets = fs::read_dir(bench.home.0.path().join("sockets")).map_or(0, Iterator::count);
    assert_eq!(sockets, 0);
    job.end();
}

/// Checks the figures of both examples with an allocator of their own.
fn check_counted(bench: &Bench, job: &Job, framework: &str) {
    let (requested, rounding, reserved) = (1_100_000_000, 44_800, 33 * 32 * MIB);
    bench.machine.occupy(0, job.pid(), reserved + CONTEXT).unwrap();
    let on = check(
        bench,
        framework,
        &[
            ("wanted", Some(requested)),
            ("rounding", Some(rounding)),
            ("pending", Some(0)),
            ("stuck", None),
            ("cached", Some(reserved - requested - rounding)),
            ("non_torch", Some(CONTEXT)),
        ],
    );
    assert_eq!((&on["step"], &on["counters"]["blocks"]), (&100.into(), &101.into()));
    assert_eq!(on["growth"]["trend"], "growing", "{on}");
    assert_eq!(on["growth"]["bytes_per_step"], 1_000_448.0, "{on}");
}

#[test]
fn the_example_in_c_is_watched() {
    let bench = Bench::new();
    let exports = bench.gpuwatch(&["env"]);
    let library = exports.lines().find_map(|it| it.strip_prefix("export GPUWATCH_PROBE_SO=")).unwrap();
    let folder = Path::new(library.trim_matches('\'')).parent().unwrap();
    let program = bench.home.0.path().join("train");
    let mut compile = Command::new("cc");
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"]).arg(probes("gpuwatch-probe"));
    compile.arg(probes("gpuwatch-probe/examples/c/train.c")).arg("-o").arg(&program);
    compile.arg("-L").arg(folder).arg("-lgpuwatch_probe").arg(format!("-Wl,-rpath,{}", folder.display()));
    stdout(&compile.output().unwrap());
    let command = || {
        let mut command = bench.command(&program);
        command.args([STEPS, &bench.uuid()]);
        command
    };
    let job = Job::start(command());
    check_counted(&bench, &job, "c");
    job.end();
    check_off(&bench, command());
}

/// An example in Rust, as a crate that depends on the probe would build it.
fn rust_example(name: &str, features: &[&str]) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    // The same packages as the tests' own build, so that next to nothing is compiled for it alone.
    cargo.args(["build", "--quiet", "--locked", "--workspace", "--example", name]).args(features);
    cargo.arg("--target-dir").arg(target()).current_dir(env!("CARGO_MANIFEST_DIR"));
    stdout(&cargo.output().unwrap());
    target().join("debug/examples").join(name)
}

#[test]
fn the_example_in_rust_is_watched() {
    let bench = Bench::new();
    let program = rust_example("train", &[]);
    let command = || {
        let mut command = bench.command(&program);
        command.args([STEPS, &bench.uuid()]);
        command
    };
    let job = Job::start(command());
    check_counted(&bench, &job, "rust");
    job.end();
    check_off(&bench, command());
}

#[test]
fn a_job_that_allocates_through_cudarc_is_watched() {
    test_tiers::full!("it builds cudarc");
    let bench = Bench::new();
    let program = rust_example("cudarc", &["--features", "gpuwatch-probe/cudarc"]);
    let command = || {
        let mut command = bench.command(&program);
        command.arg(STEPS);
        command
    };
    let job = Job::start(command());
    let (kept, weights, activations) = (1_000_448, 256 * MIB, 128 * MIB);
    let allocated = weights + 100 * kept;
    let reserved = allocated.next_multiple_of(32 * MIB);
    let on = check(
        &bench,
        "cudarc",
        &[
            ("allocated", Some(allocated)),
            ("rounding", None),
            ("pending", None),
            ("stuck", None),
            ("cached", Some(reserved - allocated)),
            ("non_torch", Some(CONTEXT)),
        ],
    );
    let counters = &on["counters"];
    let peak = allocated + activations;
    assert_eq!(counters["allocated_peak"], peak);
    assert_eq!(counters["reserved_peak"], peak.next_multiple_of(32 * MIB));
    assert_eq!(counters["device_total"], (143_771 - 615) * MIB);
    assert!(counters["device_free"].as_u64().unwrap() < (143_771 - 615 - 512) * MIB, "{counters}");
    assert!(counters.get("blocks").is_none_or(Value::is_null), "{counters}");
    assert_eq!(on["growth"]["trend"], "growing", "{on}");
    assert_eq!(on["growth"]["bytes_per_step"], 1_000_448.0, "{on}");
    job.end();
    check_off(&bench, command());
}

#[test]
fn a_suspended_job_is_shown_as_suspended() {
    let bench = Bench::new();
    let job = Job::start(bench.python("jax", STEPS));
    let environment: Vec<(String, String)> = bench
        .command(PROGRAM)
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value?.to_str()?.to_owned())))
        .collect();
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (&**name, &**value)).collect();
    let terminal = Terminal::start(&[], &environment);
    // The list cuts off the command where the path of the checkout is long.
    terminal.shows(&format!("{} ", job.pid()));
    terminal.shows("python3 ");
    let pid = Pid::from_raw(i32::try_from(job.pid()).unwrap()).unwrap();
    let phrase = format!("rank 0 (pid {}) is suspended", job.pid());
    kill_process(pid, Signal::STOP).unwrap();
    terminal.shows(&phrase);

    // A new viewer gets no answer from the suspended probe, and still lists the job as probed.
    let reported = bench.once();
    assert_eq!(reported["devices"][0]["processes"][0]["suspended"], true, "{reported:#}");
    let text = bench.gpuwatch(&["once"]);
    assert!(text.contains(&format!("suspended; `kill -CONT {}` resumes it", job.pid())), "{text}");
    assert!(!text.contains("gpuwatch run"), "{text}");

    kill_process(pid, Signal::CONT).unwrap();
    assert!(until(PATIENCE, || !terminal.text().contains(&phrase)), "{}", terminal.text());
    assert_eq!(bench.once()["probes"][0]["suspended"], false);
    job.end();
}
