//! The driver as it answers, refuses, stalls and dies: each its own visible state, absent never zero.

mod faults;
mod figures;
mod lost;
pub(crate) mod metrics;

use crate::{
    helpers::terminal::{PATIENCE, PROGRAM, Terminal, until},
    house::schemas,
};
use ::simgpu::{Fault, Machine, prepare_nvml};
use gpuwatch::{
    facts::{
        event::{DriverState, Event, Fact},
        metrics::Changes,
    },
    storage::recording::{Entry, Reader},
};
use serde_json::Value;
use std::{
    ffi::OsString,
    fs::File,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
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
        // The machine of the tests may have devices of other makers.
        all.push(("GPUWATCH_NO_DRM", "1".into()));
        all.push(("GPUWATCH_SOCKET_DIR", self.home.path().join("sockets").into()));
        all.push(("GPUWATCH_NVML_PATH", libraries().join("libnvidia-ml.so.1").into()));
        all
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).envs(self.environment()).stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    pub(crate) fn once(&self, faults: &[Fault]) -> Value {
        self.machine.set_faults(faults).unwrap();
        let output = self.command(&["once", "--json"]).output().unwrap();
        assert!(output.status.success());
        let once = serde_json::from_slice(&output.stdout).unwrap();
        schemas::check("once", &once);
        once
    }
}

/// The metrics of a machine's first device under these faults.
pub(crate) fn device_metrics(bench: &Bench, faults: &[Fault]) -> Changes {
    serde_json::from_value(bench.once(faults)["devices"][0]["metrics"].clone()).unwrap()
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
    let reported = bench.once(&[]);
    assert_eq!(reported["driver"]["state"], "up");
    for (index, card) in bench.machine.cards().unwrap().iter().enumerate() {
        let device = &reported["devices"][index];
        assert_eq!(device["id"], card.uuid);
        assert_eq!(device["index"], index);
        assert_eq!(device["name"], card.name);
        let memory = &device["memory"];
        assert_eq!((&memory["total"], &memory["reserved"]), (&card.total.into(), &card.reserved.into()));
        let sum: u64 = ["used", "free", "reserved"].iter().map(|it| memory[it].as_u64().unwrap()).sum();
        assert_eq!(sum, card.total);
        assert_eq!(device["ladder"]["sum"], card.total, "the rungs sum to the total");
    }
    let process = &reported["devices"][0]["processes"][0];
    assert_eq!((&process["pid"], &process["used"]), (&bench.tenant.id().into(), &(5_u64 << 30).into()));
    assert_eq!(process["argv"], serde_json::json!(["python", "-c", "read end"]));
    assert_eq!(reported["devices"][1]["processes"], serde_json::json!([]));
    let text = String::from_utf8(bench.command(&["once"]).output().unwrap().stdout).unwrap();
    assert!(text.contains("gpuwatch run -- python -c 'read end'"), "the line that would probe it: {text}");
    let text = String::from_utf8(bench.command(&["once", "--by", "user"]).output().unwrap().stdout).unwrap();
    let words = text.lines().nth(1).unwrap_or_default().split_whitespace().collect::<Vec<_>>();
    assert_eq!(words[1..], ["1", "5.00", "GiB", "0"], "{text}");
}

#[test]
fn each_refusal_is_a_state_of_its_own_and_nothing_is_zero_for_it() {
    let bench = Bench::new();
    let reported = bench.once(&[Fault::Line("no-permission nvmlDeviceGetMemoryInfo_v2".into())]);
    assert_eq!(reported["devices"][0]["memory_trouble"], "no_permission");
    assert_eq!(reported["devices"][0]["memory"], Value::Null);

    let reported = bench.once(&[Fault::Line("no-function nvmlDeviceGetMemoryInfo*".into())]);
    assert_eq!(reported["devices"][0]["memory_trouble"], "not_supported");

    let reported = bench.once(&[Fault::NoProcessMemory]);
    assert_eq!(reported["devices"][0]["processes"][0]["used"], Value::Null, "absent, not zero");
    assert_eq!(reported["devices"][0]["processes"][0]["pid"], bench.tenant.id());

    let reported = bench.once(&[Fault::Line("not-supported nvmlDeviceGetComputeRunningProcesses_v3".into())]);
    assert_eq!(reported["devices"][0]["processes_trouble"], "not_supported");

    let reported = bench.once(&[Fault::Line("lost nvmlDeviceGetMemoryInfo_v2".into())]);
    assert_eq!(reported["devices"][0]["memory_trouble"], "lost");
    assert_eq!(reported["devices"][1]["memory_trouble"], "lost");

    let reported = bench.once(&[Fault::Line("no-permission nvmlInit_v2".into())]);
    assert_eq!(reported["driver"]["state"], "absent");
    assert!(reported["driver"]["why"].as_str().unwrap().contains("/dev/nvidia"), "{reported}");
    assert_eq!(reported["devices"], serde_json::json!([]));
}

#[test]
fn a_missing_driver_and_the_off_switch_are_reported() {
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
    let reported = once(&[]);
    assert_eq!(reported["driver"]["state"], "absent");
    assert!(reported["driver"]["why"].as_str().unwrap().contains("GPUWATCH_NVML_PATH"), "{reported}");
    assert_eq!(once(&["--no-nvml"])["driver"]["state"], "off");
}

#[test]
fn a_stalled_call_blocks_nothing_is_shown_and_recovers() {
    let bench = Bench::new();
    let stall = |seconds: u64| [Fault::Line(format!("stall={seconds} nvmlDeviceGetMemoryInfo_v2"))];
    // Had it waited for the call, it would have the memory.
    let reported = bench.once(&stall(120));
    assert_eq!(reported["devices"][0]["memory"], Value::Null);

    bench.machine.set_faults(&stall(2)).unwrap();
    let file = bench.home.path().join("stall.jsonl.zst");
    let mut recorder = bench.command(&["record", "-o", file.to_str().unwrap()]).spawn().unwrap();
    let stalled = until(PATIENCE, || driver(&file).iter().any(|it| matches!(it, DriverState::Stalled { .. })));
    bench.machine.set_faults(&[]).unwrap();
    let up = until(PATIENCE, || matches!(driver(&file)[..], [.., DriverState::Stalled { .. }, DriverState::Up { .. }]));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    assert!(stalled && up, "{:?}", driver(&file));
}

/// Returns the current contents of a recording.
pub(crate) fn events(file: &Path) -> Vec<Event> {
    let Ok(file) = File::open(file) else { return Vec::new() };
    let event = |it| if let Entry::Event(event) = it { Some(event) } else { None };
    Reader::new(file).unwrap().map_while(Result::ok).filter_map(event).collect()
}

fn driver(file: &Path) -> Vec<DriverState> {
    let state = |it: Event| if let Fact::Driver(state) = it.fact { Some(state) } else { None };
    events(file).into_iter().filter_map(state).collect()
}

/// The live view on a bench.
pub(crate) fn live(bench: &Bench) -> Terminal {
    let environment: Vec<(&str, String)> =
        bench.environment().into_iter().map(|(name, value)| (name, value.into_string().unwrap())).collect();
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Terminal::start(&[], &environment)
}

/// Returns whether the screen shows a text, wherever its lines wrap.
fn shows(terminal: &Terminal, phrase: &str) -> bool {
    terminal.text().split_whitespace().collect::<Vec<_>>().join(" ").contains(phrase)
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
    let reported = bench.once(&[Fault::Mig(0, 2)]);
    let [whole, first, second, other] = &reported["devices"].as_array().unwrap()[..] else { panic!("{reported:#}") };
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
    let first_alone = Fault::Line("no-function nvmlDeviceGetComputeRunningProcesses_v*".into());
    for fault in [Fault::NoProcessesV3, first_alone.clone()] {
        let reported = bench.once(std::slice::from_ref(&fault));
        let process = &reported["devices"][0]["processes"][0];
        assert_eq!(
            (&process["pid"], &process["used"]),
            (&bench.tenant.id().into(), &(5_u64 << 30).into()),
            "{fault:?}"
        );
        assert_eq!(reported["devices"][1]["processes"], serde_json::json!([]));
    }
    let reported = bench.once(&[first_alone, Fault::NoProcessMemory]);
    assert_eq!(reported["devices"][0]["processes"][0]["used"], Value::Null, "absent, not the largest number");
}

/// Drivers before 510 include their own reserve in `used`, so its size is unknown.
#[test]
fn a_driver_without_the_newer_call_for_memory_leaves_its_reserve_unknown() {
    let bench = Bench::new();
    let reported = bench.once(&[Fault::NoMemoryV2]);
    for (index, card) in bench.machine.cards().unwrap().iter().enumerate() {
        let (device, tenants) = (&reported["devices"][index], card.tenants.iter().map(|it| it.used).sum::<u64>());
        let memory = &device["memory"];
        assert_eq!((&memory["total"], &memory["reserved"]), (&card.total.into(), &Value::Null), "{memory}");
        assert_eq!(memory["used"], tenants + card.reserved);
        assert_eq!(memory["free"], card.total - tenants - card.reserved);
        let rungs = device["ladder"]["rungs"].as_array().unwrap();
        let rung = |gap: &str| rungs.iter().find(|it| it["gap"] == gap).unwrap()["bytes"].clone();
        assert_eq!((rung("driver"), rung("unattributed")), (Value::Null, card.reserved.into()));
        assert_eq!(device["ladder"]["sum"], card.total);
    }
    let mut terminal = live(&bench);
    terminal.shows("NVIDIA H200");
    let phrase = "this driver counts its own reserve as used and does not say how much it is";
    terminal.press("\r");
    assert!(until(PATIENCE, || shows(&terminal, phrase)), "{}", terminal.text());
    let reserve = terminal.text().lines().find(|it| it.contains("reserve    ")).map(str::to_owned).unwrap();
    assert!(reserve.contains('–'), "{reserve}");
    bench.machine.set_faults(&[]).unwrap();
    assert!(until(PATIENCE, || !shows(&terminal, phrase)), "{}", terminal.text());
}
