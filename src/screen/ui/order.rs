//! The order of the process list: by which figure, and in which direction.

use crate::{
    facts::{
        figures::{Figure, Figures},
        units,
    },
    model::{
        analysis::episode::Resource,
        session::{Session, process::OnDevice},
    },
    screen::ui::rows::ProcessRow,
};
use std::cmp::Ordering;

/// A shorter rest is part of any job, in µs.
const IDLE_US: u64 = 60_000_000;

/// The figure to sort by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum By {
    /// The probed ones by rank, then the others by their memory.
    #[default]
    Rank,
    /// Bytes of live allocations.
    Allocated,
    /// Bytes that the allocator reserved.
    Reserved,
    /// The unused part of reserved memory.
    Unused,
    /// Growth per step.
    PerStep,
    /// Bytes that the driver reports for the process.
    Driver,
    /// Steps done.
    Step,
    /// What is typical of the time of a step.
    StepTime,
    /// The pid.
    Pid,
    /// The command line.
    Command,
    /// The user.
    User,
    /// For how long it has done nothing.
    Idle,
    /// A figure of the process, which has a column only then.
    Figure(Figure),
}

impl By {
    /// All of them, in the order of the key.
    pub const ALL: [Self; 18] = [
        Self::Rank,
        Self::Allocated,
        Self::Reserved,
        Self::Unused,
        Self::PerStep,
        Self::Driver,
        Self::Step,
        Self::StepTime,
        Self::Pid,
        Self::Command,
        Self::User,
        Self::Idle,
        Self::Figure(Figure::SmPercent),
        Self::Figure(Figure::MemoryPercent),
        Self::Figure(Figure::CpuPercent),
        Self::Figure(Figure::IoWaitPercent),
        Self::Figure(Figure::Rss),
        Self::Figure(Figure::Threads),
    ];

    /// Returns its name, which is also the column's.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rank => "rank",
            Self::Allocated => "allocated",
            Self::Reserved => "reserved",
            Self::Unused => "unused",
            Self::PerStep => "per step",
            Self::Driver => "total",
            Self::Step => "step",
            Self::StepTime => "step time",
            Self::Pid => "pid",
            Self::Command => "command",
            Self::User => "user",
            Self::Idle => "idle",
            Self::Figure(it) => it.row().label,
        }
    }

    /// Returns whether the list of the memory preset has its column only while it is sorted by it.
    pub fn is_extra(self) -> bool {
        matches!(self, Self::StepTime | Self::User | Self::Idle | Self::Figure(_))
    }

    /// Returns what the column of a figure, of the user or of the time of a step shows of a row; `None` if that is
    /// unknown, and for other columns.
    pub fn value(self, row: &ProcessRow, session: &Session) -> Option<String> {
        match self {
            Self::StepTime => Some(units::brief(row.probed()?.1.pace.typical()?.us)),
            Self::User => Some(row.user(session)?.to_string()),
            Self::Idle => idle(row, session).map(units::duration),
            Self::Figure(figure) => Figures::from_iter([(figure, row.figure(figure, session)?)]).format(figure),
            _ => None,
        }
    }

    /// Returns the order for a column of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Whether ascending is the default: for names and numbers, not for memory.
    fn rises(self) -> bool {
        matches!(self, Self::Rank | Self::Pid | Self::Command | Self::User)
    }
}

/// The figure to sort by, and whether it is reversed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// The figure.
    pub by: By,
    /// Whether it is reversed.
    pub inverted: bool,
}

impl Order {
    /// Sorts by the next column, in its default direction.
    pub(super) fn next(&mut self) {
        let place = By::ALL.iter().position(|it| *it == self.by).unwrap_or(0);
        *self = Self { by: By::ALL[(place + 1) % By::ALL.len()], inverted: false };
    }

    /// Sorts by this column in its default direction; reverses it if it is sorted by it already.
    pub(super) fn choose(&mut self, by: By) {
        *self = Self { by, inverted: self.by == by && !self.inverted };
    }

    /// Returns whether the lowest comes first.
    pub fn rises(self) -> bool {
        self.by.rises() != self.inverted
    }

    /// Sorts rows; rows of unknown figure come last in either direction.
    pub(super) fn sort(self, rows: &mut [ProcessRow], session: &Session) {
        let turned = |it: Ordering| if self.rises() { it } else { it.reverse() };
        match self.by {
            // Rows already have this order.
            By::Rank if self.inverted => rows.reverse(),
            By::Rank => {}
            By::Command => rows.sort_by_cached_key(|it| it.command(session)),
            By::User => rows.sort_by(|one, other| {
                by_known(one.user(session), other.user(session), |one, other| turned(one.raw().cmp(other.raw())))
            }),
            by => rows.sort_by(|one, other| {
                let figures = (figure(one, by, session), figure(other, by, session));
                by_known(figures.0, figures.1, |one, other| turned(one.total_cmp(other)))
            }),
        }
        if self.by == By::Command && self.inverted {
            rows.reverse();
        }
    }
}

/// Compares known values; unknown ones come last.
fn by_known<T>(one: Option<T>, other: Option<T>, compare: impl Fn(&T, &T) -> Ordering) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) => compare(&one, &other),
        (one, other) => one.is_none().cmp(&other.is_none()),
    }
}

/// Returns for how long a process has done nothing, in µs, from a minute on.
fn idle(row: &ProcessRow, session: &Session) -> Option<u64> {
    session.holders.idle_us(row.host_pid()?).filter(|it| *it >= IDLE_US)
}

fn figure(row: &ProcessRow, by: By, session: &Session) -> Option<f64> {
    let counted = |count: Option<u64>| count.map(|count| count as f64);
    match (by, row) {
        (By::Figure(figure), it) => counted(it.figure(figure, session)),
        (By::Idle, it) => counted(idle(it, session)),
        (By::Pid, it) => counted(it.pid().map(u64::from)),
        (By::Driver, ProcessRow::Unprobed(_, it)) => counted(it.used.map(|it| it.0)),
        (By::Driver, ProcessRow::Probed(process, on)) => {
            let list = session.device(&on.device)?.process_list()?;
            counted(list.iter().find(|it| Some(it.pid) == process.pid)?.used.map(|it| it.0))
        }
        (By::Allocated, ProcessRow::Probed(_, on)) => counted(on.counters.allocated),
        (By::Reserved, ProcessRow::Probed(_, on)) => counted(on.counters.reserved),
        (By::Unused, ProcessRow::Probed(_, on)) => {
            let held = on.counters.reserved.filter(|it| *it > 0)?;
            Some(held.checked_sub(on.counters.active?)? as f64 / held as f64)
        }
        (By::PerStep, ProcessRow::Probed(_, on)) => slope(on),
        (By::Step, ProcessRow::Probed(_, on)) => counted(on.step),
        (By::StepTime, ProcessRow::Probed(_, on)) => counted(on.pace.typical().map(|it| it.us)),
        _ => None,
    }
}

/// Returns the growth per step: 0 without growth, `None` without enough data.
fn slope(on: &OnDevice) -> Option<f64> {
    let lasting = || on.growth.episodes().filter(|it| it.resolved.is_none() && it.resource != Resource::Device);
    let live = lasting().find(|it| it.resource == Resource::Allocated);
    let slopes = lasting().map(|it| it.bytes_per_step).reduce(f64::max);
    let flat = (on.growth.watched() >= on.growth.enough()).then_some(0.0);
    live.map(|it| it.bytes_per_step).or(slopes).or(flat)
}
