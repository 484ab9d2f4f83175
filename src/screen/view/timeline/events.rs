//! Events of a run: the job's marks, alerts, out-of-memory errors; below the chart, at their positions.

use super::{chart::Chart, place_name};
use crate::{
    facts::units::Stamp,
    model::{
        analysis::episode,
        findings::Finding,
        session::{
            process::{OnDevice, Process},
            timeline::Column,
        },
    },
    screen::{
        theme::Role,
        ui::timeline::{self, XAxis, step_at, when},
        view::{RenderContext, cells, put, verdict},
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// Draws a row with a sign for each: `◇` a mark, `◆` an alert with a line for its duration, `◎` a capture, `✕` an
/// out-of-memory error.
pub(super) fn draw(
    buffer: &mut Buffer,
    row: Rect,
    chart: &Chart,
    process: &Process,
    on: &OnDevice,
    context: &RenderContext,
) {
    let (row, axis) = (chart.below(row), chart.axis());
    let mut sign = |column: u16, symbol: char, role: Role| {
        if let Some(cell) = buffer.cell_mut((row.x + column, row.y)).filter(|_| row.height > 0 && column < row.width) {
            cell.set_char(symbol).set_style(context.style(role));
        }
    };
    for it in alerts(process, on, context) {
        let end = it.resolved_at.and_then(|at| place(on, at, axis)).unwrap_or(u64::MAX);
        for column in chart.columns(began(it, on, axis), end) {
            sign(column, '─', verdict::role(it.severity));
        }
    }
    let raised = alerts(process, on, context).map(|it| (it.first_alert_at, '◆', verdict::role(it.severity)));
    let marks = process.marks.iter().map(|it| (Stamp(it.at_us), '◇', Role::Text));
    let ooms = process.ooms.iter().map(|it| (Stamp(it.reported.at_us), '✕', Role::Bad));
    let captures = process.sites.iter().filter(|it| it.steps > 0).map(|it| (Stamp(it.at_us), '◎', Role::Title));
    for (at, symbol, role) in marks.chain(raised).chain(captures).chain(ooms) {
        if let Some(column) = place(on, at, axis).and_then(|it| chart.column(it)) {
            sign(column, symbol, role);
        }
    }
}

/// Returns the state at the cursor: the latest mark, and every alert active then; as many as fit.
pub(super) fn words(
    process: &Process,
    on: &OnDevice,
    under: &Column,
    width: usize,
    context: &RenderContext,
) -> Line<'static> {
    let mut pieces = Vec::new();
    if let Some(it) = process.marks.iter().rev().find(|it| it.at_us <= under.at.0) {
        let value = it.value.map_or_else(String::new, |it| format!(" {it}"));
        pieces.push((format!("◇ {}{value}", cells::elide(&cells::raw(&it.name), 24)), Role::Text));
    }
    if process.ooms.iter().any(|it| it.reported.step.is_some() && it.reported.step == under.step) {
        pieces.push(("✕ out of memory".to_owned(), Role::Bad));
    }
    for it in alerts(process, on, context) {
        let lasted = it.resolved_at.is_none_or(|at| under.at <= at);
        if lasted && began(it, on, XAxis::Time) <= under.at.0 {
            let slope = it.slope().map_or_else(String::new, |it| format!(" {it}"));
            pieces.push((format!("◆ {}{slope}", verdict::what(it)), verdict::role(it.severity)));
        }
    }
    let capture = process.answer(on.ordinal, |it| it.at_us <= under.at.0);
    if let Some(it) = capture.as_ref().and_then(|(_, it)| it.culprits.first()) {
        pieces.push((format!("◎ {}", it.leading().place()), Role::Title));
    }
    let (mut spans, mut left) = (Vec::new(), width);
    for (words, role) in pieces {
        let Some(rest) = left.checked_sub(cells::width(&words) + 2) else { break };
        left = rest;
        spans.push(Span::styled(format!(" {words} "), context.style(role)));
    }
    Line::from(spans)
}

/// Lists the events: the findings, then the latest marks, as far as there is room.
pub(super) fn list(
    buffer: &mut Buffer,
    area: Rect,
    span: &timeline::Span,
    process: &Process,
    on: &OnDevice,
    context: &RenderContext,
) {
    let width = usize::from(area.width);
    let mut lines = Vec::new();
    for it in alerts(process, on, context) {
        let slope = it.slope().map_or_else(String::new, |it| format!(" {it}"));
        let words = format!(" ◆ {}{slope}", verdict::what(it));
        let role = if it.is_active() { verdict::role(it.severity) } else { Role::Dim };
        lines.push(Line::styled(cells::elide(&words, width), context.style(role)));
        let end = it.resolved_step.map_or_else(|| "lasts".to_owned(), |step| format!("over at {}", it.place(step)));
        let words = format!("   since {}, {end}", it.since());
        lines.push(Line::styled(cells::elide(&words, width), context.style(Role::Dim)));
        if let Some(culprit) = &it.culprit {
            let words = format!(" ◎ {}", culprit.sentence);
            lines.push(Line::styled(cells::elide(&words, width), context.style(Role::Text)));
        }
    }
    for it in process.marks.iter().rev() {
        let value = it.value.map_or_else(String::new, |it| format!(" {it}"));
        let at = place(on, Stamp(it.at_us), span.axis).map_or_else(String::new, |it| place_name(span, it));
        let name = cells::left(&format!(" ◇ {}{value}", cells::raw(&it.name)), width.saturating_sub(12));
        lines.push(Line::from(vec![
            Span::styled(name, context.style(Role::Text)),
            Span::styled(cells::right(&at, 10), context.style(Role::Dim)),
        ]));
    }
    for (row, line) in lines.iter().enumerate() {
        put(buffer, area, row, line);
    }
}

/// Returns the findings of a process on a device, or of its host memory.
fn alerts<'a>(
    process: &Process,
    on: &OnDevice,
    context: &RenderContext<'a>,
) -> impl Iterator<Item = &'a Finding> + use<'a> {
    let (probe, ordinal) = (Some(process.probe), on.ordinal);
    context.findings.all.iter().filter(move |it| it.probe == probe && it.ordinal.is_none_or(|on| on == ordinal))
}

/// Returns where a finding began.
fn began(it: &Finding, on: &OnDevice, axis: XAxis) -> u64 {
    match (it.axis, axis) {
        (episode::Axis::Steps, XAxis::Steps) => it.since_step,
        (episode::Axis::Steps, XAxis::Time) => when(on, it.since_step).map_or(u64::MAX, |it| it.0),
        (episode::Axis::Seconds, XAxis::Time) => {
            on.first.map_or(u64::MAX, |first| first.0.saturating_add(it.since_step.saturating_mul(1_000_000)))
        }
        (episode::Axis::Seconds, XAxis::Steps) => u64::MAX,
    }
}

fn place(on: &OnDevice, at: Stamp, axis: XAxis) -> Option<u64> {
    match axis {
        XAxis::Steps => step_at(on, at),
        XAxis::Time => Some(at.0),
    }
}
