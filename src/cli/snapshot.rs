//! `gpuwatch snapshot`: the account written, and on standard error what keeps it from being whole.

use crate::{commands::snapshot, facts::text::Foreign, storage::output};
use anyhow::{Context, Result};
use std::path::Path;

pub(super) fn snapshot(file: &Path, fits: Option<u64>, json: bool) -> Result<u8> {
    let name = Foreign::new(file.to_string_lossy());
    let account = snapshot::account(file, fits).with_context(|| format!("cannot read {name}"))?;
    if let Some(why) = account.ended() {
        super::say(format_args!("{name}: {why}"));
    }
    output::print(&if json { account.json() } else { account.text() })?;
    Ok(u8::from(account.ended().is_some()))
}
