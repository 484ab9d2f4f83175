//! The run of the selected process: every rung stacked over steps or time, a cursor with its values, and events.

mod chart;

use crate::{
    facts::units::{self, Bytes, Stamp},
    model::{
        analysis::{episode, ladder::Gap, pace::Stretch},
        findings::{Finding, Kind},
        session::{
            process::{OnDevice, Process},
            timeline::{Column, Level, Levels},
        },
    },
    screen::{
        theme::Role,
        ui::{
            Screen,
            timeline_range::{self, VisibleRange, XAxis, step_at, when},
        },
        view::{RenderContext, cells, course, growth, ladder::glyph, put, timeline::chart::Chart, title, verdict},
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// The width of the values next to the chart, and the width from which on they are there.
const BESIDE: u16 = 38;
const WIDE: u16 = 112;

/// The width of one value below the chart.
const VALUE: usize = 36;

/// The rows that the chart gets first.
const CHART: usize = 4;

/// The rows that it gets before the course of metrics.
const CHART_ABOVE_COURSE: usize = 6;

/// Arranges, from the top:
///
/// ```text
/// title     what of the run is shown
/// chart     at least four rows
/// steps     how long they take, as a row of bars
/// course    clock, utilisation, power and temperature of the device, a row of bars each
/// axis      its two ends, and the cursor's place
/// events    marks and alerts, below where they were
/// words     what held at the cursor
/// values    every rung at the cursor; beside the chart from 112 columns on
/// ```
///
/// What does not fit is left out: the values first, then text, events and axis.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let Some((process, on)) = context.ui.process(context.session) else { return growth::draw(buffer, area, context) };
    let name = format!("timeline · {}", verdict::place(process, on, context));
    let (Some(mut span), Some(under)) = (context.ui.timeline.span(on), context.ui.timeline.under_cursor(on)) else {
        title(buffer, area, &name, Vec::new(), context);
        return put(buffer, area, 1, &Line::styled(" no sample yet", context.style(Role::Dim)));
    };
    // The values at the cursor are those of its column.
    span.cursor = span.axis.place(&under).clamp(span.from, span.to);
    let shown = vec![Span::styled(shown(&span), context.style(Role::Text))];
    title(buffer, area, &name, shown, context);
    let mut rest = area;
    super::take(&mut rest, 1);
    let values = values(&under.last, context);
    let beside = area.width >= WIDE;
    if beside {
        let mut right = Rect { x: rest.right() - BESIDE, width: BESIDE, ..rest };
        rest.width -= BESIDE + 1;
        let heading = heading(&span, &under, on, context);
        list(buffer, right, &heading, values.iter().rev(), 1, context);
        super::take(&mut right, heading.len() + values.len() + 1);
        events_list(buffer, right, &span, process, on, context);
    }
    let per_row = (usize::from(rest.width) / VALUE).max(1);
    let below = if beside { 0 } else { 1 + values.len().div_ceil(per_row) };
    let height = usize::from(rest.height);
    // The cursor's heading alone is worth more than a chart that is one row higher.
    let below = if CHART + 3 + below <= height { below } else { usize::from(!beside && CHART + 2 < height) };
    let under_chart = 3.min(height.saturating_sub(CHART + below));
    let has_steps = !on.pace.stretches().is_empty() && CHART + below + under_chart < height;
    let taken = below + under_chart + usize::from(has_steps);
    let course = course_rows(on, height.saturating_sub(taken + CHART_ABOVE_COURSE), context);
    let plot = super::take(&mut rest, height.saturating_sub(taken + course));
    let chart = Chart::new(plot, &span, on, context);
    chart.draw(buffer, on, context);
    if has_steps {
        chart.steps(buffer, super::take(&mut rest, 1), on, context);
    }
    chart.course(buffer, super::take(&mut rest, course), on, context);
    if under_chart > 0 {
        chart.scale(buffer, super::take(&mut rest, 1), context);
    }
    if under_chart > 1 {
        draw_events(buffer, super::take(&mut rest, 1), &chart, process, on, context);
    }
    if under_chart > 2 {
        let words = events_words(process, on, &under, usize::from(rest.width), context);
        put(buffer, super::take(&mut rest, 1), 0, &words);
    }
    if below > 0 {
        list(buffer, rest, &heading(&span, &under, on, context), values.iter(), per_row, context);
    }
}

/// Returns how many rows the course of the device's metrics gets; the timeline of the overview has none.
fn course_rows(on: &OnDevice, room: usize, context: &RenderContext) -> usize {
    let device = context.session.device(&on.device).filter(|_| context.ui.screen == Screen::Timeline);
    device.map_or(0, course::count).min(room)
}

/// The rungs of one instant, from the inside out, with their bytes.
type Values = Vec<(Gap, Option<u64>)>;

/// Returns every rung between the levels, up to the free memory; rungs that are not counted separately are merged.
fn values(levels: &Levels, context: &RenderContext) -> Values {
    let mut values: Values = levels.gaps().map(|(gap, from, to)| (gap, to.checked_sub(from))).collect();
    // The driver's own reserve does not change.
    let driver = context.device().and_then(|it| it.figures()?.reserved);
    let total = context.found().and_then(|it| it.ladder.total);
    let used = levels.get(Level::Used).map(Bytes).map(|it| it.plus(driver.unwrap_or_default()));
    values.extend(driver.map(|it| (Gap::Driver, Some(it.0))));
    values.push((Gap::Free, total.zip(used).and_then(|(total, used)| Some(total.checked_sub(used)?.0))));
    values
}

/// Returns `steps 886–1181 of 1181, 1/4 of the run`.
fn shown(span: &VisibleRange) -> String {
    let all = span.from == span.whole.0 && span.to == span.whole.1;
    let part = (span.whole.1 - span.whole.0).checked_div((span.to - span.from).max(1)).unwrap_or(1).max(1);
    let part = if all { "the whole run".to_owned() } else { format!("1/{part} of the run") };
    let of = |place: u64| place_name(span, place);
    let unit = if span.axis == XAxis::Steps { "steps " } else { "" };
    format!("{unit}{} – {} · {part}", of(span.from), of(span.to))
}

/// Formats a position on the axis: a step, or the time since the first sample.
fn place_name(span: &VisibleRange, place: u64) -> String {
    match span.axis {
        XAxis::Steps => place.to_string(),
        XAxis::Time => cells::clock(place.saturating_sub(span.whole.0)),
    }
}

/// Returns the cursor's step, time and age, and the range of allocations in its column.
fn heading(span: &VisibleRange, under: &Column, on: &OnDevice, context: &RenderContext) -> Vec<String> {
    let first = on.timeline.places().next().map_or(under.at, |it| it.0);
    let step = under.step.map_or_else(String::new, |it| format!("step {it} · "));
    let ago = units::duration(context.session.now.since(under.at));
    let end = if span.cursor == span.whole.1 { "the latest" } else { &format!("{ago} ago") };
    let mut lines = vec![format!("{step}{} · {end}", cells::clock(under.at.since(first)))];
    if let (Some(low), Some(high)) = (under.low.get(Level::Allocated), under.high.get(Level::Allocated))
        && low < high
    {
        let (low, high) = (cells::bytes(Some(Bytes(low))), cells::bytes(Some(Bytes(high))));
        lines.push(format!("allocated {low} to {high}"));
    }
    lines.extend(under.step.and_then(|it| on.pace.at(it)).map(durations));
    let device = context.session.device(&on.device).filter(|_| context.ui.screen == Screen::Timeline);
    lines.extend(device.into_iter().flat_map(|it| course::words(it, under.at)));
    lines
}

/// Returns `98 ms a step`, with the range of a stretch in which steps differ.
fn durations(it: Stretch) -> String {
    let [mean, low, high] = [it.mean_us(), it.low_us, it.high_us].map(units::brief);
    if low == high { format!("{mean} a step") } else { format!("{mean} a step, {low} to {high}") }
}

/// Returns the heading, and each rung with its bytes and its share of the device.
fn list<'a>(
    buffer: &mut Buffer,
    area: Rect,
    heading: &[String],
    values: impl Iterator<Item = &'a (Gap, Option<u64>)>,
    per_row: usize,
    context: &RenderContext,
) {
    let total = context.found().and_then(|it| it.ladder.total);
    let (width, mut row) = (usize::from(area.width), 0);
    if per_row > 1 || area.height < 4 {
        let mut line = String::new();
        for it in heading {
            let more = if line.is_empty() { format!(" {it}") } else { format!("{line} · {it}") };
            if cells::width(&more) <= width {
                line = more;
            }
        }
        put(buffer, area, 0, &Line::styled(line, context.style(Role::Title)));
        row += 1;
    } else {
        for it in heading {
            put(buffer, area, row, &Line::styled(format!(" {}", cells::elide(it, width)), context.style(Role::Title)));
            row += 1;
        }
    }
    let values: Vec<_> = values.collect();
    let rows = values.len().div_ceil(per_row);
    for (place, (gap, bytes)) in values.into_iter().enumerate() {
        let bytes = bytes.map(Bytes);
        let line = Line::from(vec![
            Span::raw(" "),
            Span::styled(glyph(*gap, context).to_string(), context.style(Role::Gap(*gap))),
            Span::styled(format!(" {}", cells::left(gap.row().name, 12)), context.style(Role::Text)),
            Span::styled(cells::right(&cells::bytes(bytes), 11), context.style(Role::Text)),
            Span::styled(cells::right(&cells::percent(bytes, total), 6), context.style(Role::Dim)),
        ]);
        let offset = u16::try_from(place / rows.max(1) * VALUE).unwrap_or(u16::MAX);
        let cell = Rect { x: area.x.saturating_add(offset), ..area }.intersection(area);
        put(buffer, cell, row + place % rows.max(1), &line);
    }
}

/// Draws a row with a sign for each: `◇` a mark, `◆` an alert with a line for its duration, `◎` a capture, `✕` an
/// out-of-memory error.
fn draw_events(
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
    let probes: Vec<&Process> = probes(process, on, context).collect();
    let marks = probes.iter().flat_map(|it| it.marks.iter()).map(|it| (Stamp(it.at_us), '◇', Role::Text));
    let ooms = probes.iter().flat_map(|it| it.ooms.iter()).map(|it| (Stamp(it.reported.at_us), '✕', Role::Bad));
    let captures = probes.iter().flat_map(|it| it.sites.iter()).filter(|it| it.steps > 0);
    let captures = captures.map(|it| (Stamp(it.at_us), '◎', Role::Title));
    for (at, symbol, role) in marks.chain(raised).chain(captures).chain(ooms) {
        // A step that failed is after the last one that was seen.
        if let Some(column) = place(on, at, axis).and_then(|it| chart.column(it.min(chart.end()))) {
            sign(column, symbol, role);
        }
    }
}

/// Returns the state at the cursor: the latest mark, and every alert active then; as many as fit.
fn events_words(
    process: &Process,
    on: &OnDevice,
    under: &Column,
    width: usize,
    context: &RenderContext,
) -> Line<'static> {
    let mut pieces = Vec::new();
    let probes: Vec<&Process> = probes(process, on, context).collect();
    let marks = probes.iter().flat_map(|it| it.marks.iter()).filter(|it| it.at_us <= under.at.0);
    if let Some(it) = marks.max_by_key(|it| it.at_us) {
        let value = it.value.map_or_else(String::new, |it| format!(" {it}"));
        pieces.push((format!("◇ {}{value}", cells::elide(&cells::raw(&it.name), 24)), Role::Text));
    }
    let mut ooms = probes.iter().flat_map(|it| it.ooms.iter()).map(|it| &it.reported);
    if ooms.any(|it| it.step.is_some() && it.step == under.step) {
        pieces.push(("✕ out of memory".to_owned(), Role::Bad));
    }
    for it in alerts(process, on, context) {
        let lasted = it.resolved_at.is_none_or(|at| under.at <= at);
        if lasted && began(it, on, XAxis::Time) <= under.at.0 {
            let slope = it.slope().map_or_else(String::new, |it| format!(" {it}"));
            pieces.push((format!("◆ {}{slope}", verdict::what(it)), verdict::role(it.severity)));
        }
    }
    let capture = probes.iter().rev().find_map(|it| it.answer(on.ordinal, |capture| capture.at_us <= under.at.0));
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
fn events_list(
    buffer: &mut Buffer,
    area: Rect,
    span: &timeline_range::VisibleRange,
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
        let words = format!("   {}", time_of(it, it.process(context.session).unwrap_or(process)));
        lines.push(Line::styled(cells::elide(&words, width), context.style(Role::Dim)));
        if let Some(culprit) = &it.culprit {
            let words = format!(" ◎ {}", culprit.sentence);
            lines.push(Line::styled(cells::elide(&words, width), context.style(Role::Text)));
        }
    }
    let mut marks: Vec<_> = probes(process, on, context).flat_map(|it| it.marks.iter()).collect();
    marks.sort_by_key(|it| it.at_us);
    for it in marks.into_iter().rev() {
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

/// `since step 12, lasts`, `since step 12, over at step 40`, `since step 12, to the end`; an error is at one step.
fn time_of(it: &Finding, process: &Process) -> String {
    let since = it.since();
    match it.resolved_step {
        Some(step) => format!("since {since}, over at {}", it.place(step)),
        None if it.kind == Kind::Oom => format!("at {since}"),
        None if process.is_alive() => format!("since {since}, lasts"),
        None => format!("since {since}, to the end"),
    }
}

/// Returns a process as each probe of this run saw it: the run is one through all of them, unless the count of steps
/// began again.
fn probes<'a>(
    process: &'a Process,
    on: &OnDevice,
    context: &RenderContext<'a>,
) -> impl Iterator<Item = &'a Process> + use<'a> {
    let begun = on.timeline.places().next().map_or(0, |it| it.0.0.saturating_sub(on.timeline.stride_us()));
    let is_earlier = move |it: &Process| it.is_of_the_same(process) && it.ended_at().is_none_or(|end| end.0 >= begun);
    context.session.processes.iter().filter(move |it| it.probe == process.probe || is_earlier(it))
}

/// Returns the findings of a process on a device, or of its host memory.
fn alerts<'a>(
    process: &'a Process,
    on: &OnDevice,
    context: &RenderContext<'a>,
) -> impl Iterator<Item = &'a Finding> + use<'a> {
    let (probes, ordinal): (Vec<_>, _) = (probes(process, on, context).map(|it| it.probe).collect(), on.ordinal);
    let is_own = move |it: &&Finding| it.probe.is_some_and(|probe| probes.contains(&probe));
    context.findings.all.iter().filter(is_own).filter(move |it| it.ordinal.is_none_or(|on| on == ordinal))
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
        // What came after the last step that was seen belongs to its end.
        XAxis::Steps => step_at(on, at).or_else(|| on.timeline.places().last().filter(|last| last.0 < at)?.1),
        XAxis::Time => Some(at.0),
    }
}
