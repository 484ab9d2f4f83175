//! Requests to probes, as lines of the wire.

use super::{Ask, ProbeId};

/// A request's line, with its newline, and the probe that receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The probe.
    pub probe: ProbeId,
    /// The line.
    pub line: String,
}

/// A request for a window: a trace of the allocations of some steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskWindow {
    /// The probe that receives it.
    pub probe: ProbeId,
    /// The number in the name of the trace's file; at least 1.
    pub id: u32,
    /// Steps to trace; at least 1.
    pub steps: u64,
    /// Whether gpuwatch asks because it raised an alert, not because a user asked.
    pub alert: bool,
}

impl From<Ask> for Request {
    fn from(it: Ask) -> Self {
        Self { probe: it.probe, line: it.line() }
    }
}

impl From<AskWindow> for Request {
    fn from(it: AskWindow) -> Self {
        let alert = if it.alert { " why=alert" } else { "" };
        Self { probe: it.probe, line: format!("window id={} steps={}{alert}\n", it.id, it.steps) }
    }
}
