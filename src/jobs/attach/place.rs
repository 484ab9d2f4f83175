//! Where the probe's files and the job's answer lie, so that both the job and gpuwatch see them.

use super::{
    files::{Files, Key, Reply, Request},
    folder::{ANSWER, BEGUN, SCRIPT, State},
    script::{Order, Wish},
};
use crate::jobs::launch::assets::{self, Assets};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Directories of a job that has other files than gpuwatch, in the order in which they are tried.
const TEMPORARY: [&str; 3] = ["/tmp", "/dev/shm", "/var/tmp"];

/// A place for one process.
#[derive(Debug)]
pub(super) struct Place {
    files: Files,
    /// The directory as the job sees it.
    there: PathBuf,
    /// The directory with the probe's package, and its library, as the job sees them.
    python: PathBuf,
    library: PathBuf,
}

impl Place {
    /// Finds or makes the place of a process, and takes it: `None` where another gpuwatch has it.
    ///
    /// # Errors
    /// When no directory will do. The files can be used again.
    pub(super) fn take(mut files: Files, key: &Key) -> Result<Result<Self, Files>, io::Error> {
        let (python, library, bases, prefix) = if files.is_apart() {
            let bases = TEMPORARY.map(PathBuf::from).to_vec();
            (None, None, bases, "gpuwatch-attach-")
        } else {
            let assets = Assets::unpack_to_stay().map_err(io::Error::other)?;
            let (python, library) = (assets.python().to_owned(), assets.library().to_owned());
            let base = fs::canonicalize(python.parent().unwrap_or(Path::new("/")))?;
            (Some(python), Some(library), vec![base], "attach-")
        };
        let (prefix, rest) = (prefix.to_owned(), key.to_string());
        let name = format!("{prefix}{rest}");
        let open = Request::Open { bases, prefix, rest, is_executed: files.is_apart() };
        let Reply::Opened(base) = files.ask(open)? else { return Err(unexpected()) };
        let there = base.join(name);
        match files.ask(Request::Lock)? {
            Reply::Locked(true) => {}
            Reply::Locked(false) => return Ok(Err(files)),
            _ => return Err(unexpected()),
        }
        let python = python.unwrap_or_else(|| there.join(assets::name()));
        let library = library.unwrap_or_else(|| python.join(assets::LIBRARY));
        Ok(Ok(Self { files, there, python, library }))
    }

    /// Returns where the request stands.
    pub(super) fn state(&mut self) -> io::Result<State> {
        match self.files.ask(Request::State)? {
            Reply::State(state) => Ok(state),
            _ => Err(unexpected()),
        }
    }

    /// Puts the files there, and returns the order for the job.
    pub(super) fn prepare(&mut self, wish: Wish, own_pid: u32) -> io::Result<Order> {
        self.files.ask(Request::Forget)?;
        if self.files.is_apart() {
            self.files.ask(Request::Fill)?;
        }
        Ok(Order {
            wish,
            own_pid,
            folder: self.python.clone(),
            library: self.library.clone(),
            place: self.there.clone(),
            begun: BEGUN,
            answer: ANSWER,
            directories: Vec::new(),
            run: None,
            is_removed: self.files.is_apart(),
        })
    }

    /// Writes a script that Python runs; its path as the job sees it.
    pub(super) fn write_script(&mut self, text: &str) -> io::Result<PathBuf> {
        self.files.ask(Request::Script(text.to_owned()))?;
        Ok(self.there.join(SCRIPT))
    }

    /// Notes that the job was asked.
    pub(super) fn note_asked(&mut self) -> io::Result<()> {
        self.files.ask(Request::NoteAsked).map(drop)
    }

    /// Removes everything that is for this process alone.
    pub(super) fn clear(&mut self) {
        // What stays is removed by the next request.
        let _ = self.files.ask(Request::Clear);
    }
}

fn unexpected() -> io::Error {
    io::Error::other("an unexpected answer about its files")
}
