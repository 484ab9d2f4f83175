//! Passes answers of replays on to this viewer, and removes old ones.

use super::{
    SocketId,
    answers::read,
    directory::{Found, Socket},
    known::Probes,
};
use crate::facts::event::Replayed;
use gpuwatch_probe::error_file::KEPT;
use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

/// What was read of each file, in bytes.
#[derive(Debug, Default)]
pub(super) struct Answers(HashMap<PathBuf, u64>);

impl Answers {
    /// Returns the new answers for probes that the receiver of the events knows: none at a socket among `unknown`.
    pub(super) fn news(&mut self, found: &[Found], probes: &Probes, unknown: &HashSet<SocketId>) -> Vec<Replayed> {
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
            all.extend(answers.into_iter().map(|answer| Replayed { probe, ..answer }));
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
mod tests {
    use super::{
        super::answers::{
            BYTES_MAX, append, beside, has_name,
            tests::{INSTANCE, answer, folder, hello},
        },
        *,
    };
    use std::{fs::File, io::Write};
    use tokio::sync::mpsc;

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
        let mut news = |probes: &Probes, unknown: &HashSet<SocketId>| answers.news(&found(&path), probes, unknown);
        assert_eq!(news(&probes, &unknown), [], "the probe is unknown");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let socket = Socket::at(socket).unwrap();
        unknown.insert(socket.id);
        let probe = probes.introduce(&hello(INSTANCE), &socket, None, mpsc::channel(1).0).unwrap().probe;
        assert_eq!(news(&probes, &unknown), [], "the receiver does not know the probe yet");
        unknown.clear();
        let own = |why| Replayed { probe, ..answer(why) };
        assert_eq!(news(&probes, &unknown), [own("one"), own("two")]);
        assert_eq!(news(&probes, &unknown), []);
        File::options()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"{\"an answer\": \"of another release\"}\n{")
            .unwrap();
        assert_eq!(news(&probes, &unknown), []);
        let long = "x".repeat(60 << 10);
        for _ in 0..10 {
            append(&path, &[answer(&long)]).unwrap();
            assert!(fs::metadata(&path).unwrap().len() <= BYTES_MAX);
        }
        append(&path, &[answer("last")]).unwrap();
        assert_eq!(news(&probes, &unknown).last(), Some(&own("last")));
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
