//! `gpuwatch detach`: ends the probe of running jobs.

use super::{
    ConfigUse, Invocation, Subcommand,
    attach::{WaitFlags, each, options, report, stay_awake},
};
use crate::{cli::inputs, jobs::attach};
use anyhow::Result;

/// The arguments of `gpuwatch detach`.
#[derive(Debug, clap::Args)]
pub(super) struct DetachArgs {
    /// The processes.
    #[arg(value_name = "PID", required = true, value_parser = inputs::pid)]
    pids: Vec<u32>,
    #[command(flatten)]
    waiting: WaitFlags,
}

impl Subcommand for DetachArgs {
    fn config_use(&self) -> ConfigUse {
        ConfigUse::Unused
    }

    fn run(&self, _: &Invocation) -> Result<u8> {
        stay_awake();
        let options = options(self.waiting);
        report(&each(&self.pids, |pid| attach::detach(pid, &options)), "the probe has ended")
    }
}
