//! The lines of one probe, each passed on once, and what its reader reports to the scanner.

use super::directory::SocketId;
use crate::{
    facts::{
        event::{
            Event, Fact, Line, ProbeId, sample, stamp_of,
            wire::{Hello, Lost},
        },
        text::{self, Foreign},
    },
    sources::{EventSender, now, thinner::Thinner},
};
use std::time::Duration;

/// So many probes are read whole, which is more than a usual node has. Of more probes a viewer takes 1,000 samples a
/// second in all, if each uses one device: a sample of each device of a process in so many µs for each probe.
const WHOLE: usize = 16;
const SHARE_US: u64 = 1000;

/// Time between two readings of each of so many probes, and between two pictures. A socket holds what a fast job sends
/// meanwhile, and a probe that ends waits longer than this for its last lines to be read.
const REST: Duration = Duration::from_millis(250);

/// Returns the time between two readings of a probe, if a screen reads so many; `None` if each is read at once.
pub fn pace(probes: usize) -> Option<Duration> {
    (probes > WHOLE).then_some(REST)
}

fn stretch_us(probes: usize) -> u64 {
    if probes > WHOLE { SHARE_US * probes as u64 } else { 0 }
}

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
    /// What was sent before this reader came has arrived.
    is_live: bool,
    thinner: Thinner,
    /// What passes, and is not sent yet.
    passed: Vec<Event>,
    pub(super) sender: &'a EventSender,
}

impl<'a> Lines<'a> {
    /// Continues after line `seq`; 0 is the first.
    pub(super) fn after(seq: u64, probe: ProbeId, sender: &'a EventSender) -> Self {
        let (thinner, passed) = (Thinner::new(0), Vec::new());
        Self { probe, seq, has_bye: false, is_spill_read: false, is_live: false, thinner, passed, sender }
    }

    /// Reports the peer; false when nothing receives the facts.
    pub(super) async fn find(&mut self, pid: Option<u32>, path: Foreign, hello: &Hello) -> bool {
        let found = Fact::ProbeFound { probe: self.probe, pid, socket: path };
        self.sender.send(found).await && self.pass_on(Box::new(Line::Hello(hello.clone()))).await
    }

    /// Sends a line, unless it was sent before; false when nothing receives the facts.
    pub(super) async fn pass_on(&mut self, line: Box<Line>) -> bool {
        if let Some(seq) = line.seq() {
            if seq <= self.seq {
                return true;
            }
            self.seq = seq;
        }
        self.has_bye |= matches!(*line, Line::Bye(_));
        self.is_live |= matches!(*line, Line::Live(_));
        // A clock that runs ahead of this one (a time namespace) must not move the session into the future.
        let now = now();
        let at = stamp_of(&line).map_or(now, |it| it.min(now));
        let event = Event { at, fact: Fact::Probe { probe: self.probe, line } };
        self.thinner.take(event, &mut |it| self.passed.push(it));
        self.send_passed().await
    }

    /// Sets how many probes are read.
    pub(super) fn beside(&mut self, probes: usize) {
        self.thinner.stretch_us = stretch_us(probes);
    }

    /// Returns how long they may wait before they are read: not all samples pass, and no backlog is left.
    pub(super) fn may_wait(&self) -> Option<Duration> {
        (self.thinner.stretch_us > 0 && self.is_live).then_some(REST)
    }

    /// Returns how long a held sample waits at most; `None` if none is held.
    pub(super) fn holds_for(&self) -> Option<Duration> {
        self.thinner.is_holding().then(|| Duration::from_micros(self.thinner.stretch_us))
    }

    /// Sends the samples whose stretch is over; false when nothing receives the facts.
    pub(super) async fn flush(&mut self) -> bool {
        self.thinner.flush(now(), &mut |it| self.passed.push(it));
        self.send_passed().await
    }

    /// Sends all samples, because no more lines follow.
    pub(super) async fn finish(&mut self) -> bool {
        self.thinner.finish(&mut |it| self.passed.push(it));
        self.send_passed().await
    }

    async fn send_passed(&mut self) -> bool {
        for it in self.passed.drain(..) {
            if !self.sender.send_at(it.at, it.fact).await {
                return false;
            }
        }
        true
    }

    /// Passes on the lines that a probe forgot, which `look` reads from its spill, and the number of those that are not
    /// there either. It is not called again once it finds nothing new: only the first errors have room in a spill.
    pub(super) async fn recover(&mut self, lost: Lost, look: impl FnOnce() -> Vec<Line>) -> bool {
        let spilled = if self.is_spill_read { Vec::new() } else { look() };
        let news: Vec<Line> = spilled.into_iter().filter(|it| it.seq() > Some(self.seq)).collect();
        self.is_spill_read |= news.is_empty();
        let found = news.iter().filter(|it| matches!(it, Line::Oom(_) | Line::OomMessage(_))).count() as u64;
        for line in news {
            if !self.pass_on(Box::new(line)).await {
                return false;
            }
        }
        let failures = lost.failures.map(|it| it.saturating_sub(found)).filter(|it| *it > 0);
        (failures.is_none() && lost.samples == 0) || self.pass_on(Box::new(Line::Lost(Lost { failures, ..lost }))).await
    }

    /// The same for a stream that may have been sent in part, so only numbered lines can be new.
    pub(super) async fn pass_on_news(&mut self, line: Box<Line>) -> bool {
        line.seq().is_none() || self.pass_on(line).await
    }
}

/// Parses a line, or describes what is wrong with it.
///
/// Python writes a lone surrogate as an escape that JSON allows and that no text can hold. Such halves become U+FFFD.
pub(super) fn parse(text: &str) -> Result<Box<Line>, String> {
    if let Some(row) = sample::read(text) {
        return Ok(row.line);
    }
    let read = serde_json::from_str(text);
    let read = read.or_else(|e| without_halves(text).map_or(Err(e), |it| serde_json::from_str(&it)));
    read.map_err(|e| format!("sent a line that is not of the wire ({})", text::fault(&e)))
}

/// Replaces every lone surrogate (`\ud83d` without its other half); `None` if there is none.
fn without_halves(text: &str) -> Option<String> {
    let (mut out, mut rest, mut has_halves) = (String::new(), text, false);
    while let Some(at) = rest.find('\\') {
        let (before, escaped) = rest.split_at(at);
        let is_pair = escaped.get(6..).and_then(surrogate).is_some_and(|it| it >= 0xdc00);
        let length = match surrogate(escaped) {
            Some(0xd800..=0xdbff) if is_pair => 12,
            Some(_) => 6,
            None => 2,
        };
        let (escape, after) = escaped.split_at_checked(length)?;
        out.push_str(before);
        out.push_str(if length == 6 { "\\ufffd" } else { escape });
        has_halves |= length == 6;
        rest = after;
    }
    has_halves.then(|| out + rest)
}

/// Returns the surrogate that a text begins with.
fn surrogate(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok().filter(|it| (0xd800..=0xdfff).contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        match parse(&format!("{{\"type\":\"mark\",\"at_us\":1,\"name\":\"{text}\"}}")).map(|it| *it) {
            Ok(Line::Mark(mark)) => mark.name,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn halves_of_surrogate_pairs_are_accepted() {
        let cases = [
            (r"a\udcffb", "a\u{fffd}b"),
            (r"\ud83d", "\u{fffd}"),
            (r"\ud83d\ude00\udcff", "\u{1f600}\u{fffd}"),
            (r"\ud83d\ud83d\ude00", "\u{fffd}\u{1f600}"),
            (r"\\udcff\udcff", "\\udcff\u{fffd}"),
            (r"\uDCFF\n", "\u{fffd}\n"),
        ];
        for (text, read) in cases {
            assert_eq!(name(text), read, "{text}");
        }
        for bad in [r#"{"type":"mark","name":"\udcf"}"#, r#"{"type":"mark","name":"\"#, "nonsense", ""] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
