//! The question before a probe is started in a running process, over everything else.

use super::{
    RenderContext, cells,
    over::{self, Frame},
};
use crate::screen::theme::Role;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

const WIDTH: u16 = 62;

/// Most lines of a command line.
const COMMAND_LINES: usize = 3;

/// Draws the open question.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let Some(it) = &context.ui.attaching else { return };
    let inner = usize::from(area.width.min(WIDTH).saturating_sub(4));
    let mut lines = Vec::new();
    let mut add = |words: &str, most: usize, role| {
        let wrapped = cells::wrapped(words, inner).into_iter().take(most);
        lines.extend(wrapped.map(|line| Line::styled(format!(" {line}"), context.style(role))));
    };
    let question = format!("Start the probe in pid {}? The job pauses for about a millisecond.", it.pid);
    add(&question, usize::MAX, Role::Title);
    add(&format!("{}: {}", cells::foreign(&it.user), cells::raw(&it.command)), COMMAND_LINES, Role::Text);
    lines.push(Line::from(vec![
        Span::styled(" y", context.style(Role::Key)),
        Span::styled(" starts it, and records the job; any other key does not", context.style(Role::Text)),
    ]));
    let title = format!("probe for pid {}", it.pid);
    let frame = Frame { title: &title, hint: "Esc: back", hint_more: "Esc: back", border: Role::Bad, width: WIDTH };
    over::draw(buffer, area, &frame, &lines, 0, context);
}
