//! What follows from `gpuwatch once --json`: the command that looks further.

use crate::{
    cli::next_commands::NextCommand,
    model::{
        findings::{Finding, Findings},
        session::{Session, process::ProbeState},
    },
};

/// Returns what follows, the most urgent first: what grows, what a process consists of, a process without a probe.
pub(super) fn next(session: &Session, findings: &Findings) -> Vec<NextCommand> {
    let live: Vec<u32> =
        session.processes.iter().filter(|it| it.life == ProbeState::Live).filter_map(|it| it.pid).collect();
    let grows = |it: &&Finding| it.is_own_growth() && it.is_active() && !it.is_allowed();
    let growing = findings.all.iter().filter(grows).filter_map(|it| it.pid).find(|it| live.contains(it));
    let of = |words: [&str; 1], pid: u32, why| {
        NextCommand::new(words.into_iter().map(str::to_owned).chain([pid.to_string()]), why)
    };
    let sites = growing.map(|pid| of(["sites"], pid, "tells which lines allocate what grows, and what holds it"));
    let peak = growing
        .or_else(|| live.first().copied())
        .map(|pid| of(["peak"], pid, "tells what the process's memory consists of at the highest moment of a step"));
    let attach =
        bare(session).map(|pid| of(["attach"], pid, "gives the process a probe, which tells what holds its memory"));
    let mut all: Vec<NextCommand> = sites.into_iter().chain(peak).chain(attach).collect();
    if session.devices.is_empty() {
        all.push(NextCommand::new(["doctor", "--json"], "tells what is missing on this machine"));
    }
    all
}

/// A Python process on a device that has no probe, and could get one now.
fn bare(session: &Session) -> Option<u32> {
    let listed = session.devices.iter().flat_map(|it| it.process_list().unwrap_or_default()).map(|it| it.pid);
    let has_probe = |pid: u32| session.processes.iter().any(|it| it.any_pid() == Some(pid));
    let can_get_one = |pid: &u32| {
        let info = session.process_info.get(pid);
        info.is_some_and(|it| it.is_python() && !it.commands_for_a_probe().is_empty()) && !has_probe(*pid)
    };
    listed.filter(can_get_one).min()
}
