//! The question before gpuwatch starts something at a process, over everything else.

use super::{
    RenderContext, cells,
    over::{self, Frame},
};
use crate::{
    facts::event::replayed::WINDOW_STEPS,
    screen::{
        theme::Role,
        ui::{Start, start::Starting},
    },
};
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
    let Some(it) = &context.ui.starting else { return };
    let inner = usize::from(area.width.min(WIDTH).saturating_sub(4));
    let (title, question, yes) = words(it, &context.ui.on_machine());
    let mut lines = Vec::new();
    let mut add = |words: &str, most: usize, role| {
        let wrapped = cells::wrapped(words, inner).into_iter().take(most);
        lines.extend(wrapped.map(|line| Line::styled(format!(" {line}"), context.style(role))));
    };
    add(&question, usize::MAX, Role::Title);
    add(&format!("{}: {}", cells::foreign(&it.user), cells::raw(&it.command)), COMMAND_LINES, Role::Text);
    lines.push(Line::from(vec![
        Span::styled(" y", context.style(Role::Key)),
        Span::styled(format!(" {yes}; any other key does not"), context.style(Role::Text)),
    ]));
    let frame = Frame { title: &title, hint: "Esc: back", hint_more: "Esc: back", border: Role::Bad, width: WIDTH };
    over::draw(buffer, area, &frame, &lines, 0, context);
}

/// Returns the title, the question with what it costs the job, and what a yes does.
fn words(it: &Starting, machine: &str) -> (String, String, &'static str) {
    let pid = format!("{}{machine}", it.pid);
    match it.what {
        Start::Probe => (
            format!("probe for pid {pid}"),
            format!("Start the probe in pid {pid}? The job pauses for about a millisecond."),
            "starts it, and records the job",
        ),
        Start::Trace => (
            format!("other settings for pid {pid}"),
            format!(
                "Trace {WINDOW_STEPS} steps of pid {pid} and replay them under other allocator settings? The job pauses for \
                 some milliseconds a few times."
            ),
            "traces and replays them",
        ),
    }
}
