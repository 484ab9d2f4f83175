//! Flags that belong together, of single commands.

use super::{
    hosts::{Fleet, Reach},
    screen_options::OverviewOptions,
};
use crate::{
    commands::sites,
    config::{self, Asking, OnAlert, Watching},
};
use clap::Subcommand;
use std::{path::PathBuf, time::Duration};

#[derive(Debug, clap::Args)]
pub(super) struct Live {
    #[command(flatten)]
    pub(super) reach: Reach,
    #[command(flatten)]
    pub(super) fleet: Fleet,
    /// How often to ask Prometheus.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = config::duration, requires = "prometheus")]
    pub(super) prometheus_interval: Duration,
    #[command(flatten)]
    pub(super) watching: Watching,
    #[command(flatten)]
    pub(super) screen: OverviewOptions,
    #[command(flatten)]
    pub(super) config: config::File,
    /// Ring the terminal's bell, once for each alert from warning on.
    #[arg(long)]
    pub(super) bell: bool,
    /// Let the terminal show a notification (OSC 9) of each alert from warning on; tmux passes only the bell on.
    #[arg(long)]
    pub(super) notify: bool,
    #[command(flatten)]
    pub(super) on_alert: OnAlert,
    #[command(flatten)]
    pub(super) asking: Asking,
}

/// What `gpuwatch sites` asks.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Question {
    /// The process.
    #[arg(value_name = "PID")]
    pid: u32,
    /// How many steps to compare live blocks over; seconds if the process counts no steps [default: 8, or as many as
    /// the growth found so far needs].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    steps: Option<u64>,
    /// Run Python's garbage collector once, to find what only it can free.
    #[arg(long)]
    collect: bool,
    /// How long to wait for the answer.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = config::duration)]
    timeout: Duration,
    /// As JSON (schema 1).
    #[arg(long)]
    json: bool,
}

impl Question {
    pub(super) fn asked(self) -> sites::Question {
        let Self { pid, steps, collect, timeout, json } = self;
        sites::Question { pid, steps, collect, limit: timeout, json }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    #[default]
    Text,
    Json,
}

/// What can be generated.
#[derive(Debug, Subcommand)]
pub(super) enum Generated {
    /// The config with every key, each at its default and commented out.
    Config,
    /// Completions for a shell.
    Completions {
        /// The shell to complete for.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// The manual's page; with a directory, a page for each command in it.
    Man {
        /// The directory to write the pages into.
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
    },
}
