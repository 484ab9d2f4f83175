//! Replays, as many at a time as there are processors, each in a process of its own.

use super::{
    Trouble,
    candidate::{CONTEXT, Candidate},
    operations::Operations,
    python::Python,
    scratch::Scratch,
    server::{Outcome, Request, Said, Server},
    settings,
};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::BufWriter,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

/// Servers of one question.
pub(super) struct Runner {
    python: Python,
    scratch: Scratch,
    /// By the allocator that they have loaded.
    servers: BTreeMap<String, usize>,
    running: Vec<Server>,
    said: Receiver<(usize, Said)>,
    sender: Sender<(usize, Said)>,
    /// The request's server, candidate and room, by its number.
    asked: BTreeMap<u64, (usize, usize, u64)>,
    last: u64,
    /// PyTorch's version, once it has said so.
    pub(super) version: Option<String>,
    /// Replays that are done.
    done: u64,
}

/// Operations in a file.
pub(super) struct Stored {
    path: PathBuf,
    bytes: u64,
}

/// What a replay as recorded came to: its outcome, and the segments that came and went.
pub(super) type Faithful = (Outcome, Vec<u64>);

impl Runner {
    /// Makes a runner; it starts nothing yet.
    ///
    /// # Errors
    /// When there is no Python with PyTorch, or no place for files.
    pub(super) fn new(python: Option<&Path>) -> Result<Self, Trouble> {
        let (sender, said) = channel();
        Ok(Self {
            python: Python::find(python)?,
            scratch: Scratch::new()?,
            servers: BTreeMap::new(),
            running: Vec::new(),
            said,
            sender,
            asked: BTreeMap::new(),
            last: 0,
            version: None,
            done: 0,
        })
    }

    /// Writes operations into a file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn store(&self, it: &Operations, name: &str) -> Result<Stored, Trouble> {
        let path = self.scratch.path().join(name);
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&path)?);
        it.write(&mut out)?;
        let bytes = out.into_inner().map_err(std::io::IntoInnerError::into_error)?.metadata()?.len();
        Ok(Stored { path, bytes })
    }

    /// Replays as recorded, on a device with that room.
    ///
    /// # Errors
    /// When the replay is interrupted. PyTorch's refusal is the inner error.
    pub(super) fn faithful(
        &mut self,
        stored: &Stored,
        candidate: &mut Candidate,
    ) -> Result<Result<Faithful, String>, Trouble> {
        let path = self.scratch.path().join("segments");
        let all = std::slice::from_mut(candidate);
        self.submit(stored, all, Some(&path))?;
        while !self.asked.is_empty() {
            self.take(all)?;
        }
        if let Some(why) = &candidate.refused {
            return Ok(Err(why.clone()));
        }
        let bytes = fs::read(&path)?;
        let words = bytes.chunks_exact(8).filter_map(|it| it.try_into().ok()).map(u64::from_ne_bytes);
        Ok(candidate.main.map(|it| (it, words.collect())).ok_or_else(|| "it gave no answer".to_owned()))
    }

    /// Runs candidates to their ends. `progress` gets the number of replays that are done.
    ///
    /// # Errors
    /// When a replay is interrupted.
    pub(super) fn run(
        &mut self,
        stored: &Stored,
        candidates: &mut [Candidate],
        mut progress: impl FnMut(u64),
    ) -> Result<(), Trouble> {
        loop {
            self.submit(stored, candidates, None)?;
            if self.asked.is_empty() {
                return Ok(());
            }
            self.take(candidates)?;
            progress(self.done);
        }
    }

    /// Hands over as many replays as there is room for.
    fn submit(&mut self, stored: &Stored, all: &mut [Candidate], segments: Option<&Path>) -> Result<(), Trouble> {
        let most = thread::available_parallelism().map_or(1, usize::from);
        for (at, candidate) in all.iter_mut().enumerate() {
            if self.asked.len() >= most {
                break;
            }
            let Some(room) = candidate.next() else { continue };
            let server = self.server(settings::backend(&candidate.settings), stored.bytes)?;
            self.last += 1;
            let folder = self.scratch.path().join(format!("machine-{}", self.last));
            // In whole granules of the driver's, so that no allocation fails for a rest.
            let machine = simgpu::Machine::new(&format!("GPU:{}", room.saturating_add(CONTEXT)), &folder)?;
            let environment = machine.environment(&self.python.libraries);
            let request = Request {
                id: self.last,
                settings: &candidate.settings,
                operations: &stored.path,
                segments,
                expects_failures: segments.is_some(),
                environment: environment.into_iter().map(|(k, v)| (k.into(), v.to_string_lossy().into())).collect(),
            };
            self.asked.insert(self.last, (server, at, room));
            if let Some(it) = self.running.get_mut(server) {
                it.ask(&request)?;
            }
        }
        Ok(())
    }

    /// The server that has loaded an allocator.
    fn server(&mut self, backend: &str, bytes: u64) -> Result<usize, Trouble> {
        if let Some(number) = self.servers.get(backend) {
            return Ok(*number);
        }
        let number = self.running.len();
        let server = Server::start(&self.python, backend, self.scratch.path(), bytes, self.sender.clone(), number)?;
        self.running.push(server);
        self.servers.insert(backend.to_owned(), number);
        Ok(number)
    }

    /// Waits for what a server says next.
    fn take(&mut self, all: &mut [Candidate]) -> Result<(), Trouble> {
        let Ok((number, said)) = self.said.recv() else { return Ok(()) };
        match said {
            Said::Ready(version) => self.version = Some(version),
            Said::Unusable(why) => self.without(number, &why, all)?,
            Said::Died(how) => return Err(Trouble::Interrupted(how)),
            Said::Gone => {
                let how = self.running.get_mut(number).map(|it| it.end(number)).unwrap_or_default();
                self.without(number, &how, all)?;
            }
            Said::Replayed(id, outcome) => {
                self.done += 1;
                let found = self.asked.remove(&id);
                self.forget(id);
                if let Some((it, room)) = found.and_then(|it| Some((all.get_mut(it.1)?, it.2))) {
                    it.note(room, outcome);
                }
            }
            Said::Refused(id, why) => {
                let found = self.asked.remove(&id);
                self.forget(id);
                if let Some(it) = found.and_then(|it| all.get_mut(it.1)) {
                    it.refuse(why);
                }
            }
        }
        Ok(())
    }

    /// A server is gone. One that never came up with an allocator that not every PyTorch has takes only its candidates with it.
    fn without(&mut self, number: usize, why: &str, all: &mut [Candidate]) -> Result<(), Trouble> {
        let waiting: Vec<u64> = self.asked.iter().filter(|it| it.1.0 == number).map(|it| *it.0).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        if self.version.is_none() || number == 0 {
            let why = why.to_owned();
            return Err(if self.version.is_none() { Trouble::Unusable(why) } else { Trouble::Interrupted(why) });
        }
        for id in waiting {
            if let Some(it) = self.asked.remove(&id).and_then(|it| all.get_mut(it.1)) {
                it.refuse(why.to_owned());
            }
        }
        Ok(())
    }

    fn forget(&self, id: u64) {
        let _ = fs::remove_dir_all(self.scratch.path().join(format!("machine-{id}")));
    }
}
