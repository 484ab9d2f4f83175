//! The probe in real PyTorch processes: which processes have it, and that the job does not notice it.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
    time::{Duration, Instant},
};

use gpuwatch_probe::wire::{Edge, Line};
use serde_json::Value;

use crate::{helpers::torch, probe::launch::Home};

/// A Python script under `gpuwatch run` on a machine of its own.
pub(crate) struct Job {
    child: Child,
    input: Option<ChildStdin>,
    out: BufReader<ChildStdout>,
    pub(crate) sockets: PathBuf,
    pub(crate) home: Home,
    gpu: torch::Gpu,
}

impl Job {
    /// Starts `python arguments…` probed.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_on(torch::machine(), arguments)
    }

    pub(crate) fn start_on(gpu: torch::Gpu, arguments: &[&str]) -> Self {
        Self::start_with(gpu, arguments, |_| ())
    }

    pub(crate) fn start_with(gpu: torch::Gpu, arguments: &[&str], change: impl FnOnce(&mut Command)) -> Self {
        Self::start_by(gpu, &[], arguments, change)
    }

    /// The same with options of `gpuwatch run`.
    pub(crate) fn start_by(
        gpu: torch::Gpu,
        options: &[&str],
        arguments: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let home = Home::new();
        let mut command = gpu.command(env!("CARGO_BIN_EXE_gpuwatch"));
        command.arg("run").args(options).arg("--").arg(torch::python()).args(arguments).envs(home.variables());
        change(&mut command);
        let aside = fs::File::create(home.0.path().join("stderr")).unwrap();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(aside).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let sockets = home.0.path().join("sockets");
        Self { input: child.stdin.take(), child, out, sockets, home, gpu }
    }

    /// The next line that the script prints, as JSON.
    pub(crate) fn next(&mut self) -> Value {
        let mut line = String::new();
        // In some releases, ranks print there, in pieces, which ranks are connected.
        while !line.contains('{') && self.out.read_line(&mut line).unwrap() > 0 {}
        let json = line.find('{').and_then(|it| line.get(it..)).unwrap_or_default();
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{line:?}: {error}"))
    }

    /// A connection to the one probe there is.
    pub(crate) fn connect(&self) -> BufReader<UnixStream> {
        let all = sockets(&self.sockets);
        let [path] = &all[..] else { panic!("one probe was expected: {all:?}") };
        connect(path)
    }

    /// Returns the output of `gpuwatch … --json` for this machine and this job.
    pub(crate) fn gpuwatch(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.output_of(arguments)).unwrap()
    }

    /// Returns the output of `gpuwatch …` for this machine and this job, which succeeds.
    pub(crate) fn output_of(&self, arguments: &[&str]) -> String {
        torch::stdout(&self.asks(arguments))
    }

    /// Runs `gpuwatch …` for this machine and this job.
    pub(crate) fn asks(&self, arguments: &[&str]) -> Output {
        let mut command = self.gpu.command(env!("CARGO_BIN_EXE_gpuwatch"));
        command.args(arguments).envs(self.home.variables()).env_remove("GPUWATCH_NVML_PATH");
        command.env("GPUWATCH_NVML_PATH", torch::libraries().join("libnvidia-ml.so.1"));
        command.output().unwrap()
    }

    /// Waits for the end of a job whose output may differ; its home remains.
    pub(crate) fn ended(mut self) -> Home {
        drop(self.input.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
        self.home
    }

    /// Continues the script, which waits for a line.
    pub(crate) fn go_on(&mut self) {
        self.send("go on");
    }

    /// A line for the script.
    pub(crate) fn send(&mut self, line: &str) {
        self.input.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Continues the script to its end, without other output; returns the rest of its output.
    pub(crate) fn finish(mut self) -> String {
        if let Some(mut input) = self.input.take() {
            // A script that waits no more does not read this.
            let _ = input.write_all(b"go on\n");
        }
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        let aside = fs::read_to_string(self.home.0.path().join("stderr")).unwrap();
        assert!(status.success() && is_quiet(&aside), "{status}: {rest}\n{aside}");
        rest
    }
}

/// Standard error is empty except for `run`'s line when its job is over, and PyTorch 2.9's warning about the variable
/// that selects the backend.
pub(crate) fn is_quiet(aside: &str) -> bool {
    let is_end = |it: &str| it.starts_with("gpuwatch: ") && it.contains(" · gpuwatch replay ");
    aside.lines().all(|it| is_end(it) || it.contains("PYTORCH_CUDA_ALLOC_CONF is deprecated"))
}

pub(crate) fn script(name: &str) -> String {
    format!("{}/tests/it/python/{name}", env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn sockets(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries
        .map(|it| it.unwrap().path())
        .filter(|it| it.extension().is_some_and(|extension| extension == "sock"))
        .collect()
}

fn connect(path: &Path) -> BufReader<UnixStream> {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    BufReader::new(stream)
}

/// Lines up to the end of the connection.
pub(crate) fn to_the_end(probe: BufReader<UnixStream>) -> Vec<Line> {
    probe.lines().map(|it| serde_json::from_str(&it.unwrap()).unwrap()).collect()
}

/// Lines of what happened before the connection was made.
pub(crate) fn backlog(probe: &mut BufReader<UnixStream>) -> Vec<Line> {
    let mut lines = Vec::new();
    loop {
        let mut text = String::new();
        probe.read_line(&mut text).unwrap();
        match serde_json::from_str(&text).unwrap() {
            Line::Live(_) => return lines,
            line => lines.push(line),
        }
    }
}

#[test]
fn only_processes_that_use_cuda_have_a_probe() {
    let mut job = Job::start(&[&script("processes.py")]);
    let mut reported = BTreeMap::new();
    while !reported.contains_key("marked") {
        let fact = job.next();
        reported.insert(fact["what"].as_str().unwrap().to_owned(), fact);
    }
    let none = serde_json::json!([]);
    for what in ["imported", "cpu", "fork workers", "spawn workers", "helpers", "subprocess"] {
        assert_eq!(reported[what]["sockets"], none, "{what}: {reported:#?}");
    }
    assert_eq!((&reported["imported"]["threads"], &reported["imported"]["initialized"]), (&1.into(), &false.into()));
    for what in ["fork workers", "spawn workers"] {
        assert_eq!((&reported[what]["workers"], &reported[what]["during"]), (&2.into(), &none), "{what}");
    }
    assert_eq!(reported["subprocess"]["printed"], "[]");
    for what in ["forked before CUDA", "spawned"] {
        let child = &reported[what];
        assert_eq!(child["during"], serde_json::json!([format!("{}.sock", child["child"])]), "{child}");
        // No viewer has read what it did, so that waits in a file for a while.
        let mut left = child["sockets"].as_array().unwrap().iter().filter_map(serde_json::Value::as_str);
        assert!(left.all(|it| it.contains(".spill")) && child["code"] == 0, "{child}");
    }
    let own = serde_json::json!([format!("{}.sock", reported["trained"]["pid"])]);
    for what in ["trained", "fork workers after CUDA", "forked after CUDA", "marked"] {
        assert_eq!(reported[what]["sockets"], own, "{what}");
    }
    assert_eq!((&reported["trained"]["threads"], &reported["trained"]["mask"]), (&1.into(), &"[]".into()));
    assert_eq!(reported["fork workers after CUDA"]["during"], own);
    assert_eq!((&reported["forked after CUDA"]["during"], &reported["forked after CUDA"]["code"]), (&own, &0.into()));

    let mut probe = job.connect();
    let mut lines = backlog(&mut probe);
    let rest = job.finish();
    let stopped = rest.lines().find(|it| it.contains("\"stopped\"")).unwrap();
    assert!(!stopped.contains(".sock\""), "{rest}");
    lines.extend(to_the_end(probe));
    check_marks_and_calls(&lines);
}

fn check_marks_and_calls(lines: &[Line]) {
    let marks: Vec<_> = lines
        .iter()
        .filter_map(|it| if let Line::Mark(mark) = it { Some((mark.name.as_str(), mark.value)) } else { None })
        .collect();
    assert_eq!(marks, [("epoch \u{1b}[31m", Some(3)), ("phase", None)]);
    let rows: Vec<_> = lines
        .iter()
        .filter_map(|it| if let Line::Sample(it) = it { Some((it.edge, it.step.unwrap_or(0))) } else { None })
        .filter(|(edge, _)| *edge != Edge::Tick)
        .collect();
    // The first call ends the step that an optimizer ended just before; from then on only calls count.
    assert_eq!(rows, [(Edge::Step, 1), (Edge::Step, 2), (Edge::Step, 3), (Edge::Call, 4)]);
    assert!(matches!(lines.last(), Some(Line::Bye(bye)) if bye.reason == "stop"), "{:?}", lines.last());
}

#[test]
fn two_ranks_of_torchrun_are_two_ranks_of_one_run() {
    let gpu = torch::machine();
    let (rank, go_on) = (script("rank.py"), gpu.dir().join("go-on"));
    let mut job = Job::start_on(gpu, &["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", &rank]);
    job.next();
    let mut ranks = Vec::new();
    let mut runs = Vec::new();
    for path in sockets(&job.sockets) {
        let mut probe = connect(&path);
        let mut lines = backlog(&mut probe);
        let is_step = |it: &&Line| matches!(it, Line::Sample(it) if it.edge == Edge::Step);
        // On a busy machine some may not have arrived yet.
        while lines.iter().filter(is_step).count() < 5 {
            lines.push(serde_json::from_str(&probe.by_ref().lines().next().unwrap().unwrap()).unwrap());
        }
        let Some(Line::Hello(hello)) = lines.first() else { panic!("{lines:?}") };
        ranks.push((hello.rank, hello.local_rank, hello.world_size));
        runs.push(hello.run.clone().unwrap());
        assert_eq!(lines.iter().filter(is_step).count(), 5);
    }
    fs::write(go_on, "").unwrap();
    job.finish();
    ranks.sort();
    assert_eq!(ranks, [(Some(0), Some(0), Some(2)), (Some(1), Some(1), Some(2))]);
    assert_eq!(runs.first(), runs.last());
}

/// Python alone, with another `sitecustomize` to hide, an `excepthook`, an `atexit`, and an end by exception.
const PLAIN: &str = r"
import atexit, os, sys, threading
atexit.register(lambda: print('at exit', threading.active_count()))
before = sys.excepthook
def hook(kind, error, trace):
    print('hook', error)
    before(kind, error, trace)
sys.excepthook = hook
import sitecustomize
print(sitecustomize.__file__.split('/')[-2:], customized, sorted(os.environ.get('PYTHONPATH').split(':'))[-1])
import torch_like as torch
raise SystemError('the end')
";

/// Returns the results of `python3 arguments…`, without gpuwatch and under `gpuwatch run`.
pub(crate) fn both_ways(home: &Home, arguments: &[&str], prepare: impl Fn(&mut Command)) -> [Output; 2] {
    [false, true].map(|probed| one_way(home, probed, arguments, &prepare))
}

fn one_way(home: &Home, probed: bool, arguments: &[&str], prepare: impl Fn(&mut Command)) -> Output {
    let mut command = Command::new(if probed { env!("CARGO_BIN_EXE_gpuwatch") } else { "python3" });
    if probed {
        command.args(["run", "--", "python3"]);
    }
    command.args(arguments).envs(home.variables()).stdin(Stdio::null());
    prepare(&mut command);
    command.output().unwrap()
}

#[test]
fn a_script_without_cuda_is_not_affected() {
    let home = Home::new();
    let own = home.0.path().join("zz-own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("sitecustomize.py"), "import builtins\nbuiltins.customized = 'customized'\n").unwrap();
    fs::write(own.join("torch_like.py"), "").unwrap();
    let [without, with] = both_ways(&home, &["-c", PLAIN], |it| {
        it.env("PYTHONPATH", &own);
    });
    assert_eq!(without, with);
    let reported = String::from_utf8_lossy(&with.stdout);
    assert!(
        reported.contains("['zz-own', 'sitecustomize.py'] customized") && reported.contains("at exit 1"),
        "{with:?}"
    );
    assert_eq!(with.status.code(), Some(1));
    assert_eq!(sockets(&home.0.path().join("sockets")), Vec::<PathBuf>::new());
    let [without, with] = both_ways(&home, &["-c", "import sys; sys.exit(3)"], |_| {});
    assert_eq!(without, with);
    for (flag, script) in [("-I", "print(1)"), ("-S", "1/0")] {
        let [without, mut with] = both_ways(&home, &[flag, "-c", script], |_| {});
        let why = format!("gpuwatch: `python3 {flag}` keeps the probe out: start Python without {flag}\n");
        let reported = String::from_utf8(with.stderr).unwrap();
        assert!(reported.contains(&why), "{reported}");
        with.stderr = reported.replace(&why, "").into_bytes();
        assert_eq!(without, with, "{flag}");
    }
}

#[test]
fn a_fault_of_another_sitecustomize_is_its_own() {
    let home = Home::new();
    let own = home.0.path().join("own");
    fs::create_dir(&own).unwrap();
    for fault in ["import no_such_module", "1/0"] {
        fs::write(own.join("sitecustomize.py"), fault).unwrap();
        let [without, with] = both_ways(&home, &["-c", "print('on')"], |it| {
            it.env("PYTHONPATH", &own);
        });
        assert_eq!(without, with, "{fault}");
    }
}

#[test]
fn a_fake_or_broken_torch_is_left_alone() {
    let home = Home::new();
    let own = home.0.path().join("own");
    fs::create_dir(&own).unwrap();
    // Before Python 3.11 a frame of ours cannot be taken out of a traceback.
    for torch in ["torch = 1", "import sys\nif sys.version_info >= (3, 11): 1/0", "import no_such_module_but_ours"] {
        fs::write(own.join("torch.py"), torch).unwrap();
        let script = "try:\n import torch\nexcept ImportError as e: print(e)\nimport torch\nprint(torch.torch)";
        let [without, with] = both_ways(&home, &["-c", script], |it| {
            it.env("PYTHONPATH", &own);
        });
        assert_eq!(without, with, "{torch}");
    }
}

#[test]
fn the_boot_imports_nothing() {
    let home = Home::new();
    let [_, with] = both_ways(&home, &["-X", "importtime", "-c", "pass"], |it| {
        it.env_remove("PYTHONPATH");
    });
    let reported = String::from_utf8_lossy(&with.stderr);
    // "import time: self µs | cumulative µs |   name": what a module imports stands before it, further to the right.
    let names: Vec<&str> = reported.lines().filter_map(|it| it.rsplit('|').next()).collect();
    let depth = |it: &str| it.len() - it.trim_start().len();
    let ours = names.iter().rposition(|it| it.trim() == "sitecustomize").unwrap_or_else(|| panic!("{reported}"));
    let within = names[..ours].iter().rev().take_while(|it| depth(it) > depth(names[ours])).map(|it| it.trim());
    // Another sitecustomize is the machine's, which it lets do its work.
    assert!(within.clone().all(|it| it == "sitecustomize"), "{:?}", within.collect::<Vec<_>>());
}

/// `GPUWATCH_BENCHMARK=full cargo test --profile dist --test it pytorch::the_boot -- --nocapture`
#[test]
fn the_boot_costs_little_beside_the_start_of_python() {
    test_tiers::benchmark!();
    let home = Home::new();
    let took = |probed: bool| {
        let begun = Instant::now();
        one_way(&home, probed, &["-c", "pass"], |_| {});
        begun.elapsed().as_secs_f64()
    };
    let mut pairs: Vec<(f64, f64)> = (0..21).map(|_| (took(false), took(true))).collect();
    pairs.sort_by(|one, other| (one.1 / one.0).total_cmp(&(other.1 / other.0)));
    let (without, with) = pairs[pairs.len() / 2];
    println!("`python3 -c pass`: {:.1} ms, {:.1} ms under `gpuwatch run`", without * 1e3, with * 1e3);
    assert!(with < 2.0 * without, "{with} s, {without} s without");
}

/// Returns the probe's library, unpacked.
pub(crate) fn library(home: &Home) -> String {
    let mut env = Command::new(env!("CARGO_BIN_EXE_gpuwatch"));
    let exports = torch::stdout(&env.arg("env").envs(home.variables()).output().unwrap());
    let library = exports.lines().find_map(|it| it.strip_prefix("export GPUWATCH_PROBE_SO='")).unwrap();
    library.trim_end_matches('\'').to_owned()
}

/// The script with our package importable, but nothing that starts it: what those who prefer code have.
fn by_code(gpu: &torch::Gpu, home: &Home, prepare: impl FnOnce(&mut Command)) -> BTreeMap<String, Value> {
    let mut python = gpu.command(torch::python());
    python.arg(script("by_code.py")).envs(home.variables());
    python.env("PYTHONPATH", format!("{}/probes/python", env!("CARGO_MANIFEST_DIR")));
    python.env("GPUWATCH_PROBE_SO", library(home));
    prepare(&mut python);
    let output = python.output().unwrap();
    assert!(is_quiet(&String::from_utf8_lossy(&output.stderr)), "{output:?}");
    let facts = torch::stdout(&output);
    let facts = facts.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
    facts.map(|it| (it["what"].as_str().unwrap().to_owned(), it)).collect()
}

#[test]
fn code_may_start_and_stop_the_probe_and_faults_turn_it_off() {
    let home = Home::new();
    let reported = by_code(&torch::machine(), &home, |_| {});
    let none = serde_json::json!([]);
    let own = |what: &str| serde_json::json!([format!("{}.sock", reported[what]["pid"])]);
    assert_eq!(reported["not_asked"]["sockets"], none);
    assert_eq!((&reported["before_cuda"]["asked"], &reported["before_cuda"]["sockets"]), (&none, &own("before_cuda")));
    assert_eq!(reported["before_cuda"]["stopped"], true);
    assert_eq!((&reported["after_cuda"]["sockets"], &reported["after_cuda"]["steps"]), (&own("after_cuda"), &3.into()));
    assert_eq!(reported["off"]["sockets"], none);
    let log = reported["no_library"]["log"].as_str().unwrap();
    assert!(log.contains("/nowhere/libgpuwatch_probe.so") && log.contains("gpuwatch run"), "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
    assert_eq!(reported["wrong_marks"]["off"], false);
}

#[test]
fn a_backend_that_counts_less_leaves_the_rest_unknown() {
    test_tiers::change!("starts PyTorch again");
    let (gpu, home) = (torch::machine(), Home::new());
    let reported = by_code(&gpu, &home, |it| {
        it.env("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync");
    });
    let (hello, row) = (&reported["async_backend"]["hello"], &reported["async_backend"]["row"]);
    assert_eq!(
        (&hello["backend"], &hello["allocator_conf"]),
        (&"cudaMallocAsync".into(), &"backend:cudaMallocAsync".into())
    );
    assert!(row["allocated"].as_u64().unwrap() > 0 && row["reserved"].is_u64() && row["active"].is_u64(), "{row}");
    for unknown in ["requested", "blocks", "segments", "retries", "ooms", "inactive_split", "device_allocs"] {
        assert!(row.get(unknown).is_none(), "{unknown}: {row}");
    }
}

#[test]
fn off_is_off() {
    let home = Home::new();
    let [_, with] = both_ways(&home, &["-c", "import sys; print([type(it).__name__ for it in sys.meta_path])"], |it| {
        it.env("GPUWATCH", "off");
    });
    assert!(!String::from_utf8_lossy(&with.stdout).contains("OnTorch"), "{with:?}");
}
