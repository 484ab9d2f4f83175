//! Draws segments as cells: each cell has the gap that most of its bytes belong to. With a filter, only blocks that
//! match count.

use super::Scene;
use crate::{
    model::{analysis::ladder::Gap, snapshot::Piece},
    screen::{theme::Role, view::ladder::glyph},
};
use ratatui::text::{Line, Span};

/// Draws segments, one behind the other, in so many cells.
pub(super) fn line(pieces: &[&Piece], cells: usize, scene: &Scene) -> Line<'static> {
    spans(&gaps(pieces, cells, scene), scene)
}

/// The same in rows of a width.
pub(super) fn lines(pieces: &[&Piece], width: usize, rows: usize, scene: &Scene) -> Vec<Line<'static>> {
    let gaps = gaps(pieces, width * rows, scene);
    gaps.chunks(width.max(1)).map(|row| spans(row, scene)).collect()
}

fn spans(gaps: &[Option<Gap>], scene: &Scene) -> Line<'static> {
    let runs = gaps.chunk_by(|a, b| a == b);
    let span = |run: &[Option<Gap>]| match run.first().copied().flatten() {
        Some(gap) => {
            let sign = glyph(gap, &scene.context).to_string();
            Span::styled(sign.repeat(run.len()), scene.context.style(Role::Gap(gap)))
        }
        None => Span::styled("·".repeat(run.len()), scene.context.style(Role::Dim)),
    };
    runs.map(span).collect()
}

/// The gap of each cell; `None` where no block is known, or none matches the filter.
fn gaps(pieces: &[&Piece], cells: usize, scene: &Scene) -> Vec<Option<Gap>> {
    let whole: u128 = pieces.iter().map(|it| u128::from(it.totals.reserved)).sum();
    if whole == 0 || cells == 0 {
        return Vec::new();
    }
    let mut sums: Vec<[u128; Gap::ALL.len()]> = vec![[0; Gap::ALL.len()]; cells];
    let mut begin = 0_u128;
    for piece in pieces {
        let Some(segment) = scene.snapshot.segment(piece) else { continue };
        for (place, block) in scene.snapshot.trace.blocks_of(segment).iter().enumerate() {
            if scene.ui.matches.as_ref().is_some_and(|it| !it.has_block(segment, place)) {
                continue;
            }
            let gap = scene.snapshot.gap(piece, block.state) as usize;
            let offset = u128::from(block.address.saturating_sub(segment.address).min(segment.size));
            let end = (offset + u128::from(block.size)).min(u128::from(segment.size));
            // In parts of a byte, of which every cell has as many as there are bytes in all.
            let (from, to) = ((begin + offset) * cells as u128, (begin + end) * cells as u128);
            let mut at = from;
            while at < to {
                let cell = at / whole;
                let next = ((cell + 1) * whole).min(to);
                if let Some(sum) = usize::try_from(cell).ok().and_then(|cell| sums.get_mut(cell)) {
                    sum[gap] += next - at;
                }
                at = next;
            }
        }
        begin += u128::from(segment.size);
    }
    let most = |sums: &[u128; Gap::ALL.len()]| {
        let (gap, bytes) = Gap::ALL.into_iter().zip(sums).max_by_key(|it| it.1)?;
        (*bytes > 0).then_some(gap)
    };
    sums.iter().map(most).collect()
}
