//! Which processes are ranks of one job: they have one recording.

use crate::sources::proc::Status;
use std::{collections::BTreeMap, fs};

/// What the ranks of one launcher have in common in their environments.
const SHARED: [&str; 4] = ["MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_STEP_ID"];

/// The variable that every rank of a launcher has.
const RANK: &str = "RANK";

/// What identifies a job among those of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// The variables of [`SHARED`], as its launcher set them.
    Launched(BTreeMap<String, String>),
    /// The process that forked the others, or the process itself.
    Process(u32),
}

/// Returns the job of a process.
pub(super) fn identity(pid: u32) -> Identity {
    let read = |pid: u32, name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let parent = Status::read(pid).numbers("PPid").first().copied().unwrap_or(0);
    of(pid, &read(pid, "environ"), &read(pid, "cmdline"), parent, &read(parent, "cmdline"))
}

/// Decides from the environment, the command line, the parent and its command line.
fn of(pid: u32, environment: &[u8], command: &[u8], parent: u32, above: &[u8]) -> Identity {
    let text = String::from_utf8_lossy(environment);
    let variables = text.split('\0').filter_map(|it| it.split_once('='));
    let known: BTreeMap<&str, &str> = variables.collect();
    if known.contains_key(RANK) {
        let shared = SHARED.iter().filter_map(|it| Some(((*it).to_owned(), (*known.get(it)?).to_owned())));
        return Identity::Launched(shared.collect());
    }
    // A forked rank has its parent's command line; a spawned one is started by Python's `multiprocessing`.
    let is_child = !command.is_empty() && command == above;
    let is_spawned = String::from_utf8_lossy(command).contains("multiprocessing");
    Identity::Process(if is_child || is_spawned { parent } else { pid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_one_launcher_are_one_job_and_other_processes_are_not() {
        let rank = |rank: u32, port: u32| {
            let environment = format!("PATH=/bin\0RANK={rank}\0MASTER_ADDR=node7\0MASTER_PORT={port}\0");
            of(100 + rank, environment.as_bytes(), b"python\0train.py\0", 1, b"bash\0")
        };
        assert_eq!(rank(0, 29500), rank(3, 29500));
        assert_ne!(rank(0, 29500), rank(0, 29501));
        let plain = |pid: u32, command: &[u8], above: &[u8]| of(pid, b"PATH=/bin\0", command, 7, above);
        assert_eq!(plain(8, b"python\0a.py\0", b"bash\0"), Identity::Process(8));
        assert_eq!(plain(8, b"python\0a.py\0", b"python\0a.py\0"), Identity::Process(7));
        assert_eq!(plain(9, b"python\0-c\0from multiprocessing.spawn\0", b"python\0a.py\0"), Identity::Process(7));
    }
}
