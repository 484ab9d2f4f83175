//! The columns of the process list: which ones a preset has, and what each shows of a process.

use super::verdict;
use crate::{
    facts::{figures::Figure, units::Bytes},
    model::session::process::{OnDevice, Process},
    screen::{
        theme::Role,
        ui::{order::By, preset::Preset, rows::ProcessRow},
        view::{RenderContext, cells, columns},
    },
};
use ratatui::style::Style;

/// The width of the column that only the order has.
const EXTRA: usize = 11;

/// The ranks of the driver's figure and of reserved memory beside processes without a probe.
const MIXED: [u8; 2] = [2, 7];

/// What a column shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::screen::view) enum Field {
    /// The device's index.
    Device,
    /// A figure that the list can be sorted by.
    Of(By),
}

/// A column: what it shows, its width, and its rank.
type Wide = (Field, usize, u8);

const MEMORY: &[Wide] = &[
    (Field::Device, 3, 0),
    (Field::Of(By::Rank), 4, 3),
    (Field::Of(By::Pid), 7, 0),
    (Field::Of(By::Step), 7, 5),
    (Field::Of(By::Allocated), 10, 1),
    (Field::Of(By::Reserved), 10, 4),
    (Field::Of(By::Unused), 6, 6),
    (Field::Of(By::PerStep), 10, 2),
    (Field::Of(By::Driver), 10, 7),
];

/// The columns that the list has as soon as there is more than one user.
const SHARED: [Wide; 2] = [(Field::Of(By::User), 10, 3), (Field::Of(By::Idle), 7, 5)];

const UNPROBED: &[Wide] =
    &[(Field::Device, 3, 0), (Field::Of(By::Pid), 7, 0), (Field::Of(By::Driver), 10, 1), (Field::Of(By::User), 10, 2)];

const TRAINING: &[Wide] = &[
    (Field::Device, 3, 0),
    (Field::Of(By::Rank), 4, 3),
    (Field::Of(By::Pid), 7, 0),
    (Field::Of(By::Step), 7, 2),
    (Field::Of(By::StepTime), 9, 1),
    (Field::Of(By::Figure(Figure::SmPercent)), 5, 4),
    (Field::Of(By::Figure(Figure::CpuPercent)), 6, 5),
    (Field::Of(By::Figure(Figure::IoWaitPercent)), 8, 7),
    (Field::Of(By::Allocated), 10, 6),
    (Field::Of(By::PerStep), 10, 8),
    (Field::Of(By::Figure(Figure::Rss)), 10, 9),
    (Field::Of(By::Figure(Figure::Threads)), 7, 10),
];

const COMPACT: &[Wide] = &[
    (Field::Device, 3, 0),
    (Field::Of(By::Rank), 4, 5),
    (Field::Of(By::Pid), 7, 0),
    (Field::Of(By::User), 10, 4),
    (Field::Of(By::Driver), 10, 1),
    (Field::Of(By::Figure(Figure::SmPercent)), 5, 2),
    (Field::Of(By::Figure(Figure::CpuPercent)), 6, 3),
    (Field::Of(By::Figure(Figure::Rss)), 10, 6),
    (Field::Of(By::Figure(Figure::MemoryPercent)), 11, 7),
    (Field::Of(By::Figure(Figure::Threads)), 7, 8),
];

/// Returns the columns of the list, and with them the column of the order.
pub(super) fn of(listed: &[ProcessRow], all: bool, context: &RenderContext) -> Vec<Wide> {
    let has =
        |wanted: fn(&Process) -> bool| listed.iter().any(|it| it.probed().is_some_and(|(process, _)| wanted(process)));
    let (with_probes, with_ranks) = (has(|_| true), has(|it| it.rank().is_some()));
    let preset = match context.ui.preset {
        Preset::Memory | Preset::Hardware if with_probes => MEMORY,
        Preset::Memory | Preset::Hardware => UNPROBED,
        Preset::Training => TRAINING,
        Preset::Compact => COMPACT,
    };
    // Of a process without a probe only the driver's figure is known: where there is little room, it comes before what
    // is reserved.
    let is_mixed = with_probes && listed.iter().any(|it| it.probed().is_none());
    let ranked = |(field, width, rank): Wide| match field {
        Field::Of(By::Driver) if is_mixed => (field, width, rank.min(MIXED[0])),
        Field::Of(By::Reserved) if is_mixed => (field, width, rank.max(MIXED[1])),
        _ => (field, width, rank),
    };
    let is_shown = |it: &&Wide| match it.0 {
        Field::Device => all,
        Field::Of(By::Rank) => with_ranks,
        Field::Of(_) => true,
    };
    let mut columns: Vec<Wide> = preset.iter().filter(is_shown).copied().map(ranked).collect();
    if has_users(listed, context) {
        let is_new = |it: &Wide| columns.iter().all(|own| own.0 != it.0);
        columns.extend(SHARED.into_iter().filter(is_new).collect::<Vec<_>>());
    }
    let order = Field::Of(context.ui.order.by);
    if context.ui.order.by.is_extra() && columns.iter().all(|it| it.0 != order) {
        columns.push((order, EXTRA, 0));
    }
    columns
}

/// Whether the processes are of more than one user.
fn has_users(listed: &[ProcessRow], context: &RenderContext) -> bool {
    let mut users = listed.iter().filter_map(|it| it.user(context.session));
    users.next().is_some_and(|first| users.any(|it| it != first))
}

/// Returns a column of the table.
pub(super) fn column((field, width, rank): Wide) -> columns::Column {
    let title = match field {
        Field::Device => "gpu",
        Field::Of(by) => by.name(),
    };
    columns::Column { title, width, rank }
}

/// Returns what a column shows of a process.
pub(super) fn figure(it: &ProcessRow, (field, width, _): Wide, context: &RenderContext) -> (String, Style) {
    let by = match field {
        Field::Device => {
            let device = context.session.device(it.device()).and_then(|it| it.index);
            return (cells::known(device, ""), context.style(role(it)));
        }
        Field::Of(by) => by,
    };
    if by.is_extra() {
        let value = by.value(it, context.session).map(|it| cells::elide(&cells::raw(&it), width));
        let role = if value.is_some() { role(it) } else { Role::Dim };
        return (cells::known(value, ""), context.style(role));
    }
    match it {
        ProcessRow::Probed(process, on) => of_probed(process, on, by, context),
        ProcessRow::Unprobed(_, used) => match by {
            By::Pid => (used.pid.to_string(), context.style(Role::Text)),
            By::Driver => (cells::bytes(used.used), context.style(Role::Text)),
            _ => (cells::UNKNOWN.to_owned(), context.style(Role::Dim)),
        },
    }
}

/// Returns the role of a row's figures: dim when the process has ended.
fn role(it: &ProcessRow) -> Role {
    if it.probed().is_some_and(|(process, _)| !process.is_alive()) { Role::Dim } else { Role::Text }
}

fn of_probed(process: &Process, on: &OnDevice, by: By, context: &RenderContext) -> (String, Style) {
    let found = context.found_for(process, on);
    let text = match by {
        By::Rank => cells::known(process.rank(), ""),
        By::Pid => cells::known(process.any_pid(), ""),
        By::Step => cells::known(on.step, ""),
        By::Allocated => cells::bytes(on.counters.allocated.map(Bytes)),
        By::Reserved => cells::bytes(on.counters.reserved.map(Bytes)),
        By::Unused => cells::share(found.and_then(|it| it.fragmentation.share())),
        By::Driver => cells::bytes(found.and_then(|it| it.driver_used)),
        By::PerStep => return rate(process, on, context),
        By::Command | By::StepTime | By::User | By::Idle | By::Figure(_) => String::new(),
    };
    (text, context.style(if process.is_alive() { Role::Text } else { Role::Dim }))
}

fn rate(process: &Process, it: &OnDevice, context: &RenderContext) -> (String, Style) {
    let (words, role) = match context.findings.growing(process.probe, it.ordinal) {
        Some(found) => (verdict::rate(found), verdict::role(found.severity)),
        None if it.growth.watched() < it.growth.enough() => (cells::UNKNOWN.to_owned(), Role::Dim),
        None => {
            let is_approximate = context.found_for(process, it).is_some_and(|it| it.approximate);
            let role = if verdict::rises(it) { Role::Text } else { Role::Good };
            (format!("{}{}", if is_approximate { "≈" } else { "" }, verdict::level(it)), role)
        }
    };
    (words, context.style(role))
}
