//! `gpuwatch report`: which run, and into which file.

use crate::{alerts::Policy, report::Report, sink::store::open_new, text::Foreign};
use anyhow::{Context, Result};
use std::{
    io::Write,
    path::{Path, PathBuf},
};

pub(super) fn write(files: Vec<PathBuf>, output: &Path, policy: &Policy) -> Result<u8> {
    let found = super::named(files)?;
    found.notes.iter().for_each(|it| super::say(format_args!("{it}")));
    let report = Report::read(&found.tape, policy);
    let is_json = output.extension().is_some_and(|it| it.eq_ignore_ascii_case("json"));
    let text = if is_json { report.json() } else { report.html() };
    let name = Foreign::new(output.to_string_lossy());
    let mut file = open_new(output).with_context(|| format!("cannot make {name}"))?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {name}"))?;
    super::say(format_args!("wrote {name}"));
    Ok(0)
}
