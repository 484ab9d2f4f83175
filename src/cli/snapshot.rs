//! `gpuwatch snapshot`, and other commands on snapshots; they report on standard error why one is incomplete.

use super::{picture, progress, screen_options::ScreenOptions, shot::OfSnapshot, show};
use crate::{
    commands::{diff, export, snapshot},
    facts::text::Foreign,
    screen::term,
    storage::{
        output,
        pickle::{self, Reading},
    },
};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// What is shown of a snapshot, and how.
pub(super) struct Asked<'a> {
    pub(super) file: &'a Path,
    /// A request that may fit or not.
    pub(super) fits: Option<u64>,
    pub(super) json: bool,
    pub(super) text: bool,
    pub(super) screen: &'a ScreenOptions<OfSnapshot>,
}

/// Shows the screens; without a suitable terminal, or on request, the account as text or JSON.
pub(super) fn snapshot(asked: &Asked) -> Result<u8> {
    let file = asked.file;
    let name = Foreign::new(file.to_string_lossy());
    if let Some(shot) = &asked.screen.shot.screenshot {
        return picture::of_snapshot(file, asked.fits, asked.screen, shot);
    }
    if !asked.json && !asked.text && term::is_screen() {
        let options = show::options(asked.screen, asked.screen.theme()?);
        let shown = super::runtime()?.block_on(snapshot::show(file, asked.fits, options));
        return Ok(show::code(shown.with_context(|| format!("cannot read {name}"))?));
    }
    let account =
        progress::reading(file, |it| snapshot::whole(file, it)).with_context(|| format!("cannot read {name}"))?;
    let ended = snapshot::ended(&account);
    if let Some(why) = &ended {
        output::message(format_args!("{name}: {why}"));
    }
    let write = if asked.json { snapshot::json } else { snapshot::text };
    output::print(&write(&account, asked.fits))?;
    Ok(u8::from(ended.is_some()))
}

/// Returns the snapshot among the files that a user named: the only one, if it is a pickle or the format needs a
/// snapshot.
pub(super) fn named(files: &[PathBuf], format: export::Format) -> Option<&Path> {
    let [file] = files else { return None };
    (!format.is_of_recordings() || pickle::is_one(file)).then_some(file)
}

pub(super) fn export(
    file: &Path,
    format: export::Format,
    (table, at): (export::Table, export::At),
    output: Option<&Path>,
) -> Result<u8> {
    let Reading { trace, ended, .. } = read(file)?;
    super::write(output, |mut out| export::export_snapshot(&trace, format, table, at, &mut out))?;
    Ok(u8::from(ended.is_some()))
}

/// Returns the two snapshots to compare; `None` if neither is one.
///
/// # Errors
/// Fails if only one of them is.
pub(super) fn both<'a>(first: &'a Path, second: &'a Path) -> Result<Option<[&'a Path; 2]>> {
    match [first, second].map(pickle::is_one) {
        [true, true] => Ok(Some([first, second])),
        [false, false] => Ok(None),
        _ => bail!("one is a memory snapshot and the other is not: compare two snapshots, or two recordings"),
    }
}

/// Compares two snapshots; returns the exit code as well.
pub(super) fn diff(both: [&Path; 2], tolerance: f64) -> Result<(diff::Snapshots, u8)> {
    let [first, second] = both.map(read);
    let (first, second) = (first?, second?);
    let diff = diff::snapshots(&first.trace, &second.trace, tolerance);
    // A damaged snapshot cannot be compared.
    let code = if first.ended.is_some() || second.ended.is_some() { 2 } else { diff.code() };
    Ok((diff, code))
}

/// Reads a snapshot, and reports if it ends early.
fn read(file: &Path) -> Result<Reading> {
    let name = Foreign::new(file.to_string_lossy());
    let reading =
        progress::reading(file, |it| pickle::open_with(file, it)).with_context(|| format!("cannot read {name}"))?;
    if let Some(why) = &reading.ended {
        output::message(format_args!("{name}: {why}; only the part before that is used"));
    }
    Ok(reading)
}
