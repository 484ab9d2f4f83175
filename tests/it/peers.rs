//! Other programs that read NVML, as their authors made them: each sees on the simulated driver what is there.
//!
//! Where they cannot be had, the tests say so and check nothing. `GPUWATCH_PEERS_VENV` names a Python that has them.

use crate::{
    nvml::Bench,
    pty::{PATIENCE, Terminal, until},
    torch::{stdout, target},
    venv::Venv,
};
use serde_json::Value;
use std::{
    env, fs,
    io::{self, Write},
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
    python: OnceLock::new(),
};

/// The Python that has nvitop, gpustat and nvidia-ml-py; none where they cannot be had, which is said.
pub(crate) fn python() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND
        .get_or_init(|| PEERS.found().map_err(|why| say_absent("nvitop, gpustat and nvidia-ml-py", &why)).ok())
        .as_deref()
}

/// nvtop: the system's, or that of the distribution's package, which is unpacked and not installed; none where it
/// cannot be had, which is said.
pub(crate) fn nvtop() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND.get_or_init(|| installed("nvtop").or_else(unpacked_nvtop)).as_deref()
}

fn installed(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|it| it.join(name)).find(|it| it.is_file())
}

/// It lies in Debian's section `contrib`, which most machines leave out: apt is asked with lists of its own, made of
/// the sources that the machine has.
const UNPACK_NVTOP: &str = r#"
set -e
mkdir -p lists/partial cache/archives/partial
apt-get indextargets --format '$(ORIGIN) deb $(REPO_URI) $(RELEASE) main contrib' 'Created-By: Packages' |
    sed -n 's/^Debian //p' | sort -u > sources.list
apt() {
    apt-get -q -o Dir::Etc::SourceList="$PWD/sources.list" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::State::Lists="$PWD/lists" -o Dir::Cache="$PWD/cache" "$@"
}
apt update
apt download nvtop
dpkg -x nvtop_*.deb .
ldd usr/bin/nvtop
rm -r lists cache
"#;

fn unpacked_nvtop() -> Option<PathBuf> {
    let folder = target().join("package-nvtop");
    let program = folder.join("usr/bin/nvtop");
    if program.is_file() {
        return Some(program);
    }
    fs::create_dir_all(&folder).unwrap();
    let output = Command::new("/bin/sh").args(["-c", UNPACK_NVTOP]).current_dir(&folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || said.contains("not found") {
        // What lacks a library would not start the next time either.
        let _ = fs::remove_dir_all(&folder);
        say_absent("nvtop", &said);
        return None;
    }
    Some(program)
}

/// Not through print macros, whose output a passing test keeps to itself.
pub(crate) fn say_absent(what: &str, why: &str) {
    let last = why.trim().lines().next_back().unwrap_or_default();
    let _ =
        writeln!(io::stderr(), "gpuwatch's tests: {what} cannot be had here, and nothing is checked with it: {last}");
}

/// What a program that finds the bench's NVML writes.
fn said(bench: &Bench, program: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).envs(bench.environment()).env("TERM", "xterm").stdin(Stdio::null());
    stdout(&command.output().unwrap())
}

const MIB: u64 = 1 << 20;

/// What the bench's tenant has, in MiB.
const HELD: u64 = 5 << 10;

#[test]
fn gpustat_reads_what_is_there() {
    let (bench, Some(python)) = (Bench::new(), python()) else { return };
    let said: Value = serde_json::from_str(&said(&bench, python, &["-m", "gpustat", "--json"])).unwrap();
    let cards = bench.machine.cards().unwrap();
    let gpus = said["gpus"].as_array().unwrap();
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
    let (bench, Some(python)) = (Bench::new(), python()) else { return };
    let text = said(&bench, python, &["-m", "nvitop", "-1", "--no-unicode"]);
    for words in ["H200", "A10", "5120MiB / 140.4GiB", "595.00.sim"] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    let pid = bench.tenant.id().to_string();
    assert!(text.lines().any(|it| it.contains(&pid) && it.contains("5120MiB")), "{pid} in\n{text}");
}

#[test]
fn nvidias_own_binding_reads_what_is_there() {
    let (bench, Some(python)) = (Bench::new(), python()) else { return };
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
    let said: Value = serde_json::from_str(&said(&bench, python, &["-c", script])).unwrap();
    let expected: Vec<Value> = bench
        .machine
        .cards()
        .unwrap()
        .iter()
        .map(|it| {
            let used: u64 = it.tenants.iter().map(|it| it.used).sum();
            let processes: Vec<Value> = it.tenants.iter().map(|it| serde_json::json!([it.pid, it.used])).collect();
            serde_json::json!([it.uuid, it.total, it.reserved, used, it.total - it.reserved - used, processes])
        })
        .collect();
    assert_eq!(said, Value::from(expected));
}

#[test]
fn nvtop_shows_what_is_there() {
    let (bench, Some(nvtop)) = (Bench::new(), nvtop()) else { return };
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
