//! What a gpuwatch on another machine does on request, and its answers: lines of JSON through the pipes of a stream.

use super::{
    event::{CaptureRequest, ProcessInfo},
    text::Foreign,
};
use serde::{Deserialize, Serialize};

/// Most bytes of a request's line.
pub const REQUEST_MAX: usize = 4 << 10;

/// A signal that a user may send to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// Ends it cleanly.
    Term,
    /// Like Ctrl-C.
    Int,
    /// Ends it at once.
    Kill,
    /// Suspends it.
    Stop,
    /// Resumes it.
    Cont,
    /// The job defines it.
    Usr1,
}

impl Signal {
    /// The menu, top to bottom: name and effect.
    pub const MENU: [(Self, &'static str, &'static str); 6] = [
        (Self::Term, "TERM", "asks it to exit"),
        (Self::Int, "INT", "interrupts it, as Ctrl-C does"),
        (Self::Kill, "KILL", "kills it; nothing is saved"),
        (Self::Stop, "STOP", "suspends it; its memory stays allocated"),
        (Self::Cont, "CONT", "resumes it"),
        (Self::Usr1, "USR1", "runs the job's handler, or ends it"),
    ];

    /// Returns the signal's name as `kill -l` has it.
    pub fn name(self) -> &'static str {
        Self::MENU.iter().find(|it| it.0 == self).map_or("", |it| it.1)
    }
}

/// What gpuwatch starts at a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// The probe.
    Probe,
    /// A trace of some steps, which gpuwatch replays under other allocator settings.
    Trace,
    /// A trace of one step with call stacks, for what is live at its highest moment.
    Peak,
}

/// The process that a signal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// Its pid.
    pub pid: u32,
    /// Its start in the kernel's clock ticks since boot, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ticks: Option<u64>,
    /// Whether the kernel vouched for the pid; the driver reports the host's pid, which may differ here.
    #[serde(default)]
    pub vouched: bool,
}

/// A capture. Another stream may give the number of the probe to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// The pid that the probe reports.
    pub pid: u32,
    /// What the probe receives.
    #[serde(flatten)]
    pub ask: CaptureRequest,
}

/// A request, which has exactly one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Its number, which no other request of the sender has.
    pub id: u64,
    /// What to do.
    #[serde(flatten)]
    pub action: Action,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Action {
    /// Hold a process by a descriptor, and describe it. It stays held until the next such request.
    Hold(Subject),
    /// Send a signal to the held process.
    Signal {
        /// The number of the request that holds it.
        held: u64,
        /// The signal.
        signal: Signal,
    },
    /// Start something at the held process.
    Start {
        /// The number of the request that holds it.
        held: u64,
        /// What to start.
        start: Start,
    },
    /// Capture which lines allocate.
    Capture(Capture),
    /// A request of a later release.
    #[serde(other)]
    Unknown,
}

/// The types of requests. A stream begins with the list of those that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// [`Action::Hold`].
    Hold,
    /// [`Action::Signal`].
    Signal,
    /// [`Action::Start`].
    Start,
    /// [`Action::Capture`].
    Capture,
    /// Of a later release.
    #[serde(other)]
    Unknown,
}

/// The types that this release answers.
pub const KINDS: [Kind; 4] = [Kind::Hold, Kind::Signal, Kind::Start, Kind::Capture];

impl Request {
    /// Returns its line, with its newline.
    pub fn line(&self) -> String {
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }

    /// Parses a line; `None` without an id, which an answer needs.
    pub fn read(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Numbered {
            id: u64,
        }
        let unknown = || {
            let Numbered { id } = serde_json::from_slice(line).ok()?;
            Some(Self { id, action: Action::Unknown })
        };
        serde_json::from_slice(line).ok().or_else(unknown)
    }
}

impl Action {
    /// Returns its type.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Hold(_) => Kind::Hold,
            Self::Signal { .. } => Kind::Signal,
            Self::Start { .. } => Kind::Start,
            Self::Capture(_) => Kind::Capture,
            Self::Unknown => Kind::Unknown,
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The request's number.
    pub id: u64,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The process is held.
    Held(Box<ProcessInfo>),
    /// What was done, for the user.
    Text(Foreign),
    /// It was done, and there is nothing to show.
    Done,
    /// Why it was not done, for the user.
    Error(Foreign),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::event::{ProbeId, Rises};

    #[test]
    fn every_request_comes_back_and_is_short() {
        let rises = Rises { every: u64::MAX, last: u64::MAX, slack: u64::MAX };
        let ask = CaptureRequest {
            probe: ProbeId(u32::MAX),
            steps: u64::MAX,
            rises: Some(rises),
            growth: false,
            collect: false,
        };
        let actions = [
            Action::Hold(Subject { pid: u32::MAX, start_ticks: Some(u64::MAX), vouched: true }),
            Action::Signal { held: u64::MAX, signal: Signal::Usr1 },
            Action::Start { held: u64::MAX, start: Start::Trace },
            Action::Capture(Capture { pid: u32::MAX, ask }),
        ];
        assert_eq!(actions.map(|it| it.kind()), KINDS);
        for action in actions {
            let request = Request { id: u64::MAX, action };
            let line = request.line();
            assert_eq!(Request::read(line.as_bytes()), Some(request), "{line}");
            assert!(line.len() < REQUEST_MAX / 8 && line.ends_with('\n'), "{line}");
        }
    }

    #[test]
    fn a_line_with_an_id_gets_an_answer_and_garbage_does_not() {
        let unknown = Some(Request { id: 7, action: Action::Unknown });
        for line in [r#"{"id":7,"type":"dance"}"#, r#"{"id":7}"#, r#"{"id":7,"type":"hold","pid":-1}"#] {
            assert_eq!(Request::read(line.as_bytes()), unknown, "{line}");
        }
        for line in ["", "hold 7", "7", r#"{"id":-7,"type":"hold"}"#, r#"{"type":"hold","pid":1}"#, "\u{0}"] {
            assert_eq!(Request::read(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn answers_come_back() {
        let info = ProcessInfo { pid: 7, argv: vec!["a".into()], ..ProcessInfo::default() };
        let text = [Outcome::Text("x".into()), Outcome::Error("y".into())];
        for outcome in [Outcome::Held(Box::new(info)), Outcome::Done].into_iter().chain(text) {
            let answer = Answer { id: 7, outcome };
            let text = serde_json::to_string(&answer).unwrap();
            assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), answer, "{text}");
        }
    }
}
