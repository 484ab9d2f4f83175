//! The explanation of a cause, and the question whether to expect an alert: over everything else.

use super::{
    RenderContext, cells,
    over::{self, Frame},
};
use crate::{
    model::analysis::cause::Cause,
    screen::{
        theme::Role,
        ui::{Extent, alerts::Allowing},
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

const WIDTH: u16 = 84;

/// Draws the open explanation, and returns how far it can be scrolled.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) -> usize {
    let Some(entry) = context.ui.explained.map(Cause::entry) else { return 0 };
    let inner = usize::from(area.width.min(WIDTH).saturating_sub(4));
    let mut lines = Vec::new();
    let mut add = |words: &str, role| {
        lines.extend(cells::wrapped(words, inner).iter().map(|it| Line::styled(format!(" {it}"), context.style(role))));
    };
    add(entry.title, Role::Title);
    for paragraph in entry.text.trim_end().split("\n\n") {
        add("", Role::Text);
        add(&paragraph.replace('\n', " "), Role::Text);
    }
    add("", Role::Text);
    add(&format!("→ {}", entry.advice), Role::Good);
    let frame = Frame {
        title: entry.id,
        hint: "Esc: back",
        hint_more: "↑↓: more  Esc: back",
        border: Role::Border,
        width: WIDTH,
    };
    over::draw(buffer, area, &frame, &lines, context.ui.help_scroll, context).1
}

/// Draws the open question.
pub(super) fn question(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let Some(Allowing { what, lines, file, is_new }) = &context.ui.allowing else { return };
    let inner = usize::from(area.width.min(WIDTH).saturating_sub(4));
    let mut shown = Vec::new();
    let mut add = |words: &str, role| {
        let wrapped = cells::wrapped(&cells::raw(words), inner);
        shown.extend(wrapped.iter().map(|it| Line::styled(format!(" {it}"), context.style(role))));
    };
    let (asked, does) = if what.removed.is_empty() {
        let of = match what.only.and_then(|it| Some((it, what.limit(it)?))) {
            None => "in every run that reads this file".to_owned(),
            Some((Extent::Script, script)) => format!("in runs of {script}"),
            Some((Extent::Line, line)) => format!("of line {line}"),
        };
        let asked = format!("expect {} {of}? It then counts in no badge, rings no bell and fails no check.", what.name);
        (asked, if *is_new { "makes" } else { "writes into" })
    } else {
        let names = what.removed.join(", ");
        (format!("expect {names} no longer? It then counts, rings and fails a check again."), "removes it from")
    };
    add(&asked, Role::Title);
    add(&format!("{does} {file}:"), Role::Text);
    for line in lines.iter().filter(|it| !it.is_empty()) {
        add(line, Role::Good);
    }
    let limits = [("s", Extent::Script), ("l", Extent::Line)];
    let limits = limits.into_iter().filter(|_| what.removed.is_empty());
    let mut answers = vec![("y", "writes it".to_owned())];
    answers.extend(limits.filter_map(|(key, it)| {
        let limit = what.limit(it)?;
        Some((key, if what.only == Some(it) { "every run".to_owned() } else { format!("only {}", cells::raw(limit)) }))
    }));
    for (key, words) in answers {
        shown.push(Line::from(vec![
            Span::styled(format!(" {key}"), context.style(Role::Key)),
            Span::styled(format!(" {words}"), context.style(Role::Text)),
        ]));
    }
    shown.push(Line::styled(" any other key writes nothing", context.style(Role::Text)));
    let frame =
        Frame { title: "expect an alert", hint: "Esc: back", hint_more: "Esc: back", border: Role::Bad, width: WIDTH };
    over::draw(buffer, area, &frame, &shown, 0, context);
}
