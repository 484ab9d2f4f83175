//! A folder for one question's files, which goes with it.

use super::Trouble;
use crate::jobs::launch::assets;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The folder.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// Makes it.
    ///
    /// # Errors
    /// When there is no place for it.
    pub(super) fn new() -> Result<Self, Trouble> {
        let folder = assets::own_folder("whatif")?.join(std::process::id().to_string());
        // What a process of the same number left behind.
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
        // The Python program removes it where this process ends without a chance to.
        let _ = fs::remove_dir_all(&self.0);
    }
}
