//! The question before gpuwatch starts something at a process. Other modules start it.

use super::{Answer, NO_PROBES, NO_TRACES, Request, Start, Subject, Ui, rows::Row};
use crate::{
    facts::{event::replayed::WINDOW_STEPS, text::Foreign},
    model::session::Session,
};

/// The question while it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Starting {
    /// What to start.
    pub what: Start,
    /// The process's pid.
    pub pid: u32,
    /// Its command line, quoted for a shell.
    pub command: String,
    /// Its owner.
    pub user: Foreign,
}

impl Start {
    /// Returns why a view that sends no signals does not start it.
    pub fn forbidden(self) -> &'static str {
        match self {
            Self::Probe => NO_PROBES,
            Self::Trace => NO_TRACES,
        }
    }

    /// Returns that it was not started.
    pub fn not_started(self) -> &'static str {
        match self {
            Self::Probe => "no probe was started",
            Self::Trace => "nothing was traced",
        }
    }

    /// Returns that it starts.
    pub fn begun(self, pid: u32) -> String {
        match self {
            Self::Probe => format!("the probe is being started in pid {pid}"),
            Self::Trace => {
                format!("tracing {WINDOW_STEPS} steps of pid {pid}: its process screen shows the answer when it comes")
            }
        }
    }

    /// Returns the process of a row, or why it cannot be started there.
    fn subject(self, row: &Row) -> Result<Subject, &'static str> {
        match (self, row) {
            (Self::Probe, Row::Probed(process, _)) if process.is_alive() => Err("this process has a probe already"),
            (Self::Trace, Row::Probed(process, _)) if !process.is_alive() => Err("the process has ended"),
            (_, Row::Probed(process, _)) => {
                process.pid.map(|pid| Subject { pid, start_ticks: None, vouched: true }).ok_or(match self {
                    Self::Probe => "the process lives in another pid namespace: attach to it from there",
                    Self::Trace => "the process lives in another pid namespace: run `gpuwatch whatif` there",
                })
            }
            (Self::Probe, Row::Unprobed(_, it)) => Ok(Subject { pid: it.pid, start_ticks: None, vouched: false }),
            (Self::Trace, Row::Unprobed(..)) => Err("no probe is in this process: P starts one"),
        }
    }
}

impl Ui {
    /// Requests the question; it opens once the process is identified.
    pub(super) fn ask_start(&mut self, what: Start, session: &Session) {
        if self.no_signals.is_some() {
            self.show_message(what.forbidden());
            return;
        }
        let subject = match self.meant(session) {
            None if self.rows(session).is_empty() => Err(match what {
                Start::Probe => "no process is listed that could get a probe",
                Start::Trace => "no process is listed that could be traced",
            }),
            None => Err("select the process first, in the list of the overview"),
            Some(row) => what.subject(&row),
        };
        let of_zombie = |it: Subject| session.zombie(it.pid).map_or(Ok(it), Err);
        match subject.map_err(str::to_owned).and_then(of_zombie) {
            Err(why) => self.show_message(why),
            Ok(subject) => {
                let start_ticks = session.process_info.get(&subject.pid).map(|it| it.start_ticks);
                self.request = Some(Request::AskStart(what, Subject { start_ticks, ..subject }));
            }
        }
    }

    /// Handles a command while the question is open; anything but yes means no.
    pub(super) fn confirm_start(&mut self, answer: Answer) {
        let Some(Starting { what, .. }) = self.starting.take() else { return };
        if answer == Answer::Yes {
            self.request = Some(Request::Start(what));
        } else {
            self.show_message(what.not_started());
        }
    }
}
