//! The index's file: lines that wait, up to a limit, while the disk takes none.

use crate::storage::{nodes::Line, output::open_new, sink::disk::Disk};
use std::{fs::File, io, path::Path};

/// Most bytes that wait.
const WAITING_MAX: usize = 1 << 20;

/// The file.
pub(super) struct Index {
    disk: Disk,
    waiting: Vec<u8>,
}

impl Index {
    /// Creates the file with its first line.
    ///
    /// # Errors
    /// Fails if the file is there already, or cannot be written.
    pub(super) fn create(path: &Path, head: &Line) -> io::Result<Self> {
        let mut index = Self { disk: Disk::of(open_new(path)?), waiting: Vec::new() };
        head.write(&mut index.waiting)?;
        index.write()?;
        Ok(index)
    }

    /// Returns the file.
    pub(super) fn file(&self) -> Option<&File> {
        self.disk.file()
    }

    /// Adds a line at once, or as soon as there is room.
    pub(super) fn add(&mut self, line: &Line) {
        // Without its line a recording would not be found: it has room beyond the limit.
        if self.waiting.len() < WAITING_MAX || matches!(line, Line::File { .. } | Line::Closed { .. }) {
            // Writing into a vector cannot fail.
            let _ = line.write(&mut self.waiting);
        }
        self.flush();
    }

    /// Writes what waits, if there is room.
    pub(super) fn flush(&mut self) {
        // What cannot be written waits.
        let _ = self.write();
    }

    /// Adds the last line. Returns the file, and whether everything is in it.
    pub(super) fn end(mut self, last: &Line) -> (Option<File>, io::Result<()>) {
        self.add(last);
        let written = self.disk.append_last(&self.waiting);
        (self.disk.into_file(), written)
    }

    fn write(&mut self) -> io::Result<()> {
        if !self.waiting.is_empty() {
            self.disk.append(&self.waiting)?;
            self.waiting.clear();
        }
        Ok(())
    }
}
