//! What the pytest plugin calls: a request on standard input, the answer on standard output.

use super::{ConfigUse, Invocation, Subcommand};
use crate::{
    jobs::fit::pytest,
    storage::{input, output},
};
use anyhow::{Context, Result, anyhow};
use std::io;

/// The bytes of a request that are read at most.
const LARGEST: u64 = 32 << 20;

/// The arguments of the plugin's calls.
#[derive(Debug, clap::Args)]
pub(super) struct PytestArgs {}

impl Subcommand for PytestArgs {
    fn config_use(&self) -> ConfigUse {
        ConfigUse::Unused
    }

    fn failure_code(&self) -> u8 {
        2
    }

    fn run(&self, _: &Invocation) -> Result<u8> {
        let request = input::bounded(io::stdin().lock(), LARGEST).context("the plugin's request")?;
        let request = serde_json::from_slice(&request).context("the plugin's request is of another release")?;
        let answer = pytest::answer(request).map_err(|why| anyhow!(why))?;
        output::print(&format!("{answer}\n"))?;
        Ok(0)
    }
}
