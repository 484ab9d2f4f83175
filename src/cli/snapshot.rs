//! `gpuwatch snapshot`, and what other commands make of a snapshot; on standard error what keeps it from being whole.

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

/// The snapshot among the files that a user named: the only one, if it is a pickle or is to become what only a snapshot can.
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

/// The snapshots that a user named to compare them; `None` where neither is one.
///
/// # Errors
/// When only one of them is.
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
    // What was read of a damaged one compares with nothing.
    Ok(if first.ended.is_some() || second.ended.is_some() { 2 } else { diff.code() })
}

/// Reads a snapshot, and says where it ends too soon.
fn read(file: &Path) -> Result<Reading> {
    let name = Foreign::new(file.to_string_lossy());
    let reading = pickle::open(file).with_context(|| format!("cannot read {name}"))?;
    if let Some(why) = &reading.ended {
        super::say(format_args!("{name}: {why}; only the part before that is used"));
    }
    Ok(reading)
}
