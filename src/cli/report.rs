//! `gpuwatch report`: selects the run and the file.

use crate::{commands::report::Report, facts::text::Foreign, model::alerts::Policy, storage::output};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

pub(super) fn write(files: Vec<PathBuf>, to: &Path, json: bool, policy: &Policy) -> Result<u8> {
    let found = super::named(files)?;
    found.notes.iter().for_each(|it| super::say(format_args!("{it}")));
    let report = Report::read(&found.recordings, policy);
    let is_json = json || to.extension().is_some_and(|it| it.eq_ignore_ascii_case("json"));
    let text = if is_json { report.json() } else { report.html() };
    if output::is_stdout(to) {
        output::print(&text)?;
        return Ok(0);
    }
    let name = Foreign::new(to.to_string_lossy());
    output::save(to, &text).with_context(|| format!("cannot make {name}"))?;
    super::say(format_args!("wrote {name}"));
    Ok(0)
}
