//! What the cells of a curve stand for: which place on the axis, which value.

use crate::analysis::curve::Curve;
use ratatui::layout::Rect;

/// Heights that a cell can show.
pub(super) const LEVELS: usize = 8;

/// A curve's scale spans at least this part of its top, so that noise does not look like a mountain.
const FLATTEST: u64 = 20;

/// A curve in an area.
pub(super) struct Plane {
    /// Its cells.
    pub(super) area: Rect,
    /// The highest value of each column that has a sample; none ahead of the curve.
    pub(super) highs: Vec<Option<u64>>,
    /// The value of the lowest level.
    pub(super) low: u64,
    /// The value of the highest level.
    pub(super) high: u64,
    first: u64,
    last: u64,
}

impl Plane {
    /// A curve with room for what lies ahead of it: up to a place on the axis, and a value. `None` where there is
    /// nothing to show.
    pub(super) fn new(curve: &Curve, area: Rect, ahead: Option<(u64, u64)>) -> Option<Self> {
        let (first, end) = curve.ends()?;
        let last = ahead.map_or(end, |it| it.0.max(end));
        let shown = u128::from(area.width) * (u128::from(end - first) + 1) / (u128::from(last - first) + 1);
        let highs = curve.highs(usize::try_from(shown).unwrap_or(0));
        let known = || highs.iter().flatten().copied();
        let high = known().max()?.max(ahead.map_or(0, |it| it.1));
        let low = known().min()?.min(high - high / FLATTEST);
        Some(Self { area, highs, low, high, first, last })
    }

    /// Whether there is room ahead of the curve.
    pub(super) fn is_ahead(&self) -> bool {
        self.highs.len() < usize::from(self.area.width)
    }

    /// Rows of cells.
    pub(super) fn rows(&self) -> usize {
        usize::from(self.area.height)
    }

    /// The column of a place on the axis; the nearest of one outside.
    pub(super) fn column(&self, x: u64) -> usize {
        let place = u128::from(x.clamp(self.first, self.last) - self.first) * u128::from(self.area.width);
        usize::try_from(place / (u128::from(self.last - self.first) + 1)).unwrap_or(0)
    }

    /// The place on the axis in the middle of a column.
    pub(super) fn place(&self, column: usize) -> f64 {
        let part = (column as f64 + 0.5) / f64::from(self.area.width.max(1));
        self.first as f64 + part * (self.last - self.first) as f64
    }

    /// How many levels a value is high, at least one: what is there is seen. One outside is as the nearest.
    pub(super) fn level(&self, value: u64) -> usize {
        let levels = self.rows() * LEVELS;
        let (part, span) = (u128::from(value.clamp(self.low, self.high) - self.low), u128::from(self.high - self.low));
        if span == 0 {
            return levels.div_ceil(2);
        }
        usize::try_from(part * (levels.max(1) - 1) as u128 / span).unwrap_or(0) + 1
    }
}
