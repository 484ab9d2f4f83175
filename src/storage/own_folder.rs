//! Folders for what gpuwatch loads, executes or trusts: the probe, simulated libraries, files of replays, indexes.
//!
//! The rule, for such a folder and for every folder above it: root or this user owns it, and neither its group nor
//! others may write to it. Above it, a sticky folder such as `/tmp` is allowed, because there no user can replace what
//! another one has made. POSIX ACLs need no check of their own: their mask limits every user and group that they name,
//! and the kernel shows the mask as the permissions of the group.
//!
//! A home that its group may write to (umask 002) is often safe, because its user is alone in the group. That cannot be
//! known here, so such a place is passed over, and the next one is used: see [`candidates`].

use etcetera::BaseStrategy;
use rustix::{
    fs::{FileType, Mode, OFlags, Stat, fstat, mkdirat, open, openat},
    io::Errno,
    process::geteuid,
};
use std::{
    env,
    ffi::OsString,
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::PermissionsExt,
    },
    path::{Component, Path, PathBuf},
};
use thiserror::Error;

/// The bits that let other users than the owner write.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Opens a folder to read its metadata; its path ends in no link.
const METADATA: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Why no folder is usable.
#[derive(Debug, Error)]
#[error("its files can be put nowhere ({}); set XDG_CACHE_HOME to a directory of your own", reasons.join("; "))]
pub struct Trouble {
    /// The reason of each candidate.
    pub reasons: Vec<String>,
}

/// Returns the user's cache, then folders that exist without a home directory.
pub fn candidates() -> Vec<PathBuf> {
    let uid = geteuid().as_raw();
    let mut places = Vec::new();
    if let Ok(base) = etcetera::choose_base_strategy() {
        places.push(base.cache_dir().join("gpuwatch"));
    }
    if let Some(runtime) = env::var_os("XDG_RUNTIME_DIR").filter(|it| !it.is_empty()) {
        places.push(PathBuf::from(runtime).join("gpuwatch-cache"));
    }
    for shared in [env::temp_dir(), "/tmp".into(), "/dev/shm".into()] {
        places.push(shared.join(format!("gpuwatch-cache-{uid}")));
    }
    places.dedup();
    places
}

/// Returns a folder of this name in the first candidate that no other user can change, and that `is_usable`.
///
/// # Errors
/// Fails if there is none.
pub fn own_folder(name: &str, is_usable: impl Fn(&Path) -> Result<(), String>) -> Result<PathBuf, Trouble> {
    let mut reasons = Vec::new();
    for candidate in candidates() {
        let made = make(&candidate.join(name)).map_err(|why| why.to_string());
        match made.and_then(|folder| is_usable(&folder).map(|()| folder)) {
            Ok(folder) => return Ok(folder),
            Err(why) => reasons.push(format!("{}: {why}", candidate.display())),
        }
    }
    Err(Trouble { reasons })
}

/// Makes a folder, and those above it where they are missing, for this user alone. Returns its path without links, so
/// that a link on the way may change later.
///
/// # Errors
/// Fails if it cannot be made, or if another user could change it or replace it.
pub fn make(folder: &Path) -> io::Result<PathBuf> {
    let (Some(above), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Err(io::Error::other("its path ends in no name"));
    };
    let (mut path, missing) = existing(above)?;
    let mut opened = walk(&path)?;
    for it in missing {
        path.push(&it);
        opened = enter(&opened, Path::new(&it))?;
        check(&fstat(&opened)?, &path)?;
    }
    path.push(name);
    let found = fstat(enter(&opened, Path::new(name))?)?;
    if found.st_uid != geteuid().as_raw() {
        return Err(io::Error::other("another user owns it"));
    }
    if found.st_mode & OTHERS_WRITE != 0 {
        // Another user who may write here may have added files already.
        return Err(io::Error::other("other users may write to it"));
    }
    if found.st_mode & 0o055 != 0 {
        // From here on no other user can exchange the path.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(path)
}

/// Returns whether a file is regular and this user's, and no other user may write to it.
pub fn is_own_file(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode).is_file()
        && found.st_uid == geteuid().as_raw()
        && found.st_mode & OTHERS_WRITE == 0
}

/// Splits a path into the part that exists, without links, and the names below it.
fn existing(path: &Path) -> io::Result<(PathBuf, Vec<OsString>)> {
    let (mut path, mut missing) = (std::path::absolute(path)?, Vec::new());
    loop {
        match path.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found.map(|it| (it, missing.into_iter().rev().collect())),
        }
        match path.file_name() {
            Some(name) => missing.push(name.to_owned()),
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        path.pop();
    }
}

/// Opens a folder from `/` down. Each one is checked before the next one is opened in it, so that no other user can
/// replace what was checked.
fn walk(path: &Path) -> io::Result<OwnedFd> {
    let mut at = PathBuf::from("/");
    let mut opened = open(&at, METADATA, Mode::empty())?;
    check(&fstat(&opened)?, &at)?;
    for it in path.components().filter(|it| matches!(it, Component::Normal(_))) {
        at.push(it);
        opened = openat(&opened, it.as_os_str(), METADATA, Mode::empty()).map_err(explained)?;
        check(&fstat(&opened)?, &at)?;
    }
    Ok(opened)
}

/// Opens a folder in another one, and makes it if it is missing.
fn enter(above: impl AsFd, name: &Path) -> io::Result<OwnedFd> {
    match openat(&above, name, METADATA, Mode::empty()) {
        Err(Errno::NOENT) => {
            // This mode also limits what a default ACL of the folder above grants.
            match mkdirat(&above, name, Mode::RWXU) {
                // Another process was faster.
                Ok(()) | Err(Errno::EXIST) => openat(above, name, METADATA, Mode::empty()).map_err(explained),
                Err(why) => Err(why.into()),
            }
        }
        opened => opened.map_err(explained),
    }
}

fn explained(why: Errno) -> io::Error {
    match why {
        Errno::NOTDIR | Errno::LOOP => io::Error::other("it is not a directory"),
        _ => why.into(),
    }
}

/// Checks a folder above the one that is used.
fn check(found: &Stat, path: &Path) -> io::Result<()> {
    let shown = path.display();
    let fault = if ![0, geteuid().as_raw()].contains(&found.st_uid) {
        format!("other users may replace files in {shown}, because another user owns it")
    } else if found.st_mode & STICKY != 0 || found.st_mode & OTHERS_WRITE == 0 {
        return Ok(());
    } else if found.st_mode & 0o002 != 0 {
        format!("other users may replace files in {shown}: run `chmod o-w {shown}`")
    } else {
        format!("other users of its group may replace files in {shown}: run `chmod g-w {shown}`")
    };
    Err(io::Error::other(fault))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn no_folder_above_lets_its_group_or_others_replace_files() {
        let home = tempfile::tempdir().unwrap();
        let open = home.path().join("open");
        fs::create_dir_all(open.join("between")).unwrap();
        let folder = open.join("between/cache/gpuwatch");
        for (mode, why) in [
            (0o777, Some("chmod o-w")),
            (0o775, Some("chmod g-w")),
            (0o2770, Some("chmod g-w")),
            (0o702, Some("chmod o-w")),
            (0o1777, None),
            (0o3775, None),
            (0o755, None),
            (0o700, None),
        ] {
            set(&open, mode);
            let made = make(&folder).map_err(|it| it.to_string());
            let named = |why| move |it: &String| it.contains(why) && it.contains("/open");
            assert!(why.map_or(made.is_ok(), |why| made.as_ref().is_err_and(named(why))), "{mode:o}: {made:?}");
        }
        assert_eq!(fs::metadata(open.join("between/cache")).unwrap().mode() & 0o777, 0o700, "made for its owner alone");
    }

    #[test]
    fn nothing_is_made_below_a_folder_that_is_refused() {
        let home = tempfile::tempdir().unwrap();
        set(home.path(), 0o775);
        assert!(make(&home.path().join("a/b/c")).is_err());
        assert!(!home.path().join("a").exists());
    }

    #[test]
    fn a_link_on_the_way_counts_as_what_it_leads_to() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        fs::create_dir(path("closed")).unwrap();
        fs::create_dir(path("open")).unwrap();
        set(&path("open"), 0o775);
        symlink(path("open"), path("closed/to-open")).unwrap();
        symlink(path("closed"), path("open/to-closed")).unwrap();
        assert!(make(&path("closed/to-open/gpuwatch")).is_err());
        // A later change of this link has no effect: the path does not have it.
        let made = make(&path("open/to-closed/gpuwatch")).unwrap();
        assert_eq!(made, path("closed/gpuwatch").canonicalize().unwrap());
        // Below a link that leads nowhere, nothing is made.
        symlink(path("nowhere"), path("closed/dangling")).unwrap();
        assert!(make(&path("closed/dangling/gpuwatch")).unwrap_err().to_string().contains("not a directory"));
    }

    #[test]
    fn a_folder_that_was_exchanged_for_a_link_after_its_path_was_read_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let (real, other) = (home.path().join("real"), home.path().join("other"));
        fs::create_dir_all(real.join("below")).unwrap();
        fs::create_dir_all(other.join("below")).unwrap();
        let path = existing(&real.join("below")).unwrap().0;
        fs::rename(&real, home.path().join("away")).unwrap();
        symlink(&other, &real).unwrap();
        assert!(walk(&path).unwrap_err().to_string().contains("not a directory"));
    }

    #[test]
    fn the_folder_itself_is_its_users_alone() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("gpuwatch");
        fs::create_dir(&folder).unwrap();
        for mode in [0o775, 0o1777] {
            set(&folder, mode);
            assert!(make(&folder).unwrap_err().to_string().contains("other users may write to it"));
        }
        set(&folder, 0o755);
        make(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700, "one of an earlier release is closed");
        symlink("/tmp", home.path().join("link")).unwrap();
        assert!(make(&home.path().join("link")).unwrap_err().to_string().contains("not a directory"));
    }
}
