//! The rungs of the ladder as rows: which are listed, which one is selected, and its remedy.

use super::{Focus, Motion, Ui};
use crate::{
    facts::{event::DeviceId, units::Bytes},
    model::{
        analysis::ladder::{Gap, GapSet, Rung},
        findings::{self, DeviceFindings, Findings},
        session::Session,
    },
};
use std::cmp::Reverse;

impl Ui {
    /// Returns the rungs of a device that get a row, from the inside out.
    pub fn rungs(&self, found: &DeviceFindings) -> Vec<Rung> {
        let mut rungs = found.ladder.by_gap();
        // A rung that only a probe could measure gets no row.
        rungs.retain(|it| it.bytes.is_some() || it.inconsistent.is_some() || !found.processes.is_empty());
        rungs.retain(|it| !self.is_folded(&found.device, it));
        rungs
    }

    /// Returns whether a rung has no bytes, and had none since the view began. A rung that comes and goes keeps its
    /// row, so that the rows below it do not move.
    pub fn is_folded(&self, device: &DeviceId, rung: &Rung) -> bool {
        let held = self.held_bytes.iter().any(|it| it.0 == *device && it.1.contains(rung.gap));
        rung.bytes == Some(Bytes(0)) && rung.inconsistent.is_none() && !held
    }

    /// Returns the selected rung; before the user selects one, the largest one that can be reduced.
    pub fn rung(&self, rungs: &[Rung]) -> Option<Rung> {
        let chosen = rungs.iter().find(|it| Some(it.gap) == self.gap);
        let worth = |it: &&Rung| (it.gap.row().remedy.is_empty(), Reverse(it.bytes));
        chosen.or_else(|| rungs.iter().min_by_key(worth)).copied()
    }

    /// Notes which rungs have bytes.
    pub(super) fn note_rungs(&mut self, findings: &Findings) {
        for found in &findings.devices {
            let mut held = GapSet::default();
            for rung in found.ladder.rungs.iter().filter(|it| it.bytes.is_some_and(|bytes| bytes.0 > 0)) {
                held.insert(rung.gap);
            }
            match self.held_bytes.iter_mut().find(|it| it.0 == found.device) {
                Some(known) => known.1.extend(held),
                None => self.held_bytes.push((found.device.clone(), held)),
            }
        }
    }

    pub(super) fn travel_rungs(&mut self, motion: Motion, session: &Session) {
        let rungs = self.rungs_of_selected(session);
        let here = self.rung(&rungs).and_then(|here| rungs.iter().position(|it| it.gap == here.gap)).unwrap_or(0);
        let there = super::moved(motion, here).min(rungs.len().saturating_sub(1));
        self.gap = rungs.get(there).map(|it| it.gap);
    }

    pub(super) fn select_rung(&mut self, gap: Gap) {
        (self.focus, self.gap) = (Focus::Ladder, Some(gap));
    }

    /// Returns the remedy for the selected rung, as the screen shows it.
    pub(super) fn remedy(&self, session: &Session) -> Option<String> {
        let remedy = self.rung(&self.rungs_of_selected(session))?.gap.row().remedy;
        (!remedy.is_empty()).then(|| remedy.to_owned())
    }

    fn rungs_of_selected(&self, session: &Session) -> Vec<Rung> {
        let device = session.devices.get(self.selected(session));
        device.map_or_else(Vec::new, |it| self.rungs(&findings::of_device(session, it)))
    }
}
