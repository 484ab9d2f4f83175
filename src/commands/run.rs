//! `gpuwatch run`: starts a job with its probe, and records it.

use super::{ConfigUse, Invocation, Subcommand};
use crate::{
    config::{AlertProgramFlags, CaptureFlags, Driver, Recording, RetentionFlags},
    jobs::{
        launch,
        recorder::{file::RecordingPlan, record_job, replays},
    },
};
use anyhow::Result;
use std::ffi::OsString;

/// The arguments of `gpuwatch run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuwatch run -- torchrun --nproc-per-node 8 train.py --epochs 3\n\nInput, \
                            output, signals and the exit code are the job's own. After a probed job, one line on \
                            standard error gives the first finding and the command to replay it; --summary never turns \
                            it off.\n\nTo get alerts by mail:\n  \
                            gpuwatch run --on-alert mail --on-alert-arg=-s --on-alert-arg='GPU memory grows' \
                            --on-alert-arg=ada -- python train.py")]
pub(super) struct RunArgs {
    #[command(flatten)]
    on_alert: AlertProgramFlags,
    #[command(flatten)]
    asking: CaptureFlags,
    #[command(flatten)]
    driver: Driver,
    #[command(flatten)]
    pub(super) keep: RetentionFlags,
    #[command(flatten)]
    recording: Recording,
    /// The job and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Subcommand for RunArgs {
    /// A job runs even if the file has errors.
    fn config_use(&self) -> ConfigUse {
        ConfigUse::Tolerant
    }

    fn answers(&self) -> bool {
        false
    }

    fn run(&self, invocation: &Invocation) -> Result<u8> {
        let run = launch::run_id();
        let plan = RecordingPlan::new(&run, self.keep.clone(), self.recording.clone());
        let policy = invocation.config_error.clone().map_or_else(|| Ok(invocation.policy.clone()), Err);
        let (on_alert, asking, driver) = (self.on_alert.clone(), self.asking, self.driver);
        Ok(launch::run(&self.command, &plan.options(run), move |started| {
            record_job(started, &on_alert, &plan, policy, asking, driver);
        }))
    }
}

/// The arguments of the process that replays a job's allocations, which its recorder starts.
#[derive(Debug, clap::Args)]
pub(super) struct ReplayJobArgs {}

impl Subcommand for ReplayJobArgs {
    fn config_use(&self) -> ConfigUse {
        ConfigUse::Unused
    }

    fn run(&self, _: &Invocation) -> Result<u8> {
        replays::replay()
    }
}
