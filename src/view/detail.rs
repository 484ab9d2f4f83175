//! Every gap of the selected device explained, process by process; before it, every message in full.

use super::{Look, cells, device_name, ladder::glyph, messages, scrolled, title};
use crate::{analysis::ladder::Rung, findings::DeviceFindings, theme::Role, units::Stamp};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// Draws what fits from where the user scrolled to, and says how far that can be.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, look: &Look) -> usize {
    let Some(device) = look.device() else { return 0 };
    let hint = vec![Span::styled("Esc: back", look.style(Role::Dim))];
    title(buffer, area, &format!("every gap of {}", device_name(device)), hint, look);
    scrolled(buffer, area, &lines(area, look), look)
}

fn lines(area: Rect, look: &Look) -> Vec<Line<'static>> {
    let Some(found) = look.found() else { return Vec::new() };
    let width = usize::from(area.width).saturating_sub(1);
    let mut lines: Vec<Line> = messages::lines(&messages::messages(look), width, usize::MAX)
        .into_iter()
        .map(|(role, text)| Line::styled(format!(" {text}"), look.style(role)))
        .collect();
    for rung in &found.ladder.rungs {
        explain(rung, found, look, width, &mut lines);
    }
    lines
}

fn explain(rung: &Rung, found: &DeviceFindings, look: &Look, width: usize, lines: &mut Vec<Line<'static>>) {
    let meaning = rung.gap.meaning();
    let (text, dim) = (look.style(Role::Text), look.style(Role::Dim));
    let owner = rung.owner.and_then(|it| found.processes.get(it)).and_then(|it| look.session.process(it.probe));
    let owner = owner.filter(|_| found.processes.len() > 1).map(messages::who);
    let mut line = Line::from(vec![
        Span::styled(format!(" {} ", glyph(rung.gap, look)), look.style(Role::Gap(rung.gap))),
        Span::styled(cells::left(meaning.name, 13), text),
        Span::styled(cells::right(&cells::bytes(rung.bytes), 11), text),
        Span::styled(cells::right(&cells::percent(rung.bytes, found.ladder.total), 6), dim),
        Span::styled(owner.map_or_else(String::new, |it| format!("  {it}")), text),
    ]);
    // The cause follows where it fits, and else begins a line of its own.
    let cause = format!("  {}", meaning.cause);
    let fits = line.width() + cells::width(&cause) <= width;
    if fits {
        line.push_span(Span::styled(cause, dim));
    }
    lines.push(line);
    let mut note = |words: &str, role| {
        let wrapped = cells::wrapped(words, width.saturating_sub(3));
        lines.extend(wrapped.into_iter().map(|it| Line::styled(format!("   {it}"), look.style(role))));
    };
    if !fits {
        note(meaning.cause, Role::Dim);
    }
    if !meaning.remedy.is_empty() && rung.bytes.is_some_and(|it| it.0 > 0) {
        note(&format!("→ {}", meaning.remedy), Role::Good);
    }
    if let Some((one, other)) = rung.inconsistent {
        let words = if one == other {
            format!("! figures of one reading, at {}, contradict each other", seconds(one))
        } else {
            format!("! read at {} and {}: they contradict each other", seconds(one), seconds(other))
        };
        note(&words, Role::Warning);
    }
}

fn seconds(at: Stamp) -> String {
    format!("{}.{:06} s", at.0 / 1_000_000, at.0 % 1_000_000)
}
