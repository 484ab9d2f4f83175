//! Accessors for the parts of events that most readers need.

use super::{
    Event, Fact, Line, ProbeId,
    wire::{Sample, Sites},
};
use crate::facts::units::Stamp;

impl Event {
    /// Returns the probe's line, if the event carries one.
    pub fn line(&self) -> Option<(ProbeId, &Line)> {
        if let Fact::Probe { probe, line } = &self.fact { Some((*probe, line)) } else { None }
    }

    /// Returns the sample, if the event carries one.
    pub fn sample(&self) -> Option<(ProbeId, &Sample)> {
        let (probe, line) = self.line()?;
        if let Line::Sample(sample) = line { Some((probe, sample)) } else { None }
    }

    /// Returns the capture's answer, if the event carries one.
    pub fn sites(&self) -> Option<(ProbeId, &Sites)> {
        let (probe, line) = self.line()?;
        if let Line::Sites(sites) = line { Some((probe, sites)) } else { None }
    }

    /// Returns whether the probe ends with this event: by a bye, or because the connection broke.
    pub fn ends_probe(&self) -> bool {
        matches!(self.fact, Fact::ProbeGone { .. }) || self.line().is_some_and(|(_, it)| matches!(it, Line::Bye(_)))
    }
}

/// Returns the time at which a probe made a line; `None` for lines without a stamp.
pub fn stamp_of(line: &Line) -> Option<Stamp> {
    line.at_us().map(Stamp)
}
