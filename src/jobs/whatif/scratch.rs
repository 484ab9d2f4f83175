//! A temporary folder for one question's files.

use super::Trouble;
use crate::jobs::launch::assets;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The folder.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Creates it.
    ///
    /// # Errors
    /// Fails if no directory is writable.
    pub(super) fn new() -> Result<Self, Trouble> {
        let folder = assets::own_folder("whatif")?.join(std::process::id().to_string());
        // Left behind by an earlier process with the same pid.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this process is killed, the Python program removes it.
        let _ = fs::remove_dir_all(&self.0);
    }
}
