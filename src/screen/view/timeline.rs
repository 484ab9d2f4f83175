//! The run of the selected process: every rung stacked over steps or time, a cursor with its values, and events.

mod chart;
mod events;

use self::chart::Chart;
use super::{RenderContext, cells, course, growth, ladder::glyph, put, title, verdict};
use crate::{
    facts::units::{self, Bytes},
    model::{
        analysis::{ladder::Gap, pace::Stretch},
        session::{
            process::OnDevice,
            timeline::{Column, Level, Levels},
        },
    },
    screen::{
        theme::Role,
        ui::{
            Screen,
            timeline::{Span, XAxis},
        },
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span as Words},
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
    let shown = vec![Words::styled(shown(&span), context.style(Role::Text))];
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
        events::list(buffer, right, &span, process, on, context);
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
        events::draw(buffer, super::take(&mut rest, 1), &chart, process, on, context);
    }
    if under_chart > 2 {
        let words = events::words(process, on, &under, usize::from(rest.width), context);
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
fn shown(span: &Span) -> String {
    let all = span.from == span.whole.0 && span.to == span.whole.1;
    let part = (span.whole.1 - span.whole.0).checked_div((span.to - span.from).max(1)).unwrap_or(1).max(1);
    let part = if all { "the whole run".to_owned() } else { format!("1/{part} of the run") };
    let of = |place: u64| place_name(span, place);
    let unit = if span.axis == XAxis::Steps { "steps " } else { "" };
    format!("{unit}{} – {} · {part}", of(span.from), of(span.to))
}

/// Formats a position on the axis: a step, or the time since the first sample.
fn place_name(span: &Span, place: u64) -> String {
    match span.axis {
        XAxis::Steps => place.to_string(),
        XAxis::Time => cells::clock(place.saturating_sub(span.whole.0)),
    }
}

/// Returns the cursor's step, time and age, and the range of allocations in its column.
fn heading(span: &Span, under: &Column, on: &OnDevice, context: &RenderContext) -> Vec<String> {
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
            Words::raw(" "),
            Words::styled(glyph(*gap, context).to_string(), context.style(Role::Gap(*gap))),
            Words::styled(format!(" {}", cells::left(gap.row().name, 12)), context.style(Role::Text)),
            Words::styled(cells::right(&cells::bytes(bytes), 11), context.style(Role::Text)),
            Words::styled(cells::right(&cells::percent(bytes, total), 6), context.style(Role::Dim)),
        ]);
        let offset = u16::try_from(place / rows.max(1) * VALUE).unwrap_or(u16::MAX);
        let cell = Rect { x: area.x.saturating_add(offset), ..area }.intersection(area);
        put(buffer, cell, row + place % rows.max(1), &line);
    }
}
