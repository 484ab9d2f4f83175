//! The rungs stacked over the axis: which rung each cell shows.

use super::place_name;
use crate::{
    facts::units::Bytes,
    model::{
        analysis::{ladder::Gap, pace::Stretch},
        session::{
            process::OnDevice,
            timeline::{Column, Level, Levels},
        },
    },
    screen::{
        theme::Role,
        ui::{
            mouse::Target,
            timeline_range::{VisibleRange, XAxis},
        },
        view::{
            RenderContext, cells,
            course::{self, Bars},
            growth::CUT,
            ladder::glyph,
            put, step_times,
        },
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Style},
    text::{Line, Span},
};

/// Heights that a cell can show.
const EIGHTHS: u64 = 8;

/// The columns of the scale, and the least width of a chart with one.
const SCALE: u16 = 12;
const LEAST: u16 = 36;

/// The title if only the allocator is known.
const UNREAD: &str = "no driver readings yet";

/// Without samples for this long, in µs, and for this many columns, there is a gap in the chart.
const SILENCE_US: u64 = 5_000_000;
const STRETCHES: u64 = 3;

/// A chart in its place.
pub(super) struct Chart {
    /// The cells of the rungs.
    area: Rect,
    span: VisibleRange,
    bottom: u64,
    top: u64,
    scale: u16,
}

impl Chart {
    /// Creates a chart of the visible part of a run; the scale is at the left of the area.
    pub(super) fn new(area: Rect, span: &VisibleRange, on: &OnDevice, context: &RenderContext) -> Self {
        let scale = if area.width >= LEAST { SCALE } else { 0 };
        let plot = Rect { x: area.x + scale, width: area.width - scale, ..area };
        let (bottom, top) = range(span, on, context);
        Self { area: plot, span: *span, bottom, top, scale }
    }

    /// Returns the last position of the run.
    pub(super) fn end(&self) -> u64 {
        self.span.whole.1
    }

    /// Returns the cell column of a position on the axis, if it is visible.
    pub(super) fn column(&self, place: u64) -> Option<u16> {
        let shown = (self.span.from..=self.span.to).contains(&place) && self.area.width > 0;
        let (part, length) = (place.checked_sub(self.span.from).filter(|_| shown)?, self.span.to - self.span.from);
        let column = u128::from(part) * u128::from(self.area.width) / (u128::from(length) + 1);
        u16::try_from(column).ok()
    }

    /// Returns the chart's columns in a row below it.
    pub(super) fn below(&self, row: Rect) -> Rect {
        Rect { x: self.area.x, width: self.area.width, ..row }
    }

    /// Returns the visible cell columns between two positions.
    pub(super) fn columns(&self, from: u64, to: u64) -> std::ops::Range<u16> {
        let first = self.column(from.max(self.span.from)).unwrap_or(self.area.width);
        first..self.column(to.min(self.span.to)).map_or(0, |it| it + 1)
    }

    /// Returns the axis's unit.
    pub(super) fn axis(&self) -> XAxis {
        self.span.axis
    }

    /// Draws scale, rungs and cursor.
    pub(super) fn draw(&self, buffer: &mut Buffer, on: &OnDevice, context: &RenderContext) {
        context.claim(self.area, Target::Run(self.span.from, self.span.to));
        let rows = self.area.height;
        if self.scale > 0 {
            let row = Rect { x: self.area.x - self.scale, width: self.scale - 1, ..self.area };
            let dim = context.style(Role::Dim);
            let top = cells::bytes(Some(Bytes(self.top)));
            let label =
                |bytes: u64| Line::styled(cells::right(&cells::in_unit_of(&top, bytes), usize::from(row.width)), dim);
            put(buffer, row, 0, &label(self.top));
            if rows >= 7 {
                put(buffer, row, usize::from(rows / 2), &label(self.bottom + (self.top - self.bottom) / 2));
            }
            if rows > 1 {
                put(buffer, row, usize::from(rows - 1), &label(self.bottom));
            }
            let bottom = (row.right(), self.area.bottom().saturating_sub(1));
            if let Some(cell) = buffer.cell_mut(bottom).filter(|_| self.bottom > 0 && rows > 0) {
                cell.set_symbol(CUT).set_style(dim);
            }
        }
        let columns = self.levels(on);
        // Before the driver's first reading, the memory around the allocator is unknown.
        let is_unread = |column: &Option<Levels>| column.is_some_and(|levels| levels.get(Level::Used).is_none());
        let unread = columns.iter().take_while(|it| it.is_none_or(|_| is_unread(it))).count();
        let unread = if columns.iter().any(is_unread) { unread } else { 0 };
        for (column, levels) in (0..).zip(columns) {
            let stack = levels.map_or_else(Vec::new, |it| it.gaps().collect());
            // Without any reading, memory is neither used nor free.
            let is_whole = levels.is_some_and(|it| it.get(Level::Used).is_some());
            for row in 0..rows {
                let position = (self.area.x + column, self.area.bottom() - 1 - row);
                let Some(cell) = buffer.cell_mut(position) else { continue };
                let (symbol, style) = self.cell(row, &stack, context);
                if symbol != glyph(Gap::Free, context) || is_whole {
                    cell.set_char(symbol).set_style(style);
                }
            }
        }
        self.unread(buffer, unread, context);
        if context.ui.timeline.cursor.is_some()
            && let Some(column) = self.column(self.span.cursor)
        {
            for row in 0..rows {
                if let Some(cell) = buffer.cell_mut((self.area.x + column, self.area.y + row)) {
                    let behind = cell.symbol().chars().next().filter(|it| !" ·".contains(*it));
                    let ground = behind.and_then(|it| shade(it, cell.fg, context)).unwrap_or(cell.bg);
                    cell.set_char('│').set_style(context.style(Role::Title).bg(ground));
                }
            }
        }
    }

    /// Writes in the blank columns at the left why they are blank, if the text fits completely.
    fn unread(&self, buffer: &mut Buffer, columns: usize, context: &RenderContext) {
        let words = cells::wrapped(UNREAD, columns.saturating_sub(1));
        let is_whole = words.iter().all(|it| !it.contains('…')) && !words.is_empty();
        let rows = usize::from(self.area.height).min(words.len());
        let place =
            Rect { width: u16::try_from(columns).unwrap_or(0), height: u16::try_from(rows).unwrap_or(0), ..self.area };
        let place = place.intersection(self.area);
        let is_blank = place.positions().all(|at| buffer.cell(at).is_some_and(|it| it.symbol() == " "));
        if is_whole && rows == words.len() && is_blank {
            for (row, words) in words.iter().enumerate() {
                put(buffer, place, row, &Line::styled(format!(" {words}"), context.style(Role::Dim)));
            }
        }
    }

    /// Draws how long steps take, above the same places of the axis as the rungs.
    pub(super) fn steps(&self, buffer: &mut Buffer, row: Rect, on: &OnDevice, context: &RenderContext) {
        let place = |it: &Stretch| match self.span.axis {
            XAxis::Steps => it.step,
            XAxis::Time => it.at.0,
        };
        let column = |it: &Stretch| self.column(place(it)).map(usize::from);
        let means = step_times::means(on.pace.stretches(), usize::from(self.area.width), column);
        let bars = step_times::bars(&means, &context.eighths());
        self.labelled(buffer, row, &("step time", bars, Role::Spark), context);
    }

    /// Draws the course of the device's metrics, above the same places of the axis as the rungs: as many rows as fit.
    pub(super) fn course(&self, buffer: &mut Buffer, area: Rect, on: &OnDevice, context: &RenderContext) {
        let Some(device) = context.session.device(&on.device) else { return };
        let width = usize::from(self.area.width);
        let all = course::along(device, on, (&self.span, width), |from, to| self.columns(from, to), context);
        for (row, it) in area.rows().zip(&all) {
            self.labelled(buffer, row, it, context);
        }
    }

    /// Draws a row of bars, with its label at the scale and the cursor in it.
    fn labelled(&self, buffer: &mut Buffer, row: Rect, (label, bars, role): &Bars, context: &RenderContext) {
        put(buffer, self.below(row), 0, &Line::styled(bars.clone(), context.style(*role)));
        let cursor = context.ui.timeline.cursor.and_then(|_| self.column(self.span.cursor));
        if let Some(cell) = cursor.and_then(|it| buffer.cell_mut((self.area.x + it, row.y))).filter(|_| row.height > 0)
        {
            cell.set_style(context.style(Role::Title));
        }
        if self.scale > 0 {
            let place = Rect { width: self.scale - 1, ..row };
            let words = cells::right(label, usize::from(place.width));
            put(buffer, place, 0, &Line::styled(words, context.style(Role::Dim)));
        }
    }

    /// Draws the axis: its ends, and the cursor's position between them if it does not touch them.
    pub(super) fn scale(&self, buffer: &mut Buffer, row: Rect, context: &RenderContext) {
        let row = self.below(row);
        let width = usize::from(row.width);
        let mut signs = vec![' '; width];
        let mut write = |at: usize, text: &str| {
            let end = at + cells::width(text);
            let Some(place) = signs.get_mut(at..end) else { return };
            for (sign, c) in place.iter_mut().zip(text.chars()) {
                *sign = c;
            }
        };
        let name = |place: u64| place_name(&self.span, place);
        let (first, last) = (name(self.span.from), name(self.span.to));
        let cursor = usize::from(self.column(self.span.cursor).unwrap_or(0));
        let end = width.saturating_sub(cells::width(&last));
        if cells::width(&first) + 2 < end {
            write(0, &first);
        }
        write(end, &last);
        let here = name(self.span.cursor);
        let (left, right) = (cursor.checked_sub(cells::width(&here)), cursor + 1);
        if self.span.cursor != self.span.to && self.span.cursor != self.span.from {
            if right + cells::width(&here) + 1 < end && right > cells::width(&first) + 2 {
                write(right, &here);
            } else if let Some(left) = left.filter(|it| *it > cells::width(&first) + 2 && cursor + 1 < end) {
                write(left, &here);
            }
        }
        let mut line = Line::styled(signs.iter().collect::<String>(), context.style(Role::Dim));
        if self.span.cursor != self.span.to && self.span.cursor != self.span.from {
            let before: String = signs.iter().take(cursor).collect();
            let after: String = signs.iter().skip(cursor + 1).collect();
            let (dim, here) = (context.style(Role::Dim), context.style(Role::Title));
            line = Line::from(vec![Span::styled(before, dim), Span::styled("▲", here), Span::styled(after, dim)]);
        }
        put(buffer, row, 0, &line);
    }

    /// Returns the highest levels within each cell column; `None` without samples.
    fn levels(&self, on: &OnDevice) -> Vec<Option<Levels>> {
        let mut out: Vec<Option<Levels>> = vec![None; usize::from(self.area.width)];
        let silence = SILENCE_US.max(on.timeline.stride_us().saturating_mul(STRETCHES));
        let (mut before, mut seen): (Option<u64>, Option<Column>) = (None, None);
        for it in on.timeline.columns() {
            let place = self.span.axis.place(&it);
            let from = before.map_or(place, |it| it.saturating_add(1).min(place));
            // Nothing is known of several steps, or of a time, in which no sample came, as without a probe.
            let is_blank =
                |column: &Column| column.high.get(Level::Reserved).or(column.high.get(Level::Used)).is_none();
            let is_long = seen.is_some_and(|before| it.at.since(before.at) > silence || is_blank(&before));
            let silent = is_long && (self.span.axis == XAxis::Time || place > from);
            seen = Some(it);
            let from = if silent { place } else { from.max(self.span.from) };
            // Where steps are fewer than cells, a step takes all cells since the one before.
            let next = before.filter(|_| !silent).and_then(|it| Some(self.column(it)? + 1));
            before = Some(place);
            let (Some(first), Some(last)) = (self.column(from), self.column(place.min(self.span.to))) else { continue };
            let first = next.map_or(first, |it| first.min(it));
            for cell in out.get_mut(usize::from(first)..=usize::from(last)).unwrap_or_default() {
                *cell = Some(cell.map_or(it.high, |old| old.highest(&it.high)));
            }
        }
        out
    }

    /// Returns what most of a cell shows, its row counted from the bottom. With colours, the edge of used memory and
    /// that of solid rungs are drawn in eighths, so that small changes are visible.
    fn cell(&self, row: u16, stack: &[(Gap, u64, u64)], context: &RenderContext) -> (char, Style) {
        let (low, high) = (self.height(u64::from(row) * EIGHTHS), self.height((u64::from(row) + 1) * EIGHTHS));
        let within = |it: &(Gap, u64, u64)| it.2.min(high).saturating_sub(it.1.max(low));
        let top = stack.last().map_or(0, |it| it.2);
        let most = stack.iter().max_by_key(|it| within(it)).map_or(Gap::Free, |it| it.0);
        let eighths = |edge: u64| {
            let eighths = (u128::from(edge - low) * u128::from(EIGHTHS)).div_ceil(u128::from((high - low).max(1)));
            let place = usize::try_from(eighths).map_or(0, |it| it.saturating_sub(1));
            context.eighths().get(place).copied().unwrap_or('█')
        };
        if context.theme.coloured && low < top && top < high {
            return (eighths(top), context.style(Role::Gap(most)));
        }
        if context.theme.coloured
            && let Some(solid) = stack.iter().find(|it| it.1 <= low && it.2 > low && it.2 < high && is_solid(it.0))
        {
            let above = stack.iter().find(|it| it.2 >= high);
            let mut style = context.style(Role::Gap(solid.0));
            style.bg = above
                .and_then(|it| shade(glyph(it.0, context), context.style(Role::Gap(it.0)).fg?, context))
                .or(style.bg);
            return (eighths(solid.2), style);
        }
        // Several rungs that fill most of a cell together are not free memory, however small each is.
        let is_free = top.min(high).saturating_sub(low) < (high - low).div_ceil(2).max(1);
        let most = if is_free { Gap::Free } else { most };
        (glyph(most, context), context.style(Role::Gap(most)))
    }

    /// Returns the bytes at a height in eighths of a cell.
    fn height(&self, eighths: u64) -> u64 {
        let all = u128::from(self.area.height.max(1)) * u128::from(EIGHTHS);
        let part = u128::from(self.top - self.bottom) * u128::from(eighths) / all;
        self.bottom.saturating_add(u64::try_from(part).unwrap_or(u64::MAX))
    }
}

/// Whether its cells are drawn solid.
fn is_solid(gap: Gap) -> bool {
    gap.row().sign == '█'
}

/// Returns the apparent colour of a cell with this glyph: its own if solid, otherwise mixed with the theme's
/// background. `None` without colours.
fn shade(glyph: char, full: Color, context: &RenderContext) -> Option<Color> {
    let (Color::Rgb(r, g, b), Some(Color::Rgb(back_r, back_g, back_b))) = (full, context.theme.background) else {
        return Some(full).filter(|_| context.theme.coloured);
    };
    let parts = match glyph {
        '░' => 1,
        '▒' | '▚' | '▞' => 2,
        '▓' => 3,
        _ => 4,
    };
    let mixed =
        |it: u8, back: u8| u8::try_from((u16::from(it) * parts + u16::from(back) * (4 - parts)) / 4).unwrap_or(it);
    Some(Color::Rgb(mixed(r, back_r), mixed(g, back_g), mixed(b, back_b)))
}

/// Returns the lowest and the highest byte of the chart: those of the whole device, or of the allocator in this part.
/// For a nearly empty device, the top is halved until memory fills a quarter of the chart.
fn range(span: &VisibleRange, on: &OnDevice, context: &RenderContext) -> (u64, u64) {
    let (mut low, mut held, mut used) = (u64::MAX, 0, 0);
    for it in on.timeline.columns().filter(|it| (span.from..=span.to).contains(&span.axis.place(it))) {
        let of = |levels: &Levels, one, other| levels.get(one).or(levels.get(other));
        low = of(&it.low, Level::Wanted, Level::Allocated).map_or(low, |it| it.min(low));
        held = of(&it.high, Level::Reserved, Level::Allocated).map_or(held, |it| it.max(held));
        used = of(&it.high, Level::Used, Level::Reserved).map_or(used, |it| it.max(used));
    }
    let used = used.max(held).max(1);
    if context.ui.timeline.fitted {
        // Nearly constant values are not magnified.
        return (low.min(held.saturating_sub(held / 50)), held.max(1));
    }
    let Some(mut top) = context.found().and_then(|it| it.ladder.total).map(|it| it.0.max(1)) else { return (0, used) };
    while top / 4 > used {
        top /= 2;
    }
    (0, top)
}
