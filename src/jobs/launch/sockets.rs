//! Checks whether a job's probe will find a directory for its socket.

use gpuwatch_probe::socket::{Reason, check, directories};
use rustix::{
    fs::{Access, access},
    io::Errno,
};
use std::path::Path;

/// Returns why none of the socket directories is usable; `None` if one is.
pub fn trouble() -> Option<String> {
    let all = directories();
    let reasons: Vec<String> = all.iter().map_while(|it| unusable(it).err()).collect();
    (reasons.len() == all.len()).then(|| reasons.join("; "))
}

/// Returns why a directory can neither be used nor created.
pub fn unusable(directory: &Path) -> Result<(), String> {
    let reason = |at: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", at.display());
    match check(directory) {
        Ok(()) => writable(directory),
        // A missing directory can be created in an existing one.
        Err(Reason::Missing) => directory.ancestors().find(|it| it.exists()).map_or(Err(Errno::NOENT), writable),
        Err(why) => return Err(reason(directory, &why)),
    }
    .map_err(|why| reason(directory, &why))
}

fn writable(directory: &Path) -> Result<(), Errno> {
    access(directory, Access::WRITE_OK | Access::EXEC_OK)?;
    if directory.is_dir() { Ok(()) } else { Err(Errno::NOTDIR) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn a_directory_can_be_used_where_it_is_ours_or_can_be_made() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        assert_eq!(unusable(&path("a/b/c")), Ok(()));
        fs::create_dir(path("own")).unwrap();
        fs::set_permissions(path("own"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(unusable(&path("own")), Ok(()));
        fs::write(path("file"), "").unwrap();
        for (name, why) in [("file", "directory"), ("file/x", "directory")] {
            let why_not = unusable(&path(name)).unwrap_err();
            assert!(why_not.contains(name) && why_not.contains(why), "{why_not}");
        }
        assert!(unusable(Path::new("/proc/version/x")).unwrap_err().starts_with("/proc/version/x: "));
    }
}
