//! Flags that name other machines.

use crate::{
    commands::once,
    config::{self, Watching},
    hosts::{
        link::Links,
        list,
        plan::{self, Plan},
        transport::Transport,
    },
    sources::Sources,
};
use anyhow::{Context, Result};
use std::{fs, path::PathBuf, time::Duration};

/// Which machines to reach, and how.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Reach {
    /// Other machines, as in `node[01-16],login`: gpuwatch there streams through ssh.
    #[arg(long, value_name = "LIST")]
    hosts: Vec<String>,
    /// The same from a file: a list in each line, comments after #.
    #[arg(long, value_name = "FILE")]
    hosts_file: Option<PathBuf>,
    /// The machines of a running Slurm job.
    #[arg(long, value_name = "JOB")]
    slurm: Option<String>,
    /// The command that reaches a machine, with {} for its name, as in `kubectl exec -i {} --`; by default, ssh.
    #[arg(long, value_name = "COMMAND")]
    transport: Option<Transport>,
    /// The gpuwatch to start on the machines.
    #[arg(long, value_name = "PATH", default_value = "gpuwatch", value_parser = plan::program)]
    remote_program: String,
}

/// How long to wait for other machines.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Patience {
    /// How long to wait for other machines.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = config::duration)]
    pub(super) wait: Duration,
}

impl Reach {
    /// Returns the machines; `None` if no flag names any.
    pub(super) fn plan(&self) -> Result<Option<Plan>> {
        let mut lists = self.hosts.clone();
        if let Some(path) = &self.hosts_file {
            let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            lists.extend(list::expand_lines(&text)?);
        }
        if let Some(job) = &self.slurm {
            lists.extend(plan::of_slurm(job)?);
        }
        if lists.is_empty() {
            return Ok(None);
        }
        let hosts = list::expand(&lists.join(","))?;
        let transport = self.transport.clone().unwrap_or_default();
        Ok(Some(Plan { hosts, transport, program: self.remote_program.clone() }))
    }
}

/// Prints the state of this machine, or of others, once.
pub(super) fn once(reach: &Reach, patience: Patience, watching: &Watching, json: bool) -> Result<u8> {
    let plan = reach.plan()?;
    super::runtime()?.block_on(async {
        let Some(plan) = plan else {
            let mut sources = Sources::start(watching.sources().in_detail());
            return once::print(&mut sources.events, 0, json).await;
        };
        once::hosts::print(&mut Links::start(&plan), &plan.hosts, patience.wait, json).await
    })?;
    Ok(0)
}
