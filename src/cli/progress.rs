//! A line of progress on a terminal's standard error.

use crate::{
    facts::{text::Foreign, units::Bytes},
    storage::pickle::Progress,
};
use std::{
    io::{self, IsTerminal, Write},
    path::Path,
};

/// The line; it is cleared when it goes out of scope.
pub(super) struct Line {
    is_terminal: bool,
    /// Its text; empty while there is none.
    text: String,
}

impl Line {
    pub(super) fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal(), text: String::new() }
    }

    pub(super) fn show(&mut self, text: String) {
        if self.is_terminal && self.text != text {
            // Without stderr there is no place left for a message.
            let _ = write!(io::stderr(), "\r\x1b[K{text}");
            self.text = text;
        }
    }

    /// Shows how much of a file is read. A new text for each percent, so that a slow terminal holds up nothing.
    pub(super) fn show_reading(&mut self, file: &Path, progress: Progress) {
        let name = Foreign::new(file.file_name().unwrap_or(file.as_os_str()).to_string_lossy());
        self.show(match (progress.percent(), progress.total) {
            (Some(percent), Some(total)) => format!("reading {name}: {percent} % of {}", Bytes(total)),
            _ => format!("reading {name}: {progress}"),
        });
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.show(String::new());
    }
}

/// Reads a file with a line of progress.
pub(super) fn reading<T>(file: &Path, read: impl FnOnce(&mut dyn FnMut(Progress)) -> T) -> T {
    let mut line = Line::new();
    read(&mut |progress| line.show_reading(file, progress))
}
