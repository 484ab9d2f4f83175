//! `gpuwatch snapshot`: what a memory snapshot of PyTorch holds, on a screen, in words or as JSON.

/// What it holds, as text and as JSON.
mod description;
/// On a screen.
mod screen;

use super::{Invocation, Subcommand};
use crate::{
    cli::{
        flags::{ScreenOptions, SnapshotScreen, exit_code},
        inputs,
        next_commands::{NextCommand, with_next, word},
        picture, runtime, with_progress,
    },
    facts::{text::Foreign, units},
    model::{
        snapshot::{Device, Snapshot},
        trace::Fit,
    },
    screen::term,
    storage::{
        output,
        pickle::{self, Fault, Progress, Reading},
    },
};
use anyhow::{Context, Result};
pub use screen::show;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// The arguments of `gpuwatch snapshot`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gpuwatch snapshot snapshot.pickle\n  gpuwatch snapshot snapshot.pickle --text --fits 2GiB\n  gpuwatch snapshot oom.pickle.gz --json \
                            | jq '.devices[].live[] | [.bytes, .frames[0]]'\n\nThe job writes the file: \
                            torch.cuda.memory._record_memory_history() at its beginning, \
                            torch.cuda.memory._dump_snapshot(\"snapshot.pickle\") when it matters. Nothing in the file is run.\n\nExit code 1 if the file is cut or damaged."
)]
pub(super) struct SnapshotArgs {
    /// What `torch.cuda.memory._dump_snapshot` wrote, plain or packed by gzip or zstd.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Reports whether a request of this size would have fitted at that moment.
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    fits: Option<u64>,
    /// As JSON (schema 1).
    #[arg(long, conflicts_with = "screenshot")]
    json: bool,
    /// As text, also on a terminal.
    #[arg(long, conflicts_with_all = ["json", "screenshot"])]
    text: bool,
    #[command(flatten)]
    screen: ScreenOptions<SnapshotScreen>,
}

impl Subcommand for SnapshotArgs {
    fn run(&self, _: &Invocation) -> Result<u8> {
        // A recording's short name leads to the file, whose content tells what it is.
        let file = &inputs::recording(&self.file).unwrap_or_else(|_| self.file.clone());
        let name = Foreign::new(file.to_string_lossy());
        if let Some(shot) = &self.screen.shot.screenshot {
            let shown = read_with_progress(file)?;
            let title = Foreign::new(file.file_name().unwrap_or(file.as_os_str()).to_string_lossy());
            return picture::of_snapshot(&shown, title, self.fits, &self.screen, shot);
        }
        if !self.json && !self.text && term::is_screen() {
            let options = self.screen.options(self.screen.theme()?);
            let shown = runtime()?.block_on(show(file, self.fits, options));
            return Ok(exit_code(shown.with_context(|| format!("cannot read {name}"))?));
        }
        let shown = read_with_progress(file)?;
        let incomplete = ended(&shown);
        if let Some(why) = &incomplete {
            output::message(format_args!("{name}: {why}"));
        }
        let answer =
            if self.json { with_next(&json(&shown, self.fits), &after(file)) } else { text(&shown, self.fits) };
        output::print(&answer)?;
        Ok(u8::from(incomplete.is_some()))
    }
}

/// Returns what follows from a snapshot.
fn after(file: &Path) -> Vec<NextCommand> {
    let Some(name) = word(file) else { return Vec::new() };
    vec![
        NextCommand::new(["report", &name, "-o", "snapshot.html"], "shows it on a page"),
        NextCommand::new(["whatif", &name], "reruns its allocations under other settings of the allocator"),
    ]
}

/// Whether a request would fit.
#[derive(Clone, Copy)]
struct FitRequest {
    bytes: u64,
    stream: u64,
    fit: Fit,
}

/// Reads a snapshot, without its history of events; `report` gets how much of the file is read.
///
/// # Errors
/// Fails if it cannot be read at all.
pub fn open(path: &Path, report: impl FnMut(Progress)) -> Result<Snapshot, Fault> {
    let Reading { trace, bytes, ended } = pickle::open_with(path, report)?;
    Ok(Snapshot::new(Arc::new(trace), bytes, ended.map(|it| it.to_string())))
}

/// Reads a snapshot, with its history of events; `report` gets how much of the file is read.
///
/// # Errors
/// Fails if it cannot be read at all.
pub fn whole(path: &Path, report: impl FnMut(Progress)) -> Result<Snapshot, Fault> {
    let mut snapshot = open(path, report)?;
    snapshot.complete(snapshot.histories());
    Ok(snapshot)
}

/// Reads a snapshot, with its history of events, and shows how much of the file is read.
pub(super) fn read_with_progress(file: &Path) -> Result<Snapshot> {
    let read = with_progress(file, |it| whole(file, it));
    read.with_context(|| format!("cannot read {}", Foreign::new(file.to_string_lossy())))
}

/// Returns why a snapshot is not all that there should be, where that is so.
pub fn ended(it: &Snapshot) -> Option<String> {
    it.ended.as_ref().map(|why| format!("{why}; what follows is what was read up to there"))
}

/// Returns a snapshot in words; `fits` is a request that may fit or not.
pub fn text(it: &Snapshot, fits: Option<u64>) -> String {
    description::text(it, fits)
}

/// Returns a snapshot as JSON, schema 1.
pub fn json(it: &Snapshot, fits: Option<u64>) -> String {
    description::json(it, fits)
}

fn request(it: &Snapshot, device: &Device, fits: Option<u64>) -> Option<FitRequest> {
    let bytes = fits?;
    Some(FitRequest { bytes, stream: device.stream?, fit: it.fit(device, bytes)? })
}
