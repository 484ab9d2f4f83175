//! What a process's memory consisted of at the highest moment of a step.

use crate::{
    facts::{
        event::anatomy::{Anatomy, AnatomyPart},
        units::Bytes,
    },
    model::session::process::{OnDevice, Process},
    screen::{
        theme::Role,
        view::{RenderContext, cells, heading, put, take},
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// Most lines of the job that are listed.
const LISTED: usize = 6;

/// The widths of a size and of a share.
const SIZE: usize = 11;
const SHARE: usize = 6;

/// Rows below that stacks keep where each part has a row, and where all have one.
const KEEP: usize = 6;
const KEEP_BESIDE_ONE: usize = 3;

/// Returns the parts of the latest moment that was traced, and the lines that allocated most of it; none without one.
pub(super) fn lines(process: &Process, on: &OnDevice, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let Some(it) = process.peak.as_ref().filter(|it| it.device == on.ordinal).map(|it| &it.anatomy) else {
        return Vec::new();
    };
    let of = it.step.map_or_else(|| "of a part of a step".to_owned(), |step| format!("of step {step}"));
    let phase = it.phase.map_or_else(String::new, |phase| format!(", {}", phase.words()));
    let title = format!("highest moment {of}{phase}: {}", Bytes(it.allocated));
    let mut lines = vec![heading(&cells::elide(&title, width.saturating_sub(4)), width, context)];
    lines.extend(parts(it, width, context));
    for line in it.lines.iter().take(LISTED) {
        let module = line.module.as_ref().map_or_else(String::new, |it| format!(" of {}", cells::foreign(it)));
        let words = format!("{}  {}{module}", cells::foreign(&line.line), line.part.name());
        lines.push(row(it, line.bytes, Role::Dim, &words, width, context));
    }
    lines
}

/// Returns a row for each part that has bytes.
pub(super) fn parts(it: &Anatomy, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let parts = AnatomyPart::WORDS.iter().filter_map(|(part, words)| Some((words, *it.parts.get(part)?)));
    parts.map(|(words, bytes)| row(it, bytes, Role::Text, words, width, context)).collect()
}

/// Returns ` 11.32 GiB  61 %  words`.
fn row(of: &Anatomy, bytes: u64, role: Role, words: &str, width: usize, context: &RenderContext) -> Line<'static> {
    let share = (of.allocated > 0).then(|| bytes as f64 / of.allocated as f64);
    let words = cells::elide(words, width.saturating_sub(SIZE + SHARE + 2));
    Line::from(vec![
        Span::styled(cells::right(&cells::bytes(Some(Bytes(bytes))), SIZE), context.style(role)),
        Span::styled(cells::right(&cells::share(share), SHARE), context.style(Role::Dim)),
        Span::styled(format!("  {words}"), context.style(role)),
    ])
}

/// Returns how many rows the parts of a moment have a use for.
pub(super) fn rows(it: Option<&Anatomy>) -> usize {
    it.filter(|it| it.is_known()).map_or(0, |it| it.parts.len())
}

/// Draws the parts of a moment at the top of what is left; nothing where they are unknown.
pub(super) fn draw(buffer: &mut Buffer, rest: &mut Rect, it: Option<&Anatomy>, context: &RenderContext) {
    let Some(it) = it.filter(|it| it.is_known()) else { return };
    let (width, height) = (usize::from(rest.width), usize::from(rest.height));
    let mut lines = parts(it, width, context);
    if height < lines.len() + KEEP {
        lines = vec![Line::styled(format!("  {}", shares(it)), context.style(Role::Text))];
    }
    if height >= lines.len() + KEEP_BESIDE_ONE {
        let place = take(rest, lines.len());
        lines.iter().enumerate().for_each(|(row, line)| put(buffer, place, row, line));
    }
}

/// Returns `activations 61 %  weights 20 %`, largest first.
fn shares(it: &Anatomy) -> String {
    let mut all: Vec<_> = it.parts.iter().filter(|part| *part.1 > 0).collect();
    all.sort_by_key(|part| std::cmp::Reverse(part.1));
    let share = |bytes: u64| cells::share((it.allocated > 0).then(|| bytes as f64 / it.allocated as f64));
    let parts: Vec<_> =
        all.into_iter().map(|(part, bytes)| format!("{} {}", part.name(), share(*bytes).trim())).collect();
    parts.join("  ")
}
