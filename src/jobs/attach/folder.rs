//! A directory with the files of one request: who asks, what was asked, what the job answers.
//!
//! The job can write there too, and may be hostile. So every file is reached from the open directory, by one name, no
//! link is followed, no mount is crossed, nothing is read but regular files of the job's user, up to a size, and
//! nothing is written but new files.

use crate::jobs::launch::assets;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{
        AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags, flock, fstat, mkdirat, openat, openat2,
        statat, unlinkat,
    },
    io::Errno,
};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Component, Path},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The files: held by the gpuwatch that asks, written once the job was asked, by the job once it begins, its answer.
const LOCK: &str = "lock";
const ASKED: &str = "asked";
pub(super) const BEGUN: &str = "begun";
pub(super) const ANSWER: &str = "answer";
/// The script that Python runs (PEP 768).
pub(super) const SCRIPT: &str = "request.py";
/// What one request leaves.
const OF_A_REQUEST: [&str; 5] = [ASKED, BEGUN, ANSWER, "answer.tmp", SCRIPT];

/// The longest answer, in bytes.
const ANSWER_MAX: u64 = 64 << 10;

/// The most names that are removed, and how deep they lie: more than the probe's files and their compiled modules.
const NAMES_MAX: usize = 512;
const DEPTH_MAX: usize = 4;

/// The most names of a directory that are searched for abandoned folders.
const SEARCHED_MAX: usize = 10_000;

/// How long a folder is kept whose process cannot be looked up from here.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Where a request stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    /// The job was not asked.
    New,
    /// It was asked, and has not begun.
    Asked,
    /// It has begun, and has not answered.
    Begun,
    /// Its answer: `started`, `ended`, or `refused` or `idle` and why.
    Answered(String),
}

/// How often a directory is made that other requests remove at the same time.
const TRIES: usize = 1000;

/// The directory.
#[derive(Debug)]
pub(super) struct Folder {
    above: OwnedFd,
    name: String,
    directory: OwnedFd,
    owner: u32,
    lock: Option<OwnedFd>,
}

impl Folder {
    /// Opens or makes a directory below an open one, as this process's user.
    ///
    /// # Errors
    /// When something of another user's has its name, or it cannot be made.
    pub(super) fn open(above: OwnedFd, name: String) -> io::Result<Self> {
        let owner = rustix::process::geteuid().as_raw();
        let made = || {
            match mkdirat(&above, &name, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            beneath(&above, &name, OFlags::DIRECTORY, Mode::empty())
        };
        // Another request for the same job may remove it between the two calls, as often as it ends.
        let is_gone = |it: &io::Result<OwnedFd>| matches!(it, Err(why) if why.kind() == io::ErrorKind::NotFound);
        let mut tries = std::iter::repeat_with(made).take(TRIES);
        let directory = tries.find(|it| !is_gone(it)).unwrap_or_else(|| Err(Errno::NOENT.into()))?;
        let about = fstat(&directory)?;
        if about.st_uid != owner || about.st_mode & 0o077 != 0 {
            return Err(io::Error::other("another user has put something there"));
        }
        Ok(Self { above, name, directory, owner, lock: None })
    }

    /// Takes the folder for this process, unless another gpuwatch has it or has just removed it.
    ///
    /// # Errors
    /// When its file cannot be opened.
    pub(super) fn lock(&mut self) -> io::Result<bool> {
        let flags = OFlags::RDWR | OFlags::CREATE;
        let lock = match beneath(&self.directory, LOCK, flags, Mode::RUSR | Mode::WUSR) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        // Without locks in the file system the request continues: two at once are rare.
        if flock(&lock, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return Ok(false);
        }
        let is_there = same(&self.above, &self.name, &self.directory) && same(&self.directory, LOCK, &lock);
        self.lock = is_there.then_some(lock);
        Ok(is_there)
    }

    /// Returns where the request stands.
    pub(super) fn state(&self) -> State {
        if let Some(answer) = self.read(ANSWER) {
            return State::Answered(answer);
        }
        let has = |name: &str| statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if has(BEGUN) {
            State::Begun
        } else if has(ASKED) {
            State::Asked
        } else {
            State::New
        }
    }

    /// Removes what was noted and answered.
    pub(super) fn forget(&self) {
        for name in OF_A_REQUEST {
            let _ = unlinkat(&self.directory, name, AtFlags::empty());
        }
    }

    /// Writes the probe's files.
    pub(super) fn fill(&self) -> io::Result<()> {
        let mut left = NAMES_MAX;
        remove(&self.directory, assets::name(), DEPTH_MAX, &mut left);
        let make = |above: &OwnedFd, name: &str| {
            mkdirat(above, name, Mode::RWXU).map_err(|why| occupied(name, why))?;
            beneath(above, name, OFlags::DIRECTORY, Mode::empty())
        };
        let python = make(&self.directory, assets::name())?;
        let package = make(&python, assets::PACKAGE)?;
        for (name, content) in assets::files() {
            match name.split_once('/') {
                Some((_, name)) => write(&package, name, content)?,
                None => write(&python, name, content)?,
            }
        }
        Ok(())
    }

    /// Writes the script that Python runs.
    pub(super) fn write_script(&self, text: &str) -> io::Result<()> {
        write(&self.directory, SCRIPT, text.as_bytes())
    }

    /// Notes that the job was asked.
    pub(super) fn note_asked(&self) -> io::Result<()> {
        // A job that has answered at once has removed nothing yet.
        let _ = unlinkat(&self.directory, ASKED, AtFlags::empty());
        write(&self.directory, ASKED, b"")
    }

    /// Removes the directory and what gpuwatch and the job have put into it for this request.
    pub(super) fn clear(&mut self) {
        self.forget();
        let mut left = NAMES_MAX;
        remove(&self.directory, assets::name(), DEPTH_MAX, &mut left);
        let _ = unlinkat(&self.directory, LOCK, AtFlags::empty());
        let _ = unlinkat(&self.above, &self.name, AtFlags::REMOVEDIR);
        self.lock = None;
    }

    fn read(&self, name: &str) -> Option<String> {
        let file = beneath(&self.directory, name, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).ok()?;
        let about = fstat(&file).ok()?;
        if FileType::from_raw_mode(about.st_mode) != FileType::RegularFile || about.st_uid != self.owner {
            return None;
        }
        let mut bytes = Vec::new();
        File::from(file).take(ANSWER_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Removes folders that begin with `prefix`, whose process is gone and that no gpuwatch has, below an open directory.
/// `is_gone` decides by the rest of a name; `None` stands for a process that cannot be looked up.
pub(super) fn sweep(above: &OwnedFd, prefix: &str, is_gone: impl Fn(&str) -> Option<bool>) {
    let Ok(entries) = Dir::read_from(above) else { return };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    for entry in entries.take(SEARCHED_MAX).flatten() {
        let Ok(name) = entry.file_name().to_str() else { continue };
        let Some(rest) = name.strip_prefix(prefix) else { continue };
        let Ok(about) = statat(above, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let age = now.saturating_sub(Duration::from_secs(u64::try_from(about.st_mtime).unwrap_or(u64::MAX)));
        if about.st_uid != rustix::process::geteuid().as_raw() || !is_gone(rest).unwrap_or(age > KEPT) {
            continue;
        }
        let Ok(above) = above.try_clone() else { continue };
        if let Ok(mut folder) = Folder::open(above, name.to_owned())
            && folder.lock().unwrap_or(false)
        {
            folder.clear();
        }
    }
}

/// Opens a directory by its path below a root. A link of the job's leads nowhere else.
///
/// # Errors
/// When it is missing, or is reached by a link and the kernel cannot keep links below the root.
pub(super) fn open_base(root: &OwnedFd, base: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(root, base, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS) {
        // Kernels before 5.6, and sandboxes that do not know the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let mut at = root.try_clone()?;
            for name in base.components() {
                if let Component::Normal(name) = name {
                    at = openat(&at, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
                }
            }
            Ok(at)
        }
        opened => Ok(opened?),
    }
}

/// Opens a name of an open directory: no link, and nothing that is mounted there.
fn beneath(directory: &OwnedFd, name: &str, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    match openat2(directory, name, flags, mode, resolve) {
        Err(Errno::NOSYS | Errno::PERM) => {
            let opened = openat(directory, name, flags, mode)?;
            if fstat(&opened)?.st_dev != fstat(directory)?.st_dev {
                return Err(Errno::XDEV.into());
            }
            Ok(opened)
        }
        opened => opened.map_err(|why| occupied(name, why)),
    }
}

/// Names the file in whose place the job has put something else.
fn occupied(name: &str, why: Errno) -> io::Error {
    match why {
        Errno::EXIST | Errno::LOOP | Errno::XDEV | Errno::ISDIR | Errno::NOTDIR => {
            io::Error::other(format!("something else is in the place of its file `{name}` ({why})"))
        }
        _ => why.into(),
    }
}

fn write(directory: &OwnedFd, name: &str, content: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    File::from(beneath(directory, name, flags, Mode::RUSR | Mode::WUSR)?).write_all(content)
}

/// Whether a name still leads to what was opened.
fn same(directory: &OwnedFd, name: &str, opened: &OwnedFd) -> bool {
    let id = |it: &rustix::fs::Stat| (it.st_dev, it.st_ino);
    let named = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    named.is_ok_and(|named| fstat(opened).is_ok_and(|opened| id(&named) == id(&opened)))
}

/// Removes a directory and what is in it, as far as it is on its own file system and within the limits.
fn remove(above: &impl AsFd, name: &str, depth: usize, left: &mut usize) {
    let Ok(above) = above.as_fd().try_clone_to_owned() else { return };
    let Ok(directory) = beneath(&above, name, OFlags::DIRECTORY, Mode::empty()) else { return };
    let Ok(entries) = Dir::read_from(&directory) else { return };
    for entry in entries.flatten() {
        let Ok(entry) = entry.file_name().to_str() else { continue };
        if [".", ".."].contains(&entry) {
            continue;
        }
        if *left == 0 {
            return;
        }
        *left -= 1;
        if unlinkat(&directory, entry, AtFlags::empty()).is_err() && depth > 0 {
            remove(&directory, entry, depth - 1, left);
        }
    }
    let _ = unlinkat(&above, name, AtFlags::REMOVEDIR);
}

#[cfg(test)]
mod tests {
    //! Hostile and abandoned folders.

    use super::*;
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
        path::PathBuf,
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };
    use tempfile::TempDir;

    struct Bench {
        home: TempDir,
        folder: Folder,
    }

    impl Bench {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            let folder = Folder::open(File::open(home.path()).unwrap().into(), "job".to_owned()).unwrap();
            Self { home, folder }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.home.path().join("job").join(name)
        }

        /// A file outside, with a content that stays.
        fn precious(&self) -> PathBuf {
            let path = self.home.path().join("precious");
            fs::write(&path, "precious").unwrap();
            path
        }
    }

    #[test]
    fn a_request_stands_where_its_files_show() {
        let mut bench = Bench::new();
        assert!(bench.folder.lock().unwrap());
        assert_eq!(bench.folder.state(), State::New);
        bench.folder.fill().unwrap();
        bench.folder.fill().unwrap();
        bench.folder.note_asked().unwrap();
        assert_eq!(bench.folder.state(), State::Asked);
        fs::write(bench.path(BEGUN), "").unwrap();
        assert_eq!(bench.folder.state(), State::Begun);
        fs::write(bench.path(ANSWER), "started").unwrap();
        assert_eq!(bench.folder.state(), State::Answered("started".to_owned()));
        fs::create_dir(bench.path(assets::name()).join("gpuwatch_probe/__pycache__")).unwrap();
        fs::write(bench.path(assets::name()).join("gpuwatch_probe/__pycache__/a.pyc"), "").unwrap();
        bench.folder.clear();
        assert_eq!(fs::read_dir(bench.home.path()).unwrap().count(), 0, "nothing stays");
    }

    /// A request that ends removes the folder while another one opens it.
    #[test]
    fn a_folder_that_another_request_removes_is_made_again() {
        let home = tempfile::tempdir().unwrap();
        let open = || Folder::open(File::open(home.path()).unwrap().into(), "job".to_owned());
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = fs::remove_dir(home.path().join("job"));
                }
            });
            let all: io::Result<()> = (0..5000).try_for_each(|_| open().map(drop));
            is_over.store(true, Ordering::Relaxed);
            assert!(all.is_ok(), "{:?}", all.err());
        });
    }

    #[test]
    fn no_link_is_followed_and_no_file_of_others_is_changed() {
        let bench = Bench::new();
        let precious = bench.precious();
        for name in OF_A_REQUEST {
            symlink(&precious, bench.path(name)).unwrap();
        }
        assert_eq!(bench.folder.state(), State::Begun, "an answer that is a link is no answer");
        bench.folder.note_asked().unwrap();
        bench.folder.write_script("x").unwrap_err();
        bench.folder.forget();
        fs::hard_link(&precious, bench.path(ASKED)).unwrap();
        bench.folder.note_asked().unwrap();
        // The probe's files are written into no directory that a link leads to.
        let elsewhere = bench.home.path().join("elsewhere");
        fs::create_dir_all(elsewhere.join("gpuwatch_probe")).unwrap();
        fs::write(elsewhere.join("kept"), "").unwrap();
        symlink(&elsewhere, bench.path(assets::name())).unwrap();
        bench.folder.fill().unwrap_err();
        assert_eq!(fs::read(precious).unwrap(), b"precious");
        assert!(elsewhere.join("kept").exists());
    }

    #[test]
    fn pipes_devices_and_endless_files_are_no_answers() {
        let bench = Bench::new();
        rustix::fs::mknodat(rustix::fs::CWD, bench.path(ANSWER), FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!(bench.folder.state(), State::New);
        bench.folder.forget();
        File::create(bench.path(ANSWER)).unwrap().set_len(1 << 40).unwrap();
        let State::Answered(answer) = bench.folder.state() else { panic!("a regular file is an answer") };
        assert_eq!(answer.len() as u64, ANSWER_MAX);
    }

    #[test]
    fn a_folder_that_another_user_can_write_to_is_refused() {
        let bench = Bench::new();
        fs::set_permissions(bench.path(""), fs::Permissions::from_mode(0o770)).unwrap();
        let again = Folder::open(File::open(bench.home.path()).unwrap().into(), "job".to_owned());
        assert!(again.unwrap_err().to_string().contains("another user"));
        symlink("/tmp", bench.home.path().join("link")).unwrap();
        Folder::open(File::open(bench.home.path()).unwrap().into(), "link".to_owned()).unwrap_err();
    }

    #[test]
    fn one_request_at_a_time_has_the_folder() {
        let mut bench = Bench::new();
        let open = || Folder::open(File::open(bench.home.path()).unwrap().into(), "job".to_owned()).unwrap();
        let mut second = open();
        assert!(bench.folder.lock().unwrap());
        assert!(!second.lock().unwrap());
        bench.folder.clear();
        assert!(!second.lock().unwrap(), "its folder is gone");
        assert!(open().lock().unwrap());
    }

    #[test]
    fn abandoned_folders_go_and_those_in_use_stay() {
        let bench = Bench::new();
        let above: OwnedFd = File::open(bench.home.path()).unwrap().into();
        let open = |name: &str| Folder::open(above.try_clone().unwrap(), name.to_owned()).unwrap();
        let mut used = open("p-used");
        assert!(used.lock().unwrap());
        for name in ["p-gone", "p-lives", "p-unknown", "q-gone"] {
            open(name).note_asked().unwrap();
        }
        sweep(&above, "p-", |rest| match rest {
            "gone" | "used" => Some(true),
            "lives" => Some(false),
            _ => None,
        });
        let mut left: Vec<_> = fs::read_dir(bench.home.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["job", "p-lives", "p-unknown", "p-used", "q-gone"]);
    }
}
