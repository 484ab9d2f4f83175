//! The driver as it answers, refuses, stalls and dies: each its own visible state, absent never zero.

use crate::pty::{PATIENCE, PROGRAM, Terminal, until};
use ::simgpu::{Fault, Machine, prepare_nvml};
use gpuwatch::{
    event::{DriverState, Event, Fact},
    recording::{Entry, Reader},
};
use serde_json::Value;
use std::{
    ffi::OsString,
    fs::File,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const DEVICES: &str = "NVIDIA H200:143771MiB:615MiB;NVIDIA A10:24GiB:512MiB";

/// A machine with two devices and one process on the first.
pub(crate) struct Bench {
    pub(crate) machine: Machine,
    home: TempDir,
    pub(crate) tenant: Child,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let machine = Machine::new(DEVICES, &home.path().join("machine")).unwrap();
        // Named as a training job would be; it ends with its standard input.
        let mut shell = Command::new("/bin/sh");
        let tenant = shell.arg0("python").args(["-c", "read end"]).stdin(Stdio::piped()).spawn().unwrap();
        machine.occupy(0, tenant.id(), 5 << 30).unwrap();
        Self { machine, home, tenant }
    }

    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let mut all = self.machine.environment(libraries());
        all.push(("GPUWATCH_SOCKET_DIR", self.home.path().join("sockets").into()));
        all.push(("GPUWATCH_NVML_PATH", libraries().join("libnvidia-ml.so.1").into()));
        all
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).envs(self.environment()).stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn once(&self, faults: &[Fault]) -> Value {
        self.machine.set_faults(faults).unwrap();
        let output = self.command(&["once", "--json"]).output().unwrap();
        assert!(output.status.success());
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.tenant.kill();
        let _ = self.tenant.wait();
    }
}

/// The simulated NVML, made once.
pub(crate) fn libraries() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nvml-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        prepare_nvml(&folder).unwrap();
        folder
    })
}

#[test]
fn figures_and_processes_are_the_drivers_to_the_byte() {
    let bench = Bench::new();
    let said = bench.once(&[]);
    assert_eq!(said["driver"]["state"], "up");
    for (index, card) in bench.machine.cards().unwrap().iter().enumerate() {
        let device = &said["devices"][index];
        assert_eq!(device["id"], card.uuid);
        assert_eq!(device["index"], index);
        assert_eq!(device["name"], card.name);
        let memory = &device["memory"];
        assert_eq!((&memory["total"], &memory["reserved"]), (&card.total.into(), &card.reserved.into()));
        let sum: u64 = ["used", "free", "reserved"].iter().map(|it| memory[it].as_u64().unwrap()).sum();
        assert_eq!(sum, card.total);
        assert_eq!(device["ladder"]["sum"], card.total, "the rungs sum to the total");
    }
    let process = &said["devices"][0]["processes"][0];
    assert_eq!((&process["pid"], &process["used"]), (&bench.tenant.id().into(), &(5_u64 << 30).into()));
    assert_eq!(process["argv"], serde_json::json!(["python", "-c", "read end"]));
    assert_eq!(said["devices"][1]["processes"], serde_json::json!([]));
    let text = String::from_utf8(bench.command(&["once"]).output().unwrap().stdout).unwrap();
    assert!(text.contains("gpuwatch run -- python -c 'read end'"), "the line that would probe it: {text}");
}

#[test]
fn each_refusal_is_a_state_of_its_own_and_nothing_is_zero_for_it() {
    let bench = Bench::new();
    let said = bench.once(&[Fault::Line("no-permission nvmlDeviceGetMemoryInfo_v2".into())]);
    assert_eq!(said["devices"][0]["memory_trouble"], "no_permission");
    assert_eq!(said["devices"][0]["memory"], Value::Null);

    let said = bench.once(&[Fault::NoMemoryV2]);
    let why = said["devices"][0]["memory_trouble"]["other"].as_str().unwrap();
    assert!(why.contains("too old"), "{why}");

    let said = bench.once(&[Fault::NoProcessMemory]);
    assert_eq!(said["devices"][0]["processes"][0]["used"], Value::Null, "absent, not zero");
    assert_eq!(said["devices"][0]["processes"][0]["pid"], bench.tenant.id());

    let said = bench.once(&[Fault::Line("not-supported nvmlDeviceGetComputeRunningProcesses_v3".into())]);
    assert_eq!(said["devices"][0]["processes_trouble"], "not_supported");

    let said = bench.once(&[Fault::Line("lost nvmlDeviceGetMemoryInfo_v2".into())]);
    assert_eq!(said["devices"][0]["memory_trouble"], "lost");
    assert_eq!(said["devices"][1]["memory_trouble"], "lost");

    let said = bench.once(&[Fault::Line("no-permission nvmlInit_v2".into())]);
    assert_eq!(said["driver"]["state"], "absent");
    assert!(said["driver"]["why"].as_str().unwrap().contains("/dev/nvidia"), "{said}");
    assert_eq!(said["devices"], serde_json::json!([]));
}

#[test]
fn a_machine_without_the_driver_and_the_off_switch_say_so() {
    let home = tempfile::tempdir().unwrap();
    let once = |arguments: &[&str]| -> Value {
        let output = Command::new(PROGRAM)
            .args(["once", "--json"])
            .args(arguments)
            .env("GPUWATCH_SOCKET_DIR", home.path())
            .env("GPUWATCH_NVML_PATH", "/nonexistent/libnvidia-ml.so.1")
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let said = once(&[]);
    assert_eq!(said["driver"]["state"], "absent");
    assert!(said["driver"]["why"].as_str().unwrap().contains("GPUWATCH_NVML_PATH"), "{said}");
    assert_eq!(once(&["--no-nvml"])["driver"]["state"], "off");
}

#[test]
fn a_stalled_call_hangs_nobody_is_said_and_recovers() {
    let bench = Bench::new();
    let stall = Fault::Line("stall=4 nvmlDeviceGetMemoryInfo_v2".into());
    let begun = Instant::now();
    let said = bench.once(std::slice::from_ref(&stall));
    assert!(begun.elapsed() < Duration::from_secs(3), "once took {:?}", begun.elapsed());
    assert_eq!(said["devices"][0]["memory"], Value::Null);

    let file = bench.home.path().join("stall.jsonl.zst");
    let mut recorder = bench.command(&["record", "-o", file.to_str().unwrap()]).spawn().unwrap();
    let stalled = until(PATIENCE, || driver(&file).iter().any(|it| matches!(it, DriverState::Stalled { .. })));
    bench.machine.set_faults(&[]).unwrap();
    let up = until(PATIENCE, || matches!(driver(&file)[..], [.., DriverState::Stalled { .. }, DriverState::Up { .. }]));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    assert!(stalled && up, "{:?}", driver(&file));
}

fn driver(file: &Path) -> Vec<DriverState> {
    let Ok(file) = File::open(file) else { return Vec::new() };
    let state = |it: Entry| match it {
        Entry::Event(Event { fact: Fact::Driver(state), .. }) => Some(state),
        _ => None,
    };
    Reader::new(file).unwrap().map_while(Result::ok).filter_map(state).collect()
}

/// The live view on a bench.
fn live(bench: &Bench) -> Terminal {
    let environment: Vec<(&str, String)> =
        bench.environment().into_iter().map(|(name, value)| (name, value.into_string().unwrap())).collect();
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Terminal::start(&["--interval", "200ms"], &environment)
}

/// What the screen says, however its lines are broken.
fn says(terminal: &Terminal, words: &str) -> bool {
    terminal.text().split_whitespace().collect::<Vec<_>>().join(" ").contains(words)
}

/// The longest that a fault may stay unseen: the reading interval and a second, and what a loaded machine takes.
const SEEN: Duration = Duration::from_millis(200 + 1000 + 1500);

/// Each fault is on the screen in words that name the next step, and off it again when the fault is gone.
fn suffer(faults: &[(Fault, &str)]) {
    let bench = Bench::new();
    bench.machine.set_faults(&[]).unwrap();
    let mut terminal = live(&bench);
    for words in ["NVIDIA H200", "NVIDIA A10", "gpuwatch run -- python -c 'read end'"] {
        terminal.shows(words);
    }
    for (fault, words) in faults {
        bench.machine.set_faults(std::slice::from_ref(fault)).unwrap();
        let begun = Instant::now();
        assert!(until(PATIENCE, || says(&terminal, words)), "{fault:?}: no {words:?} on\n{}", terminal.text());
        assert!(begun.elapsed() < SEEN, "{fault:?} was seen after {:?}", begun.elapsed());
        bench.machine.set_faults(&[]).unwrap();
        assert!(until(PATIENCE, || !says(&terminal, words)), "{fault:?} lasts on\n{}", terminal.text());
        assert!(until(PATIENCE, || says(&terminal, "5.00 GiB")), "{fault:?}: no figures on\n{}", terminal.text());
    }
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
}

#[test]
fn faults_of_a_device_are_seen_explained_and_recovered_from() {
    suffer(&[
        (Fault::Line("lost * 0".into()), "fell off the bus; see dmesg"),
        (Fault::Line("no-permission nvmlDeviceGetMemoryInfo_v2".into()), "run as root, or let the administrator"),
        (Fault::NoMemoryV2, "510 or newer does"),
        (Fault::NoProcessMemory, "does not say what its processes use"),
        (
            Fault::Line("no-function nvmlDeviceGetComputeRunningProcesses*".into()),
            "process list: this device or driver",
        ),
        (Fault::Gone(0), "gone from the driver's list"),
        (Fault::Mig(0, 2), "look at these, each has its own"),
    ]);
}

#[test]
fn faults_of_the_driver_are_seen_explained_and_recovered_from() {
    suffer(&[
        (Fault::Stall(Duration::from_secs(2)), "see whether nvidia-smi hangs too"),
        (Fault::NoPermission, "see the modes of /dev/nvidia*"),
        (Fault::Mismatch, "reload it or reboot"),
        (Fault::Lost, "does not answer"),
    ]);
}

#[test]
fn a_device_that_appears_is_listed_and_its_critical_errors_are_told() {
    let bench = Bench::new();
    bench.machine.set_faults(&[Fault::Gone(1)]).unwrap();
    let terminal = live(&bench);
    terminal.shows("NVIDIA H200");
    assert!(!terminal.text().contains("NVIDIA A10"));
    bench.machine.set_faults(&[]).unwrap();
    let begun = Instant::now();
    terminal.shows("NVIDIA A10");
    assert!(begun.elapsed() < SEEN, "{:?}", begun.elapsed());
    bench.machine.set_faults(&[Fault::Xid(1, 79)]).unwrap();
    let (begun, words) =
        (Instant::now(), "GPU 1 (NVIDIA A10) reports Xid 79, the device has fallen off the bus: drain");
    assert!(until(PATIENCE, || says(&terminal, words)), "{}", terminal.text());
    assert!(begun.elapsed() < SEEN, "{:?}", begun.elapsed());
}

#[test]
fn a_driver_that_wakes_slowly_is_not_taken_for_a_stalled_one() {
    let bench = Bench::new();
    bench.machine.set_faults(&[Fault::Line("stall=2 nvmlInit_v2".into())]).unwrap();
    let terminal = live(&bench);
    terminal.shows("NVIDIA H200");
    let all = String::from_utf8_lossy(&terminal.bytes()).into_owned();
    assert!(!all.contains("nvidia-smi hangs"), "{all}");
}

#[test]
fn mig_devices_have_memory_and_processes_of_their_own() {
    let bench = Bench::new();
    let said = bench.once(&[Fault::Mig(0, 2)]);
    let [whole, first, second, other] = &said["devices"].as_array().unwrap()[..] else { panic!("{said:#}") };
    assert_eq!((&whole["name"], &other["name"]), (&"NVIDIA H200".into(), &"NVIDIA A10".into()));
    for part in [first, second] {
        assert!(part["id"].as_str().unwrap().starts_with("MIG-"), "{part}");
        assert_eq!((&part["parent"], &part["index"]), (&whole["id"], &0.into()));
        assert_eq!(part["memory"]["total"], whole["memory"]["total"].as_u64().unwrap() / 2);
        assert_eq!(part["ladder"]["sum"], part["ladder"]["total"]);
    }
    assert_eq!(first["processes"][0]["pid"], bench.tenant.id());
    assert_eq!(second["processes"], serde_json::json!([]));
    assert_eq!(whole["processes"], Value::Null, "nobody counts twice");
}

#[test]
fn a_driver_without_the_newest_list_of_processes_is_asked_as_it_can_be() {
    let bench = Bench::new();
    let said = bench.once(&[Fault::NoProcessesV3]);
    assert_eq!(said["devices"][0]["processes"][0]["used"], 5_u64 << 30);
}
