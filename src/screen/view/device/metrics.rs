//! The driver's metrics of a device, from the table of metrics: several in a row, and what limits the clocks.

use crate::{
    facts::metrics::{Metric, Reason, Shown},
    model::session::device::Device,
    screen::{
        theme::Role,
        view::{RenderContext, cells, devices},
    },
};
use ratatui::text::{Line, Span};

/// Columns of a label, of a value, and of both with their gaps.
const LABEL: usize = 12;
const VALUE: usize = 10;
const ENTRY: usize = LABEL + VALUE + 2;

/// Most entries in a row.
const COLUMNS: usize = 5;

/// Returns the rows of entries, then the metrics that have a line of their own.
pub(super) fn lines(device: &Device, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let own = Metric::TABLE.iter().filter_map(|it| Some((it.metric, own_line(it.shown)?)));
    let own = own.map(|(metric, label)| {
        let words = format!(" {label} {}", value(device, metric));
        Line::styled(cells::elide(&words, width), context.style(role(device)))
    });
    grid(&entries(device, |_| true), width, context).into_iter().chain(own).collect()
}

/// Returns the rows of entries without the metrics that the device list of the hardware preset has.
pub(in crate::screen::view) fn others(device: &Device, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    grid(&entries(device, |it| !devices::lists(it)), width, context)
}

fn grid(entries: &[(&'static str, String)], width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let rows = entries.len().div_ceil((width / ENTRY).clamp(1, COLUMNS));
    let entry = |(label, value): &(&str, String)| {
        [
            Span::styled(format!(" {}", cells::left(label, LABEL)), context.style(Role::Dim)),
            Span::styled(format!("{} ", cells::right(value, VALUE)), context.style(Role::Text)),
        ]
    };
    let row = |row: usize| entries.iter().skip(row).step_by(rows).flat_map(entry).collect::<Line>();
    (0..rows).map(row).collect()
}

/// Returns labels and values: the metrics of the table, then those of the memory.
fn entries(device: &Device, is_shown: impl Fn(Metric) -> bool) -> Vec<(&'static str, String)> {
    let label = |shown| if let Shown::As(label) = shown { Some(label) } else { None };
    let shown = Metric::TABLE.iter().filter(|it| is_shown(it.metric));
    let metrics = shown.filter_map(|it| Some((label(it.shown)?, value(device, it.metric))));
    let memory = device.figures();
    let of_memory = [
        ("total", memory.map(|it| it.total)),
        ("free", memory.map(|it| it.free)),
        ("reserve", memory.and_then(|it| it.reserved)),
    ];
    metrics.chain(of_memory.map(|(label, bytes)| (label, cells::bytes(bytes)))).collect()
}

fn own_line(shown: Shown) -> Option<&'static str> {
    if let Shown::Line(label) = shown { Some(label) } else { None }
}

fn value(device: &Device, metric: Metric) -> String {
    let known = device.metrics.as_ref().and_then(|it| it.value.format(metric));
    known.unwrap_or_else(|| cells::UNKNOWN.to_owned())
}

fn role(device: &Device) -> Role {
    let bits = device.metric(Metric::ThrottleReasons).unwrap_or(0);
    if Reason::of(bits).any(|it| it.is_slowdown) { Role::Warning } else { Role::Dim }
}
