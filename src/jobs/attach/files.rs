//! The files that a job sees.
//!
//! Those of another user, or in another view of the file system, are reached in a child of this program that has the
//! ids of the job's user and no privilege. So whatever the job puts in their place, gpuwatch does nothing there that
//! the job could not do itself. Where such a file system does not answer, the child is ended.

use super::{
    folder::{Folder, State, open_base, sweep},
    images::{Images, Opened},
};
use crate::sources::{proc::Status, system};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fd::OwnedFd,
    fs::{Mode, OFlags, StatVfsMountFlags, fstatvfs},
    process::{DumpableBehavior, Gid, Uid, getegid, geteuid, set_dumpable_behavior},
    thread::{
        CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid,
        set_thread_res_uid,
    },
    time::Timespec,
};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// How long one answer of the child may take, in seconds.
const ANSWER_WITHIN: i64 = 30;

/// The longest answer of the child, in bytes.
const ANSWER_MAX: u64 = 4 << 20;

/// A process, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) pid: u32,
    pub(super) start_ticks: u64,
    pub(super) user: u32,
    pub(super) group: u32,
}

/// What is to be done with the files.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Read what is mapped.
    Images,
    /// Open or make a folder in the first of these directories that will do.
    Open {
        /// As the job sees them.
        bases: Vec<PathBuf>,
        /// The beginning of the names of all such folders.
        prefix: String,
        /// The rest of this one's name.
        rest: String,
        /// Whether libraries are to be loaded from there.
        is_executed: bool,
    },
    /// Take the folder for this process.
    Lock,
    /// Look where the request stands.
    State,
    /// Remove what an earlier request has left.
    Forget,
    /// Write the probe's files.
    Fill,
    /// Write the script that Python runs.
    Script(String),
    /// Note that the job was asked.
    NoteAsked,
    /// Remove the folder.
    Clear,
}

/// What came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Done,
    Images(Images),
    /// The directory that the folder is in.
    Opened(PathBuf),
    Locked(bool),
    State(State),
}

/// The files that a job sees, reached.
#[derive(Debug)]
pub(super) enum Files {
    /// By this process.
    Here(Box<Worker>),
    /// By a child.
    Apart(Confined),
}

impl Files {
    /// Reaches the files of a process: in a child where they are `apart`, of another user or in another view.
    ///
    /// # Errors
    /// When the process has changed or its root directory cannot be opened.
    pub(super) fn reach(of: Subject, is_apart: bool) -> io::Result<Self> {
        if is_apart { Confined::start(of).map(Self::Apart) } else { Worker::open(of).map(Box::new).map(Self::Here) }
    }

    pub(super) fn is_apart(&self) -> bool {
        matches!(self, Self::Apart(_))
    }

    /// Has something done.
    ///
    /// # Errors
    /// When it fails, or the child does not answer.
    pub(super) fn ask(&mut self, request: Request) -> io::Result<Reply> {
        match self {
            Self::Here(it) => it.act(request),
            Self::Apart(it) => it.ask(&request),
        }
    }

    /// Reads the files that are mapped.
    ///
    /// # Errors
    /// When the child does not answer.
    pub(super) fn images(&mut self) -> io::Result<Images> {
        match self.ask(Request::Images)? {
            Reply::Images(images) => Ok(images),
            _ => Err(unexpected()),
        }
    }
}

/// Handles requests with the rights of this process.
pub(super) struct Worker {
    root: OwnedFd,
    opened: Opened,
    folder: Option<Folder>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Worker {
    fn open(of: Subject) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(format!("/proc/{}/root", of.pid), flags, Mode::empty())?;
        let opened = Opened::open(of.pid, &root);
        // A process that runs a program of another user's meanwhile is not the one that was inspected.
        let is_its = |name: &str, id: u32| Status::read(of.pid).numbers(name).iter().take(3).all(|it| *it == id);
        if !is_its("Uid", of.user) || !is_its("Gid", of.group) || system::start_ticks(of.pid) != Some(of.start_ticks) {
            return Err(io::Error::other("it has ended or changed its user meanwhile"));
        }
        Ok(Self { root, opened, folder: None })
    }

    fn act(&mut self, request: Request) -> io::Result<Reply> {
        let missing = || io::Error::other("no folder was opened");
        if let Request::Images = request {
            return Ok(Reply::Images(self.opened.read()));
        }
        if let Request::Open { bases, prefix, rest, is_executed } = request {
            return self.open_folder(bases, &prefix, &rest, is_executed).map(Reply::Opened);
        }
        let folder = self.folder.as_mut().ok_or_else(missing)?;
        match request {
            Request::Lock => return folder.lock().map(Reply::Locked),
            Request::State => return Ok(Reply::State(folder.state())),
            Request::Forget => folder.forget(),
            Request::Fill => folder.fill()?,
            Request::Script(text) => folder.write_script(&text)?,
            Request::NoteAsked => folder.note_asked()?,
            Request::Clear => folder.clear(),
            Request::Images | Request::Open { .. } => {}
        }
        Ok(Reply::Done)
    }

    fn open_folder(&mut self, bases: Vec<PathBuf>, prefix: &str, rest: &str, is_executed: bool) -> io::Result<PathBuf> {
        let mut reasons = Vec::new();
        for base in bases {
            match self.folder_in(&base, prefix, rest, is_executed) {
                Ok(folder) => {
                    self.folder = Some(folder);
                    return Ok(base);
                }
                Err(error) => reasons.push(format!("{}: {error}", base.display())),
            }
        }
        Err(io::Error::other(format!("it has no directory for the probe's files ({})", reasons.join("; "))))
    }

    fn folder_in(&self, base: &Path, prefix: &str, rest: &str, is_executed: bool) -> io::Result<Folder> {
        let above = open_base(&self.root, base)?;
        if is_executed && fstatvfs(&above)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
            return Err(io::Error::other("its file system forbids execution"));
        }
        sweep(&above, prefix, |rest| Key::parse(rest)?.is_gone());
        Folder::open(above, format!("{prefix}{rest}"))
    }
}

/// Identifies a process in the name of its folder, also among those of other machines and namespaces that share it:
/// `BOOT-NAMESPACE-PID-TICKS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    place: String,
    pid: u32,
    ticks: u64,
}

impl Key {
    /// A process by its number in its own namespace.
    pub(super) fn of(pid: u32, own_pid: u32, ticks: u64) -> Self {
        Self { place: place(&pid.to_string()), pid: own_pid, ticks }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.rsplitn(3, '-');
        let (ticks, pid, place) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.to_owned());
        Some(Self { place, pid, ticks })
    }

    /// Whether its process has ended; `None` where it is not one of this namespace.
    fn is_gone(&self) -> Option<bool> {
        (self.place == place("self")).then(|| system::start_ticks(self.pid) != Some(self.ticks))
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", self.place, self.pid, self.ticks)
    }
}

/// This boot of this machine and the namespace of a process's number.
fn place(pid: &str) -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let link = fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap_or_default();
    let namespace: String = link.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    format!("{}-{namespace}", boot.get(..8).unwrap_or("0"))
}

/// A child with the ids of the job's user.
#[derive(Debug)]
pub(super) struct Confined {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Confined {
    fn start(of: Subject) -> io::Result<Self> {
        let Subject { pid, start_ticks, user, group } = of;
        // The program itself, whatever its name leads to by now.
        let mut command = Command::new("/proc/self/exe");
        command.args(["attach", &pid.to_string(), "--confined", &format!("{start_ticks}-{user}-{group}")]);
        command.env_clear().current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(unexpected());
        };
        Ok(Self { child, requests, answers: BufReader::new(answers) })
    }

    fn ask(&mut self, request: &Request) -> io::Result<Reply> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.requests.write_all(&line).map_err(|_gone| io::Error::other("gpuwatch's child for its files has ended"))?;
        let answers = self.answers.get_ref();
        let limit = Timespec { tv_sec: ANSWER_WITHIN, tv_nsec: 0 };
        if poll(&mut [PollFd::new(answers, PollFlags::IN)], Some(&limit))? == 0 {
            return Err(io::Error::other("its file system does not answer"));
        }
        // The child writes a whole line at once.
        let mut answer = Vec::new();
        (&mut self.answers).take(ANSWER_MAX).read_until(b'\n', &mut answer)?;
        if answer.is_empty() {
            return Err(io::Error::other("gpuwatch's child for its files has ended"));
        }
        serde_json::from_slice::<Result<Reply, String>>(&answer)?.map_err(io::Error::other)
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn unexpected() -> io::Error {
    io::Error::other("gpuwatch's child for its files gave an unexpected answer")
}

/// Answers requests on standard input until it ends: what [`Confined`] starts.
///
/// # Errors
/// When an answer cannot be written.
pub(super) fn serve(of: Subject) -> io::Result<()> {
    let mut worker = Worker::open(of).and_then(|it| confine(of.user, of.group).map(|()| it));
    for line in io::stdin().lock().lines() {
        let answer = match &mut worker {
            Ok(worker) => serde_json::from_str(&line?).map_err(io::Error::other).and_then(|it| worker.act(it)),
            Err(why) => Err(io::Error::other(why.to_string())),
        };
        let mut answer = serde_json::to_vec(&answer.map_err(|why| why.to_string()))?;
        answer.push(b'\n');
        io::stdout().write_all(&answer)?;
        io::stdout().flush()?;
    }
    Ok(())
}

/// Gives up every right of this process but those of a user.
///
/// # Errors
/// When it cannot take the user's ids.
fn confine(user: u32, group: u32) -> io::Result<()> {
    // The calls change the calling thread alone.
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("gpuwatch's child for its files has several threads"));
    }
    if geteuid().as_raw() != user || getegid().as_raw() != group || geteuid().is_root() {
        let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(group));
        let taken = set_thread_groups(&[])
            .and_then(|()| set_thread_res_gid(gid, gid, gid))
            .and_then(|()| set_thread_res_uid(uid, uid, uid));
        // One's own jobs can have another group, which only root can take; what is made there is for the user alone.
        if taken.is_err() && geteuid().as_raw() != user {
            return Err(io::Error::other("gpuwatch lacks the capability to act as its user"));
        }
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    set_no_new_privs(true)?;
    // The job's user may neither trace this process nor read its memory.
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_shows_whether_its_process_is_gone() {
        let own = std::process::id();
        let ticks = system::start_ticks(own).unwrap();
        let key = Key::of(own, own, ticks);
        assert_eq!(Key::parse(&key.to_string()), Some(key.clone()));
        assert_eq!(key.is_gone(), Some(false));
        assert_eq!(Key { ticks: ticks + 1, ..key.clone() }.is_gone(), Some(true));
        assert_eq!(Key { place: "0123-1".to_owned(), ..key }.is_gone(), None);
        assert_eq!(Key::parse("12-34"), None);
    }
}
