//! Where a view acts on processes: on this machine, or through a link on the one that is open.

use crate::{
    facts::{
        event::ProcessInfo,
        remote::{Action, Answer, Capture, Outcome, Request, Signal, Start, Subject},
        text,
    },
    hosts::requests::Requests,
    screen::{
        actions::LocalActions,
        ui::{
            Ui,
            process_actions::{Dialog, Starting},
        },
    },
};
use std::collections::BTreeSet;

/// What a process is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldPurpose {
    /// The menu of signals.
    Signal,
    /// The question whether to start this.
    Start(Start),
}

/// Where a view acts on processes.
#[derive(Debug)]
pub enum Actions {
    /// On this machine.
    Local(LocalActions),
    /// On other machines.
    Remote(RemoteActions),
}

/// An answer to show.
#[derive(Debug)]
pub enum ActionReply {
    /// Of what was started on this machine.
    Local(String),
    /// Of a machine, by its place in the list.
    Remote(usize, Answer),
}

/// Requests to other machines.
#[derive(Debug)]
pub struct RemoteActions {
    requests: Requests,
    /// The number of the latest request.
    last: u64,
    /// The request whose answer opens a question, its machine, and the question.
    pending: Option<(usize, u64, HoldPurpose)>,
    /// The request by which the machine holds a process, and the pid.
    held: Option<(u64, u32)>,
    /// The requests for an effect that no machine has answered.
    unanswered: BTreeSet<u64>,
}

impl Actions {
    /// Identifies a process, and opens the menu or the question once that is done.
    pub fn hold(&mut self, purpose: HoldPurpose, subject: &Subject, ui: &mut Ui) {
        match self {
            Self::Local(local) => match local.hold(subject) {
                Err(why) => ui.show_message(why),
                Ok(info) => ask(purpose, info, ui),
            },
            Self::Remote(remote) => remote.hold(purpose, subject, ui),
        }
    }

    /// Sends a signal to the held process.
    pub fn send(&mut self, signal: Signal, ui: &mut Ui) {
        match self {
            Self::Local(local) => ui.show_message(local.send(signal).unwrap_or_else(|why| why)),
            Self::Remote(remote) => {
                if let Some((held, pid)) = remote.held.take()
                    && let Some((node, id)) = remote.request(Action::Signal { held, signal }, ui)
                {
                    remote.unanswered.insert(id);
                    let (name, host) = (signal.name(), remote.requests.host(node));
                    ui.show_message(format!("sending {name} to pid {pid} on {host}"));
                }
            }
        }
    }

    /// Starts something at the held process.
    pub fn start(&mut self, start: Start, ui: &mut Ui) {
        match self {
            Self::Local(local) => {
                ui.show_message(local.start(start, 0).map_or_else(|why| why, |pid| start.begun(pid)));
            }
            Self::Remote(remote) => {
                if let Some((held, pid)) = remote.held.take()
                    && let Some((_, id)) = remote.request(Action::Start { held, start }, ui)
                {
                    remote.unanswered.insert(id);
                    ui.show_message(start.begun(pid));
                }
            }
        }
    }

    /// Sends a request to a probe.
    pub fn capture(&mut self, capture: Capture, ui: &mut Ui) {
        match self {
            Self::Local(local) => {
                if let Err(why) = local.capture(capture.ask) {
                    ui.show_message(why);
                }
            }
            Self::Remote(remote) => {
                let sent = remote.request(Action::Capture(capture), ui);
                remote.unanswered.extend(sent.map(|(_, id)| id));
            }
        }
    }

    /// Opens no question for an answer that has not come yet.
    pub fn cancel_pending(&mut self) {
        if let Self::Remote(remote) = self {
            remote.pending = None;
        }
    }

    /// Waits until machines have answered every signal, start and capture.
    pub async fn wait_for_answers(&mut self) {
        if let Self::Remote(remote) = self {
            while !remote.unanswered.is_empty() {
                let (_, answer) = remote.requests.answer().await;
                remote.unanswered.remove(&answer.id);
            }
        }
    }

    /// Waits for an answer.
    pub async fn reply(&mut self) -> ActionReply {
        match self {
            Self::Local(local) => ActionReply::Local(local.answer().await.1),
            Self::Remote(remote) => {
                let (node, answer) = remote.requests.answer().await;
                ActionReply::Remote(node, answer)
            }
        }
    }

    /// Shows an answer.
    pub fn show(&mut self, reply: ActionReply, ui: &mut Ui) {
        match (self, reply) {
            (Self::Remote(remote), ActionReply::Remote(node, answer)) => remote.show(node, answer, ui),
            (_, ActionReply::Local(words)) => ui.show_message(words),
            (Self::Local(_), ActionReply::Remote(..)) => {}
        }
    }
}

impl RemoteActions {
    /// Creates the way to machines without an open question.
    pub fn new(requests: Requests) -> Self {
        Self { requests, last: 0, pending: None, held: None, unanswered: BTreeSet::new() }
    }

    fn hold(&mut self, purpose: HoldPurpose, subject: &Subject, ui: &mut Ui) {
        self.held = None;
        let Some((node, id)) = self.request(Action::Hold(*subject), ui) else { return };
        self.pending = Some((node, id, purpose));
        ui.show_message(format!("looking for pid {} on {}", subject.pid, self.requests.host(node)));
    }

    /// Sends a request to the open machine; returns its place and the request's number, or shows why not.
    fn request(&mut self, action: Action, ui: &mut Ui) -> Option<(usize, u64)> {
        let node = ui.machine.as_ref()?.node;
        self.last += 1;
        let sent = self.requests.send(node, Request { id: self.last, action });
        sent.map_err(|why| ui.show_message(why)).ok().map(|()| (node, self.last))
    }

    fn show(&mut self, node: usize, answer: Answer, ui: &mut Ui) {
        self.unanswered.remove(&answer.id);
        let pending = self.pending.take_if(|it| (it.0, it.1) == (node, answer.id));
        let is_open = ui.machine.as_ref().is_some_and(|it| it.node == node);
        match answer.outcome {
            Outcome::Held(info) => {
                if let Some((_, id, purpose)) = pending.filter(|_| is_open) {
                    self.held = Some((id, info.pid));
                    ui.status = None;
                    ask(purpose, &info, ui);
                }
            }
            Outcome::Done => {}
            Outcome::Text(words) | Outcome::Error(words) if is_open => ui.show_message(words.to_string()),
            Outcome::Text(words) | Outcome::Error(words) => {
                ui.show_message(format!("{}: {words}", self.requests.host(node)));
            }
        }
    }
}

/// Opens the menu or the question for a held process.
fn ask(purpose: HoldPurpose, info: &ProcessInfo, ui: &mut Ui) {
    let pid = info.pid;
    let words = info.argv.iter().map(text::Foreign::raw);
    let (command, user) = (text::command(words, text::COMMAND_MAX), info.user.clone());
    match purpose {
        HoldPurpose::Signal => ui.dialog = Some(Dialog { pid, command, user, place: 0, asked: false }),
        HoldPurpose::Start(what) => ui.starting = Some(Starting { what, pid, command, user }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        facts::{
            event::{CaptureRequest, ProbeId},
            text::Foreign,
        },
        screen::ui::Machine,
    };
    use std::task::{Context, Poll, Waker};
    use tokio::sync::mpsc::{Receiver, Sender};

    /// A view of two machines, of which the first one is open, and their ends of the links.
    struct View {
        actions: Actions,
        ui: Ui,
        queues: Vec<Receiver<Request>>,
        answers: Sender<(usize, Answer)>,
    }

    impl View {
        fn new() -> Self {
            let (requests, queues, answers) = Requests::channels(&["a".to_owned(), "b\u{1b}".to_owned()]);
            let machine = Some(Machine { node: 0, host: "a".into(), trouble: None });
            let ui = Ui { machine, ..Ui::default() };
            Self { actions: Actions::Remote(RemoteActions::new(requests)), ui, queues, answers }
        }

        /// Requests the menu of signals, and returns the request's number.
        fn hold(&mut self) -> u64 {
            let subject = Subject { pid: 7, start_ticks: Some(1), vouched: true };
            self.actions.hold(HoldPurpose::Signal, &subject, &mut self.ui);
            let request = self.queues[0].try_recv().unwrap();
            assert_eq!(request.action, Action::Hold(subject));
            request.id
        }

        fn answer(&mut self, node: usize, id: u64, outcome: Outcome) {
            self.actions.show(ActionReply::Remote(node, Answer { id, outcome }), &mut self.ui);
        }

        fn is_answered(&mut self) -> bool {
            let waited = std::pin::pin!(self.actions.wait_for_answers()).poll(&mut Context::from_waker(Waker::noop()));
            waited == Poll::Ready(())
        }
    }

    fn held() -> Outcome {
        Outcome::Held(Box::new(ProcessInfo { pid: 7, argv: vec!["a b".into()], ..ProcessInfo::default() }))
    }

    #[test]
    fn the_menu_opens_with_the_answer_and_the_signal_names_the_request_that_holds_the_process() {
        let mut view = View::new();
        let id = view.hold();
        assert_eq!((view.ui.status.as_deref(), &view.ui.dialog), (Some("looking for pid 7 on a"), &None));
        view.answer(0, id, held());
        assert_eq!(view.ui.dialog.as_ref().map(|it| (it.pid, it.command.as_str())), Some((7, "'a b'")));
        assert!(view.is_answered(), "nothing is sent yet");
        view.actions.send(Signal::Kill, &mut view.ui);
        let sent = view.queues[0].try_recv().unwrap();
        assert_eq!(sent.action, Action::Signal { held: id, signal: Signal::Kill });
        assert_eq!(view.ui.status.as_deref(), Some("sending KILL to pid 7 on a"));
        assert!(!view.is_answered(), "the machine has not answered");
        view.answers.try_send((0, Answer { id: sent.id, outcome: Outcome::Done })).unwrap();
        assert!(view.is_answered());
        view.actions.send(Signal::Kill, &mut view.ui);
        assert!(view.queues[0].try_recv().is_err(), "one question sends one signal");
    }

    #[test]
    fn an_answer_after_another_key_or_of_another_machine_opens_no_menu() {
        for (node, is_forgotten, is_left) in [(0, true, false), (1, false, false), (0, false, true)] {
            let mut view = View::new();
            let id = view.hold();
            if is_forgotten {
                view.actions.cancel_pending();
            }
            if is_left {
                view.ui.machine = None;
            }
            view.answer(node, id, held());
            assert_eq!(view.ui.dialog, None, "{node} {is_forgotten} {is_left}");
            view.actions.send(Signal::Term, &mut view.ui);
            assert!(view.queues[0].try_recv().is_err());
        }
    }

    #[test]
    fn the_answer_of_another_machine_is_shown_escaped_with_its_name() {
        let mut view = View::new();
        view.answer(1, 7, Outcome::Error(Foreign::new("no\u{202e}")));
        assert_eq!(view.ui.status.as_deref(), Some("b\\u{1b}: no\\u{202e}"));
        view.answer(0, 7, Outcome::Text("yes".into()));
        assert_eq!(view.ui.status.as_deref(), Some("yes"));
    }

    #[test]
    fn a_capture_is_sent_to_the_opened_machine_alone() {
        let mut view = View::new();
        let ask = CaptureRequest { probe: ProbeId(3), steps: 8, rises: None, growth: false, collect: false };
        view.actions.capture(Capture { pid: 7, ask }, &mut view.ui);
        assert_eq!(view.queues[0].try_recv().unwrap().action, Action::Capture(Capture { pid: 7, ask }));
        assert!(view.queues[1].try_recv().is_err() && !view.is_answered());
        // Of all machines, none is meant.
        view.ui.machine = None;
        view.actions.capture(Capture { pid: 7, ask }, &mut view.ui);
        assert!(view.queues[0].try_recv().is_err());
    }
}
