//! Records several machines: a recording of each in one directory, with an index of them.
//!
//! It has no queue of its own. While the disk is slow, the links wait, and the machines' probes keep their history.

mod rejoin;

use super::{store, sync::Syncer, writing::Writing};
use crate::{
    facts::{event::Event, text::Foreign, units::Stamp},
    model::cluster::{Greeting, Link, News, What, clock::Clock},
    storage::{
        nodes::{Head, INDEX, Line},
        output::open_new,
        recording::{Closed, ENDING, Header, encode_closed, encode_header},
    },
};
use anyhow::{Context, Result, bail};
use rejoin::Rejoin;
use std::{
    collections::BTreeSet,
    fs::{DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const SYNC_EVERY: Duration = Duration::from_secs(10);

/// Lines between two flushes with an exhaustive search, of all machines together: about 10 ms.
const SLOW_LINES: u32 = 64;

/// A difference of clocks is written again when it changes by more, in µs.
const CLOCK_US: u64 = 1_000;

/// A machine whose clocks differ by more from those of its last connection has rebooted, in µs.
const SAME_BOOT_US: u64 = 5_000_000;

/// A recording of several machines.
pub struct Nodes {
    directory: PathBuf,
    about: Header,
    index: File,
    names: BTreeSet<String>,
    lanes: Vec<Lane>,
    syncer: Syncer,
    sync_at: Instant,
    /// What the user should know, once each.
    words: Vec<String>,
    /// Whether a part could not be written.
    failed: bool,
}

/// The recording of one machine.
struct Lane {
    host: String,
    link: Link,
    writing: Option<Writing>,
    /// Its wall clock less its monotonic clock.
    epoch: i128,
    rejoin: Rejoin,
    clock: Clock,
    ahead_us: Option<i64>,
}

impl Nodes {
    /// Makes the directory and its index. `about` describes this process.
    ///
    /// # Errors
    /// Fails if there is something in the directory, or it cannot be made or written.
    pub fn create(directory: &Path, hosts: &[String], about: Header) -> Result<Self> {
        let shown = Foreign::new(directory.to_string_lossy());
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .with_context(|| format!("cannot make {shown}"))?;
        if directory.read_dir().with_context(|| format!("cannot read {shown}"))?.next().is_some() {
            bail!("{shown} is not empty, and nothing in it is written over: name another directory");
        }
        let mut index = open_new(&directory.join(INDEX)).with_context(|| format!("cannot write in {shown}"))?;
        let head = Head {
            format: about.format,
            gpuwatch: about.gpuwatch.clone(),
            host: about.host.clone(),
            started_unix_us: about.started_unix_us,
            monotonic_us: about.monotonic_us,
            nodes: hosts.iter().map(|it| Foreign::new(it.as_str())).collect(),
        };
        Line::Nodes(head).write(&mut index).with_context(|| format!("cannot write in {shown}"))?;
        Ok(Self {
            directory: directory.to_owned(),
            about,
            index,
            names: BTreeSet::new(),
            lanes: hosts.iter().map(|it| Lane::new(it)).collect(),
            syncer: Syncer::start()?,
            sync_at: Instant::now() + SYNC_EVERY,
            words: Vec::new(),
            failed: false,
        })
    }

    /// Takes news of a machine. A recording that cannot be written ends; the others continue.
    pub fn take(&mut self, news: News) {
        let News { node, at, what } = news;
        let done = match what {
            What::Second => self.second(),
            What::Link(link) => self.link(node, at, link),
            What::Greeting(greeting) => self.begin(node, at, &greeting),
            What::Event(event) => self.event(node, event),
            What::Beat { there, unix_there, unix_here } => self.beat(node, at, (there, unix_there), unix_here),
        };
        if let Err(why) = done {
            self.fail(node, &why);
        }
    }

    /// Returns what the user should know since the last call.
    pub fn words(&mut self) -> Vec<String> {
        std::mem::take(&mut self.words)
    }

    /// Closes all recordings and the index. Returns whether all was written.
    pub fn finish(mut self, at: Stamp) -> (bool, Vec<String>) {
        let mut files = Vec::new();
        for node in 0..self.lanes.len() {
            match self.end(node) {
                Ok(file) => files.extend(file),
                Err(why) => self.fail(node, &why),
            }
        }
        let closed = Line::Closed { at_us: at }.write(&mut self.index);
        files.push(self.index);
        if let Err(why) = closed.and(self.syncer.finish(files)) {
            self.failed = true;
            self.words.push(format!("the recording may be incomplete: {why}"));
        }
        (!self.failed, self.words)
    }

    fn fail(&mut self, node: usize, why: &io::Error) {
        self.failed = true;
        let Some(lane) = self.lanes.get_mut(node) else { return };
        if lane.writing.take().is_some() {
            self.words.push(format!("the recording of {} stopped: {why}", lane.host));
        }
    }

    fn link(&mut self, node: usize, at: Stamp, link: Link) -> io::Result<()> {
        let Some(lane) = self.lanes.get_mut(node) else { return Ok(()) };
        if link == Link::Connecting || link == lane.link {
            return Ok(());
        }
        let why = link.why().cloned();
        if let Some(why) = &why {
            self.words.push(format!("{} is {}: {why}", lane.host, link.name()));
        }
        let changed = Line::Link { at_us: at, node, link: link.name().into(), why };
        lane.link = link;
        changed.write(&mut self.index)
    }

    /// A stream begins: it continues the recording, or begins another one if the machine has rebooted.
    fn begin(&mut self, node: usize, at: Stamp, greeting: &Greeting) -> io::Result<()> {
        self.link(node, at, Link::Up)?;
        let Some(lane) = self.lanes.get_mut(node) else { return Ok(()) };
        let epoch = i128::from(greeting.started_unix_us) - i128::from(greeting.monotonic_us);
        let is_same = epoch.abs_diff(lane.epoch) < u128::from(SAME_BOOT_US);
        if lane.writing.is_some() && is_same {
            lane.rejoin.connected();
            return Ok(());
        }
        self.end(node)?;
        let name = self.name(node);
        let file = open_new(&self.directory.join(&name))?;
        let slow = SLOW_LINES.checked_div(u32::try_from(self.lanes.len()).unwrap_or(u32::MAX)).unwrap_or_default();
        let mut writing = Writing::new(file, Instant::now()).with_slow_lines(slow);
        writing.line(&encode_header(&Header {
            host: greeting.host.clone(),
            started_unix_us: greeting.started_unix_us,
            monotonic_us: greeting.monotonic_us,
            ..self.about.clone()
        }))?;
        writing.flush(Instant::now())?;
        if let Some(lane) = self.lanes.get_mut(node) {
            *lane = Lane { link: lane.link.clone(), writing: Some(writing), epoch, ..Lane::new(&lane.host) };
        }
        Line::File { at_us: at, node, file: Foreign::new(name) }.write(&mut self.index)
    }

    /// Returns a file name for a machine that no other has.
    fn name(&mut self, node: usize) -> String {
        let stem = self.lanes.get(node).map_or_else(String::new, |it| store::word(&it.host));
        let names = std::iter::once(stem.clone()).chain((2..).map(|number| format!("{stem}-{number}")));
        let mut free = names.map(|it| it + ENDING).filter(|it| !it.starts_with('.') && !self.names.contains(it));
        let name = free.next().unwrap_or_default();
        self.names.insert(name.clone());
        name
    }

    fn event(&mut self, node: usize, event: Event) -> io::Result<()> {
        let Some(Lane { writing: Some(writing), rejoin, .. }) = self.lanes.get_mut(node) else { return Ok(()) };
        let mut done = Ok(());
        rejoin.take(event, &mut |it| {
            if done.is_ok() {
                done = writing.event(&it);
            }
        });
        done
    }

    fn beat(&mut self, node: usize, at: Stamp, there: (Stamp, u64), unix_here: u64) -> io::Result<()> {
        let Some(lane) = self.lanes.get_mut(node) else { return Ok(()) };
        lane.clock.beat(there, (at, unix_here));
        if let Some(writing) = &mut lane.writing {
            for it in lane.rejoin.beat(there.0) {
                writing.event(&it)?;
            }
        }
        let here = lane.clock.here(there.0).unwrap_or(at);
        let ahead_us = i64::try_from(i128::from(here.0) - i128::from(there.0.0)).unwrap_or_default();
        if lane.ahead_us.is_some_and(|it| it.abs_diff(ahead_us) <= CLOCK_US) {
            return Ok(());
        }
        lane.ahead_us = Some(ahead_us);
        Line::Clock { at_us: at, node, ahead_us }.write(&mut self.index)
    }

    fn second(&mut self) -> io::Result<()> {
        let now = Instant::now();
        for node in 0..self.lanes.len() {
            let writing = self.lanes.get_mut(node).and_then(|it| it.writing.as_mut());
            if let Some(Err(why)) = writing.map(|it| it.flush(now)) {
                self.fail(node, &why);
            }
        }
        if now < self.sync_at {
            return Ok(());
        }
        self.sync_at = now + SYNC_EVERY;
        let files = self.lanes.iter().filter_map(|it| Some(it.writing.as_ref()?.file()));
        self.syncer.ask(files.chain([&self.index]))
    }

    /// Closes the current recording of a machine.
    fn end(&mut self, node: usize) -> io::Result<Option<File>> {
        let writing = self.lanes.get_mut(node).and_then(|it| it.writing.take());
        let Some(mut writing) = writing else { return Ok(None) };
        writing.line(&encode_closed(&Closed { at_us: writing.last(), lost: 0 }))?;
        writing.finish().map(Some)
    }
}

impl Lane {
    fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            link: Link::default(),
            writing: None,
            epoch: 0,
            rejoin: Rejoin::default(),
            clock: Clock::default(),
            ahead_us: None,
        }
    }
}
