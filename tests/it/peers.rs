//! Other programs that read NVML, as their authors made them: each sees on the simulated driver what is there.
//!
//! `GPUWATCH_PEERS_VENV` names an environment that has those in Python.

use crate::{
    nvml::Bench,
    packages,
    pty::{PATIENCE, Terminal, until},
    torch::stdout,
    venv::Venv,
};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

static PEERS: Venv = Venv {
    variable: "GPUWATCH_PEERS_VENV",
    name: "venv-peers",
    holds: "nvitop, gpustat and nvidia-ml-py (a download of about 1 MB)",
    packages: &[&[
        "nvidia-ml-py==13.615.71",
        "nvitop==1.7.2",
        "gpustat==1.1.1",
        "psutil==7.2.2",
        "blessed==1.52.0",
        "jinxed==2.1.0",
        "wcwidth==0.9.4",
    ]],
    above: None,
    python: OnceLock::new(),
};

/// The Python that has nvitop, gpustat and nvidia-ml-py; or why there is none.
pub(crate) fn python() -> Result<&'static Path, String> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOUND.get_or_init(|| PEERS.found()).as_deref().map_err(Clone::clone)
}

/// nvtop, or why there is none.
pub(crate) fn nvtop() -> Result<&'static Path, String> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOUND.get_or_init(|| packages::program("nvtop", "usr/bin/nvtop")).as_deref().map_err(Clone::clone)
}

/// Returns the output of a program that uses the bench's NVML.
fn reported(bench: &Bench, program: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).envs(bench.environment()).env("TERM", "xterm").stdin(Stdio::null());
    stdout(&command.output().unwrap())
}

const MIB: u64 = 1 << 20;

/// The memory of the bench's tenant, in MiB.
const HELD: u64 = 5 << 10;

#[test]
fn gpustat_reads_what_is_there() {
    test_tiers::full!("other programs read NVML");
    let (bench, python) = (Bench::new(), test_tiers::needs!(python()));
    let reported: Value = serde_json::from_str(&reported(&bench, python, &["-m", "gpustat", "--json"])).unwrap();
    let cards = bench.machine.cards().unwrap();
    let gpus = reported["gpus"].as_array().unwrap();
    assert_eq!(gpus.len(), cards.len());
    for (gpu, card) in gpus.iter().zip(&cards) {
        assert_eq!((&gpu["uuid"], &gpu["name"]), (&card.uuid.clone().into(), &card.name.clone().into()));
        assert_eq!(gpu["memory.total"], card.total / MIB);
    }
    assert_eq!((&gpus[0]["memory.used"], &gpus[1]["memory.used"]), (&HELD.into(), &0.into()));
    let process = &gpus[0]["processes"][0];
    assert_eq!((&process["pid"], &process["gpu_memory_usage"]), (&bench.tenant.id().into(), &HELD.into()));
}

#[test]
fn nvitop_reads_what_is_there() {
    test_tiers::full!("other programs read NVML");
    let (bench, python) = (Bench::new(), test_tiers::needs!(python()));
    let text = reported(&bench, python, &["-m", "nvitop", "-1", "--no-unicode"]);
    for phrase in ["H200", "A10", "5120MiB / 140.4GiB", "595.00.sim"] {
        assert!(text.contains(phrase), "{phrase} in\n{text}");
    }
    let pid = bench.tenant.id().to_string();
    assert!(text.lines().any(|it| it.contains(&pid) && it.contains("5120MiB")), "{pid} in\n{text}");
}

#[test]
fn nvidias_own_binding_reads_what_is_there() {
    test_tiers::full!("other programs read NVML");
    let (bench, python) = (Bench::new(), test_tiers::needs!(python()));
    let script = "
import json, pynvml as n
n.nvmlInit()
def device(index):
    it = n.nvmlDeviceGetHandleByIndex(index)
    memory = n.nvmlDeviceGetMemoryInfo(it, version=n.nvmlMemory_v2)
    processes = n.nvmlDeviceGetComputeRunningProcesses(it)
    return [n.nvmlDeviceGetUUID(it), memory.total, memory.reserved, memory.used, memory.free,
            [[p.pid, p.usedGpuMemory] for p in processes]]
print(json.dumps([device(it) for it in range(n.nvmlDeviceGetCount())]))
";
    let reported: Value = serde_json::from_str(&reported(&bench, python, &["-c", script])).unwrap();
    let expected: Vec<Value> = bench
        .machine
        .cards()
        .unwrap()
        .iter()
        .map(|it| {
            let used: u64 = it.tenants.iter().map(|tenant| tenant.used).sum();
            let processes: Vec<Value> =
                it.tenants.iter().map(|tenant| serde_json::json!([tenant.pid, tenant.used])).collect();
            serde_json::json!([it.uuid, it.total, it.reserved, used, it.total - it.reserved - used, processes])
        })
        .collect();
    assert_eq!(reported, Value::from(expected));
}

#[test]
fn nvtop_shows_what_is_there() {
    test_tiers::full!("other programs read NVML");
    let (bench, nvtop) = (Bench::new(), test_tiers::needs!(nvtop()));
    let environment = bench.environment();
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, it)| (*name, it.to_str().unwrap())).collect();
    let terminal = Terminal::start_program(nvtop.to_str().unwrap(), &["-d", "5"], &environment);
    let (pid, held) = (bench.tenant.id().to_string(), format!("{HELD}MiB"));
    // Its screen is the one thing that all of its versions have.
    let is_shown = || {
        let text = terminal.text();
        let has_process = text.lines().any(|it| it.contains(&pid) && it.contains(&held));
        has_process && ["NVIDIA H200", "NVIDIA A10", "140.4"].iter().all(|it| text.contains(it))
    };
    assert!(until(PATIENCE, is_shown), "{pid} with {held} in\n{}", terminal.text());
}
