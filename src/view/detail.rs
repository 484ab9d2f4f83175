//! Every gap of the selected device explained, process by process; before it, every message in full.

use super::{Look, cells, device_name, ladder::glyph, messages, put, title};
use crate::{analysis::ladder::Rung, findings::DeviceFindings, theme::Role, units::Stamp};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// Draws what fits from where the user scrolled to.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, look: &Look) {
    let (Some(device), Some(found)) = (look.device(), look.found()) else { return };
    let hint = vec![Span::styled("Esc: back", look.style(Role::Dim))];
    title(buffer, area, &format!("every gap of {}", device_name(device)), hint, look);
    let width = usize::from(area.width).saturating_sub(1);
    let mut lines: Vec<Line> = messages::lines(&messages::messages(look), width, usize::MAX)
        .into_iter()
        .map(|(role, text)| Line::styled(format!(" {text}"), look.style(role)))
        .collect();
    for rung in &found.ladder.rungs {
        explain(rung, found, look, &mut lines);
    }
    let height = usize::from(area.height).saturating_sub(1);
    let first = look.ui.scroll.min(lines.len().saturating_sub(height));
    for (row, line) in lines.iter().skip(first).take(height).enumerate() {
        put(buffer, area, row + 1, line);
    }
}

fn explain(rung: &Rung, found: &DeviceFindings, look: &Look, lines: &mut Vec<Line<'static>>) {
    let meaning = rung.gap.meaning();
    let (text, dim) = (look.style(Role::Text), look.style(Role::Dim));
    let owner = rung.owner.and_then(|it| found.processes.get(it)).and_then(|it| look.session.process(it.probe));
    let owner = owner.filter(|_| found.processes.len() > 1).map(messages::who);
    lines.push(Line::from(vec![
        Span::styled(format!(" {} ", glyph(rung.gap, look)), look.style(Role::Gap(rung.gap))),
        Span::styled(cells::left(meaning.name, 13), text),
        Span::styled(cells::right(&cells::bytes(rung.bytes), 11), text),
        Span::styled(cells::right(&cells::percent(rung.bytes, found.ladder.total), 6), dim),
        Span::styled(owner.map_or_else(String::new, |it| format!("  {it}")), text),
        Span::styled(format!("  {}", meaning.cause), dim),
    ]));
    let mut note = |words: String, role| lines.push(Line::styled(format!("   {words}"), look.style(role)));
    if !meaning.remedy.is_empty() && rung.bytes.is_some_and(|it| it.0 > 0) {
        note(format!("→ {}", meaning.remedy), Role::Good);
    }
    if let Some((one, other)) = rung.inconsistent {
        let words = if one == other {
            format!("! figures of one reading, at {}, contradict each other", seconds(one))
        } else {
            format!("! read at {} and {}: they contradict each other", seconds(one), seconds(other))
        };
        note(words, Role::Warning);
    }
}

fn seconds(at: Stamp) -> String {
    format!("{}.{:06} s", at.0 / 1_000_000, at.0 % 1_000_000)
}
