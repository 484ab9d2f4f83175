//! The menu of signals, and the question before one is sent. Other modules send them.

use super::{Answer, Request, Signal, Subject, Ui, rows::Row};
use crate::{facts::text::Foreign, model::session::Session};

/// The menu while it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialog {
    /// The process's pid.
    pub pid: u32,
    /// Its command line, quoted for a shell.
    pub command: String,
    /// Its owner.
    pub user: Foreign,
    /// The selected index in the menu.
    pub place: usize,
    /// Whether a signal was chosen and awaits confirmation with `y`.
    pub asked: bool,
}

impl Dialog {
    /// Returns the chosen signal.
    pub fn signal(&self) -> (Signal, &'static str, &'static str) {
        Signal::MENU[self.place % Signal::MENU.len()]
    }
}

impl Ui {
    /// Requests the menu, if signals can be sent; it opens once the process is identified.
    pub(super) fn ask_signal(&mut self, session: &Session) {
        if let Some(why) = self.no_signals {
            self.show_message(why);
            return;
        }
        let subject = match self.meant(session) {
            None if self.rows(session).is_empty() => Err("no process is listed that could be signalled"),
            None => Err("select the process first, in the list of the overview"),
            Some(Row::Probed(process, _)) if !process.is_alive() => Err("the process has ended"),
            Some(Row::Probed(process, _)) => process
                .pid
                .map(|pid| Subject { pid, start_ticks: None, vouched: true })
                .ok_or("the process lives in another pid namespace: signal it from there"),
            Some(Row::Unprobed(_, it)) => Ok(Subject { pid: it.pid, start_ticks: None, vouched: false }),
        };
        let of_zombie = |it: Subject| session.zombie(it.pid).map_or(Ok(it), Err);
        match subject.map_err(str::to_owned).and_then(of_zombie) {
            Err(why) => self.show_message(why),
            Ok(subject) => {
                let start_ticks = session.process_info.get(&subject.pid).map(|it| it.start_ticks);
                self.request = Some(Request::Hold(Subject { start_ticks, ..subject }));
            }
        }
    }

    /// Handles a command while the menu is open. After the choice of a signal, anything but yes means no.
    pub(super) fn choose(&mut self, answer: Answer) {
        let Some(dialog) = &mut self.dialog else { return };
        match answer {
            Answer::Accept => dialog.asked = true,
            Answer::Yes if dialog.asked => {
                self.request = Some(Request::Send(dialog.signal().0));
                self.dialog = None;
            }
            Answer::Up
            | Answer::Down
            | Answer::Cancel
            | Answer::Yes
            | Answer::Limit(_)
            | Answer::Edit(_)
            | Answer::Other
                if dialog.asked =>
            {
                dialog.asked = false;
            }
            Answer::Up => dialog.place = dialog.place.saturating_sub(1),
            Answer::Down => dialog.place = (dialog.place + 1).min(Signal::MENU.len() - 1),
            Answer::Cancel => self.dialog = None,
            Answer::Yes | Answer::Limit(_) | Answer::Edit(_) | Answer::Other => {}
        }
    }
}
