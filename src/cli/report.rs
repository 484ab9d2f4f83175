//! `gpuwatch report`: selects the run and the file.

use super::progress;
use crate::{
    commands::{
        report::{self, Report},
        snapshot,
    },
    facts::text::Foreign,
    model::alerts::Policy,
    storage::{output, pickle},
};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

pub(super) fn write(files: &[PathBuf], to: &Path, json: bool, policy: &Policy) -> Result<u8> {
    let is_json = json || is_json(to);
    if let [file] = files
        && pickle::is_one(file)
    {
        return of_snapshot(file, to, is_json);
    }
    let found = super::named(files)?;
    found.notes.iter().for_each(|it| output::message(format_args!("{it}")));
    let report = Report::read(&found.recordings, policy);
    super::write_text(Some(to), &if is_json { report.json() } else { report.html() })?;
    Ok(0)
}

/// Returns whether a file's name asks for JSON.
pub(super) fn is_json(file: &Path) -> bool {
    file.extension().is_some_and(|it| it.eq_ignore_ascii_case("json"))
}

/// A memory snapshot; exit code 1 where it is cut or damaged.
fn of_snapshot(file: &Path, to: &Path, is_json: bool) -> Result<u8> {
    let name = Foreign::new(file.to_string_lossy());
    let account =
        progress::reading(file, |it| snapshot::whole(file, it)).with_context(|| format!("cannot read {name}"))?;
    let ended = snapshot::ended(&account);
    if let Some(why) = &ended {
        output::message(format_args!("{name}: {why}"));
    }
    let title = Foreign::new(file.file_name().unwrap_or(file.as_os_str()).to_string_lossy());
    let text = if is_json { snapshot::json(&account, None) } else { report::snapshot::html(&account, &title) };
    super::write_text(Some(to), &text)?;
    Ok(u8::from(ended.is_some()))
}
