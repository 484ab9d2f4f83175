//! The lines of one probe, each passed on once, and what its reader reports to the scanner.

use super::directory::SocketId;
use crate::{
    facts::{
        event::{
            Fact, Line, ProbeId, stamp_of,
            wire::{Hello, Lost},
        },
        text::Foreign,
    },
    sources::{EventSender, now},
};

/// What to do with a socket after its connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Try it again soon.
    Again,
    /// Wait, because the fault may last.
    Later,
    /// Ignore it, because it does not belong to this run.
    Never,
    /// Try it again once no other socket reads this probe.
    After(ProbeId),
}

/// What a connection reports to the scanner.
#[derive(Clone, Copy, Debug)]
pub(super) enum Report {
    /// The peer was identified or refused.
    Greeted(SocketId),
    /// The connection ended.
    Ended(SocketId, Next),
}

/// The lines of one probe, each sent once.
pub(super) struct Lines<'a> {
    pub(super) probe: ProbeId,
    pub(super) seq: u64,
    pub(super) has_bye: bool,
    /// Its spill has nothing more.
    pub(super) is_spill_read: bool,
    pub(super) sender: &'a EventSender,
}

impl<'a> Lines<'a> {
    /// Continues after line `seq`; 0 is the first.
    pub(super) fn after(seq: u64, probe: ProbeId, sender: &'a EventSender) -> Self {
        Self { probe, seq, has_bye: false, is_spill_read: false, sender }
    }

    /// Reports the peer; false when nothing receives the facts.
    pub(super) async fn find(&mut self, pid: Option<u32>, path: Foreign, hello: &Hello) -> bool {
        let found = Fact::ProbeFound { probe: self.probe, pid, socket: path };
        self.sender.send(found).await && self.pass_on(Line::Hello(hello.clone())).await
    }

    /// Sends a line, unless it was sent before; false when nothing receives the facts.
    pub(super) async fn pass_on(&mut self, line: Line) -> bool {
        if let Some(seq) = line.seq() {
            if seq <= self.seq {
                return true;
            }
            self.seq = seq;
        }
        self.has_bye |= matches!(line, Line::Bye(_));
        // A clock that runs ahead of this one (a time namespace) must not move the session into the future.
        let now = now();
        let at = stamp_of(&line).map_or(now, |it| it.min(now));
        self.sender.send_at(at, Fact::Probe { probe: self.probe, line: Box::new(line) }).await
    }

    /// Passes on the lines that a probe forgot, which `look` reads from its spill, and the number of those that are not
    /// there either. It is not called again once it finds nothing new: only the first errors have room in a spill.
    pub(super) async fn recover(&mut self, lost: Lost, look: impl FnOnce() -> Vec<Line>) -> bool {
        let spilled = if self.is_spill_read { Vec::new() } else { look() };
        let news: Vec<Line> = spilled.into_iter().filter(|it| it.seq() > Some(self.seq)).collect();
        self.is_spill_read |= news.is_empty();
        let found = news.iter().filter(|it| matches!(it, Line::Oom(_) | Line::OomMessage(_))).count() as u64;
        for line in news {
            if !self.pass_on(line).await {
                return false;
            }
        }
        let failures = lost.failures.map(|it| it.saturating_sub(found)).filter(|it| *it > 0);
        (failures.is_none() && lost.samples == 0) || self.pass_on(Line::Lost(Lost { failures, ..lost })).await
    }

    /// The same for a stream that may have been sent in part, so only numbered lines can be new.
    pub(super) async fn pass_on_news(&mut self, line: Line) -> bool {
        line.seq().is_none() || self.pass_on(line).await
    }
}
