//! The question before gpuwatch starts something at a process. Other modules start it.

use crate::{
    facts::{
        event::{replayed::WINDOW_STEPS, wire::Hello},
        remote::Capture,
        text::Foreign,
    },
    model::{
        alerts::{question, words},
        session::{
            Session,
            process::{ProbeState, Process},
        },
    },
    screen::ui::{Answer, NO_PROBES, NO_QUESTIONS, NO_TRACES, Request, Signal, Start, Subject, Ui, rows::ProcessRow},
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
            Self::Trace | Self::Peak => NO_TRACES,
        }
    }

    /// Returns that it was not started.
    pub fn not_started(self) -> &'static str {
        match self {
            Self::Probe => "no probe was started",
            Self::Trace | Self::Peak => "nothing was traced",
        }
    }

    /// Returns that it starts.
    pub fn begun(self, pid: u32) -> String {
        match self {
            Self::Probe => format!("the probe is being started in pid {pid}"),
            Self::Trace => {
                format!("tracing {WINDOW_STEPS} steps of pid {pid}: its process screen shows the answer when it comes")
            }
            Self::Peak => format!("tracing a step of pid {pid}: its process screen shows the answer when it comes"),
        }
    }

    /// Whether nothing can start in a process whose probe has ended: a probe may, unless the process ended with it.
    fn is_in_vain(self, process: &Process) -> bool {
        match self {
            Self::Probe => matches!(process.life, ProbeState::Ended { .. }) && !process.has_left(),
            Self::Trace | Self::Peak => !process.is_alive(),
        }
    }

    /// Returns the process of a row, or why it cannot be started there.
    fn subject(self, row: &ProcessRow) -> Result<Subject, &'static str> {
        match (self, row) {
            (Self::Probe, ProcessRow::Probed(process, _)) if process.is_alive() => {
                Err("this process has a probe already")
            }
            (_, ProcessRow::Probed(process, _)) if self.is_in_vain(process) => Err(end(process)),
            (_, ProcessRow::Probed(process, _)) => {
                process.pid.map(|pid| Subject { pid, start_ticks: None, vouched: true }).ok_or(match self {
                    Self::Probe => "the process lives in another pid namespace: attach to it from there",
                    Self::Trace => "the process lives in another pid namespace: run `gpuwatch whatif` there",
                    Self::Peak => "the process lives in another pid namespace: run `gpuwatch peak` there",
                })
            }
            (Self::Probe, ProcessRow::Unprobed(_, it)) => {
                Ok(Subject { pid: it.pid, start_ticks: None, vouched: false })
            }
            (Self::Trace | Self::Peak, ProcessRow::Unprobed(..)) => Err("no probe is in this process: P starts one"),
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
                Start::Trace | Start::Peak => "no process is listed that could be traced",
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
            Some(ProcessRow::Probed(process, _)) if !process.is_alive() => Err(end(process)),
            Some(ProcessRow::Probed(process, _)) => process
                .pid
                .map(|pid| Subject { pid, start_ticks: None, vouched: true })
                .ok_or("the process lives in another pid namespace: signal it from there"),
            Some(ProcessRow::Unprobed(_, it)) => Ok(Subject { pid: it.pid, start_ticks: None, vouched: false }),
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

impl Ui {
    /// Sends a request to the visibly selected job, or shows why it cannot.
    pub(super) fn ask_sites(&mut self, session: &Session) {
        if self.no_signals.is_some() {
            self.show_message(NO_QUESTIONS);
            return;
        }
        let meant = self.meant(session).map(|it| it.probed());
        let asked = match meant {
            None => Err("select the process first, in the list of the overview".to_owned()),
            Some(None) => Err("no probe is in this process: P starts one".to_owned()),
            Some(Some((process, on))) => can_be_asked(process).map(|pid| (pid, question(process.probe, on))),
        };
        match asked {
            Err(why) => self.show_message(why),
            Ok((pid, ask)) => {
                self.show_message(format!("asked: {}", words(&ask)));
                self.request = Some(Request::Ask(Capture { pid, ask }));
            }
        }
    }
}

/// Returns why nothing can be asked of a process that is not alive.
fn end(process: &Process) -> &'static str {
    if process.has_left() { "its probe has ended: P starts another" } else { "the process has ended" }
}

/// Returns the pid that the probe reports.
fn can_be_asked(process: &Process) -> Result<u32, String> {
    if !process.is_alive() {
        return Err(end(process).to_owned());
    }
    match process.hello.as_deref() {
        Some(hello) if hello.can_capture() => Ok(hello.pid),
        Some(Hello { sites: Some(why), .. }) => Err(crate::facts::text::Foreign::new(why.as_str()).to_string()),
        _ => Err("this probe does not know which lines allocate".to_owned()),
    }
}
