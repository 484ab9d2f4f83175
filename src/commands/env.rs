//! `gpuwatch env`: the environment that probes jobs started without `gpuwatch run`.

use super::{ConfigUse, Invocation, Subcommand};
use crate::{facts::text::Shell, jobs::launch};
use anyhow::Result;

/// The arguments of `gpuwatch env`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  eval \"$(gpuwatch env)\" && python train.py")]
pub(super) struct EnvArgs {
    /// The shell to print for.
    #[arg(long, value_enum, default_value_t)]
    shell: Shell,
}

impl Subcommand for EnvArgs {
    fn config_use(&self) -> ConfigUse {
        ConfigUse::Unused
    }

    fn run(&self, _: &Invocation) -> Result<u8> {
        Ok(launch::env(self.shell)?)
    }
}
