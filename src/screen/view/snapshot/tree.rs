//! Blocks by call stack, as a tree to open and to close.

use super::{Scene, subject};
use crate::{
    facts::units::{Bytes, counted},
    model::trace::{Call, Origin},
    screen::{
        theme::Role,
        ui::{mouse::Target, snapshot::Row},
        view::{cells, put, scroll::select, table, take, title},
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

/// The columns that a step inwards takes, and the most that all of them take.
const INDENT: usize = 2;
const INDENT_MAX: usize = 24;

/// The widths from which on there are blocks and bytes of the call alone.
const BLOCKS: u16 = 60;
const OWN: u16 = 96;

/// Draws the title, the rows, and what a filter hides.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, scene: &Scene) {
    let mut rest = area;
    let (name, bytes) = subject(scene);
    let tree = &scene.ui.profile.tree;
    let whole = tree.get(0).map_or(0, |it| it.blocks);
    let right = format!("{} in {}", Bytes(bytes), counted(whole, "block"));
    let order = if scene.ui.inverted { ", by allocating line" } else { "" };
    let right = vec![Span::styled(right, scene.context.style(Role::Text))];
    title(buffer, take(&mut rest, 1), &format!("{name}{order}"), right, &scene.context);
    let hidden = scene.ui.profile.hidden;
    if hidden > 0 {
        let words = format!(" the filter hides {}; Esc clears it", Bytes(hidden));
        put(buffer, take(&mut rest, 1), 0, &Line::styled(words, scene.context.style(Role::Warning)));
    }
    let rows = scene.ui.rows();
    if rows.is_empty() || bytes == 0 {
        put(buffer, rest, 0, &Line::styled(" no live blocks", scene.context.style(Role::Dim)));
        return;
    }
    put(buffer, rest, 0, &Line::styled(titles(rest.width), scene.context.style(Role::Dim)));
    let height = usize::from(rest.height).saturating_sub(1);
    let here = rows.iter().position(|it| it.call == scene.ui.call).unwrap_or(0);
    let first = table::first_row(here, rows.len(), height);
    for (place, row) in table::places(rest).zip(rows.iter().skip(first)) {
        let Some(call) = tree.get(row.call) else { continue };
        put(buffer, place, 0, &line(row, call, bytes, usize::from(rest.width), scene));
        scene.context.claim(place, Target::Line(row.call));
        if row.call == scene.ui.call {
            select(buffer, place, &scene.context);
        }
    }
}

fn titles(width: u16) -> String {
    let mut out = format!(" {}{}", cells::right("bytes", 11), cells::right("share", 6));
    if width >= OWN {
        out += &cells::right("own", 12);
    }
    if width >= BLOCKS {
        out += &cells::right("blocks", 9);
    }
    out + "  call"
}

fn line(row: &Row, call: &Call, whole: u64, width: usize, scene: &Scene) -> Line<'static> {
    let style = |role| scene.context.style(role);
    let mut spans = vec![
        Span::styled(format!(" {}", cells::right(&Bytes(call.bytes).to_string(), 11)), style(Role::Text)),
        Span::styled(cells::right(&cells::percent(Some(Bytes(call.bytes)), Some(Bytes(whole))), 6), style(Role::Dim)),
    ];
    if width >= usize::from(OWN) {
        let own = if call.own > 0 { Bytes(call.own).to_string() } else { String::new() };
        spans.push(Span::styled(cells::right(&own, 12), style(Role::Dim)));
    }
    if width >= usize::from(BLOCKS) {
        spans.push(Span::styled(cells::right(&call.blocks.to_string(), 9), style(Role::Dim)));
    }
    let sign = match row.is_open {
        Some(true) => "▾ ",
        Some(false) => "▸ ",
        None => "  ",
    };
    let indent = " ".repeat((row.depth * INDENT).min(INDENT_MAX));
    spans.push(Span::styled(format!("  {indent}{sign}"), style(Role::Key)));
    let taken: usize = spans.iter().map(Span::width).sum();
    let words = scene.snapshot.trace.stacks.label(call.frame);
    spans.push(Span::styled(cells::elide(&words, width.saturating_sub(taken)), ink(call.frame, scene)));
    Line::from(spans)
}

/// The job's own lines stand out.
fn ink(frame: Option<u32>, scene: &Scene) -> Style {
    let role = match scene.snapshot.trace.stacks.origin(frame) {
        Some(Origin::Job) => Role::Title,
        Some(Origin::Library) => Role::Text,
        Some(Origin::Native) | None => Role::Dim,
    };
    scene.context.style(role)
}
