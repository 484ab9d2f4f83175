//! Maps a curve to cells: position on the axis and value.

use crate::model::analysis::curve::Curve;
use ratatui::layout::Rect;

/// Heights that a cell can show.
pub(super) const LEVELS: usize = 8;

/// A dash at each height within a cell, from the bottom: it differs from any bar, with or without colours.
const DASHES: [char; 4] = ['⣀', '⠤', '⠒', '⠉'];

/// A curve's scale spans at least this part of its top, so that noise does not look large.
const FLATTEST: u64 = 20;

/// The axis ends at a multiple of this part of the span, so that a new reading changes the end of the frame and not all
/// of it, which is expensive over a slow line.
const ENDS: u32 = 3;

/// A curve in an area.
pub(super) struct Plane {
    /// Its cells.
    pub(super) area: Rect,
    /// The highest value of each column with a sample; none ahead of the curve.
    pub(super) highs: Vec<Option<u64>>,
    /// The value of the lowest level.
    pub(super) low: u64,
    /// The value of the highest level.
    pub(super) high: u64,
    /// Whether there is a forecast ahead of the curve.
    pub(super) is_ahead: bool,
    first: u64,
    last: u64,
}

impl Plane {
    /// Creates a plane for a curve over an axis of at least `shortest`, with room ahead of it up to a position and a
    /// value. `None` for an empty curve.
    pub(super) fn new(curve: &Curve, area: Rect, shortest: u64, ahead: Option<(u64, u64)>) -> Option<Self> {
        let (first, end) = curve.ends()?;
        let span = grid(end - first).max(shortest);
        let last = ahead.map_or_else(|| first.saturating_add(span), |it| it.0.max(end));
        let highs = curve.highs_to(last, usize::from(area.width));
        let known = || highs.iter().flatten().copied();
        let high = known().max()?.max(ahead.map_or(0, |it| it.1));
        let low = known().min()?.min(high - high / FLATTEST);
        Some(Self { area, highs, low, high, is_ahead: ahead.is_some(), first, last })
    }

    /// Returns the rows of cells.
    pub(super) fn rows(&self) -> usize {
        usize::from(self.area.height)
    }

    /// Returns the column of a position on the axis; the nearest for one outside.
    pub(super) fn column(&self, x: u64) -> usize {
        let place = u128::from(x.clamp(self.first, self.last) - self.first) * u128::from(self.area.width);
        usize::try_from(place / (u128::from(self.last - self.first) + 1)).unwrap_or(0)
    }

    /// Returns the position in the middle of a column.
    pub(super) fn place(&self, column: usize) -> f64 {
        let part = (column as f64 + 0.5) / f64::from(self.area.width.max(1));
        self.first as f64 + part * (self.last - self.first) as f64
    }

    /// Returns the levels of a value, at least one, so that it is visible; values outside are clamped.
    pub(super) fn level(&self, value: u64) -> usize {
        let levels = self.rows() * LEVELS;
        let (part, span) = (u128::from(value.clamp(self.low, self.high) - self.low), u128::from(self.high - self.low));
        if span == 0 {
            return levels.div_ceil(2);
        }
        usize::try_from(part * (levels.max(1) - 1) as u128 / span).unwrap_or(0) + 1
    }
}

/// Returns the dash of a level, counted from 0.
pub(in crate::screen::view) fn dash(level: usize) -> char {
    DASHES.get(level % LEVELS * DASHES.len() / LEVELS).copied().unwrap_or(' ')
}

/// Rounds a span up to a multiple of an eighth to a sixteenth of it.
fn grid(span: u64) -> u64 {
    let part = span.checked_ilog2().map_or(1, |it| 1 << it.saturating_sub(ENDS));
    span.checked_next_multiple_of(part).unwrap_or(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_at_few_places_and_is_never_far_ahead() {
        let ends: std::collections::BTreeSet<u64> = (1000..2000).map(grid).collect();
        assert!(ends.len() <= 10, "{ends:?}");
        for span in [0, 1, 7, 8, 100, 12_345, u64::MAX - 1, u64::MAX] {
            assert!(grid(span) >= span && grid(span) - span <= span / 8, "{span}: {}", grid(span));
        }
    }

    #[test]
    fn one_more_value_leaves_what_was_drawn() {
        let area = Rect::new(0, 0, 97, 4);
        let mut curve = Curve::default();
        (0..200).for_each(|it| curve.push(it, it * it % 31));
        let mut moved = 0;
        for it in 200..240 {
            let before = Plane::new(&curve, area, 0, None).unwrap();
            curve.push(it, it * it % 31);
            let after = Plane::new(&curve, area, 0, None).unwrap();
            assert!(after.highs.len() <= 97 && after.highs.len() > 85, "{}", after.highs.len());
            let same = before.highs.len().min(after.highs.len()) - 1;
            moved += usize::from(before.highs[..same] != after.highs[..same]);
        }
        assert!(moved <= 3, "{moved}");
    }
}
