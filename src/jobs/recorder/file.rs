//! The file of a recording: where it is created, its first line, and its writer.

use crate::{
    config::{Recording, RetentionFlags, Summary},
    facts::text::Foreign,
    jobs::launch,
    sources,
    storage::{
        output,
        recording::{FORMAT, Header},
        sink::{record::Recorder, store::Writer},
        traces,
    },
};
use anyhow::{Context, Result};
use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// Where and how a job is recorded.
pub struct RecordingPlan {
    writer: Writer,
    pub(super) bounds: RetentionFlags,
    pub(super) recording: Recording,
}

impl RecordingPlan {
    /// Plans the recording of a run; nothing is created yet.
    pub fn new(run: &str, bounds: RetentionFlags, recording: Recording) -> Self {
        Self { writer: writer(recording.naming.name.as_deref().unwrap_or(run)), bounds, recording }
    }

    /// Returns how to start the job.
    pub fn options(&self, run: String) -> launch::Options {
        let Self { writer, bounds, recording } = self;
        let file = recording.naming.output.clone().or_else(|| Some(bounds.store()?.path(writer)));
        // The job may change its directory.
        let folder = file.filter(|_| recording.trace).and_then(|it| std::path::absolute(traces::folder(&it)).ok());
        let trace = folder.map(|folder| launch::Trace { folder, bytes: recording.trace_bytes });
        let is_quiet = recording.summary == Summary::Never;
        launch::Options { run, no_arguments: bounds.no_arguments, trace, is_quiet }
    }

    /// Returns whether command lines are recorded without arguments.
    pub fn no_arguments(&self) -> bool {
        self.bounds.no_arguments
    }

    /// Starts the recorder, and returns its file. If the disk is full, the recording begins once it has room.
    ///
    /// # Errors
    /// Fails if the file cannot be created or written for any other reason.
    pub fn start(&self) -> Result<(Recorder, PathBuf)> {
        self.start_now().or_else(|why| {
            let full = why.chain().filter_map(|it| Some(it.downcast_ref::<io::Error>()?.kind()));
            let is_full = full.into_iter().any(|it| {
                matches!(it, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
            });
            let Recording { naming, .. } = &self.recording;
            let path = naming.output.clone().or_else(|| Some(self.bounds.store()?.path(&self.writer)));
            match path.filter(|_| is_full) {
                Some(path) => Ok((Recorder::planned(path.clone(), &header(naming.name.as_deref()))?, path)),
                None => Err(why),
            }
        })
    }

    fn start_now(&self) -> Result<(Recorder, PathBuf)> {
        let (path, file) = match &self.recording.naming.output {
            Some(path) => {
                let file = output::open_new(path).with_context(|| format!("cannot make {}", path.display()))?;
                (path.clone(), file)
            }
            None => create_in_store(&self.writer, &self.bounds)?,
        };
        Ok((start(&path, file, self.recording.naming.name.as_deref())?, path))
    }
}

/// Starts the recorder; removes the file if not even the header can be written.
///
/// # Errors
/// Fails if the header cannot be written or no thread can be started.
pub fn start(path: &Path, file: File, name: Option<&str>) -> io::Result<Recorder> {
    Recorder::start(file, &header(name)).inspect_err(|_| {
        if !output::is_stdout(path) {
            let _ = fs::remove_file(path);
        }
    })
}

/// Returns this process as the writer of a run's recording.
pub fn writer(run: &str) -> Writer {
    Writer { started_unix_us: sources::unix_us(), host: sources::host(), pid: std::process::id(), run: run.to_owned() }
}

/// Creates a file in the user's store of recordings, and removes old ones beyond the limits.
///
/// # Errors
/// Fails without a home directory, or if the file cannot be created.
pub fn create_in_store(writer: &Writer, bounds: &RetentionFlags) -> Result<(PathBuf, File)> {
    let store = bounds.store().context("there is no home directory for recordings: use `gpuwatch record -o FILE`")?;
    store.create(writer).with_context(|| format!("cannot record in {}", store.directory.display()))
}

/// Returns the first line of a recording of this process.
pub fn header(name: Option<&str>) -> Header {
    Header {
        format: FORMAT,
        gpuwatch: env!("CARGO_PKG_VERSION").to_owned(),
        host: Foreign::new(sources::host()),
        started_unix_us: sources::unix_us(),
        monotonic_us: sources::now().0,
        name: name.map(Foreign::new),
        writer: sources::system::writer(),
    }
}
