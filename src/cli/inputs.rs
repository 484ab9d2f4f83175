//! The recordings and snapshots that a user names.

use super::with_progress;
use crate::{
    facts::text::Foreign,
    model::fit::Baseline,
    storage::{
        host_index, input, output,
        pickle::{self, Reading},
        replay::{
            find::{self, Found},
            host_replay::Recorded,
            short_name,
        },
        sink::store::Store,
    },
};
use anyhow::{Context, Result, bail};
use gpuwatch_probe::socket;
use std::path::{Path, PathBuf};

/// Returns where `gpuwatch run` keeps its recordings.
pub(crate) fn store() -> Result<PathBuf> {
    Ok(Store::user().context("there is no home directory for recordings: name a file or a directory")?.directory)
}

/// Opens a directory with the recordings of several machines, if that is what is named.
pub(crate) fn recordings_of_hosts(files: &[PathBuf]) -> Result<Option<Recorded>> {
    match files {
        [directory] if host_index::is_one(directory) => Recorded::open(directory).map(Some),
        _ => Ok(None),
    }
}

/// Opens recordings by their paths or their short names; without any, and as `last` alone, the newest run's.
pub(crate) fn recordings(files: &[PathBuf]) -> Result<Found> {
    let is_newest = match files {
        [] => true,
        [name] => short_name::is_last(name),
        _ => false,
    };
    if is_newest {
        let store = store()?;
        if !store.is_dir() {
            let shown = Foreign::new(store.to_string_lossy());
            bail!("there is no recording yet in {shown}: `gpuwatch run -- CMD` records a job");
        }
        return find::find(&[store]);
    }
    let paths = files.iter().map(|it| recording(it)).collect::<Result<Vec<_>>>()?;
    let mut found = find::find(&paths)?;
    let short = files.iter().zip(&paths).filter(|(name, path)| name != path);
    found.notes.extend(short.map(|(name, path)| {
        let [name, path] = [name, path].map(|it| Foreign::new(it.to_string_lossy()));
        format!("{name} is {path}")
    }));
    Ok(found)
}

/// The bytes of a saved answer of `fit` that are read at most.
pub(crate) const ANSWER_MAX: u64 = 32 << 20;

/// Reads a saved answer of `fit`, if that is what the file is.
pub(crate) fn fit_answer(path: &Path) -> Option<Baseline> {
    let text = input::small_text(path, ANSWER_MAX).ok().filter(|it| it.starts_with('{'))?;
    Baseline::parse(&text).ok()
}

/// Returns the path of a recording by its short name; a path is returned as it is.
pub(crate) fn recording(named: &Path) -> Result<PathBuf> {
    match store() {
        Ok(store) => short_name::resolve(&store, named),
        Err(_) => Ok(named.to_owned()),
    }
}

/// Returns the process that a word means where a file or a recording may stand too. A number is that of a process
/// with a probe, else that of a recording, else that of any process.
pub(crate) fn process(named: &Path) -> Option<u32> {
    let pid = named.to_str().filter(|_| !named.exists())?.parse().ok()?;
    let is_recording = || recording(named).is_ok_and(|it| it != named);
    (listens(pid) || !is_recording()).then_some(pid)
}

/// Returns where the socket of this process's probe may be.
pub(crate) fn sockets_of(pid: u32) -> impl Iterator<Item = PathBuf> {
    socket::directories().into_iter().map(move |it| it.join(format!("{pid}.sock")))
}

/// Whether a probe of this process listens.
pub(crate) fn listens(pid: u32) -> bool {
    sockets_of(pid).any(|it| it.exists() && !socket::is_stale(&it))
}

/// Returns the process that a word means where nothing else may stand.
///
/// # Errors
/// Fails for anything but the number of a process.
pub(crate) fn pid(text: &str) -> Result<u32, String> {
    let is_pid = |it: &u32| *it > 0;
    text.parse().ok().filter(is_pid).ok_or_else(|| {
        "a process is meant by its number, such as 4102; `gpuwatch once` lists those on devices".to_owned()
    })
}

/// Reads a snapshot, and reports if it ends early.
pub(crate) fn snapshot(file: &Path) -> Result<Reading> {
    let name = Foreign::new(file.to_string_lossy());
    let reading =
        with_progress(file, |it| pickle::open_with(file, it)).with_context(|| format!("cannot read {name}"))?;
    if let Some(why) = &reading.ended {
        output::message(format_args!("{name}: {why}; only the part before that is used"));
    }
    Ok(reading)
}
