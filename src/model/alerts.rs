//! Alerts: which findings are open, what the user asked of them, and which a person is to be told of, each once.

/// Which jobs are asked for the lines that allocate what grows.
mod captures;
/// What a person or a program is told.
mod message;
/// What the user asks of alerts by their names.
mod policy;

use crate::{
    facts::event::ProbeId,
    model::{
        analysis::{episode::Resource, severity::Severity},
        findings::{Finding, Findings, Kind, Standing},
        session::{
            Session,
            process::{Life, Process},
        },
    },
};
pub use captures::{Captures, longer, question, question_of, words};
pub use message::{Message, line};
pub use policy::{Name, Policy, name};
use std::collections::{BTreeMap, BTreeSet};

/// Whether a finding still asks for something to be done: it lasts, and so does its process. What a process ran
/// out of memory with stays, and when none lives any more, what they ended with is what there is to see.
pub fn is_open(it: &Finding, session: &Session) -> bool {
    let is_over = || {
        let has_ended = session.process(it.probe).is_none_or(|it| !it.is_alive());
        has_ended && it.kind != Kind::Oom && session.processes.iter().any(Process::is_alive)
    };
    it.is_active() && !is_over()
}

/// How many are open of a severity, without those that are expected.
pub fn open(session: &Session, findings: &Findings, severity: Severity) -> usize {
    let counts = |it: &&Finding| it.severity == severity && !it.is_allowed() && is_open(it, session);
    findings.all.iter().filter(counts).count()
}

/// What a person was told of. What is no longer remembered of a session is forgotten here too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct News {
    told: BTreeSet<Identity>,
}

/// What never changes in a finding.
pub type Identity = (Kind, ProbeId, Option<u32>, Option<Resource>, u64);

impl News {
    /// What is open, matters at least as a warning, is neither silenced nor allowed, and was not told before. To be
    /// asked on the grid of events, at each [`Fact::Second`](crate::facts::event::Fact::Second), so that it does not depend
    /// on when pictures are drawn.
    ///
    /// What a process's backlog shows waits until it is over: it may have ended there as well.
    pub fn at(&mut self, session: &Session, findings: &Findings) -> Vec<Message> {
        let known: BTreeSet<Identity> = findings.all.iter().map(identity).collect();
        self.told.retain(|it| known.contains(it));
        let is_caught_up = |it: &Finding| {
            session.process(it.probe).is_some_and(|process| !matches!(process.life, Life::Found | Life::CatchingUp))
        };
        let is_wanted = |it: &Finding| it.severity >= Severity::Warning && it.standing == Standing::Usual;
        let matters = |it: &&Finding| is_wanted(it) && is_open(it, session) && is_caught_up(it);
        let news = findings.all.iter().filter(matters).filter(|it| self.told.insert(identity(it)));
        news.map(|it| Message::new(it, session)).collect()
    }
}

/// Which findings of any severity were raised and which were resolved, each told once.
#[derive(Clone, Debug, Default)]
pub struct Edges {
    active: BTreeMap<Identity, bool>,
}

impl Edges {
    /// What changed since it was asked last: `raised` or `resolved`, and the finding.
    pub fn at<'a>(&mut self, findings: &'a Findings) -> Vec<(&'static str, &'a Finding)> {
        let known: BTreeSet<Identity> = findings.all.iter().map(identity).collect();
        self.active.retain(|it, _| known.contains(it));
        let mut out = Vec::new();
        for it in &findings.all {
            let before = self.active.insert(identity(it), it.is_active());
            match (before, it.is_active()) {
                (None | Some(false), true) => out.push(("raised", it)),
                // One that came and went between two looks is told whole.
                (None, false) => out.extend([("raised", it), ("resolved", it)]),
                (Some(true), false) => out.push(("resolved", it)),
                _ => {}
            }
        }
        out
    }
}

/// What tells a finding from every other one, however its figures move.
pub fn identity(it: &Finding) -> Identity {
    (it.kind, it.probe, it.ordinal, it.resource, it.first_alert_step)
}
