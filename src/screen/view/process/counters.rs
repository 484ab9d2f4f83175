//! Every counter of a process on a device, in as many columns as fit.

use crate::{
    facts::units::Bytes,
    model::{
        analysis::fragmentation::Stuck,
        session::process::{OnDevice, Process},
    },
    screen::{
        theme::Role,
        view::{RenderContext, cells},
    },
};
use ratatui::text::{Line, Span};

/// The width of an entry: name, figure, and the space between two.
const ENTRY: usize = 26;
const NAME: usize = 13;
const FIGURE: usize = 11;

/// The counters, column by column.
pub(super) fn lines(process: &Process, on: &OnDevice, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let entries = entries(process, on, context);
    let columns = ((width + 1) / ENTRY).clamp(1, 4);
    let rows = entries.len().div_ceil(columns);
    let line = |row: usize| {
        let both = entries.iter().skip(row).step_by(rows.max(1));
        both.flat_map(|(name, figure)| {
            let role = if figure == cells::UNKNOWN { Role::Dim } else { Role::Text };
            [
                Span::styled(format!(" {}", cells::left(name, NAME)), context.style(Role::Dim)),
                Span::styled(format!("{} ", cells::right(figure, FIGURE)), context.style(role)),
            ]
        })
        .collect()
    };
    (0..rows).map(line).collect()
}

fn entries(process: &Process, on: &OnDevice, context: &RenderContext) -> Vec<(&'static str, String)> {
    let it = &on.counters;
    let found = context.found_for(process, on);
    let size = |value: Option<u64>| cells::bytes(value.map(Bytes));
    let count = |value: Option<u64>| cells::known(value, "");
    let stuck = found.and_then(|it| match it.fragmentation.stuck {
        Stuck::Known(bytes) => Some(bytes),
        Stuck::Unknown | Stuck::NotMeasurable => None,
    });
    vec![
        ("requested", size(it.requested)),
        ("allocated", size(it.allocated)),
        ("active", size(it.active)),
        ("stuck", cells::bytes(stuck)),
        ("releasable", cells::bytes(found.and_then(|it| it.fragmentation.releasable))),
        ("reserved", size(it.reserved)),
        ("graph pools", size(it.private_pools)),
        ("total", cells::bytes(found.and_then(|it| it.driver_used))),
        ("peak alloc.", size(it.allocated_peak)),
        ("peak reserved", size(it.reserved_peak)),
        ("pinned in use", size(it.pinned_active)),
        ("pinned held", size(it.pinned_reserved)),
        ("host memory", size(it.rss)),
        ("unused", cells::share(found.and_then(|it| it.fragmentation.share()))),
        ("blocks", count(it.blocks)),
        ("segments", count(it.segments)),
        ("retries", count(it.retries)),
        ("ooms", count(it.ooms)),
        ("cudaMallocs", count(it.device_allocs)),
        ("cudaFrees", count(it.device_frees)),
    ]
}
