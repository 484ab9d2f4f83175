//! Flags that name other hosts, or a store of their figures.

use crate::{
    hosts::{
        list,
        plan::{self, Plan, Transport},
        prometheus::{Store, query::Matcher},
    },
    net::token::Token,
    storage::input,
};
use anyhow::{Context, Result};
use std::{env, path::PathBuf};

/// Most bytes of a list of machines: each of the most that it may name takes less than a thousand.
const HOSTS_FILE_MAX: u64 = 4 << 20;

/// Which hosts to reach, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct HostFlags {
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
    /// Copy this gpuwatch into the user's cache on machines that lack it, and start that one.
    #[arg(long, conflicts_with = "remote_program")]
    push: bool,
}

/// Which store of figures to ask.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PrometheusFlags {
    /// Ask Prometheus, or what has its API, for all ranks whose figures `gpuwatch serve` exports, as in
    /// `http://127.0.0.1:9090`.
    #[arg(long, value_name = "URL", conflicts_with_all = ["hosts", "hosts_file", "slurm", "transport", "push"])]
    prometheus: Option<Store>,
    /// Only ranks with this label, as in `scheduler_job=4242`; repeatable.
    #[arg(long = "match", value_name = "LABEL=VALUE", requires = "prometheus")]
    pub(crate) matchers: Vec<Matcher>,
    /// The file with the bearer token in its first line; by default the variable `GPUWATCH_PROMETHEUS_TOKEN`.
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    prometheus_token: Option<PathBuf>,
}

impl PrometheusFlags {
    /// Returns the store with its token; `None` if no flag names any.
    pub(crate) fn store(&self) -> Result<Option<Store>> {
        let Some(store) = self.prometheus.clone() else { return Ok(None) };
        let token = match &self.prometheus_token {
            Some(path) => Some(Token::read(path)?),
            None => env::var(TOKEN).ok().map(|it| Token::new(&it)).transpose().with_context(|| format!("${TOKEN}"))?,
        };
        token.map_or(Ok(store.clone()), |it| store.with_token(it)).map(Some)
    }
}

/// The variable with a token. No flag takes it, because every user of the machine sees a process's arguments.
const TOKEN: &str = "GPUWATCH_PROMETHEUS_TOKEN";

impl HostFlags {
    /// Returns the hosts and how to reach them; `None` if no flag names any.
    pub(crate) fn plan(&self) -> Result<Option<Plan>> {
        let mut lists = self.hosts.clone();
        if let Some(path) = &self.hosts_file {
            let text =
                input::small_text(path, HOSTS_FILE_MAX).with_context(|| format!("cannot read {}", path.display()))?;
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
        Ok(Some(Plan { hosts, transport, program: self.remote_program.clone(), push: self.push }))
    }
}
