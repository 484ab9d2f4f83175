//! Unpacks the probe's files where Python can import and load them.
//!
//! They are in the user's cache, in a directory named after their contents, and each start compares them byte by byte:
//! a job never gets files that another user could have written.

use crate::storage::own_folder::{Trouble, candidates, is_own_file, make, own_folder};
use rustix::fs::{MemfdFlags, Mode, OFlags, Stat, StatVfsMountFlags, fstat, memfd_create, open, statvfs};
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

/// Why a directory has no library.
const NOEXEC: &str = "it forbids execution";

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// The folder of the probe's package in the directory of its files.
pub const PACKAGE: &str = "gpuwatch_probe";

/// The library's path in the directory of the probe's files.
pub const LIBRARY: &str = "gpuwatch_probe/libgpuwatch_probe.so";

/// The unpacked files of the probe.
#[derive(Debug)]
pub struct Assets {
    python: PathBuf,
    library: PathBuf,
    /// Why earlier candidates were passed over.
    passed_over: Vec<String>,
    /// Keeps a library that exists in memory only.
    _memory: Option<OwnedFd>,
}

impl Assets {
    /// Unpacks for a job of this process. If no directory allows execution, the library stays in memory.
    pub fn unpack() -> Result<Self, Trouble> {
        Self::unpack_in(&candidates(), true, is_executable_there)
    }

    /// Unpacks for jobs that outlive this process.
    pub fn unpack_to_stay() -> Result<Self, Trouble> {
        Self::unpack_in(&candidates(), false, is_executable_there)
    }

    /// Returns the directory to put first on `PYTHONPATH`.
    pub fn python(&self) -> &Path {
        &self.python
    }

    /// Returns the shared library.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Returns why directories that come earlier have none of the files, or not the library.
    pub fn passed_over(&self) -> &[String] {
        &self.passed_over
    }

    fn unpack_in(
        candidates: &[PathBuf],
        may_lie_in_memory: bool,
        is_executable: impl Fn(&Path) -> bool,
    ) -> Result<Self, Trouble> {
        let mut reasons = Vec::new();
        let mut python = None;
        for candidate in candidates {
            match place(candidate) {
                Ok(folder) => {
                    let library = folder.join(LIBRARY);
                    let python = python.get_or_insert_with(|| folder.clone());
                    if is_executable(&folder) {
                        let python = python.clone();
                        return Ok(Self { python, library, passed_over: reasons, _memory: None });
                    }
                    reasons.push(format!("{}: {NOEXEC}", candidate.display()));
                }
                Err(error) => reasons.push(format!("{}: {error}", candidate.display())),
            }
        }
        if let (Some(python), true) = (python, may_lie_in_memory) {
            match in_memory() {
                Ok((library, memory)) => {
                    return Ok(Self { python, library, passed_over: reasons, _memory: Some(memory) });
                }
                Err(error) => reasons.push(format!("memory: {error}")),
            }
        }
        Err(Trouble { reasons })
    }
}

/// The name of the directory of these files, which is another one for other contents.
pub fn name() -> &'static str {
    NAME
}

/// The files by their paths in that directory: in it, or in [`PACKAGE`] there.
pub fn files() -> impl Iterator<Item = (&'static str, &'static [u8])> {
    FILES.iter().copied()
}

/// Returns a folder with this name in the user's cache that other users cannot enter, and from which libraries can be
/// loaded.
///
/// # Errors
/// Fails if no directory is usable.
pub fn executable_folder(name: &str) -> Result<PathBuf, Trouble> {
    own_folder(name, |it| if is_executable_there(it) { Ok(()) } else { Err(NOEXEC.to_owned()) })
}

/// Ensures that the files are under `base`, owned by the user and unmodified.
fn place(base: &Path) -> io::Result<PathBuf> {
    let base = make(base)?;
    if base.as_os_str().as_encoded_bytes().contains(&b':') {
        return Err(io::Error::other("its path has a colon, at which PYTHONPATH would end it"));
    }
    let folder = base.join(NAME);
    if fs::symlink_metadata(&folder).is_err() {
        unpack_beside(&base, &folder)?;
    }
    make(&folder.join("gpuwatch_probe"))?;
    for (name, content) in FILES {
        let path = folder.join(name);
        if !is_intact(&path, content) {
            write_renamed(&path, content)?;
        }
    }
    make(&folder)
}

/// Unpacks to a temporary name first, so that a half-written directory never has the final name.
fn unpack_beside(base: &Path, folder: &Path) -> io::Result<()> {
    let beside = base.join(format!(".{NAME}.{}", std::process::id()));
    let _ = fs::remove_dir_all(&beside);
    make(&beside.join("gpuwatch_probe"))?;
    for (name, content) in FILES {
        write_renamed(&beside.join(name), content)?;
    }
    match fs::rename(&beside, folder) {
        Ok(()) => Ok(()),
        // Another start was faster; its files are checked like any others.
        Err(_) if folder.is_dir() => fs::remove_dir_all(&beside),
        Err(error) => Err(error),
    }
}

/// Returns whether a file has this content and no other user can have written it; one descriptor answers both.
fn is_intact(path: &Path, content: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = open(path, flags, Mode::empty()).map(File::from) else { return false };
    let is_candidate = |it: Stat| is_own_file(&it) && u64::try_from(it.st_size) == Ok(content.len() as u64);
    let mut read = Vec::with_capacity(content.len());
    fstat(&file).is_ok_and(is_candidate)
        && file.take(content.len() as u64 + 1).read_to_end(&mut read).is_ok()
        && read == content
}

fn write_renamed(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    let _ = fs::remove_file(&beside);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(content)?;
    fs::rename(&beside, path)
}

fn is_executable_there(folder: &Path) -> bool {
    statvfs(folder).is_ok_and(|it| !it.f_flag.contains(StatVfsMountFlags::NOEXEC))
}

/// Returns the library under a path that lives as long as this process.
fn in_memory() -> io::Result<(PathBuf, OwnedFd)> {
    let content = FILES.iter().find(|(name, _)| *name == LIBRARY).map(|(_, content)| *content).unwrap_or_default();
    let mut file = File::from(memfd_create("gpuwatch_probe", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    // The job loads only files that no other user may write.
    file.set_permissions(fs::Permissions::from_mode(0o500))?;
    let memory = OwnedFd::from(file);
    let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
    Ok((PathBuf::from(path), memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn altered_files_are_written_again() {
        let home = tempfile::tempdir().unwrap();
        let base = home.path().join("cache/gpuwatch");
        let assets = Assets::unpack_in(std::slice::from_ref(&base), false, |_| true).unwrap();
        let file = assets.python().join("sitecustomize.py");
        let original = fs::read(&file).unwrap();
        fs::write(&file, "import evil").unwrap();
        fs::remove_file(assets.library()).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", assets.library()).unwrap();
        let again = Assets::unpack_in(&[base], false, |_| true).unwrap();
        assert_eq!(again.python(), assets.python());
        assert_eq!(fs::read(&file).unwrap(), original);
        assert!(is_intact(again.library(), &fs::read(again.library()).unwrap()));
        assert!(fs::read_dir(assets.python()).unwrap().count() == 2, "nothing half-written stays");
    }

    #[test]
    fn a_path_with_a_colon_is_passed_over_and_named() {
        let home = tempfile::tempdir().unwrap();
        let places = ["with:colon/gpuwatch", "good/gpuwatch"].map(|it| home.path().join(it));
        let assets = Assets::unpack_in(&places, true, |_| true).unwrap();
        assert!(assets.python().starts_with(&places[1]));
        let error = Assets::unpack_in(&places[..1], true, |_| true).unwrap_err().to_string();
        assert!(error.contains("colon") && error.contains("XDG_CACHE_HOME"), "{error}");
    }

    #[test]
    fn a_home_that_its_group_may_write_to_is_passed_over_and_named() {
        let home = tempfile::tempdir().unwrap();
        let shared = home.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o775)).unwrap();
        let places = [shared.join(".cache/gpuwatch"), home.path().join("runtime/gpuwatch-cache")];
        let assets = Assets::unpack_in(&places, true, |_| true).unwrap();
        assert!(assets.python().starts_with(&places[1]) && assets.library().starts_with(&places[1]));
        let [why] = assets.passed_over() else { panic!("{assets:?}") };
        assert!(why.contains(&format!("chmod g-w {}", shared.display())), "{why}");
        assert!(Assets::unpack_in(&places[..1], true, |_| true).is_err());
    }

    #[test]
    fn a_squatter_is_passed_over_and_named() {
        let home = tempfile::tempdir().unwrap();
        let squatted = home.path().join("squatted");
        std::os::unix::fs::symlink("/tmp", &squatted).unwrap();
        let file = home.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Assets::unpack_in(&[squatted.clone(), file.clone()], true, |_| true).unwrap_err().to_string();
        assert!(error.contains("it is not a directory") && error.contains("XDG_CACHE_HOME"), "{error}");
        let assets = Assets::unpack_in(&[squatted, file, home.path().join("good")], true, |_| true).unwrap();
        assert!(assets.library().starts_with(home.path().join("good")));
    }

    #[test]
    fn the_library_lies_where_it_may_be_executed_else_in_memory() {
        let home = tempfile::tempdir().unwrap();
        let places = ["first", "second"].map(|it| home.path().join(it));
        let in_second = |it: &Path| it.starts_with(&places[1]);
        let assets = Assets::unpack_in(&places, true, in_second).unwrap();
        assert!(assets.python().starts_with(&places[0]) && assets.library().starts_with(&places[1]));
        let assets = Assets::unpack_in(&places, true, |_| false).unwrap();
        assert!(assets.python().starts_with(&places[0]) && assets.library().starts_with("/proc/"));
        assert_eq!(fs::read(assets.library()).unwrap(), fs::read(assets.python().join(LIBRARY)).unwrap());
        let error = Assets::unpack_in(&places, false, |_| false).unwrap_err().to_string();
        assert!(error.contains("forbids execution"), "{error}");
    }
}
