//! Blocks by call stack, a row each: bytes, share, blocks, and the job's own lines.

use super::Scene;
use crate::{
    facts::units::{Bytes, counted},
    model::trace::Share,
    screen::{
        theme::Role,
        view::{cells, put},
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// The widths of the columns.
const BYTES: usize = 11;
const PERCENT: usize = 6;
const BLOCKS: usize = 9;

/// The narrowest picture that counts blocks.
const NARROW: u16 = 60;

/// Draws as many shares as fit, from one of them on; what is left is summed up in the last row. Shares with the same
/// line are one row.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, shares: &[Share], whole: u64, from: usize, scene: &Scene) {
    let shares = &scene.snapshot.trace.stacks.merged(shares);
    let rows = usize::from(area.height);
    let from = from.min(most(shares, rows));
    let later = shares.get(from..).unwrap_or_default();
    let fits = later.len() <= rows;
    let shown = if fits { later.len() } else { rows.saturating_sub(1) };
    for (row, it) in later.iter().take(shown).enumerate() {
        let words = scene.snapshot.trace.stacks.line(it.stack);
        put(buffer, area, row, &line(it.bytes, it.blocks, whole, &words, area, scene));
    }
    let rest = later.get(shown..).unwrap_or_default();
    if !fits {
        let bytes = rest.iter().map(|it| it.bytes).fold(0, u64::saturating_add);
        let blocks = rest.iter().map(|it| it.blocks).fold(0, u64::saturating_add);
        let words = counted(rest.len() as u64, "other stack");
        put(buffer, area, shown, &line(bytes, blocks, whole, &words, area, scene));
    }
}

/// Returns how far a list can be scrolled.
pub(super) fn scrolls(shares: &[Share], rows: usize, scene: &Scene) -> usize {
    most(&scene.snapshot.trace.stacks.merged(shares), rows)
}

fn most(shares: &[Share], rows: usize) -> usize {
    shares.len().saturating_sub(rows)
}

fn line(bytes: u64, blocks: u64, whole: u64, words: &str, area: Rect, scene: &Scene) -> Line<'static> {
    let style = |role| scene.context.style(role);
    let share = cells::percent(Some(Bytes(bytes)), Some(Bytes(whole)));
    let mut spans = vec![
        Span::styled(cells::right(&Bytes(bytes).to_string(), BYTES), style(Role::Text)),
        Span::styled(cells::right(&share, PERCENT), style(Role::Dim)),
    ];
    if area.width >= NARROW {
        let blocks = counted(blocks, "block");
        spans.push(Span::styled(cells::right(&blocks, BLOCKS + 3), style(Role::Dim)));
    }
    let taken: usize = spans.iter().map(Span::width).sum();
    let room = usize::from(area.width).saturating_sub(taken + 2);
    spans.push(Span::styled(format!("  {}", cells::elide(words, room)), style(Role::Text)));
    Line::from(spans)
}
