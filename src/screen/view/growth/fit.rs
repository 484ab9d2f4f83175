//! The fitted line of a growth: dashes ahead of its curve, until the device is full.

use super::plane::{LEVELS, Plane, dash};
use crate::{
    facts::units,
    model::{
        analysis::{curve::Curve, episode::Axis},
        findings::Finding,
    },
    screen::{
        theme::Role,
        view::{RenderContext, cells},
    },
};
use ratatui::{buffer::Buffer, layout::Rect};

/// Longest forecast drawn ahead of the curve, in multiples of the curve's span; beyond it there are only words.
const AHEAD: u64 = 3;

/// Below this many rows a forecast has no room for its words.
const ROWS_AHEAD: usize = 3;

/// Columns between two dashes.
const EVERY: usize = 2;

/// A line, in positions on the axis and bytes.
pub(super) struct Fit<'a> {
    growing: &'a Finding,
    height: f64,
    slope: f64,
    /// Where the device is full; `None` if that is unknown, or too far away to draw.
    full: Option<u64>,
}

impl<'a> Fit<'a> {
    /// Fits a finding's line to its curve. An ended process does not fill the device.
    pub(super) fn new(curve: &Curve, growing: &'a Finding, is_alive: bool) -> Option<Self> {
        let slope = growing.bytes_per_step?;
        let height = curve.height(growing.since_step, slope)?;
        let (first, last) = curve.ends()?;
        let left = match growing.axis {
            Axis::Steps => growing.full_in_steps,
            Axis::Seconds => growing.full_in_us.map(|it| it / 1_000_000),
        };
        let near = left.filter(|it| is_alive && *it > 0 && *it <= AHEAD.saturating_mul(last - first));
        Some(Self { growing, height, slope, full: near.and_then(|it| last.checked_add(it)) })
    }

    /// Returns the curve with the forecast ahead of it, if both fit.
    pub(super) fn plane(&self, curve: &Curve, area: Rect) -> Option<Plane> {
        let ahead = self.full.filter(|_| usize::from(area.height) >= ROWS_AHEAD);
        let plane = ahead.and_then(|it| Plane::new(curve, area, 0, Some((it, self.at(it as f64)))));
        plane.filter(|it| self.has_room(it)).or_else(|| Plane::new(curve, area, 0, None))
    }

    /// Draws the line ahead of the curve; the curve itself shows measurements.
    pub(super) fn draw(&self, buffer: &mut Buffer, plane: &Plane, context: &RenderContext) {
        if !plane.is_ahead {
            return;
        }
        let (words, width) = (self.words(), usize::from(plane.area.width));
        for (at, c) in (width.saturating_sub(cells::width(&words))..).zip(words.chars()) {
            draw_cell(buffer, plane, at, 0, c, context);
        }
        for column in (plane.highs.len()..width).filter(|it| (width - 1 - it) % EVERY == 0) {
            let level = self.level(plane, column);
            draw_cell(buffer, plane, column, level / LEVELS, dash(level), context);
        }
    }

    /// Describes where the device is full.
    fn words(&self) -> String {
        format!("full at {}", self.growing.place(self.full.unwrap_or(0)))
    }

    /// Whether the words fit below the line, ahead of the curve.
    fn has_room(&self, plane: &Plane) -> bool {
        let words = cells::width(&self.words()) + 1;
        let from = usize::from(plane.area.width).checked_sub(words);
        from.is_some_and(|it| it >= plane.highs.len() && self.level(plane, it) >= LEVELS)
    }

    fn at(&self, x: f64) -> u64 {
        units::whole(self.height + self.slope * (x - self.growing.since_step as f64))
    }

    /// Returns the level of the line in a column, from 0.
    fn level(&self, plane: &Plane, column: usize) -> usize {
        plane.level(self.at(plane.place(column))) - 1
    }
}

/// Draws one cell; rows count from the bottom.
fn draw_cell(buffer: &mut Buffer, plane: &Plane, column: usize, row: usize, symbol: char, context: &RenderContext) {
    let (Ok(column), Ok(row)) = (u16::try_from(column), u16::try_from(row)) else { return };
    if column < plane.area.width
        && row < plane.area.height
        && let Some(cell) = buffer.cell_mut((plane.area.x + column, plane.area.bottom() - 1 - row))
    {
        cell.set_char(symbol).set_style(context.style(Role::Text));
    }
}
