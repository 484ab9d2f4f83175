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
mod tests {
    //! The fold of a cluster: the states of links, clocks, and sessions that begin again.

    use super::*;
    use crate::facts::event::Fact;

    fn cluster() -> Cluster {
        Cluster::new(["a", "b"].map(str::to_owned), Stamp(0))
    }

    fn apply(cluster: &mut Cluster, node: usize, at: u64, what: What) {
        cluster.apply(HostUpdate { node, at: Stamp(at), what });
    }

    fn greeting() -> What {
        What::Greeting(Greeting {
            gpuwatch: "1".into(),
            host: "a".into(),
            started_unix_us: 1,
            monotonic_us: 1,
            boot_id: None,
        })
    }

    fn links(cluster: &Cluster) -> [&'static str; 2] {
        [cluster.nodes[0].link.name(), cluster.nodes[1].link.name()]
    }

    #[test]
    fn a_machine_that_sends_nothing_is_silent_and_delays_no_other() {
        let mut it = cluster();
        apply(&mut it, 0, 10, greeting());
        assert_eq!(links(&it), ["up", "connecting"]);
        apply(&mut it, 0, SILENT_US - 1, What::Second);
        assert_eq!(links(&it), ["up", "connecting"]);
        apply(&mut it, 0, SILENT_US, What::Event(Event { at: Stamp(1), fact: Fact::Second }));
        apply(&mut it, 0, SILENT_US, What::Second);
        assert_eq!(links(&it), ["up", "silent"]);
        apply(&mut it, 0, 3 * SILENT_US, What::Second);
        assert_eq!(it.nodes[0].link.why().unwrap().raw(), "no line for 10 s");
        apply(&mut it, 0, 3 * SILENT_US, What::Beat { there: Stamp(5), unix_there: 1, unix_here: 1 });
        assert_eq!(links(&it), ["up", "silent"]);
    }

    #[test]
    fn the_reason_of_a_failure_stays_until_the_machine_answers_again() {
        let mut it = cluster();
        apply(&mut it, 1, 10, What::Link(Link::refused("no route".to_owned())));
        apply(&mut it, 1, 20, What::Link(Link::Connecting));
        apply(&mut it, 1, 2 * SILENT_US, What::Second);
        assert_eq!(it.nodes[1].link, Link::refused("no route".to_owned()));
        apply(&mut it, 1, 2 * SILENT_US, greeting());
        assert_eq!(it.nodes[1].link, Link::Up);
    }

    #[test]
    fn a_stream_that_begins_again_replaces_the_session_and_the_clock() {
        let mut it = cluster();
        apply(&mut it, 0, 10, greeting());
        apply(&mut it, 0, 20, What::Event(Event { at: Stamp(7), fact: Fact::Notice("x".into()) }));
        apply(&mut it, 0, 1_000, What::Beat { there: Stamp(400), unix_there: 5, unix_here: 5 });
        assert_eq!((it.nodes[0].session.now, it.nodes[0].age_us(Stamp(300), it.now)), (Stamp(400), Some(100)));
        apply(&mut it, 0, 2_000, What::Link(Link::refused("it ended".to_owned())));
        assert_eq!(it.nodes[0].session.notices.iter().count(), 1, "the last known state stays");
        apply(&mut it, 0, 3_000, greeting());
        assert_eq!(it.nodes[0].session, Session::default());
        assert_eq!(it.nodes[0].age_us(Stamp(300), it.now), None);
    }

    #[test]
    fn news_of_a_machine_that_is_not_in_the_list_changes_nothing() {
        let mut it = cluster();
        apply(&mut it, 7, 10, greeting());
        assert_eq!(links(&it), ["connecting", "connecting"]);
    }

    #[test]
    fn the_beat_with_the_shortest_delay_measures_the_clocks() {
        let mut clock = Clock::default();
        assert_eq!((clock.here(Stamp(5)), clock.wall_ahead_us()), (None, None));
        for delay in [90, 7, 300, 2_000_000] {
            // There, the monotonic clock is 1000 s ahead, and the wall clock 3 s.
            let there = (Stamp(1_000_000_000 + 500), 60_000_000 + 3_000_000);
            clock.beat(there, (Stamp(500 + delay), 60_000_000 + delay));
        }
        assert_eq!(clock.here(Stamp(1_000_000_900)), Some(Stamp(907)));
        assert_eq!(clock.wall_ahead_us(), Some(3_000_000 - 7));
    }

    #[test]
    fn clocks_of_a_hostile_machine_stay_in_range_and_old_beats_are_forgotten() {
        let mut clock = Clock::default();
        clock.beat((Stamp(u64::MAX), u64::MAX), (Stamp(0), 0));
        assert!(clock.here(Stamp(u64::MAX)).is_some());
        clock.beat((Stamp(0), 0), (Stamp(u64::MAX), u64::MAX));
        assert!(clock.here(Stamp(0)).is_some() && clock.wall_ahead_us().is_some());
        for _ in 0..BEATS {
            clock.beat((Stamp(10), 10), (Stamp(15), 10));
        }
        assert_eq!((clock.here(Stamp(10)), clock.beats.len()), (Some(Stamp(15)), BEATS));
    }

    /// The last hour until second 7200, with these points in seconds.
    fn past(points: &[(u64, f64)]) -> Past {
        let points = points.iter().map(|(at, value)| (at * 1_000_000, *value)).collect();
        Past { end_us: Some(7_200_000_000), points, ..Past::awaited(RankFigure::Allocated, 3600) }
    }

    #[test]
    fn a_column_has_its_worst_value_and_a_gap_stays_a_gap() {
        let it = past(&[(3600, 99.0), (3615, 1.0), (3630, 9.0), (3645, 2.0), (7200, 5.0), (7300, 8.0), (1, 8.0)]);
        assert_eq!(it.columns(4), [Some(9.0), None, None, Some(5.0)]);
        let low = Past { figure: RankFigure::Full, ..it };
        assert_eq!(low.columns(4)[0], Some(1.0));
        assert_eq!(past(&[]).columns(3), [None; 3]);
        assert_eq!(past(&[(3615, 1.0)]).columns(0), []);
    }

    #[test]
    fn a_point_fills_more_columns_than_there_are_points() {
        let every: Vec<(u64, f64)> = (1..=240).map(|it| (3600 + it * 15, 1.0)).collect();
        assert!(past(&every).columns(1000).iter().all(Option::is_some));
        assert_eq!(past(&every[..120]).columns(1000).iter().flatten().count(), 500);
    }

    #[test]
    fn a_machine_that_gpuwatch_is_copied_to_is_not_silent_until_the_copy_is_there() {
        let mut it = cluster();
        apply(&mut it, 1, 10, What::Link(Link::Copying));
        apply(&mut it, 1, 9 * SILENT_US, What::Second);
        assert_eq!(links(&it), ["silent", "copying"]);
        assert_eq!(it.nodes[1].link.why(), None);
        apply(&mut it, 1, 9 * SILENT_US, What::Link(Link::Connecting));
        apply(&mut it, 1, 10 * SILENT_US - 1, What::Second);
        assert_eq!(links(&it)[1], "connecting");
        apply(&mut it, 1, 10 * SILENT_US, What::Second);
        assert_eq!(links(&it)[1], "silent");
    }
}
