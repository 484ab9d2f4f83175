//! Containers and mounts as a job meets them, made with `unshare`; where the kernel makes none, there is nothing to
//! see.

use crate::helpers::{
    terminal::{PATIENCE, PROGRAM, until},
    torch::stdout,
};
use ::simgpu::{Machine, prepare_nvml};
use gpuwatch_probe::{
    Description, Probe,
    reading::Reading,
    wire::{Counters, Device, Edge},
};
use serde_json::Value;
use std::{
    env, fs,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};
use tempfile::TempDir;

const GIB: u64 = 1 << 30;

/// Skips the test where the kernel makes no namespaces of this kind.
macro_rules! needs_unshare {
    ($kind:expr) => {
        test_tiers::change!("namespaces");
        if !$crate::probe::containers::can(&$kind) {
            test_tiers::skip!("`unshare {}` is refused", $kind.join(" "));
        }
    };
}

pub(crate) use needs_unshare;

pub(crate) fn can(unshare: &[&str]) -> bool {
    can_run(&[&["unshare"], unshare].concat())
}

/// Whether a program that starts another one does so here.
pub(crate) fn can_run(program: &[&str]) -> bool {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).arg("true").stderr(Stdio::null());
    command.status().is_ok_and(|it| it.success())
}

/// A machine with one device, and a place for sockets.
struct Bench {
    machine: Machine,
    home: TempDir,
}

impl Bench {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("sockets")).unwrap();
        fs::set_permissions(home.path().join("sockets"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::create_dir(home.path().join("lib")).unwrap();
        prepare_nvml(&home.path().join("lib")).unwrap();
        Self { machine: Machine::new("NVIDIA H200:143771MiB:615MiB", &home.path().join("machine")).unwrap(), home }
    }

    fn sockets(&self) -> PathBuf {
        self.home.path().join("sockets")
    }

    fn within(&self, unshare: &str, program: &Path) -> Command {
        let mut command = Command::new("unshare");
        let library = self.home.path().join("lib");
        command.args([unshare, "--"]).arg(program).envs(self.machine.environment(&library));
        command.env("GPUWATCH_NVML_PATH", library.join("libnvidia-ml.so.1")).env("GPUWATCH_SOCKET_DIR", self.sockets());
        command
    }

    /// A probed process in a pid namespace of its own: this program, as [`act_as_a_probe`].
    fn probed(&self) -> Contained {
        let mut command = self.within("-rpf", &env::current_exe().unwrap());
        let name = "probe::containers::a_container_is_matched_from_the_host_and_nothing_is_guessed_inside";
        command.args(["--exact", name, "--test-threads", "1"]).env(ACTS, &self.machine.cards().unwrap()[0].uuid);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let is_there = || fs::read_dir(self.sockets()).unwrap().flatten().any(|it| it.path().ends_with("1.sock"));
        assert!(until(PATIENCE, is_there), "no probe came");
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let pid = fs::read_to_string(children).unwrap().trim().parse().unwrap();
        Contained { child, pid }
    }

    fn once(&self, unshare: &str) -> Value {
        let output = self.within(unshare, Path::new(PROGRAM)).args(["once", "--json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

struct Contained {
    child: Child,
    /// As it is known outside.
    pid: u32,
}

impl Drop for Contained {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Makes this program act as a probe on the device of this UUID.
const ACTS: &str = "GPUWATCH_TEST_PROBE";

/// Acts as a probe until its standard input ends.
fn act_as_a_probe(uuid: String) {
    let mut description = Description::default();
    description.device(Device { uuid: Some(uuid), ..Device::default() });
    let probe = Probe::start(description).unwrap();
    let mut reading = Reading { edge: Edge::Step, steps: 1, ..Reading::default() };
    for (place, name) in Counters::NAMES.iter().enumerate() {
        match *name {
            "allocated" | "active" | "requested" => reading.put(place, GIB),
            "reserved" => reading.put(place, 2 * GIB),
            _ => {}
        }
    }
    probe.push(&reading).unwrap();
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    probe.stop("exit");
}

#[test]
fn a_container_is_matched_from_the_host_and_nothing_is_guessed_inside() {
    if let Ok(uuid) = env::var(ACTS) {
        return act_as_a_probe(uuid);
    }
    needs_unshare!(["-rpf"]);
    let bench = Bench::new();
    let job = bench.probed();
    bench.machine.occupy(0, job.pid, 3 * GIB).unwrap();
    let rung = |reported: &Value, gap: &str| {
        let rungs = reported["devices"][0]["ladder"]["rungs"].as_array().unwrap().clone();
        rungs.into_iter().find(|it| it["gap"] == gap).map(|it| it["bytes"].clone())
    };

    // The kernel translates the pid for the host, and the driver's figure finds its process.
    let reported = bench.once("-r");
    let probe = &reported["probes"][0];
    assert_eq!((&probe["pid"], &probe["own_pid"]), (&job.pid.into(), &1.into()), "{reported:#}");
    assert_eq!(probe["devices"][0]["driver_used"], 3 * GIB);
    assert_eq!(rung(&reported, "non_torch"), Some(GIB.into()), "{reported:#}");
    assert_eq!(reported["devices"][0]["foreign_pids"], false);

    // In a namespace that sees neither, no figure of the driver is given to the probe.
    let reported = bench.once("-rpf");
    let probe = &reported["probes"][0];
    assert_eq!((&probe["pid"], &probe["devices"][0]["driver_used"]), (&Value::Null, &Value::Null), "{reported:#}");
    assert_eq!(rung(&reported, "non_torch").unwrap_or_default(), Value::Null, "it is not guessed: {reported:#}");
    assert_eq!(reported["devices"][0]["ladder"]["sum"], reported["devices"][0]["memory"]["total"]);
}

#[test]
fn a_cache_that_forbids_execution_does_not_get_the_library() {
    needs_unshare!(["-rm"]);
    let home = tempfile::tempdir().unwrap();
    let cache = home.path().join("cache");
    fs::create_dir(&cache).unwrap();
    let script = "mount -t tmpfs -o noexec none \"$XDG_CACHE_HOME\" && exec \"$0\" run -- \"$@\"";
    let job = "echo \"$GPUWATCH_PROBE_SO\"; head -c 4 \"$GPUWATCH_PROBE_SO\" | tail -c 3";
    let run = |script: &str| -> Output {
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", script, PROGRAM, "sh", "-c", job]);
        command.env("XDG_CACHE_HOME", &cache).env("XDG_STATE_HOME", home.path()).env("HOME", home.path());
        command.stdin(Stdio::null()).output().unwrap()
    };
    let library = |script: &str| {
        let output = run(script);
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        let (path, magic) = text.split_once('\n').unwrap();
        assert_eq!(magic, "ELF", "{output:?}");
        path.to_owned()
    };
    let cache = cache.to_str().unwrap();
    assert!(!library(script).starts_with(cache), "it lies where it may not be executed");
    assert!(library("exec \"$0\" run -- \"$@\"").starts_with(cache));
}

/// A program that loads the given library, starts its probe, and prints how many sockets there are.
const LOAD: &str = "import ctypes, os; path = os.environ['GPUWATCH_PROBE_SO']; probe = ctypes.PyDLL(path); \
    print(path, probe.gpuwatch_start(), len(os.listdir(os.environ['GPUWATCH_SOCKET_DIR'])), probe.gpuwatch_stop(b'exit'))";

#[test]
fn without_a_place_that_allows_execution_a_job_loads_the_library_from_memory() {
    needs_unshare!(["-rm"]);
    let home = tempfile::tempdir().unwrap();
    let places = ["cache", "sockets"].map(|it| home.path().join(it));
    for place in &places {
        fs::create_dir(place).unwrap();
        fs::set_permissions(place, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let script = "mkdir -p -m 700 /tmp/gpuwatch-cache-0; \
        for place in \"$XDG_CACHE_HOME\" /dev/shm /tmp/gpuwatch-cache-0; do \
        mount -t tmpfs -o noexec,mode=700 none \"$place\" || exit; done; exec \"$0\" run -- python3 -I -S -c \"$1\"";
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", script, PROGRAM, LOAD]).env_remove("GPUWATCH").env_remove("XDG_RUNTIME_DIR");
    command.env("XDG_CACHE_HOME", &places[0]).env("TMPDIR", &places[0]).env("GPUWATCH_SOCKET_DIR", &places[1]);
    command.env("XDG_STATE_HOME", home.path()).env("HOME", home.path());
    let reported = stdout(&command.stdin(Stdio::null()).output().unwrap());
    let fields: Vec<&str> = reported.split_whitespace().collect();
    assert!(fields[0].starts_with("/proc/") && fields[0].contains("/fd/"), "{reported}");
    assert_eq!(fields[1..], ["0", "1", "0"], "it started, listened and stopped: {reported}");
}

#[test]
fn one_account_that_is_not_utf_8_leaves_the_other_users_their_names() {
    needs_unshare!(["-rm"]);
    let bench = Bench::new();
    let passwd = bench.home.path().join("passwd");
    fs::write(&passwd, b"jos\xe9:x:4242:4242::/:/bin/sh\nada:x:0:0::/:/bin/sh\n").unwrap();
    let mut shell = Command::new("/bin/sh");
    let mut tenant = shell.args(["-c", "read end"]).stdin(Stdio::piped()).spawn().unwrap();
    bench.machine.occupy(0, tenant.id(), GIB).unwrap();
    let script = format!("mount --bind {} /etc/passwd && exec \"$0\" once --json", passwd.display());
    let mut command = bench.within("-rm", Path::new("sh"));
    let output = command.args(["-c", &script, PROGRAM]).output().unwrap();
    drop(tenant.stdin.take());
    tenant.wait().unwrap();
    let reported: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    assert_eq!(reported["devices"][0]["processes"][0]["user"], "ada", "{reported:#}");
}
