//! The lines of one probe, handed over each once, and what a reader of them reports to whoever looks for sockets.

use super::directory::SocketId;
use crate::{
    facts::{
        event::{Fact, Line, ProbeId, stamp_of, wire::Hello},
        text::Foreign,
    },
    sources::{EventSender, now},
};

/// What becomes of a socket whose connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It is asked again soon.
    Again,
    /// It is left alone for a while: what is wrong with it may last.
    Later,
    /// It is none of those that are looked for.
    Never,
    /// It is asked again once this probe is not read from another socket any more.
    After(ProbeId),
}

/// What a connection reports to whoever looks for sockets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Report {
    /// The peer was reported, or refused.
    Greeted(SocketId),
    /// It ended.
    Ended(SocketId, Next),
}

/// The lines of one probe, each sent once.
pub(super) struct Lines<'a> {
    pub(super) probe: ProbeId,
    pub(super) seq: u64,
    pub(super) said_bye: bool,
    pub(super) sender: &'a EventSender,
}

impl Lines<'_> {
    /// Reports the peer; false when nothing receives the facts.
    pub(super) async fn find(&mut self, pid: Option<u32>, path: Foreign, hello: &Hello) -> bool {
        let found = Fact::ProbeFound { probe: self.probe, pid, socket: path };
        self.sender.send(found).await && self.pass_on(Line::Hello(hello.clone())).await
    }

    /// Sends a line, unless it came before; false when nothing receives the facts.
    pub(super) async fn pass_on(&mut self, line: Line) -> bool {
        if let Some(seq) = line.seq() {
            if seq <= self.seq {
                return true;
            }
            self.seq = seq;
        }
        self.said_bye |= matches!(line, Line::Bye(_));
        // A clock that runs ahead of ours (a time namespace) must not carry the session into the future.
        let now = now();
        let at = stamp_of(&line).map_or(now, |it| it.min(now));
        self.sender.send_at(at, Fact::Probe { probe: self.probe, line: Box::new(line) }).await
    }

    /// The same for a stream of which a part may have come already, so that only numbered lines are news.
    pub(super) async fn pass_on_news(&mut self, line: Line) -> bool {
        line.seq().is_none() || self.pass_on(line).await
    }
}
