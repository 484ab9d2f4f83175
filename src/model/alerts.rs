//! Alerts: which findings are open, what the user's rules are, and which findings to report, each once.

/// Decides which jobs to ask for a capture.
mod captures;
/// Which findings of several machines and their jobs to report, each once.
mod machines;
/// An alert as text, variables and JSON.
mod message;
/// The user's rules for alerts.
mod policy;
/// Decides for which findings to replay a traced job.
mod replays;

pub use super::findings::is_open;
use crate::model::{
    analysis::severity::Severity,
    findings::{Finding, Findings, Identity, Standing},
    session::{
        Session,
        process::{Life, Process},
    },
};
pub use captures::{Captures, longer, question, question_of, words};
pub use machines::ClusterNews;
pub use message::{Message, line};
pub use policy::{Name, Policy, limited, line as line_to_blame, name, script};
pub use replays::{Due, Replays, has_error, replays_at_end};
use std::collections::{BTreeMap, BTreeSet};

/// Which findings gpuwatch has reported. It forgets those that the session has forgotten.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct News {
    reported: BTreeSet<Identity>,
}

impl News {
    /// Returns findings that are open, at least a warning, neither silenced nor allowed, and not yet reported. Call it
    /// on the grid of events, at each [`Fact::Second`](crate::facts::event::Fact::Second), so that alerts do not depend
    /// on when frames are drawn.
    ///
    /// While a process's backlog arrives its findings wait, because they may end within the backlog.
    pub fn at(&mut self, session: &Session, findings: &Findings) -> Vec<Message> {
        let known: BTreeSet<Identity> = findings.all.iter().map(Finding::identity).collect();
        self.reported.retain(|it| known.contains(it));
        let alerts = findings.all.iter().filter(|it| is_alert(it, session));
        let news = alerts.filter(|it| self.reported.insert(it.identity()));
        news.map(|it| Message::new(it, session)).collect()
    }
}

/// Returns whether a finding is an alert: open, at least a warning, neither silenced nor allowed, and its process's
/// backlog has arrived.
pub fn is_alert(it: &Finding, session: &Session) -> bool {
    let is_ready = |process: &Process| !matches!(process.life, Life::Found | Life::CatchingUp);
    let is_caught_up = || it.probe.is_none() || it.process(session).is_some_and(is_ready);
    it.severity >= Severity::Warning && it.standing == Standing::Usual && is_open(it, session) && is_caught_up()
}

/// Which findings of any severity were raised and resolved; each is reported once.
#[derive(Clone, Debug, Default)]
pub struct Edges {
    active: BTreeMap<Identity, bool>,
}

impl Edges {
    /// Returns what changed since the last call: `raised` or `resolved`, and the finding.
    pub fn at<'a>(&mut self, findings: &'a Findings) -> Vec<(&'static str, &'a Finding)> {
        let known: BTreeSet<Identity> = findings.all.iter().map(Finding::identity).collect();
        self.active.retain(|it, _| known.contains(it));
        let mut out = Vec::new();
        for it in &findings.all {
            let before = self.active.insert(it.identity(), it.is_active());
            match (before, it.is_active()) {
                (None | Some(false), true) => out.push(("raised", it)),
                // A finding that was raised and resolved between two calls gets both edges.
                (None, false) => out.extend([("raised", it), ("resolved", it)]),
                (Some(true), false) => out.push(("resolved", it)),
                _ => {}
            }
        }
        out
    }
}
