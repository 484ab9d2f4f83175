//! How alerts reach a person besides the picture.

use crate::{
    facts::{text::Foreign, units::counted},
    model::{alerts::Message, findings::Findings, session::Session},
    screen::term::Screen,
    storage::{output, sink::delivery::Delivery},
};
use std::{io, time::Duration};

/// How long an alert program may still run after the view is closed.
const HOOK_PATIENCE: Duration = Duration::from_secs(1);

/// Notifications of one moment; of more, the view sends their number.
const NOTIFIED: usize = 4;

/// How alerts reach a person besides the picture: not at all, unless asked for.
#[derive(Default)]
pub struct AlertOutputs {
    /// Ring the terminal's bell.
    pub bell: bool,
    /// Ask the terminal for a notification.
    pub notify: bool,
    /// To a program, and as requests to jobs.
    pub delivery: Delivery,
}

impl AlertOutputs {
    /// Returns whether an alert has any effect besides the picture.
    pub fn is_wanted(&self) -> bool {
        self.bell || self.notify || !self.delivery.is_idle()
    }

    /// Delivers what is new, and returns it for the terminal.
    pub fn deliver(&mut self, session: &Session, found: &Findings) -> Vec<Message> {
        if self.is_wanted() { self.delivery.deliver(session, found, |_, _| ()) } else { Vec::new() }
    }

    /// Sends new alerts to the terminal.
    ///
    /// # Errors
    /// Fails if the terminal is gone.
    pub fn show(&self, alerts: &[Message], screen: &mut Screen) -> io::Result<()> {
        if self.bell && !alerts.is_empty() {
            screen.ring()?;
        }
        if !self.notify {
            return Ok(());
        }
        for message in alerts.iter().take(NOTIFIED) {
            screen.notify(&message.line)?;
        }
        if alerts.len() > NOTIFIED {
            screen.notify(&format!("and {} more", counted((alerts.len() - NOTIFIED) as u64, "alert")))?;
        }
        Ok(())
    }

    /// Waits for the alert program, and prints its problems.
    pub(crate) fn finish(self) {
        if let Some(complaint) = self.delivery.finish(HOOK_PATIENCE) {
            output::message(format_args!("{}", Foreign::new(complaint)));
        }
    }
}
