//! `gpuwatch snapshot`: what a memory snapshot of PyTorch holds, on a screen, in words or as JSON.

/// The account as JSON.
mod json;
/// On a screen.
mod screen;
/// In words.
mod text;

use crate::{
    model::{
        snapshot::{Device, Snapshot},
        trace::Fit,
    },
    storage::pickle::{self, Fault, Progress, Reading},
};
pub use screen::show;
use std::{path::Path, sync::Arc};

/// Whether a request would fit.
#[derive(Clone, Copy)]
struct Asked {
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

/// Returns why a snapshot is not all that there should be, where that is so.
pub fn ended(it: &Snapshot) -> Option<String> {
    it.ended.as_ref().map(|why| format!("{why}; what follows is what was read up to there"))
}

/// Returns a snapshot in words; `fits` is a request that may fit or not.
pub fn text(it: &Snapshot, fits: Option<u64>) -> String {
    text::account(it, fits)
}

/// Returns a snapshot as JSON, schema 1.
pub fn json(it: &Snapshot, fits: Option<u64>) -> String {
    json::account(it, fits)
}

fn asked(it: &Snapshot, device: &Device, fits: Option<u64>) -> Option<Asked> {
    let bytes = fits?;
    Some(Asked { bytes, stream: device.stream?, fit: it.fit(device, bytes)? })
}
