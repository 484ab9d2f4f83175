//! A row for each resource that may grow: its current value, its pace, its whole run in one line.

use crate::{
    facts::units::Bytes,
    model::{
        analysis::{
            curve::Curve,
            episode::{Axis, Resource},
        },
        findings::{Finding, Kind},
        session::process::{OnDevice, Process},
    },
    screen::{
        theme::Role,
        view::{RenderContext, cells, growth::dash, verdict},
    },
};
use ratatui::text::{Line, Span};

const NAME: usize = 10;
const NOW: usize = 11;
const RATE: usize = 11;

/// Fewest and most columns of a run in one line.
const RUN: std::ops::RangeInclusive<usize> = 8..=40;

/// Returns `allocated   51.61 GiB  +4.00 MiB  ▁▂▃▄▅▆▇█  since step 12, full in 20128 steps`.
pub(super) fn lines(process: &Process, on: &OnDevice, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let unit = if on.growth.axis() == Some(Axis::Seconds) { "per second" } else { "per step" };
    let titles =
        format!(" {}{} {}  the whole run", cells::left("", NAME), cells::right("now", NOW), cells::right(unit, RATE));
    let mut lines = vec![Line::styled(cells::elide(&titles, width), context.style(Role::Dim))];
    lines.extend(Resource::ALL.iter().map(|it| line(process, on, *it, width, context)));
    lines
}

fn line(process: &Process, on: &OnDevice, resource: Resource, width: usize, context: &RenderContext) -> Line<'static> {
    let own = || {
        let lasting = context.findings.all.iter().filter(|it| it.kind == Kind::Growth && it.is_active());
        lasting.filter(|it| it.is_of(process) && it.ordinal.is_none_or(|ordinal| ordinal == on.ordinal))
    };
    let growing = own().find(|it| it.resource == Some(resource));
    let grows = |resource| own().any(|it| it.resource == Some(resource));
    // Host memory belongs to the process, so each of its devices has the curve.
    let curve = on.growth.curve(resource);
    let now = curve.and_then(|it| it.buckets().newest()).map(|it| Bytes(it.last));
    let follows = resource == Resource::Reserved && grows(Resource::Allocated);
    // A flat run is a thin line.
    let rises = growing.is_some() || follows;
    let (rate, role) = match (growing, now) {
        (Some(it), _) if it.is_companion() => ("follows".to_owned(), Role::Text),
        (Some(it), _) => {
            (it.bytes_per_step.map_or_else(|| "grows".to_owned(), cells::rate), verdict::role(it.severity))
        }
        // Live memory is reserved too: one cause, one alert.
        (None, Some(_)) if follows => ("follows".to_owned(), Role::Text),
        (None, Some(_)) if resource == Resource::Reserved && verdict::rises(on) => {
            (verdict::level(on).to_owned(), Role::Text)
        }
        (None, Some(_)) if on.growth.watched() >= on.growth.enough() => ("flat".to_owned(), Role::Good),
        _ => (cells::UNKNOWN.to_owned(), Role::Dim),
    };
    let mut spans = vec![
        Span::styled(format!(" {}", cells::left(resource.name(), NAME)), context.style(Role::Text)),
        Span::styled(cells::right(&cells::bytes(now), NOW), context.style(Role::Text)),
        Span::styled(format!(" {}  ", cells::right(&rate, RATE)), context.style(role)),
    ];
    let left = width.saturating_sub(NAME + NOW + RATE + 4);
    let wordings = growing.map_or_else(Vec::new, |it| wordings(it, verdict::continues(process, context)));
    let fits = |it: &String| left >= cells::width(it) + 2 + RUN.start();
    let words = wordings.into_iter().find(fits).unwrap_or_default();
    let room = left.saturating_sub(if words.is_empty() { 0 } else { cells::width(&words) + 2 });
    if let Some(curve) = curve.filter(|_| room >= *RUN.start()) {
        let role = if growing.is_some() { role } else { Role::Spark };
        let symbols = if rises { context.eighths() } else { std::array::from_fn(dash) };
        spans.push(Span::styled(run(curve, room.min(*RUN.end()), &symbols), context.style(role)));
        spans.push(Span::styled(format!("  {words}"), context.style(Role::Dim)));
    }
    Line::from(spans)
}

/// Returns when growth began and when the device is full; longest wording first.
fn wordings(it: &Finding, is_alive: bool) -> Vec<String> {
    let since = format!("since {}", it.since());
    let Some(full) = it.forecast().filter(|_| is_alive) else { return vec![since] };
    let soon = it.left().map(|it| format!("full in {it}"));
    [format!("{since}, {full}"), full].into_iter().chain(soon).collect()
}

/// Draws a curve in one line of cells, with nearly constant values in the middle.
fn run(curve: &Curve, columns: usize, symbols: &[char; 8]) -> String {
    let highs = curve.highs(columns);
    let known = || highs.iter().flatten().copied();
    let (Some(low), Some(high)) = (known().min(), known().max()) else { return String::new() };
    let span = (high - low).max(high / 50).max(1);
    let low = low.saturating_sub((span - (high - low)) / 2);
    let mut before = None;
    let level = |value: u64| {
        let level = u128::from(value - low) * (symbols.len() as u128 - 1) / u128::from(span);
        usize::try_from(level).unwrap_or(0).min(symbols.len() - 1)
    };
    highs
        .iter()
        .map(|it| {
            before = it.or(before);
            before.map_or(' ', |value| symbols.get(level(value)).copied().unwrap_or(' '))
        })
        .collect()
}
