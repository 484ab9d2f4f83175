//! The first screen in the preset of memory: all devices, the selected one's ladder, its growth, and its processes.

use super::{RenderContext, alerts, devices, gauge, growth, ladder, preset, processes, take, timeline};
use crate::screen::ui::{Scope, preset::Preset};
use ratatui::{buffer::Buffer, layout::Rect};

/// From this width on, growth is next to the ladder.
const WIDE: u16 = 160;

/// From this height on, the legend has each gap's cause and remedy.
const EXPLAINED: u16 = 34;

/// Rows of the ladder's title and bar without a legend.
const BAR: usize = 2;

/// From this height on, the worst alert has a row.
const ALERTED: u16 = 14;

/// The least rows of a run.
const RUN: usize = 12;

/// Most alerts shown here.
const ALERTS: usize = 6;

/// Arranges the boxes in the area between header and footer:
///
/// ```text
/// devices      one row each, or a grid
/// ladder       title, bar, legend
/// gauge        one row
/// growth       title, curve
/// run          the timeline, where there is room left for it
/// processes    a row each
/// alerts       what is open, a line each, where there is room left; otherwise the worst, in one line
/// ```
///
/// From 160 columns on, growth is to the right of ladder and gauge. Boxes fold away in this order:
///
/// 1. the run, then the alerts,
/// 2. the causes and remedies in the legend (below 34 rows),
/// 3. rows of the curve, down to one,
/// 4. the device list: first into a grid, then to the selected device alone (below 20 rows),
/// 5. the smallest rungs of the legend,
/// 6. processes, curve and gauge.
///
/// If the ranks of all devices are listed, they come first: the curve goes, then legend and gauge, then the device
/// list, until every rank has its row.
pub(super) fn draw(buffer: &mut Buffer, whole: Rect, mut rest: Rect, context: &RenderContext) {
    if context.ui.preset != Preset::Memory {
        return preset::draw(buffer, whole, rest, context);
    }
    let wanted = processes::height(context);
    let worst = alerts::worst(usize::from(rest.width), context).filter(|_| rest.height >= ALERTED);
    let below = rest;
    rest.height -= u16::from(worst.is_some());
    let (mut rows, ranks) = (devices::height(whole, context), context.ui.scope == Scope::All && whole.height >= 12);
    if ranks && usize::from(rest.height) < rows + BAR + wanted {
        rows = 1;
    }
    devices::draw(buffer, take(&mut rest, rows), context);
    let explained = whole.height >= EXPLAINED;
    let above = ladder::height(rest, context, explained) + gauge::height(context);
    if ranks && usize::from(rest.height) < above + wanted {
        // The legend gets the rows that the ranks leave.
        let spare = usize::from(rest.height).saturating_sub(wanted).max(BAR);
        ladder::draw(buffer, take(&mut rest, spare.min(above - gauge::height(context))), context, explained);
    } else if whole.width >= WIDE {
        let left = Rect { width: rest.width / 2, ..rest };
        let top = take(&mut rest, ladder::height(left, context, true) + gauge::height(context));
        let left = Rect { width: top.width / 2, ..top };
        let right = Rect { x: left.right() + 2, width: top.width.saturating_sub(left.width + 2), ..top };
        inside(buffer, left, context, true, gauge::height(context));
        growth::draw(buffer, right, context);
    } else {
        rest = inside(buffer, rest, context, explained, if rest.height >= 16 { 6 } else { 3 });
        let curve = match usize::from(rest.height).checked_sub(wanted) {
            Some(0..4) | None if ranks => 0,
            _ => growth::height(rest, wanted),
        };
        growth::draw(buffer, take(&mut rest, curve), context);
    }
    let mut spare = usize::from(rest.height).saturating_sub(wanted);
    // Focused alerts stay visible, whatever else has to go.
    let selected = context.ui.is_among_alerts();
    let most = if selected { usize::from(rest.height / 2).clamp(2, ALERTS) } else { ALERTS };
    let brief = alerts::brief(most, usize::from(rest.width), context);
    // The row that was kept for the worst one is the title's.
    spare += usize::from(worst.is_some());
    let brief = Some(brief).filter(|it| !it.is_empty() && (selected || it.len() < spare)).unwrap_or_default();
    rest.height = below.bottom() - rest.y;
    if brief.is_empty()
        && let Some(row) = &worst
    {
        rest.height -= 1;
        spare = spare.saturating_sub(1);
        alerts::draw_worst(buffer, Rect { y: rest.bottom(), height: 1, ..rest }, row, context);
    }
    if !brief.is_empty() {
        let height = u16::try_from(brief.len() + 1).unwrap_or(rest.height).min(rest.height);
        let bottom = Rect { y: rest.bottom() - height, height, ..rest };
        rest.height -= height;
        spare = spare.saturating_sub(usize::from(height));
        alerts::draw_brief(buffer, bottom, &brief, context);
    }
    if spare >= RUN && context.ui.process(context.session).is_some() {
        timeline::draw(buffer, take(&mut rest, spare), context);
    }
    processes::draw(buffer, rest, context);
}

/// Draws where the memory is now. Returns the area below, which always keeps `rows` rows.
fn inside(buffer: &mut Buffer, mut rest: Rect, context: &RenderContext, explained: bool, kept: usize) -> Rect {
    let rows = ladder::height(rest, context, explained).min(usize::from(rest.height).saturating_sub(kept));
    ladder::draw(buffer, take(&mut rest, rows), context, explained);
    gauge::draw(buffer, take(&mut rest, if rows > 0 { gauge::height(context) } else { 0 }), context);
    rest
}
