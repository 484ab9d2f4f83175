//! Other programs that read NVML, as their authors made them: each sees on the simulated driver what is there.
//!
//! `GPUWATCH_PEERS_VENV` names an environment that has those in Python.

mod binding;

use crate::{
    driver::nvml::{
        Bench, live,
        metrics::{answers, behind},
    },
    helpers::{
        debian,
        terminal::{PATIENCE, Terminal, until},
        torch::stdout,
        venv::Venv,
    },
    probe::pytorch::script,
};
use ::simgpu::Fault;
use gpuwatch::{
    facts::{
        figures::{Figure, Of},
        maker::Maker,
        metrics::Metric,
        units::Bytes,
    },
    sources::makers::{gives, gives_figure},
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
    FOUND.get_or_init(|| debian::program("nvtop", "usr/bin/nvtop")).as_deref().map_err(Clone::clone)
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
fn nvidias_own_binding_reads_every_metric_and_figure_that_gpuwatch_reads() {
    test_tiers::full!("other programs read NVML");
    let (bench, python) = (Bench::new(), test_tiers::needs!(python()));
    let pid = bench.tenant.id();
    let call = "nvmlDeviceGetProcessUtilization";
    let uses = [("sm", 61), ("memory", 23), ("encoder", 4), ("decoder", 5)];
    let uses = uses.map(|(name, percent)| Fault::Line(format!("answer={percent} {call}:{name}:{pid}")));
    let faults: Vec<Fault> = answers().into_iter().chain(uses).collect();
    let own = bench.once(&faults);
    let [metrics, figures] = binding::arguments();
    let arguments = [script("binding.py"), metrics, figures];
    let text = reported(&bench, python, &arguments.each_ref().map(String::as_str));
    let reported: Value = serde_json::from_str(&text).unwrap();
    let device = &own["devices"][0];
    for row in Metric::TABLE.iter().filter(|it| gives(Maker::Nvidia, it.metric)) {
        let is_read = binding::METRICS.iter().any(|it| it.0 == row.metric);
        assert!(is_read, "{}: how does NVIDIA's binding read it?", row.name);
        assert_eq!(device["metrics"][row.name], reported["metrics"][row.name], "{}", row.name);
    }
    let figures = &device["processes"][0]["figures"];
    for row in Figure::TABLE.iter().filter(|it| it.of == Of::Device && gives_figure(Maker::Nvidia, it.figure)) {
        assert!(binding::FIGURES.iter().any(|it| it.0 == row.name), "{}", row.name);
        assert_eq!(figures[row.name], reported["figures"][&pid.to_string()][0][row.name], "{}", row.name);
    }
    assert_eq!((reported["figures"].as_object().unwrap().len(), &device["processes"][0]["pid"]), (1, &pid.into()));
    assert_eq!((&device["name"], &own["driver"]["version"]), (&reported["name"], &reported["driver"]));
    // The binding's first version of the call counts the driver's reserve as used.
    let memory = ["total", "free", "used"].map(|it| device["memory"][it].as_u64().unwrap());
    let reserved = device["memory"]["reserved"].as_u64().unwrap();
    assert_eq!(reported["memory"], serde_json::json!([memory[0], memory[1], memory[2] + reserved]));
}

/// What flows over NVLink takes two readings of a total, each at the driver's time of it.
#[test]
fn nvidias_own_binding_reads_the_flow_over_nvlink_that_gpuwatch_shows() {
    test_tiers::full!("other programs read NVML");
    let (bench, python) = (Bench::new(), test_tiers::needs!(python()));
    let flows = [(138, 50_800_000_u64), (139, 31_400_000)];
    let flow = |(id, kib): (u32, u64)| Fault::Line(format!("answer={kib} nvmlDeviceGetFieldValues:{id}:flow 0"));
    bench.machine.set_faults(&flows.map(flow)).unwrap();
    let script = "
import json, pynvml as n
n.nvmlInit()
d = n.nvmlDeviceGetHandleByIndex(0)
every_link = 0xffffffff
both = [(n.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, every_link), (n.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, every_link)]
read = lambda: [(it.value.ullVal << 10, it.timestamp) for it in n.nvmlDeviceGetFieldValues(d, both)]
begin = end = read()
while any(then[0] + (1 << 30) > now[0] for then, now in zip(begin, end)):
    end = read()
print(json.dumps([round((now[0] - then[0]) / (now[1] - then[1]) * 1e6) for then, now in zip(begin, end)]))
";
    let rates: [u64; 2] = serde_json::from_str(&reported(&bench, python, &["-c", script])).unwrap();
    for ((_, kib), rate) in flows.iter().zip(rates) {
        assert!(rate.abs_diff(kib * 1024) * 100_000 < rate, "{rate} of {kib} KiB/s");
    }
    let mut terminal = live(&bench);
    terminal.shows("NVIDIA H200");
    terminal.press("\r");
    for (label, rate) in ["NVLink out/s", "NVLink in/s"].into_iter().zip(rates) {
        let rate = Bytes(rate).to_string();
        assert!(until(PATIENCE, || behind(&terminal, label) == rate), "{label} {rate}\n{}", terminal.text());
    }
}

/// The figures of each MIG device: UUID, memory, layout, and the processes on it.
#[test]
fn nvidias_own_binding_reads_the_same_of_mig_devices() {
    test_tiers::full!("other programs read NVML");
    let (bench, python) = (Bench::new(), test_tiers::needs!(python()));
    let own = bench.once(&[Fault::Mig(0, 3)]);
    let script = "
import json, pynvml as n
n.nvmlInit()
d = n.nvmlDeviceGetHandleByIndex(0)
def part(slot):
    try:
        it = n.nvmlDeviceGetMigDeviceHandleByIndex(d, slot)
    except n.NVMLError_NotFound:
        return None
    memory = n.nvmlDeviceGetMemoryInfo(it, version=n.nvmlMemory_v2)
    layout = n.nvmlDeviceGetAttributes(it)
    processes = [p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(it)]
    return [n.nvmlDeviceGetUUID(it), memory.total, memory.used, layout.gpuInstanceSliceCount,
            layout.multiprocessorCount, processes]
slots = range(n.nvmlDeviceGetMaxMigDeviceCount(d))
print(json.dumps([it for it in map(part, slots) if it], separators=(',', ':')))
";
    let reported: Value = serde_json::from_str(&reported(&bench, python, &["-c", script])).unwrap();
    let parts = own["devices"].as_array().unwrap().iter().filter(|it| !it["parent"].is_null());
    let figures = |it: &Value| {
        let processes: Vec<&Value> = it["processes"].as_array().unwrap().iter().map(|its| &its["pid"]).collect();
        let (memory, metrics) = (&it["memory"], &it["metrics"]);
        let layout = (&metrics["mig_slices"], &metrics["mig_multiprocessors"]);
        serde_json::json!([it["id"], memory["total"], memory["used"], layout.0, layout.1, processes])
    };
    let expected: Vec<Value> = parts.map(figures).collect();
    assert_eq!(expected.len(), 3);
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
