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

/// Times the span of the curve that a forecast is drawn ahead of it; what is further is told in words alone.
const AHEAD: u64 = 3;

/// Rows below which a forecast has no room for its words.
const ROWS_AHEAD: usize = 3;

/// Columns from dash to dash.
const EVERY: usize = 2;

/// A line, in places of the axis and bytes.
pub(super) struct Fit<'a> {
    growing: &'a Finding,
    height: f64,
    slope: f64,
    /// Where the device is full; `None` where that is unknown, or too far away to be drawn.
    full: Option<u64>,
}

impl<'a> Fit<'a> {
    /// The line of a finding through the curve of what it is about. What has ended fills nothing any more.
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

    /// The curve with the forecast ahead of it, where there is room for both.
    pub(super) fn plane(&self, curve: &Curve, area: Rect) -> Option<Plane> {
        let ahead = self.full.filter(|_| usize::from(area.height) >= ROWS_AHEAD);
        let plane = ahead.and_then(|it| Plane::new(curve, area, 0, Some((it, self.at(it as f64)))));
        plane.filter(|it| self.has_room(it)).or_else(|| Plane::new(curve, area, 0, None))
    }

    /// Draws what lies ahead of the curve; the curve itself is what was measured.
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

    /// Where the device is full, in words.
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

    /// The level of the line in a column, from 0.
    fn level(&self, plane: &Plane, column: usize) -> usize {
        plane.level(self.at(plane.place(column))) - 1
    }
}

/// Writes one cell, its row counted from the bottom.
fn draw_cell(buffer: &mut Buffer, plane: &Plane, column: usize, row: usize, symbol: char, context: &RenderContext) {
    let (Ok(column), Ok(row)) = (u16::try_from(column), u16::try_from(row)) else { return };
    if column < plane.area.width
        && row < plane.area.height
        && let Some(cell) = buffer.cell_mut((plane.area.x + column, plane.area.bottom() - 1 - row))
    {
        cell.set_char(symbol).set_style(context.style(Role::Text));
    }
}
