//! Records several machines: a recording of each in one directory, with an index of them.
//!
//! It has no queue of its own. While the disk is slow, the links wait, and the machines' probes keep their history.
//! While it is full, each recording counts what it lacks.

use super::{
    disk::{Disk, Syncer, last_sync},
    journal::{Journal, State},
    probe_numbers::Rejoin,
    store,
    writing::Writing,
};
use crate::{
    facts::{
        event::Event,
        text::Foreign,
        units::{Stamp, counted},
    },
    model::cluster::{Clock, Greeting, HostUpdate, Link, What},
    storage::{
        host_index::{Head, INDEX, Line},
        output::open_new,
        recording::{ENDING, Header, encode_header},
    },
};
use anyhow::{Context, Result, bail};
use std::{
    collections::BTreeSet,
    fs::DirBuilder,
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

/// A machine that names no boot has rebooted if its clocks differ by more from those of its last connection, in µs.
const SAME_BOOT_US: u64 = 5_000_000;

/// A recording of several machines.
pub struct Nodes {
    directory: PathBuf,
    about: Header,
    index: Index,
    names: BTreeSet<String>,
    lanes: Vec<Lane>,
    syncer: Syncer,
    sync_at: Instant,
    /// What the user should know, once each.
    words: Vec<String>,
    /// Whether the recordings that were closed lack nothing.
    is_whole: bool,
}

/// The recording of one machine.
struct Lane {
    host: String,
    link: Link,
    journal: Option<Journal>,
    /// Whether the user knows that it cannot be written.
    is_reported: bool,
    boot: Boot,
    rejoin: Rejoin,
    clock: Clock,
    ahead_us: Option<i64>,
}

/// A boot of a machine, from which its monotonic clock counts.
#[derive(Default)]
struct Boot {
    id: Option<String>,
    /// Its wall clock less its monotonic clock.
    epoch: i128,
}

impl Boot {
    /// Returns the boot that a machine reports.
    fn of(greeting: &Greeting) -> Self {
        let epoch = i128::from(greeting.started_unix_us) - i128::from(greeting.monotonic_us);
        Self { id: greeting.boot_id.clone(), epoch }
    }

    /// Returns whether both are one boot. The wall clock may have been set within it.
    fn is_same(&self, other: &Self) -> bool {
        match self.id.as_ref().zip(other.id.as_ref()) {
            Some((one, other)) => one == other,
            None => self.epoch.abs_diff(other.epoch) < u128::from(SAME_BOOT_US),
        }
    }
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
        let head = Head {
            format: about.format,
            gpuwatch: about.gpuwatch.clone(),
            host: about.host.clone(),
            started_unix_us: about.started_unix_us,
            monotonic_us: about.monotonic_us,
            nodes: hosts.iter().map(|it| Foreign::new(it.as_str())).collect(),
        };
        let index = Index::create(&directory.join(INDEX), &Line::Nodes(head))
            .with_context(|| format!("cannot write in {shown}"))?;
        Ok(Self {
            directory: directory.to_owned(),
            about,
            index,
            names: BTreeSet::new(),
            lanes: hosts.iter().map(|it| Lane::new(it)).collect(),
            syncer: Syncer::start(None)?,
            sync_at: Instant::now() + SYNC_EVERY,
            words: Vec::new(),
            is_whole: true,
        })
    }

    /// Takes news of a machine.
    pub fn take(&mut self, news: HostUpdate) {
        let HostUpdate { node, at, what } = news;
        match what {
            What::Second => self.second(),
            What::Link(link) => self.link(node, at, link),
            What::Greeting(greeting) => self.begin(node, at, &greeting),
            What::Event(event) => self.event(node, event),
            What::Beat { there, unix_there, unix_here } => self.beat(node, at, (there, unix_there), unix_here),
        }
    }

    /// Returns what the user should know since the last call.
    pub fn words(&mut self) -> Vec<String> {
        std::mem::take(&mut self.words)
    }

    /// Closes all recordings and the index. Returns whether all was written.
    pub fn finish(mut self, at: Stamp) -> (bool, Vec<String>) {
        let mut disks = Vec::new();
        for node in 0..self.lanes.len() {
            disks.extend(self.end(node));
        }
        let (index, closed) = self.index.end(&Line::Closed { at_us: at });
        disks.push(index);
        let synced = closed.and(last_sync(disks, None));
        let is_whole = self.is_whole && synced.is_ok();
        if let Err(why) = synced {
            self.words.push(format!("the recording may be incomplete: {why}"));
        }
        (is_whole, self.words)
    }

    fn link(&mut self, node: usize, at: Stamp, link: Link) {
        let Some(lane) = self.lanes.get_mut(node) else { return };
        if matches!(link, Link::Connecting | Link::Copying) || link == lane.link {
            return;
        }
        let why = link.why().cloned();
        if let Some(why) = &why {
            self.words.push(format!("{} is {}: {why}", lane.host, link.name()));
        }
        let changed = Line::Link { at_us: at, node, link: link.name().into(), why };
        lane.link = link;
        self.index.add(&changed);
    }

    /// A stream begins: it continues the recording, or begins another one if the machine has rebooted.
    fn begin(&mut self, node: usize, at: Stamp, greeting: &Greeting) {
        self.link(node, at, Link::Up);
        let Some(lane) = self.lanes.get_mut(node) else { return };
        let boot = Boot::of(greeting);
        if lane.journal.is_some() && boot.is_same(&lane.boot) {
            lane.boot = boot;
            lane.rejoin.connected();
            return;
        }
        drop(self.end(node));
        let name = self.name(node);
        let slow = SLOW_LINES.checked_div(u32::try_from(self.lanes.len()).unwrap_or(u32::MAX)).unwrap_or_default();
        let now = Instant::now();
        let writing = Writing::planned(self.directory.join(&name), now).with_slow_lines(slow);
        let mut journal = Journal::planned(
            writing,
            encode_header(&Header {
                host: greeting.host.clone(),
                started_unix_us: greeting.started_unix_us,
                monotonic_us: greeting.monotonic_us,
                ..self.about.clone()
            }),
        );
        journal.flush(now);
        if let Some(lane) = self.lanes.get_mut(node) {
            *lane = Lane { link: lane.link.clone(), journal: Some(journal), boot, ..Lane::new(&lane.host) };
        }
        self.index.add(&Line::File { at_us: at, node, file: Foreign::new(name) });
    }

    /// Returns a file name for a machine that no other has.
    fn name(&mut self, node: usize) -> String {
        let stem = self.lanes.get(node).map_or_else(String::new, |it| store::word(&it.host));
        // A hidden file would be left out by readers.
        let stem = if stem.starts_with('.') { format!("host{stem}") } else { stem };
        let mut name = format!("{stem}{ENDING}");
        let mut number = 2;
        while !self.names.insert(name.clone()) {
            name = format!("{stem}-{number}{ENDING}");
            number += 1;
        }
        name
    }

    fn event(&mut self, node: usize, event: Event) {
        let Some(Lane { journal: Some(journal), rejoin, .. }) = self.lanes.get_mut(node) else { return };
        rejoin.take(event, &mut |it| journal.event(&it));
    }

    fn beat(&mut self, node: usize, at: Stamp, there: (Stamp, u64), unix_here: u64) {
        let Some(lane) = self.lanes.get_mut(node) else { return };
        lane.clock.beat(there, (at, unix_here));
        if let Some(journal) = &mut lane.journal {
            lane.rejoin.beat(there.0).iter().for_each(|it| journal.event(it));
        }
        let here = lane.clock.here(there.0).unwrap_or(at);
        let ahead_us = i64::try_from(i128::from(here.0) - i128::from(there.0.0)).unwrap_or_default();
        if lane.ahead_us.is_none_or(|it| it.abs_diff(ahead_us) > CLOCK_US) {
            lane.ahead_us = Some(ahead_us);
            self.index.add(&Line::Clock { at_us: at, node, ahead_us });
        }
    }

    fn second(&mut self) {
        let now = Instant::now();
        for lane in &mut self.lanes {
            let Some(journal) = &mut lane.journal else { continue };
            journal.flush(now);
            let trouble = journal.state().trouble;
            if let Some(why) = trouble.as_ref().filter(|_| !lane.is_reported) {
                self.words
                    .push(format!("the recording of {} stopped: {why}; it continues once that is over", lane.host));
            }
            lane.is_reported = trouble.is_some();
        }
        self.index.flush();
        if now >= self.sync_at {
            self.sync_at = now + SYNC_EVERY;
            let syncs = self.lanes.iter_mut().filter_map(|it| it.journal.as_mut()?.sync());
            self.syncer.ask(syncs.chain(self.index.disk.sync()));
        }
    }

    /// Closes the current recording of a machine.
    fn end(&mut self, node: usize) -> Option<Disk> {
        let lane = self.lanes.get_mut(node)?;
        let mut journal = lane.journal.take()?;
        journal.end(Instant::now());
        let state = journal.state();
        self.is_whole &= state == State::default();
        if let Some(why) = state.trouble {
            self.words.push(format!("the recording of {} has no end: {why}", lane.host));
        } else if state.lost > 0 {
            let (lost, why) = (counted(state.lost, "event"), state.why.unwrap_or_default());
            self.words.push(format!("the recording of {} lacks {lost}: {why}", lane.host));
        }
        Some(journal.into_disk())
    }
}

impl Lane {
    fn new(host: &str) -> Self {
        Self {
            host: host.to_owned(),
            link: Link::default(),
            journal: None,
            is_reported: false,
            boot: Boot::default(),
            rejoin: Rejoin::default(),
            clock: Clock::default(),
            ahead_us: None,
        }
    }
}

/// Most bytes that wait.
const WAITING_MAX: usize = 1 << 20;

/// The file.
struct Index {
    disk: Disk,
    waiting: Vec<u8>,
}

impl Index {
    /// Creates the file with its first line.
    ///
    /// # Errors
    /// Fails if the file is there already, or cannot be written.
    fn create(path: &Path, head: &Line) -> io::Result<Self> {
        let mut index = Self { disk: Disk::of(open_new(path)?), waiting: Vec::new() };
        head.write(&mut index.waiting)?;
        index.write()?;
        Ok(index)
    }

    /// Adds a line at once, or as soon as there is room.
    fn add(&mut self, line: &Line) {
        // Without its line a recording would not be found: it has room beyond the limit.
        if self.waiting.len() < WAITING_MAX || matches!(line, Line::File { .. } | Line::Closed { .. }) {
            // Writing into a vector cannot fail.
            let _ = line.write(&mut self.waiting);
        }
        self.flush();
    }

    /// Writes what waits, if there is room.
    fn flush(&mut self) {
        // What cannot be written waits.
        let _ = self.write();
    }

    /// Adds the last line. Returns the file, and whether everything is in it.
    fn end(mut self, last: &Line) -> (Disk, io::Result<()>) {
        self.add(last);
        let written = self.disk.append_last(&self.waiting);
        self.disk.release();
        (self.disk, written)
    }

    fn write(&mut self) -> io::Result<()> {
        if !self.waiting.is_empty() {
            self.disk.append(&self.waiting)?;
            self.waiting.clear();
        }
        Ok(())
    }
}
