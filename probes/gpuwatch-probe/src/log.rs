//! The probe's log: a bounded file, created with its first line; never the job's stderr.

use std::{
    fs::OpenOptions,
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

/// After this many lines, more lines explain nothing.
const LINES_MAX: u32 = 1000;

const LINE_CHARS_MAX: usize = 4096;

/// Where a probe logs errors.
#[derive(Debug, Default)]
pub(crate) struct Log {
    path: Option<PathBuf>,
    lines: AtomicU32,
}

impl Log {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self { path, lines: AtomicU32::new(0) }
    }

    /// Appends one line; ignores errors, because there is no other place to report them.
    pub(crate) fn line(&self, line: &str) {
        let Some(path) = &self.path else { return };
        if self.lines.fetch_add(1, Ordering::Relaxed) >= LINES_MAX {
            return;
        }
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let mut text: String = line.chars().take(LINE_CHARS_MAX).map(plain).collect();
        text.push('\n');
        if let Ok(mut file) = OpenOptions::new().create(true).append(true).mode(0o600).open(path) {
            let _ = file.write_all(text.as_bytes());
        }
    }
}
