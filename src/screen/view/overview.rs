//! The first screen: every device, where the selected one's memory is, whether it grows, whose it is.

use super::{Look, alerts, devices, gauge, growth, ladder, processes, take, timeline};
use crate::screen::ui::Scope;
use ratatui::{buffer::Buffer, layout::Rect};

/// From here on, growth stands beside the ladder.
const WIDE: u16 = 160;

/// From here on, the legend says of every gap why and what to do.
const EXPLAINED: u16 = 34;

/// Rows of the ladder's title and bar without a legend.
const BAR: usize = 2;

/// The least rows of a run that are worth a place.
const RUN: usize = 12;

/// Alerts told here, at most.
const ALERTS: usize = 6;

/// Arranges the boxes in what header, messages and footer left of the whole:
///
/// ```text
/// devices      one row each, or a grid
/// ladder       title, bar, legend
/// gauge        one row
/// growth       title, curve
/// run          the timeline, where there is room left for it
/// processes    a row each
/// alerts       what is open, a line each, where there is room left
/// ```
///
/// From 160 columns on, growth stands to the right of ladder and gauge. What does not fit folds away in this order:
///
/// 1. the run, then the alerts,
/// 2. what the legend says of every gap (below 34 rows),
/// 3. rows of the curve, down to one,
/// 4. the device list: first into a grid, then to the selected device alone (below 20 rows),
/// 5. the smallest rungs of the legend,
/// 6. processes, curve and gauge.
///
/// Where the ranks of all devices are listed, they come first: the curve goes, then legend and gauge, then the device list,
/// until every rank has its row.
pub(super) fn draw(buffer: &mut Buffer, whole: Rect, mut rest: Rect, look: &Look) {
    let wanted = processes::height(look);
    let (mut rows, ranks) = (devices::height(whole, look), look.ui.scope == Scope::All && whole.height >= 12);
    if ranks && usize::from(rest.height) < rows + BAR + wanted {
        rows = 1;
    }
    devices::draw(buffer, take(&mut rest, rows), look);
    let explained = whole.height >= EXPLAINED;
    let above = ladder::height(rest, look, explained) + gauge::height(look);
    if ranks && usize::from(rest.height) < above + wanted {
        // The legend has what the ranks leave of it.
        let spare = usize::from(rest.height).saturating_sub(wanted).max(BAR);
        ladder::draw(buffer, take(&mut rest, spare.min(above - gauge::height(look))), look, explained);
    } else if whole.width >= WIDE {
        let left = Rect { width: rest.width / 2, ..rest };
        let top = take(&mut rest, ladder::height(left, look, true) + gauge::height(look));
        let left = Rect { width: top.width / 2, ..top };
        let right = Rect { x: left.right() + 2, width: top.width.saturating_sub(left.width + 2), ..top };
        inside(buffer, left, look, true, gauge::height(look));
        growth::draw(buffer, right, look);
    } else {
        rest = inside(buffer, rest, look, explained, if rest.height >= 16 { 6 } else { 3 });
        let curve = match usize::from(rest.height).checked_sub(wanted) {
            Some(0..4) | None if ranks => 0,
            _ => growth::height(rest, wanted),
        };
        growth::draw(buffer, take(&mut rest, curve), look);
    }
    let mut spare = usize::from(rest.height).saturating_sub(wanted);
    // Where the arrows are among the alerts, they are seen, whatever has to go.
    let selected = look.ui.is_among_alerts();
    let most = if selected { usize::from(rest.height / 2).clamp(2, ALERTS) } else { ALERTS };
    let told = alerts::brief(most, usize::from(rest.width), look);
    let told = Some(told).filter(|it| !it.is_empty() && (selected || it.len() < spare)).unwrap_or_default();
    if !told.is_empty() {
        let height = u16::try_from(told.len() + 1).unwrap_or(rest.height).min(rest.height);
        let bottom = Rect { y: rest.bottom() - height, height, ..rest };
        rest.height -= height;
        spare = spare.saturating_sub(usize::from(height));
        alerts::draw_brief(buffer, bottom, &told, look);
    }
    if spare >= RUN && look.ui.process(look.session).is_some() {
        timeline::draw(buffer, take(&mut rest, spare), look);
    }
    processes::draw(buffer, rest, look);
}

/// Where the memory is now. Gives back the area below, of which so many rows are always left.
fn inside(buffer: &mut Buffer, mut rest: Rect, look: &Look, explained: bool, kept: usize) -> Rect {
    let rows = ladder::height(rest, look, explained).min(usize::from(rest.height).saturating_sub(kept));
    ladder::draw(buffer, take(&mut rest, rows), look, explained);
    gauge::draw(buffer, take(&mut rest, if rows > 0 { gauge::height(look) } else { 0 }), look);
    rest
}
