//! Alerts: which findings are open, and which of them a person is to be told of, each once.

use crate::{
    analysis::severity::Severity,
    findings::{Finding, Findings, Kind},
    session::{Session, process::Process},
};

/// Whether a finding still asks for something to be done: it lasts, and so does its process. What a process ran
/// out of memory with stays, and when none lives any more, what they ended with is what there is to see.
pub fn is_open(it: &Finding, session: &Session) -> bool {
    let is_over = || {
        let has_ended = session.process(it.probe).is_none_or(|it| !it.is_alive());
        has_ended && it.kind != Kind::Oom && session.processes.iter().any(Process::is_alive)
    };
    it.is_active() && !is_over()
}

/// How many are open of a severity.
pub fn open(session: &Session, findings: &Findings, severity: Severity) -> usize {
    findings.all.iter().filter(|it| it.severity == severity && is_open(it, session)).count()
}
