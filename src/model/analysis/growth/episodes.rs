//! The episodes of one process on one device: raised, updated, resolved, and finally forgotten.

use super::alert::Figures;
use crate::{
    facts::units::Stamp,
    model::analysis::episode::{Axis, End, Episode, Resolved, Resource},
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Most episodes remembered; the oldest resolved one goes first.
pub const EPISODES: usize = 64;

/// Bounded history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Episodes {
    kept: VecDeque<Episode>,
    forgotten: u64,
}

impl Episodes {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Episode> {
        self.kept.iter()
    }

    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// At most one episode of a resource lasts, so there always is a resolved one to forget.
    pub(super) fn raise(&mut self, episode: Episode) {
        if self.kept.len() == EPISODES {
            let oldest = self.kept.iter().position(|it| it.resolved.is_some()).unwrap_or(0);
            self.kept.remove(oldest);
            self.forgotten += 1;
        }
        self.kept.push_back(episode);
    }

    pub(super) fn go_on(&mut self, resource: Resource, place: u64, figures: &Figures) {
        if let Some(it) = self.open(resource) {
            it.last_step = place;
            it.bytes_per_step = figures.per_step;
            it.interval = figures.interval;
            it.blocks_per_step = figures.blocks_per_step;
            it.gained = figures.gained;
            it.stairs = figures.stairs;
        }
    }

    pub(super) fn resolve(&mut self, resource: Resource, step: u64, at: Stamp, end: End) {
        if let Some(it) = self.open(resource) {
            it.resolved = Some(Resolved { step, at, end });
        }
    }

    /// Ends every lasting episode.
    pub(super) fn restart(&mut self, step: u64, at: Stamp) {
        for it in self.kept.iter_mut().filter(|it| it.resolved.is_none()) {
            it.resolved = Some(Resolved { step, at, end: End::Restarted });
        }
    }

    fn open(&mut self, resource: Resource) -> Option<&mut Episode> {
        self.kept.iter_mut().rev().find(|it| it.resource == resource && it.resolved.is_none())
    }
}

impl Figures {
    /// Creates an episode with these figures.
    pub(super) fn episode(&self, resource: Resource, axis: Axis, place: u64, at: Stamp) -> Episode {
        Episode {
            resource,
            axis,
            since_step: self.since,
            first_alert_step: place,
            first_alert_at: at,
            last_step: place,
            resolved: None,
            bytes_per_step: self.per_step,
            interval: self.interval,
            blocks_per_step: self.blocks_per_step,
            gained: self.gained,
            stairs: self.stairs,
        }
    }
}
