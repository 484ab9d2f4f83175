//! What several subcommands share: flags, inputs, outputs, and how alerts reach a person.

/// How alerts reach a person.
pub mod alert_outputs;
/// Flags of screens, of screenshots, and of other hosts.
pub(crate) mod flags;
/// The recordings and snapshots that a user names.
pub(crate) mod inputs;
/// The commands that follow from an answer.
pub(crate) mod next_commands;
/// Screenshots.
pub(crate) mod picture;

use crate::{
    facts::{text::Foreign, units::Bytes},
    storage::{output, pickle::Progress},
};
use anyhow::{Context, Result};
use std::{
    io::{self, BufWriter, IsTerminal, Write},
    path::Path,
};
use tokio::runtime::{Builder, Runtime};

/// Returns the runtime of a command: everything runs on one thread.
pub(crate) fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Writes an answer into a new file and reports that; without a file, or for `-`, to standard output.
pub(crate) fn write<T>(to: Option<&Path>, how: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> Result<T> {
    let Some(path) = to.filter(|it| !output::is_stdout(it)) else {
        let whole = output::write(|out| {
            let mut out = BufWriter::new(out);
            how(&mut out).and_then(|it| out.flush().map(|()| it))
        });
        return Ok(whole?);
    };
    let name = Foreign::new(path.to_string_lossy());
    let whole = output::save_with(path, how).with_context(|| format!("cannot make {name}"))?;
    output::message(format_args!("wrote {name}"));
    Ok(whole)
}

/// Writes a text as [`write`] does.
pub(crate) fn write_text(to: Option<&Path>, text: &str) -> Result<()> {
    write(to, |out| out.write_all(text.as_bytes()))
}

/// Returns whether a file's name asks for JSON.
pub(crate) fn is_json(file: &Path) -> bool {
    file.extension().is_some_and(|it| it.eq_ignore_ascii_case("json"))
}

/// A line of progress on a terminal's standard error; it is cleared when it goes out of scope.
pub(crate) struct ProgressLine {
    is_terminal: bool,
    /// Its text; empty while there is none.
    text: String,
}

impl ProgressLine {
    /// Returns a line without text.
    pub(crate) fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal(), text: String::new() }
    }

    /// Shows a text in place of the one before.
    pub(crate) fn show(&mut self, text: String) {
        if self.is_terminal && self.text != text {
            // Without stderr there is no place left for a message.
            let _ = write!(io::stderr(), "\r\x1b[K{text}");
            self.text = text;
        }
    }

    /// Shows how much of a file is read. A new text for each percent, so that a slow terminal holds up nothing.
    pub(crate) fn show_reading(&mut self, file: &Path, progress: Progress) {
        let name = Foreign::new(file.file_name().unwrap_or(file.as_os_str()).to_string_lossy());
        self.show(match (progress.percent(), progress.total) {
            (Some(percent), Some(total)) => format!("reading {name}: {percent} % of {}", Bytes(total)),
            _ => format!("reading {name}: {progress}"),
        });
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.show(String::new());
    }
}

/// Reads a file with a line of progress.
pub(crate) fn with_progress<T>(file: &Path, read: impl FnOnce(&mut dyn FnMut(Progress)) -> T) -> T {
    let mut line = ProgressLine::new();
    read(&mut |progress| line.show_reading(file, progress))
}
