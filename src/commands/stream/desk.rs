//! The requests that a stream answers: what a key does on one machine, at a gpuwatch on another.

use crate::{
    facts::{
        event::{Event, Fact, Line, ProbeId},
        remote::{Action, Answer, KINDS, Kind, Outcome, Request},
        text::Foreign,
    },
    screen::actions::LocalActions,
};
use std::collections::BTreeMap;

/// Most probes whose processes are remembered; beyond that, the oldest are forgotten.
const PROBES: usize = 4096;

/// Answers requests.
#[derive(Debug, Default)]
pub struct Desk {
    /// What acts on processes; `None` in a read-only stream.
    hands: Option<LocalActions>,
    /// The request that holds a process.
    held: Option<u64>,
    /// The pid that each probe reports.
    probes: BTreeMap<ProbeId, u32>,
}

impl Desk {
    /// Creates one that acts with these hands, or refuses every request without any.
    pub fn new(hands: Option<LocalActions>) -> Self {
        Self { hands, ..Self::default() }
    }

    /// Returns the types of requests that it answers.
    pub fn kinds(&self) -> Vec<Kind> {
        if self.hands.is_some() { KINDS.to_vec() } else { Vec::new() }
    }

    /// Takes an event that the reader gets.
    pub(super) fn note(&mut self, event: &Event) {
        if let Fact::Probe { probe, line } = &event.fact
            && let Line::Hello(hello) = &**line
        {
            self.probes.insert(*probe, hello.pid);
            if self.probes.len() > PROBES {
                self.probes.pop_first();
            }
        }
    }

    /// Carries a request out. Returns its answer; `None` if that comes with [`Self::late`].
    pub(super) fn answer(&mut self, request: Request) -> Option<Answer> {
        let id = request.id;
        let outcome = match self.act(request) {
            Ok(outcome) => outcome?,
            Err(why) => Outcome::Error(Foreign::new(why)),
        };
        Some(Answer { id, outcome })
    }

    fn act(&mut self, Request { id, action }: Request) -> Result<Option<Outcome>, String> {
        let hands = self.hands.as_mut().ok_or("gpuwatch there is --readonly: it takes no requests")?;
        let held = self.held;
        let is_held = |it: u64| (held == Some(it)).then_some(()).ok_or("the process is not selected any more");
        Ok(match action {
            Action::Hold(subject) => {
                self.held = None;
                let info = hands.hold(&subject)?.clone();
                self.held = Some(id);
                Some(Outcome::Held(Box::new(info)))
            }
            Action::Signal { held, signal } => {
                is_held(held)?;
                Some(Outcome::Text(Foreign::new(hands.send(signal)?)))
            }
            Action::Start { held, start } => {
                is_held(held)?;
                hands.start(start, id)?;
                None
            }
            Action::Capture(it) if self.probes.get(&it.ask.probe) == Some(&it.pid) => {
                hands.capture(it.ask)?;
                Some(Outcome::Done)
            }
            Action::Capture(it) => return Err(format!("pid {} has no probe any more", it.pid)),
            Action::Unknown => {
                return Err(format!(
                    "gpuwatch {} there has no such request: use a newer one there",
                    env!("CARGO_PKG_VERSION")
                ));
            }
        })
    }

    /// Waits for the answer of what a request has started.
    pub(super) async fn late(&mut self) -> Answer {
        match &mut self.hands {
            Some(hands) => {
                let (id, words) = hands.answer().await;
                Answer { id, outcome: Outcome::Text(Foreign::new(words)) }
            }
            None => std::future::pending().await,
        }
    }
}
