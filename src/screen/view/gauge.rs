//! Unused part of reserved memory: stuck, or releasable.

use super::{RenderContext, cells, put};
use crate::{
    facts::units::Bytes,
    model::{
        analysis::{fragmentation::Stuck, ladder::Gap},
        findings::ProcessFindings,
    },
    screen::theme::Role,
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// Returns the rows that it wants: none if no probe reports reserved memory.
pub(super) fn height(context: &RenderContext) -> usize {
    usize::from(context.found().is_some_and(|it| !it.processes.is_empty()))
}

/// Draws `21 % of reserved is unused   stuck 9.00 GiB   empty_cache() frees 12.00 GiB`.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let Some(found) = context.found().filter(|it| !it.processes.is_empty()) else { return };
    let text = context.style(Role::Text);
    let reserved = sum(&found.processes, |it| it.fragmentation.reserved);
    let cached = sum(&found.processes, |it| it.fragmentation.cached);
    let releasable = sum(&found.processes, |it| it.releasable);
    let share = cached.zip(reserved).filter(|(_, all)| all.0 > 0).map(|(part, all)| part.0 as f64 / all.0 as f64);
    let mut pieces = vec![vec![
        Span::styled(cells::right(&cells::share(share), 5), text),
        Span::styled(" of reserved is unused", context.style(Role::Dim)),
    ]];
    if found.processes.iter().any(|it| it.fragmentation.stuck == Stuck::NotMeasurable) {
        pieces.push(vec![Span::styled("stuck: not measurable (expandable segments)", context.style(Role::Dim))]);
    } else {
        let stuck = sum(&found.processes, |it| match it.fragmentation.stuck {
            Stuck::Known(bytes) => Some(bytes),
            _ => None,
        });
        pieces.push(vec![
            Span::styled("stuck ", context.style(Role::Gap(Gap::Stuck))),
            Span::styled(cells::bytes(stuck), text),
        ]);
        pieces.push(vec![
            Span::styled("empty_cache() frees ", context.style(Role::Gap(Gap::Releasable))),
            Span::styled(cells::bytes(releasable), text),
        ]);
    }
    let mut spans = Vec::new();
    let mut left = usize::from(area.width);
    for piece in pieces {
        let width: usize = piece.iter().map(Span::width).sum();
        let Some(rest) = left.checked_sub(width + 3) else { break };
        left = rest;
        spans.push(Span::raw(if spans.is_empty() { " " } else { "   " }));
        spans.extend(piece);
    }
    put(buffer, area, 0, &Line::from(spans));
}

/// Returns the sum over all processes, `None` if one is unknown.
fn sum(processes: &[ProcessFindings], part: impl Fn(&ProcessFindings) -> Option<Bytes>) -> Option<Bytes> {
    processes.iter().map(part).try_fold(Bytes(0), |sum, it| Some(sum.plus(it?)))
}
