//! Unpacks the probe's files where Python can import and load them.
//!
//! They are in the user's cache, in a directory named after their contents, and each start compares them byte by byte:
//! a job never gets files that another user could have written.

use std::{
    env,
    fs::{self, File},
    io::{self, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use etcetera::BaseStrategy;
use rustix::fs::{MemfdFlags, StatVfsMountFlags, memfd_create, statvfs};
use thiserror::Error;

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// The folder of the probe's package in the directory of its files.
pub const PACKAGE: &str = "gpuwatch_probe";

/// The library's path in the directory of the probe's files.
pub const LIBRARY: &str = "gpuwatch_probe/libgpuwatch_probe.so";

/// Why no directory is usable.
#[derive(Debug, Error)]
#[error("its files can be put nowhere ({}); set XDG_CACHE_HOME to a directory of your own", reasons.join("; "))]
pub struct Trouble {
    reasons: Vec<String>,
}

/// The unpacked files of the probe.
#[derive(Debug)]
pub struct Assets {
    python: PathBuf,
    library: PathBuf,
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
                        return Ok(Self { python: python.clone(), library, _memory: None });
                    }
                    reasons.push(format!("{} forbids execution", candidate.display()));
                }
                Err(error) => reasons.push(format!("{}: {error}", candidate.display())),
            }
        }
        if let (Some(python), true) = (python, may_lie_in_memory) {
            match in_memory() {
                Ok((library, memory)) => return Ok(Self { python, library, _memory: Some(memory) }),
                Err(error) => reasons.push(format!("memory: {error}")),
            }
        }
        Err(Trouble { reasons })
    }
}

/// Returns the user's cache, then directories that exist without a home directory.
fn candidates() -> Vec<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let mut places = Vec::new();
    if let Ok(base) = etcetera::choose_base_strategy() {
        places.push(base.cache_dir().join("gpuwatch"));
    }
    if let Some(runtime) = env::var_os("XDG_RUNTIME_DIR").filter(|it| !it.is_empty()) {
        places.push(PathBuf::from(runtime).join("gpuwatch-cache"));
    }
    places.push(env::temp_dir().join(format!("gpuwatch-cache-{uid}")));
    places.push(PathBuf::from(format!("/dev/shm/gpuwatch-cache-{uid}")));
    places
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
pub fn own_folder(name: &str) -> Result<PathBuf, Trouble> {
    let mut reasons = Vec::new();
    for candidate in candidates() {
        let folder = candidate.join(name);
        match base(&candidate).and_then(|()| make_own(&folder)) {
            Ok(()) if is_executable_there(&folder) => return Ok(folder),
            Ok(()) => reasons.push(format!("{} forbids execution", candidate.display())),
            Err(error) => reasons.push(format!("{}: {error}", candidate.display())),
        }
    }
    Err(Trouble { reasons })
}

/// Ensures that the files are under `base`, owned by the user and unmodified.
fn place(base: &Path) -> io::Result<PathBuf> {
    self::base(base)?;
    let folder = base.join(NAME);
    if fs::symlink_metadata(&folder).is_err() {
        unpack_beside(base, &folder)?;
    }
    check_own(&folder)?;
    make_own(&folder.join("gpuwatch_probe"))?;
    for (name, content) in FILES {
        let path = folder.join(name);
        if !is_intact(&path, content) {
            write_renamed(&path, content)?;
        }
    }
    Ok(folder)
}

/// Creates a directory for the files.
fn base(base: &Path) -> io::Result<()> {
    if base.as_os_str().as_encoded_bytes().contains(&b':') {
        return Err(io::Error::other("its path has a colon, at which PYTHONPATH would end it"));
    }
    if let Some(above) = base.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(above)?;
        check_above(above)?;
    }
    make_own(base)
}

/// Unpacks to a temporary name first, so that a half-written directory never has the final name.
fn unpack_beside(base: &Path, folder: &Path) -> io::Result<()> {
    let beside = base.join(format!(".{NAME}.{}", std::process::id()));
    let _ = fs::remove_dir_all(&beside);
    make_own(&beside)?;
    make_own(&beside.join("gpuwatch_probe"))?;
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

fn make_own(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => check_own(folder),
    }
}

fn check_own(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() {
        return Err(io::Error::other("it is not a directory"));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("another user owns it"));
    }
    if found.mode() & 0o022 != 0 {
        // Another user who may write here may have added modules.
        return Err(io::Error::other("other users may write to it"));
    }
    Ok(())
}

/// Checks that no other user can replace the directory; one secure parent is enough.
fn check_above(above: &Path) -> io::Result<()> {
    let own = rustix::process::geteuid().as_raw();
    for folder in above.canonicalize()?.ancestors() {
        let found = fs::metadata(folder)?;
        let is_open = found.mode() & 0o002 != 0 && found.mode() & 0o1000 == 0;
        if is_open || ![0, own].contains(&found.uid()) {
            return Err(io::Error::other(format!("other users may replace files in {}", folder.display())));
        }
    }
    Ok(())
}

fn is_intact(path: &Path, content: &[u8]) -> bool {
    let Ok(found) = fs::symlink_metadata(path) else { return false };
    found.is_file()
        && found.uid() == rustix::process::geteuid().as_raw()
        && found.mode() & 0o022 == 0
        && found.len() == content.len() as u64
        && fs::read(path).is_ok_and(|it| it == content)
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
    fn files_that_others_may_replace_are_not_used() {
        let home = tempfile::tempdir().unwrap();
        let open = home.path().join("open");
        fs::create_dir(&open).unwrap();
        let base = open.join("cache/gpuwatch");
        let unpack = |mode| {
            fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
            Assets::unpack_in(std::slice::from_ref(&base), true, |_| true).map_err(|it| it.to_string())
        };
        assert!(unpack(0o777).unwrap_err().contains("other users may replace"));
        assert!(unpack(0o1777).is_ok() && unpack(0o755).is_ok());
        assert_eq!(fs::metadata(open.join("cache")).unwrap().mode() & 0o777, 0o700, "made for its owner alone");
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
