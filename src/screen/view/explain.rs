//! What is known of a cause, and whether an alert is to be expected: over everything else.

use super::{
    RenderContext, cells,
    over::{self, Frame},
};
use crate::{
    model::analysis::cause::Cause,
    screen::{theme::Role, ui::alerts::Allowing},
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

const WIDTH: u16 = 84;

/// Draws the page of a cause while it is open, from where the user scrolled to; says how far that can be.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) -> usize {
    let Some(entry) = context.ui.explained.map(Cause::entry) else { return 0 };
    let inner = usize::from(area.width.min(WIDTH).saturating_sub(4));
    let mut lines = Vec::new();
    let mut say = |words: &str, role| {
        lines.extend(cells::wrapped(words, inner).iter().map(|it| Line::styled(format!(" {it}"), context.style(role))));
    };
    say(entry.title, Role::Title);
    for paragraph in entry.text.trim_end().split("\n\n") {
        say("", Role::Text);
        say(&paragraph.replace('\n', " "), Role::Text);
    }
    say("", Role::Text);
    say(&format!("→ {}", entry.advice), Role::Good);
    let frame = Frame {
        title: entry.id,
        hint: "Esc: back",
        hint_more: "↑↓: more  Esc: back",
        border: Role::Border,
        width: WIDTH,
    };
    over::draw(buffer, area, &frame, &lines, context.ui.help_scroll, context).1
}

/// Draws the question while it is asked.
pub(super) fn question(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let Some(Allowing { name, lines, file, is_new }) = &context.ui.allowing else { return };
    let inner = usize::from(area.width.min(WIDTH).saturating_sub(4));
    let mut shown = Vec::new();
    let mut say = |words: &str, role| {
        let wrapped = cells::wrapped(&cells::raw(words), inner);
        shown.extend(wrapped.iter().map(|it| Line::styled(format!(" {it}"), context.style(role))));
    };
    say(&format!("expect {name}? It then counts in no badge, rings no bell and fails no check."), Role::Title);
    say(&format!("{} {file}:", if *is_new { "makes" } else { "writes into" }), Role::Text);
    for line in lines.iter().filter(|it| !it.is_empty()) {
        say(line, Role::Good);
    }
    shown.push(Line::from(vec![
        Span::styled(" y", context.style(Role::Key)),
        Span::styled(" writes it; any other key does not", context.style(Role::Text)),
    ]));
    let frame =
        Frame { title: "expect an alert", hint: "Esc: back", hint_more: "Esc: back", border: Role::Bad, width: WIDTH };
    over::draw(buffer, area, &frame, &shown, 0, context);
}
