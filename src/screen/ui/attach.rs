//! The question before a probe is started in a running process. Other modules start it.

use super::{Answer, Focus, NO_PROBES, Request, Screen, Subject, Ui, rows::Row};
use crate::{facts::text::Foreign, model::session::Session};

/// The question while it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attaching {
    /// The process's pid.
    pub pid: u32,
    /// Its command line, quoted for a shell.
    pub command: String,
    /// Its owner.
    pub user: Foreign,
}

impl Ui {
    /// Requests the question; it opens once the process is identified.
    pub(super) fn ask_attach(&mut self, session: &Session) {
        if self.no_signals.is_some() {
            self.show_message(NO_PROBES);
            return;
        }
        let subject = match self.meant(session) {
            None if self.rows(session).is_empty() => Err("no process is listed that could get a probe"),
            None => {
                // A probe requires a visible selection.
                if self.screen == Screen::Overview {
                    self.focus = Focus::Processes;
                }
                Err("select the process first, in the list of the overview")
            }
            Some(Row::Probed(process, _)) if process.is_alive() => Err("this process has a probe already"),
            Some(Row::Probed(process, _)) => process
                .pid
                .map(|pid| Subject { pid, start_ticks: None, vouched: true })
                .ok_or("the process lives in another pid namespace: attach to it from there"),
            Some(Row::Unprobed(_, it)) => Ok(Subject { pid: it.pid, start_ticks: None, vouched: false }),
        };
        match subject {
            Err(why) => self.show_message(why),
            Ok(subject) => {
                let start_ticks = session.process_info.get(&subject.pid).map(|it| it.start_ticks);
                self.request = Some(Request::AskAttach(Subject { start_ticks, ..subject }));
            }
        }
    }

    /// Handles a command while the question is open; anything but yes means no.
    pub(super) fn confirm_attach(&mut self, answer: Answer) {
        if self.attaching.take().is_some() {
            if answer == Answer::Yes {
                self.request = Some(Request::Attach);
            } else {
                self.show_message("no probe was started");
            }
        }
    }
}
