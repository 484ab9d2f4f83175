//! `gpuwatch attach` and `gpuwatch detach`: for each process, and what they come to together.

use crate::{
    config,
    jobs::attach::{self, Options, Outcome},
    storage::output,
};
use anyhow::Result;
use std::{env, path::PathBuf, time::Duration};

/// Exit codes: one of the processes was left as it is; one of them has not answered yet.
const REFUSED: u8 = 2;
const PENDING: u8 = 3;

/// The help's end.
pub(super) const AFTER: &str = "Example:
  gpuwatch attach 4102

The main thread of the job is paused for less than a millisecond as a rule, and for 100 ms at most. Steps count from then on, \
or continue the optimizer's own count; peaks are those of the whole job.

Exit code 0 once the probe runs, 2 if a process is left as it is (one sentence says why), 3 if its main thread has not \
returned to Python yet: the probe starts when it does.";

/// What `gpuwatch attach` takes.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Asked {
    /// The processes: PyTorch jobs that use a GPU.
    #[arg(value_name = "PID", required_unless_present = "all", value_parser = clap::value_parser!(u32).range(1..))]
    pids: Vec<u32>,
    /// All of your jobs that have no probe yet.
    #[arg(long, conflicts_with = "pids")]
    all: bool,
    /// Only print what would be done, or why it cannot be.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    waiting: Waiting,
}

/// What `gpuwatch detach` takes.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Ended {
    /// The processes.
    #[arg(value_name = "PID", required = true, value_parser = clap::value_parser!(u32).range(1..))]
    pids: Vec<u32>,
    #[command(flatten)]
    waiting: Waiting,
}

#[derive(Clone, Copy, Debug, clap::Args)]
struct Waiting {
    /// How long to wait for the main thread to return to Python.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = config::duration)]
    wait: Duration,
}

/// Attaches, and prints what came of it.
pub(super) fn attach(asked: Asked) -> Result<u8> {
    let Asked { mut pids, all, dry_run, waiting } = asked;
    if all {
        pids = attach::candidates();
        pids.retain(|it| attach::plan_for(*it).is_ok());
    }
    if pids.is_empty() {
        super::print_message(format_args!(
            "no job without a probe was found that can be attached to: gpuwatch attach PID says why"
        ));
        return Ok(REFUSED);
    }
    if dry_run {
        return planned(&pids);
    }
    let options = options(waiting);
    each(&pids, "the probe runs; `gpuwatch` shows it, `gpuwatch detach` ends it", |pid| attach::attach(pid, &options))
}

/// Detaches, and prints what came of it.
pub(super) fn detach(asked: &Ended) -> Result<u8> {
    let options = options(asked.waiting);
    each(&asked.pids, "the probe has ended", |pid| attach::detach(pid, &options))
}

fn options(waiting: Waiting) -> Options {
    let directory = env::var_os("GPUWATCH_SOCKET_DIR").filter(|it| !it.is_empty()).map(PathBuf::from);
    Options { wait: waiting.wait, directory, run: None }
}

fn planned(pids: &[u32]) -> Result<u8> {
    let mut code = 0;
    for pid in pids {
        match attach::plan_for(*pid) {
            Ok(plan) => output::print(&format!("{plan}\n"))?,
            Err(why) => {
                super::print_message(format_args!("{why}"));
                code = REFUSED;
            }
        }
    }
    Ok(code)
}

fn each(pids: &[u32], done: &str, act: impl Fn(u32) -> Outcome) -> Result<u8> {
    let mut codes = Vec::new();
    for pid in pids {
        codes.push(match act(*pid) {
            Outcome::Done(held) => {
                let paused =
                    held.map(|it| format!(" (its main thread was paused for {:.1} ms)", 1e3 * it.as_secs_f64()));
                output::print(&format!("process {pid}: {done}{}\n", paused.unwrap_or_default()))?;
                0
            }
            Outcome::Pending => {
                super::print_message(format_args!(
                    "process {pid}: its main thread has not returned to Python yet; the request waits there, and a \
                     second one is not queued"
                ));
                PENDING
            }
            Outcome::Refused(why) => {
                super::print_message(format_args!("{why}"));
                REFUSED
            }
        });
    }
    Ok([REFUSED, PENDING].into_iter().find(|it| codes.contains(it)).unwrap_or(0))
}
