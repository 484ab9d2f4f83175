//! What most who read events ask of them: which probe's line it is, and which sample.

use super::{
    Event, Fact, Line, ProbeId,
    wire::{Sample, Sites},
};
use crate::facts::units::Stamp;

impl Event {
    /// The line of a probe that it is.
    pub fn line(&self) -> Option<(ProbeId, &Line)> {
        if let Fact::Probe { probe, line } = &self.fact { Some((*probe, line)) } else { None }
    }

    /// The sample that it is.
    pub fn sample(&self) -> Option<(ProbeId, &Sample)> {
        let (probe, line) = self.line()?;
        if let Line::Sample(sample) = line { Some((probe, sample)) } else { None }
    }

    /// The account of sites that it is.
    pub fn sites(&self) -> Option<(ProbeId, &Sites)> {
        let (probe, line) = self.line()?;
        if let Line::Sites(sites) = line { Some((probe, sites)) } else { None }
    }

    /// Whether its probe ends with it: by a bye, or because the connection broke.
    pub fn ends_probe(&self) -> bool {
        matches!(self.fact, Fact::ProbeGone { .. }) || self.line().is_some_and(|(_, it)| matches!(it, Line::Bye(_)))
    }
}

/// When a probe's line says it was made; `None` for lines that carry no stamp.
pub fn stamp_of(line: &Line) -> Option<Stamp> {
    line.at_us().map(Stamp)
}
