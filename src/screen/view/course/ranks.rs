//! The time of steps of all ranks on one scale, a row for each, and below them the course of the selected one's device.

use super::{along, count, line, room, waits, written};
use crate::{
    facts::{event::ProbeId, units},
    model::{
        analysis::pace::Stretch,
        session::process::{OnDevice, Process},
    },
    screen::{
        theme::Role,
        ui::{
            rows::Row,
            timeline::{Span as Shown, XAxis},
        },
        view::{
            RenderContext, cells, device_name, messages,
            pace::{self, Means, Scale},
            put, title,
        },
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use std::collections::{BTreeMap, BTreeSet};

type Own<'a> = (&'a Process, &'a OnDevice);

/// The listed ranks that count steps.
struct Ranks<'a> {
    /// Those that run; without any, the latest of each rank.
    current: Vec<Own<'a>>,
    /// Those of ended runs.
    ended: Vec<Own<'a>>,
}

impl<'a> Ranks<'a> {
    /// Returns a row for each process. The selected one comes first, so that its steps stand above its device.
    fn of(context: &RenderContext<'a>) -> Self {
        let rows = context.ui.rows(context.session);
        let mut all: Vec<Own> = rows.iter().filter_map(Row::probed).collect();
        all.retain(|(_, on)| !on.pace.stretches().is_empty());
        let selected = selected(context);
        all.sort_by_key(|it| Some(id(it)) != selected);
        let mut seen = BTreeSet::new();
        all.retain(|(process, _)| seen.insert(process.probe));
        let latest = latest(&all);
        let any_runs = all.iter().any(|(process, _)| process.is_alive());
        let is_latest = |process: &Process| name(process).is_none_or(|it| latest.get(&it) == Some(&process.probe));
        let is_current = |(process, _): &Own| process.is_alive() || !any_runs && is_latest(process);
        let (current, ended) = all.into_iter().partition(is_current);
        Self { current, ended }
    }

    /// Returns as many as there are rows, with the selected one among them; and whether each is of an ended run.
    fn fitting(&self, rows: usize, context: &RenderContext) -> Vec<(Own<'a>, bool)> {
        let ended = self.ended.iter().map(|it| (*it, true));
        let mut all: Vec<_> = self.current.iter().map(|it| (*it, false)).chain(ended).collect();
        let (selected, last) = (selected(context), rows.saturating_sub(1));
        if let Some(place) = all.iter().position(|(it, _)| Some(id(it)) == selected).filter(|it| *it > last) {
            all.swap(last, place);
        }
        all.truncate(rows);
        all
    }
}

fn id((process, on): &Own) -> (ProbeId, u32) {
    (process.probe, on.ordinal)
}

fn selected(context: &RenderContext) -> Option<(ProbeId, u32)> {
    context.ui.process(context.session).map(|it| id(&it))
}

/// Returns the run and the rank of a process: a rank that was started again has the same.
fn name(process: &Process) -> Option<(String, u64)> {
    process.group().zip(process.rank())
}

/// Returns the latest probe of each rank.
fn latest(all: &[Own]) -> BTreeMap<(String, u64), ProbeId> {
    let mut probes: Vec<_> = all.iter().filter_map(|(process, _)| Some((name(process)?, process.probe))).collect();
    probes.sort();
    probes.into_iter().collect()
}

/// Returns the rows that step times and course of all listed ranks take, with the title.
pub(in super::super) fn height(context: &RenderContext) -> usize {
    let course = context.device().map_or(0, count);
    let Ranks { current, ended } = Ranks::of(context);
    let all = current.len() + ended.len();
    if all == 0 { 0 } else { 1 + all + usize::from(waits::is_known(&current)) + course }
}

/// Draws the time of steps of the selected rank, then of the others, then which rank the others wait for, then those of
/// ended runs, and below them the course of the selected rank's device at those steps.
pub(in super::super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let (ranks, width) = (Ranks::of(context), usize::from(area.width));
    let Some((_, on)) = context.ui.process(context.session) else { return };
    let (Some(device), Some(span)) = (context.session.device(&on.device), context.ui.timeline.span(on)) else { return };
    let (from, to) = if span.axis == XAxis::Steps { span.whole } else { (0, 0) };
    let room = room(width);
    let column = |step: u64| {
        let part = u128::from(step.checked_sub(from).filter(|_| step <= to)?) * room as u128;
        u16::try_from(part / (u128::from(to - from) + 1)).ok()
    };
    let columns = |from: u64, to: u64| match (column(from), column(to)) {
        (Some(from), Some(to)) => from..to + 1,
        _ => 0..0,
    };
    let whole = Shown { from, to, ..span };
    let course = along(device, on, (&whole, room), columns, context);
    let named = format!("step time · below, {} at these steps", device_name(device));
    let right = Span::styled(format!("steps {from} – {to}"), context.style(Role::Text));
    title(buffer, area, &named, vec![right], context);
    let waits = waits::is_known(&ranks.current).then(|| waits::row(&ranks.current, room, columns));
    let others = 1 + course.len() + usize::from(waits.is_some());
    let shown = ranks.fitting(usize::from(area.height).saturating_sub(others).max(1), context);
    let place = |it: &Stretch| column(it.step).map(usize::from);
    let means: Vec<Means> = shown.iter().map(|((_, on), _)| pace::means(on.pace.stretches(), room, place)).collect();
    let scale = Scale::of(&means);
    let row = |((process, on), is_ended): &(Own, bool), means: &Means| {
        let bars = scale.map_or_else(String::new, |it| it.bars(means, &context.eighths()));
        let typical = on.pace.typical();
        let (role, words) = match (is_ended, typical) {
            (true, Some(it)) => (Role::Dim, format!("ended, {}", units::brief(it.us))),
            (true, None) => (Role::Dim, "ended".to_owned()),
            (false, it) => (Role::Spark, it.map_or_else(|| cells::UNKNOWN.to_owned(), |it| it.words())),
        };
        line(&messages::short(process), (&bars, context.style(role)), &words, room, context)
    };
    let rows =
        |ended: bool| shown.iter().zip(&means).filter(move |(it, _)| it.1 == ended).map(|(it, its)| row(it, its));
    let waits =
        waits.map(|(digits, words)| line(waits::LABEL, (&digits, context.style(Role::Text)), &words, room, context));
    let lines: Vec<Line> =
        rows(false).chain(waits).chain(rows(true)).chain(written(device, &course, room, context)).collect();
    for (row, line) in lines.iter().enumerate() {
        put(buffer, area, row + 1, line);
    }
}
