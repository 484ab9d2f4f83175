//! Answers of replays beside a probe's socket. The gpuwatch that replays writes them there, so that every viewer of the
//! job shows them.

use crate::facts::event::{Replayed, wire::Hello};
use gpuwatch_probe::{
    error_file::{is_name, name, open},
    socket,
};
use rustix::fs::OFlags;
use std::{
    fs::OpenOptions,
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// The ending of a file's name; the rest is that of the probe's spill.
const ENDING: &str = "replays";

/// The largest file, in bytes: more answers than a session keeps.
pub(super) const BYTES_MAX: u64 = 256 << 10;

/// Returns where the answers for a probe lie.
pub fn beside(socket: &Path, hello: &Hello) -> Option<PathBuf> {
    let stem = name(hello.pid, hello.instance.as_deref()?);
    // The name comes from the job, which must not choose another folder.
    is_name(&stem).then(|| socket.with_file_name(stem).with_extension(ENDING))
}

/// Writes answers for the viewers of their process. A full file is emptied first.
///
/// # Errors
/// Fails if the folder is not this user's, or the file cannot be written.
pub fn append(path: &Path, answers: &[Replayed]) -> io::Result<()> {
    socket::check(path.parent().unwrap_or(Path::new("/"))).map_err(|why| io::Error::other(why.to_string()))?;
    let mut text = String::new();
    for it in answers {
        text += &serde_json::to_string(it)?;
        text.push('\n');
    }
    let mut options = OpenOptions::new();
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.append(true).create(true).mode(0o600).custom_flags(flags.bits().cast_signed());
    let mut file = options.open(path)?;
    // A file of the same name that is not ours is left alone.
    let bytes = open(path)?.metadata()?.len();
    if bytes + text.len() as u64 > BYTES_MAX {
        file.set_len(0)?;
    }
    file.write_all(text.as_bytes())
}

/// Whether a file of answers may have this name.
pub(super) fn has_name(name: &str) -> bool {
    name.strip_suffix(ENDING).is_some_and(|it| is_name(&format!("{it}spill")))
}

/// Reads the answers after the first bytes, and where their last line ends.
pub(super) fn read(path: &Path, from: u64) -> io::Result<(Vec<Replayed>, u64)> {
    let mut file = open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|it| *it == b'\n').map_or(0, |it| it + 1);
    let text = String::from_utf8_lossy(bytes.get(..whole).unwrap_or_default());
    // Another release may write what this one does not know.
    let answers = text.lines().filter_map(|it| serde_json::from_str(it).ok()).collect();
    Ok((answers, from + whole as u64))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::facts::event::{ProbeId, replayed::Cost};
    use std::{fs, os::unix::fs::PermissionsExt};

    pub(in crate::sources::probe) const INSTANCE: &str = "0123456789abcdef0123456789abcdef";

    /// A folder as probes use.
    pub(in crate::sources::probe) fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        folder
    }

    pub(in crate::sources::probe) fn hello(instance: &str) -> Hello {
        Hello { pid: 7, instance: Some(instance.to_owned()), ..Hello::default() }
    }

    pub(in crate::sources::probe) fn answer(why: &str) -> Replayed {
        Replayed { probe: ProbeId(9), device: 0, finding: None, result: Err(why.into()), cost: Cost::default() }
    }

    #[test]
    fn a_job_does_not_choose_where_answers_are_written() {
        let folder = folder();
        let socket = folder.path().join("7.sock");
        for instance in ["", "../../home/ada/.profile", "0123"] {
            assert_eq!(beside(&socket, &hello(instance)), None);
        }
        let path = beside(&socket, &hello(INSTANCE)).unwrap();
        std::os::unix::fs::symlink(folder.path().join("other"), &path).unwrap();
        append(&path, &[answer("why")]).unwrap_err();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "of others").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        append(&path, &[answer("why")]).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"of others");
    }
}
