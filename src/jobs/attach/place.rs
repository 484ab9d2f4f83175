//! Where the probe's files and the job's answer lie, so that both the job and gpuwatch see them.

use super::{
    inspect::{Target, root},
    script::{Order, Wish},
};
use crate::jobs::launch::assets::{self, Assets};
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, ResolveFlags, StatVfsMountFlags, fstatvfs, mkdirat, openat, openat2},
    io::Errno,
};
use std::{
    fs::{self, File},
    io::{self, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt, chown},
    },
    path::{Path, PathBuf},
};

/// Directories of a job that has other files than gpuwatch, in the order in which they are tried.
const TEMPORARY: [&str; 3] = ["tmp", "dev/shm", "var/tmp"];

/// What a job has answered, and whether it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It was not asked.
    New,
    /// It was asked, and has not answered.
    Asked,
    /// Its answer: `started`, `ended`, or `refused` and why.
    Answered(String),
}

/// A place for one process.
#[derive(Debug)]
pub(super) struct Place {
    /// The beginning of the names of its own files, as they are found here.
    here: PathBuf,
    /// The same as the job sees them.
    there: PathBuf,
    folder: PathBuf,
    library: PathBuf,
    /// The job's own directory, where it has one.
    apart: Option<Apart>,
}

/// A directory that the job alone uses.
#[derive(Debug)]
struct Apart {
    owner: (u32, u32),
    /// Where it is found here, as long as this is open.
    directory: OwnedFd,
    above: OwnedFd,
    name: String,
}

impl Place {
    /// Finds or makes the place of a process.
    ///
    /// # Errors
    /// When no directory will do.
    pub(super) fn of(target: &Target) -> io::Result<Self> {
        let name = format!("attach-{}-{}", target.own_pid, target.start_ticks);
        if !target.facts.is_apart {
            let assets = Assets::unpack_to_stay().map_err(io::Error::other)?;
            let here = assets.python().parent().unwrap_or(Path::new("/")).join(name);
            let (folder, library) = (assets.python().to_owned(), assets.library().to_owned());
            return Ok(Self { there: here.clone(), here, folder, library, apart: None });
        }
        let name = format!("gpuwatch-{name}");
        let root = File::open(root(target.facts.pid))?;
        let mut reasons = Vec::new();
        for base in TEMPORARY {
            match Apart::open(&root, base, &name, target.owner) {
                Ok(apart) => {
                    let here = PathBuf::from(format!("/proc/self/fd/{}", apart.directory.as_raw_fd()));
                    let there = Path::new("/").join(base).join(&name);
                    let folder = there.join(assets::name());
                    let library = folder.join(assets::LIBRARY);
                    let (here, there) = (here.join("job"), there.join("job"));
                    return Ok(Self { here, there, folder, library, apart: Some(apart) });
                }
                Err(error) => reasons.push(format!("/{base}: {error}")),
            }
        }
        Err(io::Error::other(format!("it has no directory for the probe's files ({})", reasons.join("; "))))
    }

    /// Returns the job's answer so far.
    pub(super) fn state(&self) -> State {
        match fs::read(self.file("answer")) {
            Ok(bytes) => State::Answered(String::from_utf8_lossy(&bytes).into_owned()),
            Err(_) if self.file("asked").exists() => State::Asked,
            Err(_) => State::New,
        }
    }

    /// Puts the files there, and returns the order for the job.
    pub(super) fn prepare(&self, wish: Wish, own_pid: u32) -> io::Result<Order> {
        self.forget();
        if let Some(apart) = &self.apart {
            let folder = self.here.with_file_name(assets::name());
            let _ = fs::remove_dir_all(&folder);
            assets::copy_to(&folder)?;
            give(&folder, apart.owner)?;
        }
        Ok(Order {
            wish,
            own_pid,
            folder: self.folder.clone(),
            library: self.library.clone(),
            answer: named(&self.there, "answer"),
            directories: Vec::new(),
            run: None,
            is_removed: self.apart.is_some(),
        })
    }

    /// Writes a script that Python runs; its path as the job sees it.
    pub(super) fn write_script(&self, text: &str) -> io::Result<PathBuf> {
        let path = self.file("py");
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes())?;
        if let Some(apart) = &self.apart {
            give(&path, apart.owner)?;
        }
        Ok(named(&self.there, "py"))
    }

    /// Notes that the job was asked.
    pub(super) fn note_asked(&self) -> io::Result<()> {
        File::options().write(true).create(true).truncate(true).mode(0o600).open(self.file("asked")).map(drop)
    }

    /// Removes what was noted and answered.
    pub(super) fn forget(&self) {
        for it in ["answer", "asked", "py"] {
            let _ = fs::remove_file(self.file(it));
        }
    }

    /// Removes everything that is for this process alone.
    pub(super) fn clear(self) {
        self.forget();
        let Some(apart) = &self.apart else { return };
        let _ = fs::remove_dir_all(self.here.with_file_name(assets::name()));
        let _ = rustix::fs::unlinkat(&apart.above, &apart.name, rustix::fs::AtFlags::REMOVEDIR);
    }

    fn file(&self, ending: &str) -> PathBuf {
        named(&self.here, ending)
    }
}

impl Apart {
    /// Every path is resolved within the job's root: a link of the job's leads nowhere else.
    fn open(root: &File, base: &str, name: &str, owner: (u32, u32)) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = openat2(root, base, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)?;
        if fstatvfs(&above)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            return Err(io::Error::other("its file system forbids execution"));
        }
        let is_new = match mkdirat(&above, name, Mode::RWXU) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let directory = openat(&above, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
        let here = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        if is_new {
            chown(here.join("."), Some(owner.0), Some(owner.1))?;
        }
        let found = fs::metadata(here.join("."))?;
        if found.uid() != owner.0 || found.mode() & 0o077 != 0 {
            return Err(io::Error::other("another user has put something there"));
        }
        Ok(Self { owner, directory, above, name: name.to_owned() })
    }
}

fn named(beginning: &Path, ending: &str) -> PathBuf {
    beginning.with_extension(ending)
}

/// Gives files to the job's user.
fn give(path: &Path, owner: (u32, u32)) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), owner)?;
        }
    }
    std::os::unix::fs::lchown(path, Some(owner.0), Some(owner.1))
}
