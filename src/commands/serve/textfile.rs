//! A file with the figures, for collectors that read files, as `node_exporter --collector.textfile.directory` does.

use crate::{
    facts::text::Foreign,
    storage::{input, output},
};
use anyhow::{Context, Result, bail};
use std::{
    fmt, fs,
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
};

/// How every file of gpuwatch's begins.
const BEGINNING: &str = "# HELP gpuwatch_";

/// The file. Dropping it removes it, so that a collector reads no figures of a program that has ended.
#[derive(Debug)]
pub struct Textfile {
    path: PathBuf,
}

impl Textfile {
    /// Takes a path whose file does not exist, or was written by an earlier gpuwatch.
    ///
    /// # Errors
    /// Fails if there is another file, or if the path has no name.
    pub fn new(path: &Path) -> Result<Self> {
        if path.file_name().is_none() {
            bail!("{} names no file", path.display());
        }
        match beginning(path) {
            Ok(bytes) if bytes == BEGINNING.as_bytes() => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Ok(_) => bail!("{} is not gpuwatch's and is not written over: name another file", path.display()),
            Err(error) => return Err(error).with_context(|| format!("cannot replace {}", path.display())),
        }
        Ok(Self { path: path.to_owned() })
    }

    /// Replaces its text at once: a reader gets the old or the new one. Everybody may read it.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn write(&self, text: &str) -> Result<()> {
        output::replace(&self.path, 0o644, text).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl fmt::Display for Textfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Foreign::new(self.path.to_string_lossy()))
    }
}

impl Drop for Textfile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns as many bytes of a file as gpuwatch's own begins with.
fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input::open(path)?.take(BEGINNING.len() as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_other_programs_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpuwatch.prom");
        fs::write(&path, "mine\n").unwrap();
        assert!(Textfile::new(&path).unwrap_err().to_string().contains("not written over"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine\n");
        fs::remove_file(&path).unwrap();
        let own = Textfile::new(&path).unwrap();
        let text = format!("{BEGINNING}step Steps.\n");
        own.write(&text).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert!(Textfile::new(&path).is_ok());
        own.write(&text).unwrap();
        drop(own);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(Textfile::new(Path::new("/")).is_err());
    }
}
