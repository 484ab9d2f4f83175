//! `gpuwatch snapshot`, and other commands on snapshots; they report on standard error why one is incomplete.

use crate::{
    commands::{diff, export, snapshot},
    facts::text::Foreign,
    storage::{
        output,
        pickle::{self, Reading},
    },
};
use anyhow::{Context, Result, bail};
use std::{
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

pub(super) fn snapshot(file: &Path, fits: Option<u64>, json: bool) -> Result<u8> {
    let name = Foreign::new(file.to_string_lossy());
    let account = snapshot::account(file, fits).with_context(|| format!("cannot read {name}"))?;
    if let Some(why) = account.ended() {
        super::say(format_args!("{name}: {why}"));
    }
    output::print(&if json { account.json() } else { account.text() })?;
    Ok(u8::from(account.ended().is_some()))
}

/// Returns the snapshot among the files that a user named: the only one, if it is a pickle or the format needs a
/// snapshot.
pub(super) fn named(files: &[PathBuf], format: export::Format) -> Option<&Path> {
    let [file] = files else { return None };
    (!format.is_of_recordings() || pickle::is_one(file)).then_some(file)
}

pub(super) fn export(file: &Path, format: export::Format, table: export::Table, at: export::At) -> Result<u8> {
    let Reading { trace, ended, .. } = read(file)?;
    output::write(|out| {
        let mut out = BufWriter::new(out);
        export::export_snapshot(&trace, format, table, at, &mut out)?;
        out.flush()
    })?;
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

pub(super) fn diff(both: [&Path; 2], tolerance: f64, json: bool) -> Result<u8> {
    let [first, second] = both.map(read);
    let (first, second) = (first?, second?);
    let diff = diff::snapshots(&first.trace, &second.trace, tolerance);
    output::print(&if json { diff.json() } else { diff.text() })?;
    // A damaged snapshot cannot be compared.
    Ok(if first.ended.is_some() || second.ended.is_some() { 2 } else { diff.code() })
}

/// Reads a snapshot, and reports if it ends early.
fn read(file: &Path) -> Result<Reading> {
    let name = Foreign::new(file.to_string_lossy());
    let reading = pickle::open(file).with_context(|| format!("cannot read {name}"))?;
    if let Some(why) = &reading.ended {
        super::say(format_args!("{name}: {why}; only the part before that is used"));
    }
    Ok(reading)
}
