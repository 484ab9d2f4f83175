//! One process on one device: its description, memory, growth and findings.

mod counters;
mod figures;
mod growths;
mod identity;
mod pace;
mod settings;

use super::{
    RenderContext, Scrolled, alerts, cells, culprit, growth, heading, messages, processes::SILENT_US, scroll::moved,
    scrolled, title, verdict,
};
use crate::{
    facts::units,
    model::session::process::{Life, OnDevice, Process},
    screen::theme::Role,
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// From this width on, the curves are next to the figures.
const WIDE: u16 = 132;

/// The width of the figures next to the curves.
const FIGURES: u16 = 82;

/// Rows of figures before there is a curve below them, and rows of that curve.
const ROWS: u16 = 22;
const CURVE: std::ops::RangeInclusive<u16> = 5..=14;

/// Below this many rows growth comes first, and the description is only the command.
const SMALL: u16 = 12;

/// Most marks listed, the latest ones.
const MARKS: usize = 12;

/// Draws figures and curves, and returns how far the figures can be scrolled:
///
/// ```text
/// title     who, and where in its life
/// identity  command, framework, allocator settings, …
/// culprit   the line that allocates the growing memory and its holder, after a capture
/// alerts    what was found of it
/// settings  what other allocator settings would save, if a user asked
/// where     the culprit's lines of source, its holders, its stack, what looking for it cost
/// memory    every counter
/// growth    a row for each resource, with its whole run
/// step time how long steps take, with the whole run
/// marks     what the job named
/// use       its part of the device's time, CPU time, host memory, whose it is, settings in its environment
/// curve     what grows, with the fitted line ahead of it; beside the figures from 132 columns on, with a second one
/// ```
///
/// The figures scroll; below 27 rows they also use the curve's room.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) -> Scrolled {
    let Some((process, on)) = context.ui.process(context.session) else { return nobody(buffer, area, context) };
    let mut figures = area;
    if area.width >= WIDE {
        let right = Rect { x: area.x + FIGURES + 2, width: area.width - FIGURES - 2, ..area };
        figures.width = FIGURES;
        curves(buffer, right, process, on, context);
    } else if let Some(spare) = area.height.checked_sub(ROWS).filter(|it| it >= CURVE.start()) {
        let height = spare.clamp(*CURVE.start(), *CURVE.end());
        let curve = Rect { y: area.bottom() - height, height, ..area };
        figures.height -= height;
        growth::draw(buffer, curve, context);
    }
    let life = vec![Span::styled(life(process, context), context.style(Role::Dim))];
    title(buffer, figures, &verdict::place(process, on, context), life, context);
    let width = usize::from(figures.width);
    let mut lines = identity::lines(process, on, width, context);
    let mut growth = vec![heading("growth", width, context)];
    growth.extend(growths::lines(process, on, width, context));
    let mut counters = vec![heading("memory", width, context)];
    counters.extend(counters::lines(process, on, width, context));
    let is_small = area.height < SMALL;
    if is_small {
        // Growth is what should be visible without scrolling.
        lines.truncate(1);
    }
    lines.extend(culprit::answer(process, on, width, context));
    if is_small {
        lines.append(&mut growth);
    }
    let (found, spots) = alerts::listed(width, context);
    if !found.is_empty() {
        lines.push(heading("alerts", width, context));
    }
    let spots = moved(spots, lines.len());
    lines.extend(found);
    lines.extend(settings::lines(process, on, width, context));
    lines.extend(culprit::details(process, on, width, context));
    lines.extend(counters);
    lines.extend(growth);
    let pace = pace::lines(on, width, context);
    if !pace.is_empty() {
        lines.push(heading(&cells::elide(pace::TITLE, width.saturating_sub(4)), width, context));
    }
    lines.extend(pace);
    lines.extend(marks(process, width, context));
    lines.push(heading("use", width, context));
    lines.extend(figures::lines(process, on, width, context));
    scrolled(buffer, figures, &lines, &spots, context)
}

fn nobody(buffer: &mut Buffer, area: Rect, context: &RenderContext) -> Scrolled {
    title(buffer, area, "process", Vec::new(), context);
    let words = "no probed process here: gpuwatch run -- python train.py starts one, gpuwatch attach PID gives a running job a probe";
    let lines: Vec<Line> = cells::wrapped(words, usize::from(area.width).saturating_sub(2))
        .into_iter()
        .map(|it| Line::styled(format!(" {it}"), context.style(Role::Dim)))
        .collect();
    scrolled(buffer, area, &lines, &[], context)
}

/// Draws the curve of growth, and below it unused memory.
fn curves(buffer: &mut Buffer, mut area: Rect, process: &Process, on: &OnDevice, context: &RenderContext) {
    let half = usize::from(area.height / 2);
    growth::draw(buffer, super::take(&mut area, half), context);
    growth::unused(buffer, area, process, on, context);
}

fn life(process: &Process, context: &RenderContext) -> String {
    let ago = |at| units::duration(context.session.now.since(at));
    match &process.life {
        Life::Found => "not connected yet".to_owned(),
        Life::Incompatible { protocol } => format!("speaks version {protocol} of the wire"),
        Life::CatchingUp => "its history is coming".to_owned(),
        Life::Live if context.session.now.since(process.last_line_at) < SILENT_US => "live".to_owned(),
        Life::Live => format!("silent for {}", ago(process.last_line_at)),
        Life::Ended { at, reason } => {
            let what = if process.has_left() { "its probe ended" } else { "ended" };
            format!("{what} {} ago: {}", ago(*at), cells::elide(&cells::foreign(reason), 20))
        }
        Life::Gone { at, .. } => format!("lost {} ago", ago(*at)),
    }
}

/// Returns the latest marks, and the number of earlier ones.
fn marks(process: &Process, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    if process.marks.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![heading("marks", width, context)];
    for it in process.marks.iter().rev().take(MARKS) {
        let ago = units::duration(context.session.now.since(units::Stamp(it.at_us)));
        let value = it.value.map_or_else(String::new, |it| format!(" {it}"));
        let room = width.saturating_sub(14);
        let name = cells::left(&format!("{}{value}", cells::raw(&it.name)), room.min(40));
        lines.push(Line::from(vec![
            Span::styled(format!(" {name}"), context.style(Role::Text)),
            Span::styled(cells::right(&format!("{ago} ago"), 12), context.style(Role::Dim)),
        ]));
    }
    let more = process.marks.iter().len().saturating_sub(MARKS) as u64 + process.marks.gone();
    if more > 0 {
        lines.push(Line::styled(format!(" and {more} before"), context.style(Role::Dim)));
    }
    lines
}

/// Returns `name   words`, wrapped and aligned.
fn named(name: &str, words: &str, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    const NAME: usize = 11;
    let words = cells::wrapped(words, width.saturating_sub(NAME + 1));
    let line = |(at, words): (usize, String)| {
        let name = if at == 0 { name } else { "" };
        Line::from(vec![
            Span::styled(format!(" {}", cells::left(name, NAME - 1)), context.style(Role::Dim)),
            Span::styled(words, context.style(Role::Text)),
        ])
    };
    words.into_iter().enumerate().map(line).collect()
}
