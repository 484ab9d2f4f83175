//! Joins the recordings of one run: one clock, one numbering of probes, and each process once.

use crate::facts::{
    event::{DriverState, Event, Fact, ProbeId},
    text::Foreign,
    units::Stamp,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A living process, whichever file records it: its host, its pid there, its socket.
type Identity = (Foreign, Option<u32>, Foreign);

/// A probe of one file.
type Local = (usize, ProbeId);

/// The probes of all files, and the file that reports each: the first that found it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Join {
    reported_by: BTreeMap<Identity, Local>,
    /// The common number of each probe; `None` for a probe that another file reports.
    names: BTreeMap<Local, Option<ProbeId>>,
    next: u32,
}

impl Join {
    /// Returns the event with the common numbers; `None` if another file reports it too.
    pub(super) fn take(&mut self, track: usize, host: &Foreign, mut event: Event) -> Option<Event> {
        let over = event.ends_probe();
        let (probe, found) = match &mut event.fact {
            Fact::ProbeFound { probe, pid, socket } => (probe, Some((host.clone(), *pid, socket.clone()))),
            Fact::Probe { probe, .. } | Fact::ProbeGone { probe, .. } => (probe, None),
            Fact::Replayed(it) => (&mut it.probe, None),
            _ => return Some(event),
        };
        let local = (track, *probe);
        *probe = self.name(local, found)?;
        if over {
            // Another process may get its pid now.
            self.reported_by.retain(|_, it| *it != local);
        }
        Some(event)
    }

    fn name(&mut self, local: Local, found: Option<Identity>) -> Option<ProbeId> {
        if let Some(name) = self.names.get(&local) {
            return *name;
        }
        let mut doubled = false;
        if let Some(identity) = found {
            doubled = self.reported_by.get(&identity).is_some_and(|it| it.0 != local.0);
            self.reported_by.entry(identity).or_insert(local);
        }
        let name = (!doubled).then_some(ProbeId(self.next));
        self.next += u32::from(!doubled);
        self.names.insert(local, name);
        name
    }
}

/// Moves every stamp of an event, if two hosts' clocks count from different instants.
pub(super) fn shifted(mut event: Event, by_us: i64) -> Event {
    if by_us == 0 {
        return event;
    }
    let shift = |us: &mut u64| *us = us.saturating_add_signed(by_us);
    shift(&mut event.at.0);
    match &mut event.fact {
        Fact::Driver(DriverState::Stalled { since: Stamp(since) }) => shift(since),
        Fact::Probe { line, .. } => line.stamps_mut().for_each(shift),
        _ => {}
    }
    event
}
