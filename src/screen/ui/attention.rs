//! What is looked at before the user has selected anything: what needs attention most.

use super::{Command, Ui, rows::RowId};
use crate::{
    facts::event::DeviceId,
    model::{
        alerts,
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
    /// Looks at the worst open finding, for as long as the user has selected nothing, and notes which rungs hold
    /// something. To be asked before each picture of what goes on.
    pub fn attend(&mut self, session: &Session, findings: &Findings) {
        self.note_rungs(findings);
        let open = findings.all.iter().filter(|it| !it.is_allowed() && alerts::is_open(it, session));
        self.attention = open.filter(|_| self.is_free()).find_map(|it| subject(it, session));
    }

    /// What needs attention, where the user has selected nothing.
    pub(super) fn attended(&self) -> Option<&Attention> {
        self.attention.as_ref().filter(|_| self.is_free())
    }

    fn is_free(&self) -> bool {
        self.device.is_none() && self.held.is_none()
    }

    /// Keeps what is looked at: a command that is about it must not find something else there.
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

/// The device and the process that a finding is about; of host memory, the first device of the process.
fn subject(it: &Finding, session: &Session) -> Option<Attention> {
    let first = || session.process(it.probe)?.devices.first();
    let device = it.device.clone().or_else(|| Some(first()?.device.clone()))?;
    let ordinal = it.ordinal.or_else(|| first().filter(|on| on.device == device).map(|on| on.ordinal));
    Some(Attention { device, row: ordinal.map(|ordinal| RowId::Probed(it.probe, ordinal)) })
}
