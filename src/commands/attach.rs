//! `gpuwatch attach`: starts the probe in running jobs, and records them.

use super::{Invocation, Subcommand};
use crate::{
    cli::inputs,
    config::{
        self, AlertProgramFlags, CaptureFlags, CaptureWhen, Driver, NamingFlags, Recording, RetentionFlags, Summary,
    },
    facts::text::Foreign,
    jobs::{
        attach::{self, Confined, Options, Outcome},
        launch,
        recorder::{
            detached::{self, AttachedJob},
            file::RecordingPlan,
        },
    },
    model::alerts::Policy,
    storage::{output, sink::delivery::Delivery},
};
use anyhow::Result;
use std::{env, path::PathBuf, sync::Arc, thread, time::Duration};

/// Exit codes: one of the processes was left as it is; one of them has not answered yet.
const REFUSED: u8 = 2;
const PENDING: u8 = 3;

/// The end of its help.
const AFTER: &str = "Example:
  gpuwatch attach 4102

The main thread of the job is paused for less than a millisecond as a rule; gpuwatch prints for how long. A thread that does \
not stop within 100 ms runs on; gpuwatch tries up to five times. Steps count from then on, or continue the optimizer's own count; \
peaks are those of the whole job.

A process in the background records the job, as `gpuwatch run` does. It needs no terminal, and ends with the job or with \
`gpuwatch detach`.

Exit code 0 once the probe runs, 2 if a process is left as it is (one sentence says why), 3 if it has not answered yet: \
the probe starts when its main thread returns to Python.";

/// Keeps Ctrl-Z from suspending this process while it holds the main thread of a job.
pub(super) fn stay_awake() {
    // Without it, only that protection is missing.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGTSTP, Arc::default());
}

/// The arguments of `gpuwatch attach`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(super) struct AttachArgs {
    /// The processes: PyTorch jobs that use a GPU.
    #[arg(value_name = "PID", required_unless_present = "all", value_parser = inputs::pid)]
    pids: Vec<u32>,
    /// All of your jobs that have no probe yet.
    #[arg(long, conflicts_with = "pids")]
    all: bool,
    /// Only print what would be done, or why it cannot be.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    waiting: WaitFlags,
    /// Attach without recording.
    #[arg(long)]
    no_record: bool,
    #[command(flatten)]
    naming: NamingFlags,
    #[command(flatten)]
    keep: RetentionFlags,
    #[command(flatten)]
    on_alert: AlertProgramFlags,
    #[command(flatten)]
    asking: CaptureFlags,
    #[command(flatten)]
    driver: Driver,
    /// Record this job, whose probe runs: gpuwatch starts itself so.
    #[arg(long, hide = true, value_name = "JOB")]
    recorder: Option<AttachedJob>,
    /// Reach this process's files as its user: gpuwatch starts itself so.
    #[arg(long, hide = true, value_name = "WHOSE", value_parser = clap::value_parser!(Confined))]
    confined: Option<Confined>,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct WaitFlags {
    /// How long to wait for the main thread to return to Python.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = config::duration)]
    pub(super) wait: Duration,
}

impl Subcommand for AttachArgs {
    fn failure_code(&self) -> u8 {
        2
    }

    fn run(&self, invocation: &Invocation) -> Result<u8> {
        attach(self, &invocation.policy)
    }
}

/// Attaches, records, and prints the results.
fn attach(args: &AttachArgs, policy: &Policy) -> Result<u8> {
    if let Some(job) = &args.recorder {
        return record(job, args.clone(), policy.clone());
    }
    if let (Some(subject), [pid]) = (args.confined, &args.pids[..]) {
        attach::reach_confined(*pid, subject)?;
        return Ok(0);
    }
    let mut pids = args.pids.clone();
    if args.all {
        pids = attach::candidates();
        pids.retain(|it| attach::plan_for(*it).is_ok());
    }
    if pids.is_empty() {
        output::message(format_args!(
            "no job without a probe was found that can be attached to: gpuwatch attach PID says why"
        ));
        return Ok(REFUSED);
    }
    if args.dry_run {
        return planned(&pids, args.no_record);
    }
    stay_awake();
    let mut codes = Vec::new();
    for members in attach::jobs(&pids) {
        let run = launch::new_run_id();
        let options = Options { run: Some(run.clone()), ..options(args.waiting) };
        let mut outcomes = each(&members, |pid| attach::attach(pid, &options));
        // A launcher has PyTorch as its ranks have, and uses no GPU.
        outcomes.retain(|it| !(args.all && matches!(it.1, Outcome::Idle(_))));
        let is_started = |it: &&(u32, Outcome)| matches!(it.1, Outcome::Done(_) | Outcome::Pending(_));
        let followed: Vec<u32> = outcomes.iter().filter(is_started).map(|it| it.0).collect();
        codes.push(report(&outcomes, "the probe runs; `gpuwatch` shows it, `gpuwatch detach` ends it")?);
        if !args.no_record && !followed.is_empty() {
            match detached::start(&AttachedJob::new(run, &followed)) {
                Ok(path) => {
                    output::message(format_args!(
                        "recording to {} until the job or its probe ends",
                        Foreign::new(path)
                    ));
                }
                Err(why) => {
                    output::message(format_args!("nothing is recorded: {}", Foreign::new(format!("{why:#}"))));
                }
            }
        }
    }
    Ok(worst(&codes))
}

/// Records a job whose probes were started.
fn record(job: &AttachedJob, args: AttachArgs, policy: Policy) -> Result<u8> {
    let recording = Recording { naming: args.naming, summary: Summary::Never, ..Recording::default() };
    let plan = RecordingPlan::new(&job.run, args.keep, recording);
    let delivery = Delivery::new(args.on_alert.hook().ok().flatten(), None);
    let watching = (args.driver, args.asking.sites == CaptureWhen::Auto);
    detached::record(job, &plan, delivery, policy, watching)
}

pub(super) fn options(waiting: WaitFlags) -> Options {
    let directory = env::var_os("GPUWATCH_SOCKET_DIR").filter(|it| !it.is_empty()).map(PathBuf::from);
    Options { wait: waiting.wait, directory, run: None }
}

fn planned(pids: &[u32], no_record: bool) -> Result<u8> {
    let mut code = 0;
    for pid in pids {
        match attach::plan_for(*pid) {
            Ok(plan) => {
                let last = if no_record { "" } else { "\n  4. record the job in the background until it ends" };
                output::print(&format!("{plan}{last}\n"))?;
            }
            Err(why) => {
                output::message(format_args!("{why}"));
                code = REFUSED;
            }
        }
    }
    Ok(code)
}

/// Acts on each process at once: ranks answer together when a collective returns.
pub(super) fn each(pids: &[u32], act: impl Fn(u32) -> Outcome + Sync) -> Vec<(u32, Outcome)> {
    if let [pid] = pids {
        return vec![(*pid, act(*pid))];
    }
    let act = &act;
    thread::scope(|scope| {
        let threads: Vec<_> = pids.iter().map(|pid| (*pid, scope.spawn(move || act(*pid)))).collect();
        let failed = |_| Outcome::Refused("gpuwatch failed".to_owned());
        threads.into_iter().map(|(pid, it)| (pid, it.join().unwrap_or_else(failed))).collect()
    })
}

/// Prints the results; returns the exit code.
pub(super) fn report(outcomes: &[(u32, Outcome)], done: &str) -> Result<u8> {
    let mut codes = Vec::new();
    for (pid, outcome) in outcomes {
        codes.push(match outcome {
            Outcome::Done(held) => {
                let paused =
                    held.map(|it| format!(" (its main thread was paused for {:.1} ms)", 1e3 * it.as_secs_f64()));
                output::print(&format!("process {pid}: {done}{}\n", paused.unwrap_or_default()))?;
                0
            }
            Outcome::Pending(why) => {
                output::message(format_args!("process {pid}: {why}"));
                PENDING
            }
            Outcome::Refused(why) | Outcome::Idle(why) => {
                output::message(format_args!("{why}"));
                REFUSED
            }
        });
    }
    Ok(worst(&codes))
}

fn worst(codes: &[u8]) -> u8 {
    [REFUSED, PENDING].into_iter().find(|it| codes.contains(it)).unwrap_or(0)
}
