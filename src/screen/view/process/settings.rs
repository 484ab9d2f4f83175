//! What other allocator settings would save, as a replay shows that a user asked for.

use crate::{
    model::{
        findings::replay_words,
        session::process::{OnDevice, Process},
    },
    screen::view::{RenderContext, alerts::replay_roles, cells, heading},
};
use ratatui::text::{Line, Span};

/// Returns the latest answer, unless an alert of the process shows it.
pub(super) fn lines(process: &Process, on: &OnDevice, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let Some(answer) = process.replayed(on.ordinal, None) else { return Vec::new() };
    let mut own = context.findings.all.iter().filter(|it| it.is_of(process));
    if own.any(|it| it.replayed.as_deref() == Some(answer)) {
        return Vec::new();
    }
    let mut lines = vec![heading("allocator settings", width, context)];
    for (words, role) in replay_words(answer).iter().zip(replay_roles(Some(answer))) {
        let wrapped = cells::wrapped(words, width.saturating_sub(2));
        lines.extend(wrapped.into_iter().map(|it| Line::from(Span::styled(format!(" {it}"), context.style(role)))));
    }
    lines
}
