//! The overview of every preset but that of memory, from the table of presets.

use super::{RenderContext, alerts, course, device, device_name, devices, growth, processes, put, take, title};
use crate::screen::ui::preset::{Part, Preset};
use ratatui::{buffer::Buffer, layout::Rect, text::Line};

/// Most rows of growth, and most alerts.
const GROWTH: usize = 8;
const ALERTS: usize = 6;

/// The boxes that share the rows, if these are few. Each other box is there only if those before it have all that they
/// want.
const SHARING: usize = 3;

/// Arranges the boxes of the preset from the top, in the order of the screen. Each box gets its fewest rows, the most
/// important first, then as many as it wants in the same order.
pub(super) fn draw(buffer: &mut Buffer, whole: Rect, mut rest: Rect, context: &RenderContext) {
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
