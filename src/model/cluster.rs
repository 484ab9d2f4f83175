//! Several machines: a session for each, the state of its link, and how far its clock is apart. The fold over the news
//! of all links.

/// Jobs that span machines, and their ranks.
pub mod jobs;

/// Findings of a job, over all its ranks.
pub mod findings;

/// The rows of a screen of many machines.
pub mod overview;

use super::session::Session;
use crate::facts::{
    event::{Event, Fact},
    text::Foreign,
    units::{self, Stamp},
};
use overview::figure::RankFigure;
use std::collections::VecDeque;

/// A link without a line for this long is silent, in µs: a stream has a line each second.
pub const SILENT_US: u64 = 5_000_000;

/// Everything this gpuwatch knows of other machines.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// The time of the latest news, on this machine's clock.
    pub now: Stamp,
    /// The machines, in the order of the user's list.
    pub nodes: Vec<Node>,
}

/// A machine.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its name in the user's list.
    pub host: Foreign,
    /// The state of its link.
    pub link: Link,
    /// What its gpuwatch reports about itself; `None` before it answered.
    pub greeting: Option<Greeting>,
    /// When the current stream began; `None` before it did.
    pub up_at: Option<Stamp>,
    /// When its last line arrived, or the attempt to reach it began.
    pub line_at: Stamp,
    /// How far its clocks are apart.
    pub clock: Clock,
    /// Its session, on its own clock.
    pub session: Session,
}

/// The state of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// The machine has not answered yet.
    #[default]
    Connecting,
    /// gpuwatch is being copied to it, before it can answer.
    Copying,
    /// Its events arrive.
    Up,
    /// The connection failed or ended; gpuwatch tries again.
    Refused {
        /// The reason.
        why: Foreign,
    },
    /// No line arrives.
    Silent {
        /// For how long.
        why: Foreign,
    },
    /// What arrives cannot be read.
    Incompatible {
        /// The reason.
        why: Foreign,
    },
}

/// What a machine's gpuwatch reports about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Its version.
    pub gpuwatch: Foreign,
    /// The machine's own name.
    pub host: Foreign,
    /// Its wall clock when the stream began, µs of Unix time.
    pub started_unix_us: u64,
    /// Its `CLOCK_MONOTONIC` at the same instant, in µs.
    pub monotonic_us: u64,
    /// The kernel's id of its boot; `None` of an earlier release.
    pub boot_id: Option<String>,
}

/// News of a machine, or of none in particular.
#[derive(Clone, Debug, PartialEq)]
pub struct HostUpdate {
    /// The machine's place in the list.
    pub node: usize,
    /// When it arrived, on this machine's clock.
    pub at: Stamp,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A second passed here.
    Second,
    /// The link changed.
    Link(Link),
    /// A stream began.
    Greeting(Greeting),
    /// An event of the machine, on its own clock.
    Event(Event),
    /// Its clocks, and this machine's wall clock at the arrival.
    Beat {
        /// Its `CLOCK_MONOTONIC`.
        there: Stamp,
        /// Its wall clock, µs of Unix time.
        unix_there: u64,
        /// This machine's, at the arrival.
        unix_here: u64,
    },
}

impl Link {
    /// Returns a link that failed.
    pub fn refused(why: String) -> Self {
        Self::Refused { why: Foreign::new(why) }
    }

    /// Returns a link whose lines cannot be read.
    pub fn incompatible(why: String) -> Self {
        Self::Incompatible { why: Foreign::new(why) }
    }

    /// Returns its name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Copying => "copying",
            Self::Up => "up",
            Self::Refused { .. } => "refused",
            Self::Silent { .. } => "silent",
            Self::Incompatible { .. } => "incompatible",
        }
    }

    /// Returns why it failed, if it did.
    pub fn why(&self) -> Option<&Foreign> {
        match self {
            Self::Connecting | Self::Copying | Self::Up => None,
            Self::Refused { why } | Self::Silent { why } | Self::Incompatible { why } => Some(why),
        }
    }
}

impl Cluster {
    /// Creates a cluster whose links begin now.
    pub fn new(hosts: impl IntoIterator<Item = String>, now: Stamp) -> Self {
        let node = |host: String| Node {
            host: Foreign::new(host),
            link: Link::default(),
            greeting: None,
            up_at: None,
            line_at: now,
            clock: Clock::default(),
            session: Session::default(),
        };
        Self { now, nodes: hosts.into_iter().map(node).collect() }
    }

    /// Applies news.
    pub fn apply(&mut self, news: HostUpdate) {
        self.now = self.now.max(news.at);
        if news.what == What::Second {
            let now = self.now;
            self.nodes.iter_mut().for_each(|it| it.second(now));
        } else if let Some(node) = self.nodes.get_mut(news.node) {
            node.apply(news.at, news.what);
        }
    }
}

impl Node {
    /// Returns the µs since an instant of this machine's clock; `None` before its clock is known.
    pub fn age_us(&self, there: Stamp, now: Stamp) -> Option<u64> {
        Some(now.since(self.clock.here(there)?))
    }

    fn apply(&mut self, at: Stamp, what: What) {
        match what {
            What::Second => {}
            What::Link(Link::Connecting) if self.link == Link::Copying => {
                self.link = Link::Connecting;
                self.line_at = at;
            }
            // Another attempt does not hide why the last one failed.
            What::Link(Link::Connecting) => self.up_at = None,
            What::Link(link) => {
                self.link = link;
                self.up_at = None;
            }
            What::Greeting(greeting) => {
                // A stream begins with everything that its machine knows, under numbers of its own.
                self.session = Session::default();
                self.clock = Clock::default();
                self.greeting = Some(greeting);
                self.up_at = Some(at);
                self.line_arrived(at);
            }
            What::Event(event) => {
                self.session.apply(&event);
                self.line_arrived(at);
            }
            What::Beat { there, unix_there, unix_here } => {
                self.clock.beat((there, unix_there), (at, unix_here));
                self.session.apply(&Event { at: there, fact: Fact::Second });
                self.line_arrived(at);
            }
        }
    }

    fn line_arrived(&mut self, at: Stamp) {
        self.line_at = at;
        self.link = Link::Up;
    }

    fn second(&mut self, now: Stamp) {
        let quiet_us = now.since(self.line_at);
        if quiet_us >= SILENT_US && matches!(self.link, Link::Connecting | Link::Up | Link::Silent { .. }) {
            let since = units::duration(quiet_us);
            self.link = Link::Silent { why: Foreign::new(format!("no line for {since}")) };
        }
    }
}

/// Beats that are compared: two clocks drift apart by a few µs in each second.
const BEATS: usize = 64;

/// The measured differences, in µs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Of each beat: how far this machine's monotonic clock is ahead, and its wall clock.
    beats: VecDeque<(i64, i64)>,
}

impl Clock {
    /// Takes a beat: the machine's clocks, and this machine's at the arrival; monotonic and wall clock.
    pub fn beat(&mut self, there: (Stamp, u64), here: (Stamp, u64)) {
        if self.beats.len() == BEATS {
            self.beats.pop_front();
        }
        self.beats.push_back((difference(here.0.0, there.0.0), difference(here.1, there.1)));
    }

    /// Returns a machine's instant on this machine's clock; `None` before the first beat.
    pub fn here(&self, there: Stamp) -> Option<Stamp> {
        let ahead = self.beats.iter().map(|it| it.0).min()?;
        Some(Stamp(there.0.saturating_add_signed(ahead)))
    }

    /// Returns how far the machine's wall clock is ahead of this one's, in µs; `None` before the first beat.
    pub fn wall_ahead_us(&self) -> Option<i64> {
        self.beats.iter().map(|it| it.1).min().map(i64::saturating_neg)
    }
}

fn difference(one: u64, other: u64) -> i64 {
    let signed = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
    signed(one).saturating_sub(signed(other))
}

/// Points of a past: µs of Unix time, and the worst value of the step that ends there.
pub type History = Vec<(u64, f64)>;

/// What a store without any series of gpuwatch lacks.
pub const NOTHING: &str = "has no figures of `gpuwatch serve` with these labels";

/// The state of a store, beside the rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    /// Its address.
    pub store: Foreign,
    /// How old the rows are, in µs; `None` before the first answer.
    pub age_us: Option<u64>,
    /// Why the latest question has no answer; `None` if it has one.
    pub trouble: Option<Foreign>,
    /// The past of the rank that is open.
    pub past: Option<Past>,
}

/// The past of a rank's figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Past {
    /// The figure.
    pub figure: RankFigure,
    /// Its length in seconds.
    pub seconds: u64,
    /// Its end, µs of Unix time; `None` before the store answers.
    pub end_us: Option<u64>,
    /// What the store has of it.
    pub points: History,
    /// Why the latest question has no answer.
    pub trouble: Option<Foreign>,
}

impl Past {
    /// Most points of a past.
    pub const POINTS: u64 = 240;

    /// Creates the past that gpuwatch asks for.
    pub fn awaited(figure: RankFigure, seconds: u64) -> Self {
        Self { figure, seconds, end_us: None, points: History::new(), trouble: None }
    }

    /// Returns the time from one point to the next, in seconds.
    pub fn step(seconds: u64, points: u64) -> u64 {
        (seconds / points.max(1)).max(1)
    }

    /// Returns the worst value in each of `columns` equal parts, in order; `None` where the store has none. A point
    /// counts from when the one before was due.
    pub fn columns(&self, columns: usize) -> Vec<Option<f64>> {
        let mut all: Vec<Option<f64>> = vec![None; columns];
        let length_us = self.seconds.max(1) * 1_000_000;
        let begin = self.end_us.unwrap_or_default().saturating_sub(length_us);
        let step_us = Self::step(self.seconds, Self::POINTS) * 1_000_000;
        let column = |us: u64| {
            let part = u128::from(us.min(length_us - 1)) * columns as u128 / u128::from(length_us);
            usize::try_from(part).unwrap_or(0)
        };
        for (at, value) in &self.points {
            let Some(end) = at.checked_sub(begin).filter(|it| (1..=length_us).contains(it)) else { continue };
            let covered = column(end.saturating_sub(step_us))..=column(end - 1);
            for cell in all.get_mut(covered).unwrap_or_default() {
                let is_worse = |known: &f64| self.figure.badness(*value) > self.figure.badness(*known);
                if cell.as_ref().is_none_or(is_worse) {
                    *cell = Some(*value);
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests;
