//! Measures the viewer's cost with probes of a usual node, and with more or faster ones than a node has.
//!
//! `GPUWATCH_BENCHMARK=full cargo test --profile dist --test it benchmarks::viewer:: -- --nocapture --test-threads=1`
//! holds it to its budgets.

use crate::helpers::terminal::{PATIENCE, PROGRAM, Terminal, until};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

const KIB: u64 = 1024;

/// About so long a benchmark lasts: by then, the histories of all processes are full.
const SECONDS: usize = 120;

/// Probes that send, and what the viewer may take.
#[derive(Clone, Copy)]
struct Load {
    probes: usize,
    /// Steps a second of each.
    rate: usize,
    /// Percent of a core.
    cpu: f64,
    mib: u64,
    /// Pictures a second, at least nine tenths of it. Each shows news, so a viewer that reads its probes less often
    /// draws fewer.
    pictures: u32,
}

const USUAL: Load = Load { probes: 8, rate: 100, cpu: 5.0, mib: 16, pictures: 10 };
const FAST: Load = Load { probes: 64, rate: 500, cpu: 10.0, mib: 64, pictures: 4 };
const MANY: Load = Load { probes: 256, rate: 50, cpu: 10.0, mib: 64, pictures: 4 };

/// Devices of the node.
const DEVICES: usize = 8;

/// Load makers, ended with their standard input.
struct Jobs(Vec<Child>);

impl Jobs {
    fn start(directory: &Path, load: Load) -> Self {
        let job = |rank: usize| {
            let all = [load.rate, load.probes, rank, rank % DEVICES].map(|it| it.to_string());
            let flags = ["--rate", "--ranks", "--rank", "--devices"];
            Command::new(PROGRAM)
                .args(["demo-job", "--kind", ["leaking", "pending"][rank % 2], "--directory"])
                .arg(directory)
                .args(flags.iter().copied().zip(&all).flat_map(|(flag, value)| [flag, value.as_str()]))
                .stdin(Stdio::piped())
                .spawn()
                .unwrap()
        };
        Self((0..load.probes).map(job).collect())
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        for job in &mut self.0 {
            drop(job.stdin.take());
            let _ = job.wait();
        }
    }
}

#[test]
fn eight_busy_probes_fit_the_budget() {
    println!("{}", measured(USUAL));
}

#[test]
fn more_probes_than_a_node_has_fit_their_budget() {
    test_tiers::benchmark!();
    println!("{}", measured(FAST));
    println!("{}", measured(MANY));
}

/// Holds the viewer to its budget, and returns its figures.
fn measured(load: Load) -> String {
    let is_benchmark = test_tiers::is_benchmark();
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let _jobs = Jobs::start(directory.path(), load);
    let sockets = || fs::read_dir(directory.path()).unwrap().flatten().count();
    assert!(until(PATIENCE, || sockets() >= load.probes), "{} sockets", sockets());
    let environment = [("GPUWATCH_SOCKET_DIR", directory.path().to_str().unwrap())];
    let mut terminal = Terminal::start_sized((50, 200), &["--no-nvml"], &environment);
    terminal.shows(&format!("{} probes", load.probes));
    // The backlog is the start's cost, not the watching's.
    let more = |pictures: usize| {
        let from = terminal.frames();
        assert!(until(PATIENCE, || terminal.frames() >= from + pictures), "{} and no more pictures", terminal.frames());
    };
    more(10);
    let pid = terminal.child.process_id().unwrap();
    let (ticks, frames, begun) = (cpu_ticks(pid), terminal.frames(), Instant::now());
    let seconds = if is_benchmark { SECONDS } else { 1 };
    (0..seconds).for_each(|_| more(load.pictures as usize));
    let wall = begun.elapsed().as_secs_f64();
    let cpu = (cpu_ticks(pid) - ticks) as f64 / rustix::param::clock_ticks_per_second() as f64 / wall * 100.0;
    let pictures = (terminal.frames() - frames) as f64 / wall;
    let (peak, Load { probes, rate, .. }) = (peak_kib(pid), load);
    let mib = peak as f64 / 1024.0;
    let figures = format!(
        "{probes} probes at {rate} steps/s: {cpu:.1} % of one core, {mib:.1} MiB, {pictures:.1} pictures a second"
    );
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
    assert!(peak <= KIB * if is_benchmark { load.mib } else { 4 * load.mib }, "{figures}");
    assert!(!is_benchmark || (cpu <= load.cpu && pictures >= 0.9 * f64::from(load.pictures)), "{figures}");
    figures
}

fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_ascii_whitespace().skip(11).take(2).map(|it| it.parse::<u64>().unwrap()).sum()
}

fn peak_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
