//! Selects what needs the most attention before the user selects anything.

use super::{Command, Ui, rows::RowId};
use crate::{
    facts::event::DeviceId,
    model::{
        analysis::severity::Severity,
        findings::{Finding, Findings},
        session::Session,
    },
};

/// A device, and the process on it that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attention {
    pub(super) device: DeviceId,
    pub(super) row: Option<RowId>,
}

impl Ui {
    /// Selects the worst open finding while the user has selected nothing, and notes which rungs have bytes. Call it
    /// before each live frame.
    pub fn attend(&mut self, session: &Session, findings: &Findings) {
        self.note_rungs(findings);
        // Information about processes without a probe draws no attention from those that train.
        let draws = |it: &&Finding| it.probe.is_some() || it.severity > Severity::Info;
        let open = findings.all.iter().filter(|it| !it.is_allowed() && self.is_open(it, session)).filter(draws);
        self.attention = open.filter(|_| self.is_free()).find_map(|it| subject(it, session));
    }

    /// Returns what needs attention, if the user has selected nothing.
    pub(super) fn attended(&self) -> Option<&Attention> {
        self.attention.as_ref().filter(|_| self.is_free())
    }

    fn is_free(&self) -> bool {
        self.device.is_none() && self.held.is_none()
    }

    /// Keeps the current selection, so that a command about it does not act on something else.
    pub(super) fn settle(&mut self, command: Command) {
        let is_aside = matches!(
            command,
            Command::Quit
                | Command::Suspend
                | Command::Help
                | Command::Back
                | Command::Freeze
                | Command::Alerts
                | Command::Slower
                | Command::Faster
                | Command::Theme
                | Command::Redraw
                | Command::Replay(_)
        );
        if !is_aside && let Some(it) = self.attended().cloned() {
            (self.device, self.held) = (Some(it.device), it.row);
        }
    }
}

/// Returns the device and the process of a finding; for host memory, the first device of the process.
fn subject(it: &Finding, session: &Session) -> Option<Attention> {
    let first = || it.process(session)?.devices.first();
    let device = it.device.clone().or_else(|| Some(first()?.device.clone()))?;
    let Some(probe) = it.probe else {
        let row = it.pid.map(|pid| RowId::Unprobed(pid, device.clone()));
        return Some(Attention { device, row });
    };
    let ordinal = it.ordinal.or_else(|| first().filter(|on| on.device == device).map(|on| on.ordinal));
    Some(Attention { device, row: ordinal.map(|ordinal| RowId::Probed(probe, ordinal)) })
}
