//! What the blocks of a moment hold: a row for each part, or all in one row where rows are short.

use super::Scene;
use crate::{
    facts::event::anatomy::Anatomy,
    screen::{
        theme::Role,
        view::{cells, peak, put, take},
    },
};
use ratatui::{buffer::Buffer, layout::Rect, text::Line};

/// Rows below that stacks keep where each part has a row, and where all have one.
const KEEP: usize = 6;
const KEEP_BESIDE_ONE: usize = 3;

/// Returns how many rows the parts of a moment have a use for.
pub(super) fn rows(it: Option<&Anatomy>) -> usize {
    it.filter(|it| it.is_known()).map_or(0, |it| it.parts.len())
}

/// Draws the parts of a moment at the top of what is left; nothing where they are unknown.
pub(super) fn draw(buffer: &mut Buffer, rest: &mut Rect, it: Option<&Anatomy>, scene: &Scene) {
    let Some(it) = it.filter(|it| it.is_known()) else { return };
    let (width, height) = (usize::from(rest.width), usize::from(rest.height));
    let mut lines = peak::parts(it, width, &scene.context);
    if height < lines.len() + KEEP {
        lines = vec![Line::styled(format!("  {}", shares(it)), scene.context.style(Role::Text))];
    }
    if height >= lines.len() + KEEP_BESIDE_ONE {
        let place = take(rest, lines.len());
        lines.iter().enumerate().for_each(|(row, line)| put(buffer, place, row, line));
    }
}

/// Returns `activations 61 %  weights 20 %`, largest first.
fn shares(it: &Anatomy) -> String {
    let mut parts: Vec<_> = it.parts.iter().filter(|part| *part.1 > 0).collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.1));
    let share = |bytes: u64| cells::share((it.allocated > 0).then(|| bytes as f64 / it.allocated as f64));
    let parts: Vec<_> =
        parts.into_iter().map(|(part, bytes)| format!("{} {}", part.name(), share(*bytes).trim())).collect();
    parts.join("  ")
}
