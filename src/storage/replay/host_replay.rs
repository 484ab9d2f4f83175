//! Plays the recordings of several machines into a cluster, each on its own clock.

use super::{
    Command, Position, Replay, find,
    playhead::Playhead,
    recording_set::{Cursor, RecordingSet, Track},
};
use crate::{
    facts::{
        event::{Event, Fact},
        text::Foreign,
        units::Stamp,
    },
    model::cluster::{Clock, Cluster, Greeting, Link, Node},
    storage::host_index::{self, Index},
};
use anyhow::Result;
use std::{
    path::Path,
    sync::{
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
        mpsc::channel,
    },
    thread,
};

/// The recordings of several machines.
#[derive(Debug)]
pub struct Recorded {
    /// Their index.
    pub index: Index,
    /// The recordings of each machine; `None` if nothing of it was recorded.
    pub nodes: Vec<Option<RecordingSet>>,
    /// Why a file was left out, a line each.
    pub notes: Vec<String>,
}

/// A cluster whose time moves forward.
pub struct Playback<'a> {
    recorded: &'a Recorded,
    cursors: Vec<Option<Cursor>>,
    /// The cluster at the latest position.
    pub cluster: Cluster,
}

impl Recorded {
    /// Opens the recordings of a directory. Their wall clocks are the recorder's, as far as the clocks were compared.
    ///
    /// # Errors
    /// Fails if the index cannot be read.
    pub fn open(directory: &Path) -> Result<Self> {
        let index = host_index::read(directory)?;
        let mut left_out = Vec::new();
        let epoch = i128::from(index.head.started_unix_us) - i128::from(index.head.monotonic_us);
        let open = |node: &host_index::Node| {
            let mut tracks = Vec::new();
            for file in &node.files {
                match find::track(&file.path) {
                    Ok(track) => tracks.push(on_clock(track, file.ahead_us, epoch)),
                    Err(why) => left_out.push(format!("left out: {why:#}")),
                }
            }
            (!tracks.is_empty()).then(|| RecordingSet::of_boots(tracks))
        };
        let nodes = index.nodes.iter().map(open).collect();
        Ok(Self { index, nodes, notes: left_out })
    }

    /// Returns the machine's name in the user's list.
    pub fn host(&self, node: usize) -> Foreign {
        self.index.nodes.get(node).map(|it| it.host.clone()).unwrap_or_default()
    }

    /// Returns the recorder's wall clock at an instant of its clock, µs of Unix time.
    pub fn unix_us(&self, here: Stamp) -> Option<u64> {
        let head = &self.index.head;
        let since = i128::from(here.0) - i128::from(head.monotonic_us);
        u64::try_from(i128::from(head.started_unix_us) + since).ok()
    }

    /// Returns a cluster before the first event.
    pub fn play(&self) -> Playback<'_> {
        let hosts = self.index.nodes.iter().map(|it| it.host.raw().to_owned());
        Playback {
            recorded: self,
            cursors: self.nodes.iter().map(|it| it.as_ref().map(RecordingSet::play)).collect(),
            cluster: Cluster::new(hosts, Stamp(self.index.head.monotonic_us)),
        }
    }

    /// Returns an instant of the recorder's clock on a machine's.
    pub fn there(&self, node: usize, here: Stamp) -> Stamp {
        let ahead = self.index.nodes.get(node).and_then(host_index::Node::ahead_us);
        Stamp(here.0.saturating_add_signed(ahead.unwrap_or(0).saturating_neg()))
    }

    /// Returns an instant of a machine's clock on the recorder's.
    pub fn here(&self, node: usize, there: Stamp) -> Stamp {
        let ahead = self.index.nodes.get(node).and_then(host_index::Node::ahead_us);
        Stamp(there.0.saturating_add_signed(ahead.unwrap_or(0)))
    }
}

/// Sets a recording's wall clock to the recorder's, whose wall clock less its monotonic one is `epoch`.
fn on_clock(mut track: Track, ahead_us: Option<i64>, epoch: i128) -> Track {
    if let Some((header, ahead)) = track.header.as_mut().zip(ahead_us) {
        let unix_us = u64::try_from(i128::from(header.monotonic_us) + i128::from(ahead) + epoch);
        header.started_unix_us = unix_us.unwrap_or(header.started_unix_us);
    }
    track
}

/// Sets a machine's clock and link to an instant, there and on the recorder's clock.
pub(super) fn stand(node: &mut Node, known: &host_index::Node, (there, here): (Stamp, Stamp)) {
    node.clock = Clock::default();
    node.clock.beat((there, 0), (here, 0));
    let links = known.links.iter().take_while(|it| it.0 <= here);
    node.link = links.last().map_or_else(Default::default, |it| it.1.clone());
}

impl Playback<'_> {
    /// Lets everything happen up to an instant of the recorder's clock.
    pub fn advance(&mut self, to: Stamp) {
        self.cluster.now = self.cluster.now.max(to);
        let places = self.cluster.nodes.iter_mut().zip(&mut self.cursors).zip(&self.recorded.index.nodes);
        for ((node, cursor), known) in places {
            let ahead = known.ahead_us().unwrap_or(0);
            let there = Stamp(to.0.saturating_add_signed(ahead.saturating_neg()));
            stand(node, known, (there, to));
            let mut has_events = false;
            while let Some((_, event)) = cursor.as_mut().and_then(|it| it.next_by(there)) {
                node.session.apply(&event);
                has_events = true;
            }
            // After the last line of a machine, nothing is known of the time that passes there.
            if has_events {
                node.session.apply(&Event { at: there, fact: Fact::Second });
            }
        }
    }
}

/// Most machines that are read at the same time.
const READERS: usize = 8;

/// A moment to jump to, of any machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment {
    /// On the recorder's clock.
    at: Stamp,
    /// Its description, with the machine's name.
    text: String,
}

/// Several machines during a replay. Times are on the recorder's clock.
pub struct Together {
    recorded: Recorded,
    /// `None` where nothing was recorded.
    nodes: Vec<Option<Machine>>,
    /// The position.
    pub head: Playhead,
    cluster: Cluster,
    marks: Vec<Moment>,
    /// Faults of jobs, and links that failed.
    troubles: Vec<Moment>,
    alerts: Vec<Moment>,
}

/// The recordings of a machine.
struct Machine {
    replay: Box<Replay>,
    /// Whether its session in the cluster is not that at the position.
    is_stale: bool,
}

impl Together {
    /// Reads all recordings once, several at a time, and stops at the end. Calls `progress` now and then with the bytes
    /// read. Caches the indexes of long recordings.
    pub fn load(recorded: Recorded, cache: Option<&Path>, progress: impl FnMut(u64)) -> Self {
        let mut cluster = recorded.play().cluster;
        let nodes = read(&recorded, cache, progress);
        for (node, set) in cluster.nodes.iter_mut().zip(&recorded.nodes) {
            let header = set.as_ref().and_then(|set| set.tracks.iter().find_map(|it| it.header.as_ref()));
            node.greeting = header.map(|of| Greeting {
                gpuwatch: of.gpuwatch.as_str().into(),
                host: of.host.clone(),
                started_unix_us: of.started_unix_us,
                monotonic_us: of.monotonic_us,
                boot_id: None,
            });
        }
        let mut all = Self {
            head: Playhead::new(Stamp(0), Stamp(0)),
            recorded,
            nodes,
            cluster,
            marks: Vec::new(),
            troubles: Vec::new(),
            alerts: Vec::new(),
        };
        all.collect();
        let (from, to) = all.ends();
        all.head = Playhead::new(from, to);
        all.seek(all.head.to);
        all
    }

    /// Returns the machines at the position.
    pub fn cluster(&mut self) -> &Cluster {
        for node in 0..self.nodes.len() {
            self.refresh(node);
        }
        &self.cluster
    }

    /// Returns the machines, of which only this one is sure to be as at the position.
    pub fn cluster_with(&mut self, node: Option<usize>) -> &Cluster {
        if let Some(it) = node {
            self.refresh(it);
        }
        &self.cluster
    }

    /// Applies a command. Steps are those of a machine, or of the first one that has another in that direction.
    pub fn update(&mut self, command: Command, node: Option<usize>) {
        match command {
            Command::NextStep | Command::PreviousStep => self.step(command, node),
            Command::NextMark => self.rest_at(after(&[&self.marks], self.head.at)),
            Command::PreviousMark => self.rest_at(before(&[&self.marks], self.head.at)),
            Command::NextTrouble => self.rest_at(after(&[&self.troubles, &self.alerts], self.head.at)),
            Command::PreviousTrouble => self.rest_at(before(&[&self.troubles, &self.alerts], self.head.at)),
            _ => {
                if let Some(at) = self.head.apply_input(command) {
                    self.seek(at);
                }
            }
        }
    }

    /// Advances by this many µs of elapsed time.
    pub fn tick(&mut self, us: u64) {
        if self.head.playing {
            let at = self.head.tick(us);
            self.stand(at);
        }
    }

    /// Seeks to a time: on all machines, all events up to it have happened.
    pub fn seek(&mut self, at: Stamp) {
        self.head.at = at;
        self.stand(at);
    }

    /// Returns the position, for a frame; the step is that of a machine, or the highest of all.
    pub fn position(&self, node: Option<usize>) -> Position {
        let replays = self.nodes.iter().enumerate().filter(|(place, _)| node.is_none_or(|it| it == *place));
        let (words, warns) = self.words();
        let times = |all: &[Moment]| all.iter().map(|it| it.at).collect();
        Position {
            at: self.head.at,
            from: self.head.from,
            to: self.head.to,
            unix_us: self.recorded.unix_us(self.head.at),
            playing: self.head.playing,
            percent: self.head.percent(),
            step: replays.filter_map(|(_, it)| it.as_ref()?.replay.step()).max(),
            marks: times(&self.marks),
            troubles: times(&self.troubles),
            alerts: times(&self.alerts),
            word: (!words.is_empty()).then(|| (words.join("; "), warns)),
        }
    }

    /// Returns what is at the position, and at the end what is wrong with the files; and whether that is a warning.
    fn words(&self) -> (Vec<String>, bool) {
        let here = |all: &[Moment]| -> Vec<String> {
            all.iter().filter(|it| it.at == self.head.at).map(|it| it.text.clone()).collect()
        };
        let mut words = here(&self.troubles);
        words.extend(here(&self.alerts));
        if self.head.is_at_end() {
            words.extend(self.recorded.notes.iter().cloned());
            for (place, replay) in self.nodes.iter().enumerate() {
                let troubles = replay.iter().flat_map(|it| it.replay.troubles_of_files());
                words.extend(troubles.map(|it| format!("{}: {it}", self.recorded.host(place))));
            }
        }
        let warns = !words.is_empty();
        words.extend(here(&self.marks));
        (words, warns)
    }

    /// Returns the first and the last moment: of an event or a link, and at the end also of the recorder.
    fn ends(&self) -> (Stamp, Stamp) {
        let indexes = self.nodes.iter().enumerate().filter_map(|(place, it)| Some((place, &it.as_ref()?.replay.index)));
        let events = indexes.filter(|(_, index)| index.events > 0);
        let events = events.flat_map(|(place, it)| [it.from, it.to].map(|at| self.recorded.here(place, at)));
        let links = self.recorded.index.nodes.iter().flat_map(|it| it.links.iter().map(|link| link.0));
        let known: Vec<Stamp> = events.chain(links).collect();
        let from = known.iter().min().copied().unwrap_or(Stamp(self.recorded.index.head.monotonic_us));
        let to = known.into_iter().chain(self.recorded.index.closed).max();
        (from, to.unwrap_or(from).max(from))
    }

    /// Collects the moments of all machines.
    fn collect(&mut self) {
        for (place, replay) in self.nodes.iter().enumerate() {
            let host = self.recorded.host(place);
            let moment = |at: Stamp, text: &str| Moment { at, text: format!("{host}: {text}") };
            let here = |at: Stamp| self.recorded.here(place, at);
            if let Some(index) = replay.as_ref().map(|it| &it.replay.index) {
                // Every machine has the same marks.
                self.marks.extend(index.marks.iter().map(|it| Moment { at: here(it.at), text: it.text.to_string() }));
                self.troubles.extend(index.troubles.iter().map(|it| moment(here(it.at), &it.text.to_string())));
                self.alerts.extend(index.alerts.iter().map(|it| moment(here(it.at), &it.text.to_string())));
            }
            let links = self.recorded.index.nodes.get(place).map_or(&[][..], |it| &it.links);
            let failed = links.iter().filter(|(_, it)| !matches!(it, Link::Up | Link::Connecting));
            self.troubles.extend(failed.map(|(at, it)| {
                let why = it.why().map_or_else(String::new, |why| format!(": {why}"));
                moment(*at, &format!("{}{why}", it.name()))
            }));
        }
        for all in [&mut self.marks, &mut self.troubles, &mut self.alerts] {
            all.sort();
        }
        self.marks.dedup_by(|it, before| it.text == before.text);
    }

    /// Moves all machines to the time of the head.
    fn stand(&mut self, at: Stamp) {
        self.cluster.now = at;
        for (place, machine) in self.nodes.iter_mut().enumerate() {
            let there = self.recorded.there(place, at);
            if let Some((node, known)) = self.cluster.nodes.get_mut(place).zip(self.recorded.index.nodes.get(place)) {
                stand(node, known, (there, at));
            }
            // After the last line of a machine, nothing is known of the time that passes there.
            let Some(Machine { replay, is_stale }) = machine else { continue };
            let there = there.min(replay.index.to);
            if there != replay.head.at {
                replay.seek(there);
                *is_stale = true;
            }
        }
    }

    /// Takes the session of a machine at the position.
    fn refresh(&mut self, place: usize) {
        let machine = self.nodes.get_mut(place).and_then(Option::as_mut).filter(|it| it.is_stale);
        if let Some((node, machine)) = self.cluster.nodes.get_mut(place).zip(machine) {
            node.session.clone_from(machine.replay.shown());
            machine.is_stale = false;
        }
    }

    /// Moves all machines to where one has completed another step.
    fn step(&mut self, command: Command, node: Option<usize>) {
        let mut places = node.map_or_else(|| (0..self.nodes.len()).collect(), |it| vec![it]);
        let has_stepped = |it: &usize| {
            let machine = self.nodes.get(*it).and_then(Option::as_ref);
            machine.is_some_and(|machine| machine.replay.step().is_some())
        };
        places.sort_by_key(|it| !has_stepped(it));
        let at = places.into_iter().find_map(|it| self.step_of(command, it));
        self.rest_at(at);
    }

    /// Moves a machine alone to where it has completed another step, and returns when that is. A machine without
    /// another step in that direction stays.
    fn step_of(&mut self, command: Command, place: usize) -> Option<Stamp> {
        let Machine { replay, is_stale } = self.nodes.get_mut(place)?.as_mut()?;
        let (forward, here, began) = (command == Command::NextStep, self.head.at, replay.folded.began);
        let has_more =
            |it: &Replay| if forward { it.folded.place < it.index.events } else { it.folded.began.is_some() };
        let mut at = here;
        // Several steps may have the same time.
        while at == here && has_more(replay) {
            replay.update(command);
            at = self.recorded.here(place, replay.head.at);
            *is_stale = true;
        }
        let is_found = if forward {
            // Otherwise it is at the end of its recording, after its last step.
            at > here && (has_more(replay) || replay.folded.began > began)
        } else {
            at < here
        };
        if !is_found && *is_stale {
            replay.seek(self.recorded.there(place, here).min(replay.index.to));
        }
        is_found.then_some(at)
    }

    /// Seeks, and pauses there.
    fn rest_at(&mut self, at: Option<Stamp>) {
        if let Some(at) = at {
            self.seek(at.clamp(self.head.from, self.head.to));
            self.head.playing = false;
        }
    }
}

fn after(all: &[&Vec<Moment>], at: Stamp) -> Option<Stamp> {
    all.iter().filter_map(|of| of.iter().find(|it| it.at > at)).map(|it| it.at).min()
}

fn before(all: &[&Vec<Moment>], at: Stamp) -> Option<Stamp> {
    all.iter().filter_map(|of| of.iter().rev().find(|it| it.at < at)).map(|it| it.at).max()
}

/// What a reader sends.
enum Read {
    /// Some bytes more are read.
    On,
    /// A machine's recordings are read.
    Loaded(usize, Box<Replay>),
}

/// Reads the recordings of all machines on some threads.
fn read(recorded: &Recorded, cache: Option<&Path>, mut progress: impl FnMut(u64)) -> Vec<Option<Machine>> {
    let (next, bytes) = (AtomicUsize::new(0), AtomicU64::new(0));
    let readers = thread::available_parallelism().map_or(1, |it| it.get().min(READERS));
    let mut nodes: Vec<Option<Machine>> = recorded.nodes.iter().map(|_| None).collect();
    let (sender, receiver) = channel();
    thread::scope(|scope| {
        for _ in 0..readers {
            let (next, bytes, sender) = (&next, &bytes, sender.clone());
            scope.spawn(move || {
                loop {
                    let place = next.fetch_add(1, Relaxed);
                    let Some(set) = recorded.nodes.get(place) else { return };
                    let Some(set) = set.clone() else { continue };
                    let whole = set.bytes();
                    let mut before = 0;
                    let kept = cache.and_then(|it| Replay::kept(&set, it));
                    let replay = kept.unwrap_or_else(|| {
                        Replay::load(set, cache, |read, _| {
                            bytes.fetch_add(read.saturating_sub(before), Relaxed);
                            before = before.max(read);
                            let _ = sender.send(Read::On);
                        })
                    });
                    bytes.fetch_add(whole.saturating_sub(before), Relaxed);
                    let _ = sender.send(Read::Loaded(place, Box::new(replay)));
                }
            });
        }
        drop(sender);
        for it in receiver {
            progress(bytes.load(Relaxed));
            if let Read::Loaded(place, replay) = it
                && let Some(node) = nodes.get_mut(place)
            {
                *node = Some(Machine { replay, is_stale: true });
            }
        }
    });
    nodes
}
