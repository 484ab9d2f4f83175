//! Runs replays, as many at a time as there are processors, each in its own process.

use super::{
    Trouble,
    candidate::{CONTEXT, Candidate, backend},
    operations::Operations,
    server::{Message, Outcome, Python, Request, Server},
};
use crate::jobs::simulated::Scratch;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::BufWriter,
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

/// The servers of one question.
pub(super) struct Runner {
    python: Python,
    scratch: Scratch,
    /// Indices of servers by the allocator that they have loaded.
    servers: BTreeMap<String, usize>,
    running: Vec<Server>,
    messages: Receiver<(usize, Message)>,
    sender: Sender<(usize, Message)>,
    /// The server, candidate and room of each request, by number.
    asked: BTreeMap<u64, (usize, usize, u64)>,
    last: u64,
    /// PyTorch's version, once a server has reported it.
    pub(super) version: Option<String>,
    /// Number of completed replays.
    done: u64,
    /// Most replays at the same time.
    most: usize,
}

/// Operations in a file.
pub(super) struct Stored {
    path: PathBuf,
    bytes: u64,
}

/// The result of a replay as recorded: its outcome, and the allocated and released segments.
pub(super) type Faithful = (Outcome, Vec<u64>);

impl Runner {
    /// Creates a runner without servers, for so many replays at the same time: without a number, one per processor.
    ///
    /// # Errors
    /// Fails if there is no Python with PyTorch, or no directory for files.
    pub(super) fn new(python: Option<&Path>, at_once: Option<usize>) -> Result<Self, Trouble> {
        let (sender, messages) = channel();
        Ok(Self {
            python: Python::find(python)?,
            scratch: Scratch::new("whatif")?,
            servers: BTreeMap::new(),
            running: Vec::new(),
            messages,
            sender,
            asked: BTreeMap::new(),
            last: 0,
            version: None,
            done: 0,
            most: at_once.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)),
        })
    }

    /// Writes operations to a file.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub(super) fn store(&self, it: &Operations, name: &str) -> Result<Stored, Trouble> {
        let path = self.scratch.path().join(name);
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&path)?);
        it.write(&mut out)?;
        let bytes = out.into_inner().map_err(std::io::IntoInnerError::into_error)?.metadata()?.len();
        Ok(Stored { path, bytes })
    }

    /// Replays as recorded, on a device with `room`.
    ///
    /// # Errors
    /// Fails if the replay is interrupted. The inner error is PyTorch's rejection.
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

    /// Runs candidates to completion. `progress` gets the number of completed replays.
    ///
    /// # Errors
    /// Fails if a replay is interrupted.
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

    /// Submits as many replays as there are free processors.
    fn submit(&mut self, stored: &Stored, all: &mut [Candidate], segments: Option<&Path>) -> Result<(), Trouble> {
        for (at, candidate) in all.iter_mut().enumerate() {
            if self.asked.len() >= self.most {
                break;
            }
            let Some(room) = candidate.next() else { continue };
            let server = self.server(backend(&candidate.settings), stored.bytes)?;
            self.last += 1;
            let folder = self.scratch.path().join(format!("machine-{}", self.last));
            // Whole granules of the driver, so that no allocation fails for a remainder.
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

    /// Returns a server that has loaded an allocator.
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

    /// Handles the next message of a server.
    fn take(&mut self, all: &mut [Candidate]) -> Result<(), Trouble> {
        let Ok((number, messages)) = self.messages.recv() else { return Ok(()) };
        match messages {
            Message::Ready(version) => self.version = Some(version),
            Message::Unusable(why) => self.without(number, &why, all)?,
            Message::Died(how) => return Err(Trouble::Interrupted(how)),
            Message::Gone => {
                let how = self.running.get_mut(number).map(|it| it.end(number)).unwrap_or_default();
                self.without(number, &how, all)?;
            }
            Message::Replayed(id, outcome) => {
                self.done += 1;
                let found = self.asked.remove(&id);
                self.forget(id);
                if let Some((it, room)) = found.and_then(|it| Some((all.get_mut(it.1)?, it.2))) {
                    it.note(room, outcome);
                }
            }
            Message::Refused(id, why) => {
                let found = self.asked.remove(&id);
                self.forget(id);
                if let Some(it) = found.and_then(|it| all.get_mut(it.1)) {
                    it.refuse(why);
                }
            }
        }
        Ok(())
    }

    /// Handles the end of a server. If it never started, with an allocator that not every PyTorch has, only its
    /// candidates fail.
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
