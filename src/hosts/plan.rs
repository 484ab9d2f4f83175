//! Which machines to reach, and how.

use super::{list, transport::Transport};
use crate::facts::text::Foreign;
use anyhow::{Context, Result, bail};
use std::process::{Command, Stdio};

/// Machines to reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Their names.
    pub hosts: Vec<String>,
    /// The command that reaches one.
    pub transport: Transport,
    /// The gpuwatch to start there, unless this one is copied.
    pub program: String,
    /// Whether to copy this gpuwatch there.
    pub push: bool,
}

impl Plan {
    /// Returns the command that streams a machine's events by a gpuwatch there.
    pub fn command(&self, host: &str, program: &str) -> Vec<String> {
        // Nothing here needs a machine's memory more often.
        self.transport.command(host, &[program, "stream", "--interval", "1s"])
    }
}

/// Returns the machines of a running Slurm job, as `squeue` lists them.
///
/// # Errors
/// Fails if `squeue` does, or if the job has no machines yet.
pub fn of_slurm(job: &str) -> Result<Vec<String>> {
    let is_id = |c: char| c.is_ascii_alphanumeric() || "_.+".contains(c);
    if job.is_empty() || !job.chars().all(is_id) {
        bail!("{job:?} is not the number of a Slurm job");
    }
    let mut squeue = Command::new("squeue");
    squeue.args(["--noheader", "--format=%N", "--jobs", job]).stdin(Stdio::null());
    let output = squeue.output().context("cannot start squeue")?;
    if !output.status.success() {
        bail!("squeue: {}", Foreign::new(String::from_utf8_lossy(&output.stderr).trim()));
    }
    let nodes = String::from_utf8_lossy(&output.stdout);
    if nodes.trim().is_empty() {
        bail!("job {job} has no machines: it waits, or it has ended");
    }
    list::expand(&nodes)
}

/// Checks a program's path: a remote shell or none may read it, so it has no characters that a shell reads.
///
/// # Errors
/// Fails if it has.
pub fn program(text: &str) -> Result<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+~".contains(c);
    if text.is_empty() || text.starts_with('-') || !text.chars().all(is_plain) {
        bail!("{text:?} is not a path without blanks and quotes");
    }
    Ok(text.to_owned())
}
