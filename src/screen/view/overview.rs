//! The first screen in the preset of memory: all devices, the selected one's ladder, its growth, and its processes.

use crate::{
    facts::event::DriverState,
    model::{analysis::severity::Severity, first_contact::contact},
    screen::{
        theme::Role,
        ui::{
            Scope,
            preset::{Part, Preset},
        },
        view::{
            RenderContext, alerts, cells, course, device, device_name, devices, growth, host, ladder, processes, put,
            take, timeline, title,
        },
    },
    storage::replay::Progress,
};
use ratatui::{buffer::Buffer, layout::Rect, text::Line};

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

/// The least rows below the curve with which the host's memory has one of them.
const HOST: u16 = 4;

/// Arranges the boxes in the area between header and footer:
///
/// ```text
/// devices      one row each, or a grid
/// ladder       title, bar, legend
/// gauge        one row
/// growth       title, curve
/// run          the timeline, where there is room left for it
/// processes    a row each
/// alerts       what is open, a line each, where there is room left; otherwise the worst, in one line (one that is only
///              an info where a row is left)
/// host         the limit of host memory that comes first, in one line
/// ```
///
/// From 160 columns on, growth is to the right of ladder and gauge, which get more than half of the width where their
/// words need it. Boxes fold away in this order:
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
        return draw_preset(buffer, whole, rest, context);
    }
    let wanted = processes::height(context);
    let below = rest;
    let worst = |least| alerts::worst(least, usize::from(below.width), context).filter(|_| below.height >= ALERTED);
    let kept = worst(Severity::Warning);
    rest.height -= u16::from(kept.is_some());
    let (mut rows, ranks) = (devices::height(whole, context), context.ui.scope == Scope::All && whole.height >= 12);
    if ranks && usize::from(rest.height) < rows + BAR + wanted {
        rows = 1;
    }
    devices::draw(buffer, take(&mut rest, rows), context);
    let explained = whole.height >= EXPLAINED;
    let above = ladder::height(rest, context, explained) + ladder::gauge_height(context);
    if ranks && usize::from(rest.height) < above + wanted {
        // The legend gets the rows that the ranks leave.
        let spare = usize::from(rest.height).saturating_sub(wanted).max(BAR);
        ladder::draw(buffer, take(&mut rest, spare.min(above - ladder::gauge_height(context))), context, explained);
    } else if whole.width >= WIDE {
        let width = ladder::whole_width(context).clamp(rest.width / 2, rest.width / 5 * 3);
        let left = Rect { width, ..rest };
        let top = take(&mut rest, ladder::height(left, context, true) + ladder::gauge_height(context));
        let left = Rect { width, ..top };
        let right = Rect { x: left.right() + 2, width: top.width.saturating_sub(left.width + 2), ..top };
        inside(buffer, left, context, true, ladder::gauge_height(context));
        growth::draw(buffer, right, context);
    } else {
        rest = inside(buffer, rest, context, explained, if rest.height >= 16 { 6 } else { 3 });
        let curve = match usize::from(rest.height).checked_sub(wanted) {
            Some(0..4) | None if ranks => 0,
            _ => growth::height(rest, wanted),
        };
        growth::draw(buffer, take(&mut rest, curve), context);
    }
    let host = host::row(usize::from(rest.width), context).filter(|_| rest.height >= HOST);
    if let Some(line) = &host {
        rest.height -= 1;
        put(buffer, Rect { y: below.bottom() - 1, height: 1, ..rest }, 0, line);
    }
    let mut spare = usize::from(rest.height).saturating_sub(wanted);
    // Focused alerts stay visible, whatever else has to go.
    let selected = context.ui.is_among_alerts();
    let most = if selected { usize::from(rest.height / 2).clamp(2, ALERTS) } else { ALERTS };
    let brief = alerts::brief(most, usize::from(rest.width), context);
    // The row that was kept for the worst one is the title's.
    spare += usize::from(kept.is_some());
    let brief = Some(brief).filter(|it| !it.is_empty() && (selected || it.len() < spare)).unwrap_or_default();
    rest.height = (below.bottom() - rest.y).saturating_sub(u16::from(host.is_some()));
    // Lesser ones get a row that nothing else needs.
    if brief.is_empty()
        && let Some(row) = kept.or_else(|| worst(Severity::Info).filter(|_| spare > 0))
    {
        rest.height -= 1;
        spare = spare.saturating_sub(1);
        alerts::draw_worst(buffer, Rect { y: rest.bottom(), height: 1, ..rest }, &row, context);
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
    ladder::draw_gauge(buffer, take(&mut rest, if rows > 0 { ladder::gauge_height(context) } else { 0 }), context);
    rest
}

/// Most rows of growth, and most alerts.
const GROWTH: usize = 8;

/// The boxes that share the rows, if these are few. Each other box is there only if those before it have all that they
/// want.
const SHARING: usize = 3;

/// Arranges the boxes of the preset from the top, in the order of the screen. Each box gets its fewest rows, the most
/// important first, then as many as it wants in the same order.
pub(super) fn draw_preset(buffer: &mut Buffer, whole: Rect, mut rest: Rect, context: &RenderContext) {
    let brief = alerts::brief(ALERTS, usize::from(rest.width), context);
    let metrics = metrics(rest.width, context);
    let wanted = |part: Part| match part {
        Part::Devices => (1, devices::height(whole, context)),
        Part::Processes => (4, processes::height(context)),
        Part::Pace => (3, course::pace_height(context)),
        Part::Course => (3, course::height(context)),
        Part::Metrics => (3, metrics.len() + usize::from(!metrics.is_empty())),
        Part::Growth => (3, GROWTH),
        Part::Alerts if brief.is_empty() => (0, 0),
        Part::Alerts => (2, brief.len() + 1),
        // Only the preset of memory has them.
        Part::Ladder | Part::Run => (0, 0),
    };
    let mut parts: Vec<Part> = context.ui.preset.row().boxes.to_vec();
    // Focused alerts stay visible, whatever else has to go.
    parts.sort_by_key(|it| *it != Part::Alerts || !context.ui.is_among_alerts());
    for (part, rows) in shared(&parts, usize::from(rest.height), wanted) {
        let area = take(&mut rest, rows);
        match part {
            Part::Devices => devices::draw(buffer, area, context),
            Part::Processes => processes::draw(buffer, area, context),
            Part::Pace => course::draw_pace(buffer, area, context),
            Part::Course => course::draw(buffer, area, context),
            Part::Growth => growth::draw(buffer, area, context),
            Part::Alerts => alerts::draw_brief(buffer, area, &brief, context),
            Part::Metrics => {
                let name = context.device().map_or_else(String::new, device_name);
                title(buffer, area, &format!("metrics of {name}"), Vec::new(), context);
                metrics.iter().enumerate().for_each(|(row, line)| put(buffer, area, row + 1, line));
            }
            Part::Ladder | Part::Run => {}
        }
    }
}

fn metrics(width: u16, context: &RenderContext) -> Vec<Line<'static>> {
    let device = context.device().filter(|_| context.ui.preset == Preset::Hardware);
    device.map_or_else(Vec::new, |it| device::other_metrics(it, usize::from(width), context))
}

/// Returns the rows of each box that has any, in the order of the screen. `wanted` returns the fewest and the most rows
/// of a box.
fn shared(parts: &[Part], height: usize, wanted: impl Fn(Part) -> (usize, usize)) -> Vec<(Part, usize)> {
    let (mut left, mut before) = (height, 0);
    let mut given: Vec<(Part, usize)> = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let (least, most) = wanted(*part);
        let least = least.min(most);
        if least > 0 && least <= left && (place < SHARING || before + least <= height) {
            left -= least;
            given.push((*part, least));
        }
        before += most;
    }
    for (part, rows) in &mut given {
        let more = wanted(*part).1.saturating_sub(*rows).min(left);
        (*rows, left) = (*rows + more, left - more);
    }
    given.sort();
    given
}

/// Where the texts begin, behind their titles.
const MARGIN: usize = 10;

/// The widest text that is read with ease.
const WIDEST: usize = 84;

/// Draws the screen.
pub(super) fn draw_no_device(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let width = usize::from(area.width).min(WIDEST).saturating_sub(MARGIN + 1);
    let mut rows: Vec<(String, Role)> = Vec::new();
    let mut add = |title: &str, words: &str, role: Role| {
        for (at, line) in cells::wrapped(words, width).into_iter().enumerate() {
            let title = if at == 0 { title } else { "" };
            rows.push((format!(" {title:<width$}{line}", width = MARGIN - 1), role));
        }
    };
    // What this machine lacks says nothing about a recording that goes on.
    let is_early = matches!(context.progress, Some(Progress::At(it)) if it.at < it.to);
    match contact(context.session) {
        _ if is_early => {
            add("replay", "no device and no job is known yet at this time", Role::Text);
            add("next", "Space", Role::Key);
            add("", "plays on; → goes on by a hundredth, } to the next trouble, End to the end", Role::Dim);
        }
        Some(it) => {
            for (at, found) in it.there.iter().enumerate() {
                add(if at == 0 { "found" } else { "" }, found, Role::Text);
            }
            add("missing", &it.missing, Role::Warning);
            add("next", &it.next, Role::Key);
            add("", it.does, Role::Dim);
        }
        None if matches!(context.session.driver_shown(), Some((_, DriverState::Stalled { .. }))) => {
            add("waiting", "for the driver, whose call has not returned", Role::Text);
        }
        None => add("waiting", "for the driver and for probes", Role::Text),
    }
    if !is_early {
        rows.push((String::new(), Role::Dim));
        let whole = width + MARGIN - 1;
        let mut add = |words: &str| {
            rows.extend(cells::wrapped(words, whole).into_iter().map(|line| (format!(" {line}"), Role::Dim)));
        };
        add("Jobs that are started with `gpuwatch run -- python train.py` appear here.");
        add("`gpuwatch doctor` checks everything; `gpuwatch demo` needs no GPU.");
    }
    for (row, (text, role)) in rows.iter().enumerate() {
        put(buffer, area, row + 1, &Line::styled(text.as_str(), context.style(*role)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn important_boxes_get_their_rows_first_and_each_has_its_place() {
        let wanted = |part| match part {
            Part::Devices => (1, 5),
            Part::Processes => (4, 8),
            Part::Pace => (3, 6),
            _ => (2, 2),
        };
        let parts = [Part::Devices, Part::Processes, Part::Pace, Part::Alerts];
        let rows = |height| shared(&parts, height, wanted);
        assert_eq!(rows(30), [(Part::Devices, 5), (Part::Pace, 6), (Part::Processes, 8), (Part::Alerts, 2)]);
        assert_eq!(rows(12), [(Part::Devices, 5), (Part::Pace, 3), (Part::Processes, 4)]);
        assert_eq!(rows(5), [(Part::Devices, 1), (Part::Processes, 4)]);
        assert_eq!(rows(0), []);
        for height in 0..40 {
            assert!(rows(height).iter().map(|it| it.1).sum::<usize>() <= height);
        }
    }
}
