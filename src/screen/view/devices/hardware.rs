//! The device list of the preset of hardware: clocks, power, temperatures and links, from the table of metrics.

use super::{heat, named, share_of, urgency_of};
use crate::{
    facts::metrics::{Metric, Reason},
    model::session::device::Device,
    screen::{
        theme::Role,
        ui::Focus,
        view::{
            RenderContext, cells,
            table::{Column, Row},
        },
    },
};

/// A column of a metric: its title, its width and its rank.
const METRICS: [(Metric, &str, usize, u8); 9] = [
    (Metric::GpuPercent, "util", 5, 2),
    (Metric::SmMhz, "SM MHz", 9, 3),
    (Metric::PowerMw, "power", 9, 4),
    (Metric::CelsiusNow, "temp", 8, 5),
    (Metric::PerformanceState, "state", 5, 10),
    (Metric::MemoryPercent, "mem busy", 8, 6),
    (Metric::MemoryMhz, "mem MHz", 9, 8),
    (Metric::PcieGeneration, "PCIe", 5, 9),
    (Metric::FanPercent, "fan", 5, 11),
];

/// Returns whether the list has a metric.
pub(in crate::screen::view) fn lists(metric: Metric) -> bool {
    METRICS.iter().any(|it| it.0 == metric)
}

/// Returns the columns.
pub(super) fn columns() -> Vec<Column> {
    let own = [Column { title: "#", width: 4, rank: 0 }, Column { title: "full", width: 5, rank: 1 }];
    let metrics = METRICS.map(|(_, title, width, rank)| Column { title, width, rank });
    own.into_iter().chain(metrics).collect()
}

/// Returns the row of a device; its text is what slows it down, or else its name.
pub(super) fn row(device: &Device, selected: bool, context: &RenderContext) -> Row {
    let text = context.style(Role::Text);
    let marker = if selected && context.ui.focus == Focus::Devices { "▸" } else { "" };
    let full = share_of(device, context);
    let own = [
        (format!("{marker} {}", cells::known(device.index, "")), text),
        (cells::share(full), urgency_of(device, full, context)),
    ];
    let metrics = METRICS.map(|(metric, ..)| {
        let value = device.metrics.as_ref().and_then(|it| it.value.format(metric));
        let is_heat = metric == Metric::CelsiusNow;
        let style = if is_heat { heat(device.metric(metric), context) } else { text };
        (value.unwrap_or_else(|| cells::UNKNOWN.to_owned()), style)
    });
    let reasons = Reason::of(device.metric(Metric::ThrottleReasons).unwrap_or(0)).filter(|it| it.is_slowdown);
    let slowed: Vec<&str> = reasons.map(|it| it.words).collect();
    let (words, role) = match named(device) {
        (_, Role::Dim) if !slowed.is_empty() => (slowed.join(", "), Role::Warning),
        named => named,
    };
    Row {
        figures: own.into_iter().chain(metrics).collect(),
        text: (words, context.style(role)),
        style: selected.then(|| context.style(Role::Selected)),
    }
}
