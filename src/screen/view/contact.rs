//! The first screen on a machine without a device: what is there, what is missing, and the one next command.

use super::{RenderContext, cells, put};
use crate::{facts::event::DriverState, model::contact::contact, screen::theme::Role};
use ratatui::{buffer::Buffer, layout::Rect, text::Line};

/// Where the texts begin, behind their titles.
const MARGIN: usize = 10;

/// The widest text that is read with ease.
const WIDEST: usize = 84;

/// Draws the screen.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let width = usize::from(area.width).min(WIDEST).saturating_sub(MARGIN + 1);
    let mut rows: Vec<(String, Role)> = Vec::new();
    let mut add = |title: &str, words: &str, role: Role| {
        for (at, line) in cells::wrapped(words, width).into_iter().enumerate() {
            let title = if at == 0 { title } else { "" };
            rows.push((format!(" {title:<width$}{line}", width = MARGIN - 1), role));
        }
    };
    match contact(context.session) {
        Some(it) => {
            for (at, found) in it.there.iter().enumerate() {
                add(if at == 0 { "there" } else { "" }, found, Role::Text);
            }
            add("missing", &it.missing, Role::Warning);
            add("next", &it.next, Role::Key);
            add("", it.does, Role::Dim);
        }
        None if matches!(context.session.driver, Some(DriverState::Stalled { .. })) => {
            add("waiting", "for the driver, whose call has not returned", Role::Text);
        }
        None => add("waiting", "for the driver and for probes", Role::Text),
    }
    rows.push((String::new(), Role::Dim));
    let whole = width + MARGIN - 1;
    let mut add = |words: &str| {
        rows.extend(cells::wrapped(words, whole).into_iter().map(|line| (format!(" {line}"), Role::Dim)));
    };
    add("Jobs that are started with `gpuwatch run -- python train.py` appear here.");
    add("`gpuwatch doctor` checks everything; `gpuwatch demo` needs no GPU.");
    for (row, (text, role)) in rows.iter().enumerate() {
        put(buffer, area, row + 1, &Line::styled(text.as_str(), context.style(*role)));
    }
}
