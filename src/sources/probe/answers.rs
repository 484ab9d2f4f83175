//! Answers beside a probe's socket: of replays, the highest moments of steps, and measured advice. The gpuwatch that
//! has an answer writes it there, so that every viewer of the job shows it.

use super::{
    SocketId,
    directory::{Found, Socket},
    known::Probes,
};
use crate::facts::event::{Advised, Fact, PeakMoment, ProbeId, Replayed, wire::Hello};
use gpuwatch_probe::{
    error_file::{KEPT, is_name, name, open},
    socket,
};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, HashSet},
    fs::{self, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// The ending of a file's name; the rest is that of the probe's spill.
const ENDING: &str = "replays";

/// The largest file, in bytes: more answers than a session keeps.
const BYTES_MAX: u64 = 256 << 10;

/// A line of the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Answer {
    Replayed(Box<Replayed>),
    PeakMoment(Box<PeakMoment>),
    Advised(Box<Advised>),
}

impl Answer {
    /// Returns it as what happened to the probe of this number; the file has the number that its writer knows.
    fn of(self, probe: ProbeId) -> Fact {
        match self {
            Self::Replayed(it) => Fact::Replayed(Box::new(Replayed { probe, ..*it })),
            Self::PeakMoment(it) => Fact::PeakMoment(Box::new(PeakMoment { probe, ..*it })),
            Self::Advised(it) => Fact::Advised(Box::new(Advised { probe, ..*it })),
        }
    }
}

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
pub fn append(path: &Path, answers: &[impl Serialize]) -> io::Result<()> {
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
pub fn has_name(name: &str) -> bool {
    name.strip_suffix(ENDING).is_some_and(|it| is_name(&format!("{it}spill")))
}

/// Reads the answers after the first bytes, and where their last line ends.
fn read(path: &Path, from: u64) -> io::Result<(Vec<Answer>, u64)> {
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

/// What was read of each file, in bytes.
#[derive(Debug, Default)]
pub(super) struct Answers(HashMap<PathBuf, u64>);

impl Answers {
    /// Returns the new answers for probes that the receiver of the events knows: none at a socket among `unknown`.
    pub(super) fn unread(&mut self, found: &[Found], probes: &Probes, unknown: &HashSet<SocketId>) -> Vec<Fact> {
        self.0.retain(|path, _| found.iter().any(|it| it.path == *path));
        let mut all = Vec::new();
        for it in found {
            let before = self.0.get(&it.path).copied().unwrap_or(0);
            let instance = it.path.file_name().and_then(|it| it.to_str()?.split('.').nth(1));
            let Some(probe) = instance.and_then(|it| probes.introduced(it, unknown)) else { continue };
            if it.bytes == before {
                continue;
            }
            // A shorter file was emptied meanwhile.
            let from = if it.bytes < before { 0 } else { before };
            let (answers, to) = read(&it.path, from).unwrap_or((Vec::new(), it.bytes));
            self.0.insert(it.path.clone(), to);
            all.extend(answers.into_iter().map(|answer| answer.of(probe)));
        }
        all
    }
}

/// Removes old answers of processes that have no socket any more.
pub(super) fn sweep(found: &[Found], sockets: &[Socket]) {
    let now = SystemTime::now();
    for it in found {
        let of =
            |path: &Path| Some((path.parent()?.to_owned(), path.file_name()?.to_str()?.split('.').next()?.to_owned()));
        let has_socket = sockets.iter().any(|socket| of(&socket.path) == of(&it.path));
        if !has_socket && now.duration_since(it.modified).is_ok_and(|age| age > KEPT) {
            // Another viewer may have removed it meanwhile.
            let _ = fs::remove_file(&it.path);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::facts::event::replayed::Cost;
    use std::{fs::File, os::unix::fs::PermissionsExt};
    use tokio::sync::mpsc;

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

    fn found(path: &Path) -> [Found; 1] {
        let bytes = fs::metadata(path).unwrap().len();
        [Found { path: path.to_owned(), id: (0, 0, 0), bytes, modified: SystemTime::now() }]
    }

    #[test]
    fn answers_reach_a_viewer_once_and_under_its_own_number() {
        let folder = folder();
        let socket = folder.path().join("7.sock");
        let path = beside(&socket, &hello(INSTANCE)).unwrap();
        assert!(has_name(path.file_name().unwrap().to_str().unwrap()), "{path:?}");
        append(&path, &[answer("one"), answer("two")]).unwrap();
        let (mut answers, probes, mut unknown) = (Answers::default(), Probes::default(), HashSet::new());
        let mut unread = |probes: &Probes, unknown: &HashSet<SocketId>| answers.unread(&found(&path), probes, unknown);
        assert_eq!(unread(&probes, &unknown), [], "the probe is unknown");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let socket = Socket::at(socket).unwrap();
        unknown.insert(socket.id);
        let probe = probes.introduce(&hello(INSTANCE), &socket, None, mpsc::channel(1).0).unwrap().probe;
        assert_eq!(unread(&probes, &unknown), [], "the receiver does not know the probe yet");
        unknown.clear();
        let own = |why| Fact::Replayed(Box::new(Replayed { probe, ..answer(why) }));
        assert_eq!(unread(&probes, &unknown), [own("one"), own("two")]);
        assert_eq!(unread(&probes, &unknown), []);
        File::options()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"{\"an answer\": \"of another release\"}\n{")
            .unwrap();
        assert_eq!(unread(&probes, &unknown), []);
        let long = "x".repeat(60 << 10);
        for _ in 0..10 {
            append(&path, &[answer(&long)]).unwrap();
            assert!(fs::metadata(&path).unwrap().len() <= BYTES_MAX);
        }
        append(&path, &[answer("last")]).unwrap();
        assert_eq!(unread(&probes, &unknown).last(), Some(&own("last")));
    }

    #[test]
    fn old_answers_go_with_their_process() {
        let folder = folder();
        let socket = folder.path().join("7.sock");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let path = beside(&socket, &hello(INSTANCE)).unwrap();
        append(&path, &[answer("why")]).unwrap();
        let old = found(&path).map(|it| Found { modified: SystemTime::UNIX_EPOCH, ..it });
        sweep(&old, &[Socket::at(socket).unwrap()]);
        sweep(&found(&path), &[]);
        assert!(path.exists());
        sweep(&old, &[]);
        assert!(!path.exists());
    }
}
