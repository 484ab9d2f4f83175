//! Measures the viewer's cost: eight devices, eight probes at 100 steps a second, ten frames a second.
//!
//! `GPUWATCH_BENCHMARK=full cargo test --release --test it viewer_cost -- --nocapture` holds it to its budget.

use crate::pty::{PATIENCE, PROGRAM, Terminal, until};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

const PROBES: usize = 8;
const KIB: u64 = 1024;

/// Load makers, ended with their standard input.
struct Jobs(Vec<Child>);

impl Jobs {
    fn start(directory: &Path) -> Self {
        let job = |rank: usize| {
            Command::new(PROGRAM)
                .args(["demo-job", "--rate", "100", "--ranks", "8", "--kind", ["leaking", "pending"][rank % 2]])
                .args(["--rank", &rank.to_string(), "--devices", &rank.to_string()])
                .arg("--directory")
                .arg(directory)
                .stdin(Stdio::piped())
                .spawn()
                .unwrap()
        };
        Self((0..PROBES).map(job).collect())
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
    let is_benchmark = test_tiers::is_benchmark();
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let _jobs = Jobs::start(directory.path());
    let sockets = || fs::read_dir(directory.path()).unwrap().flatten().count();
    assert!(until(PATIENCE, || sockets() >= PROBES), "{} sockets", sockets());
    let environment = [("GPUWATCH_SOCKET_DIR", directory.path().to_str().unwrap())];
    let mut terminal = Terminal::start_sized((50, 200), &["--no-nvml"], &environment);
    terminal.shows("8 probes");
    // The backlog is the start's cost, not the watching's.
    let more = |pictures: usize| {
        let from = frames(&terminal);
        assert!(until(PATIENCE, || frames(&terminal) >= from + pictures), "{} and no more pictures", frames(&terminal));
    };
    more(10);
    let pid = terminal.child.process_id().unwrap();
    let (ticks, frames, begun) = (cpu_ticks(pid), frames(&terminal), Instant::now());
    more(if is_benchmark { 100 } else { 10 });
    let wall = begun.elapsed().as_secs_f64();
    let cpu = (cpu_ticks(pid) - ticks) as f64 / rustix::param::clock_ticks_per_second() as f64 / wall * 100.0;
    let pictures = (self::frames(&terminal) - frames) as f64 / wall;
    let peak = peak_kib(pid);
    println!("viewer: {cpu:.1} % of one core, {:.1} MiB peak, {pictures:.1} pictures a second", peak as f64 / 1024.0);
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
    assert!(peak <= if is_benchmark { 16 * KIB } else { 64 * KIB }, "{peak} KiB");
    assert!(!is_benchmark || (pictures > 9.0 && cpu <= 5.0), "{pictures:.1} pictures a second, {cpu:.1} %");
}

fn frames(terminal: &Terminal) -> usize {
    let end = b"\x1b[?2026l";
    terminal.bytes().windows(end.len()).filter(|it| it == end).count()
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
