//! Plays the recordings of several machines into a cluster, each on its own clock.

use super::{
    find,
    recording_set::{Cursor, RecordingSet, Track},
};
use crate::{
    facts::{
        event::{Event, Fact},
        text::Foreign,
        units::Stamp,
    },
    model::cluster::{Clock, Cluster, Node},
    storage::nodes::{self, Index},
};
use anyhow::Result;
use std::path::Path;

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
        let index = nodes::read(directory)?;
        let mut left_out = Vec::new();
        let epoch = i128::from(index.head.started_unix_us) - i128::from(index.head.monotonic_us);
        let open = |node: &nodes::Node| {
            let mut tracks = Vec::new();
            for file in &node.files {
                match find::track(&file.path) {
                    Ok(track) => tracks.push(on_clock(track, file.ahead_us, epoch)),
                    Err(why) => left_out.push(format!("left out: {why:#}")),
                }
            }
            (!tracks.is_empty()).then(|| RecordingSet::new(tracks))
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
        let ahead = self.index.nodes.get(node).and_then(nodes::Node::ahead_us);
        Stamp(here.0.saturating_add_signed(ahead.unwrap_or(0).saturating_neg()))
    }

    /// Returns an instant of a machine's clock on the recorder's.
    pub fn here(&self, node: usize, there: Stamp) -> Stamp {
        let ahead = self.index.nodes.get(node).and_then(nodes::Node::ahead_us);
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
pub(super) fn stand(node: &mut Node, known: &nodes::Node, (there, here): (Stamp, Stamp)) {
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
