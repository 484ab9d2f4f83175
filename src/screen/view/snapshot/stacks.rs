//! Blocks by call stack, a row each: bytes, share, blocks, and the job's own lines.

use crate::{
    facts::units::{Bytes, counted},
    model::{
        analysis::ladder::Gap,
        trace::{Call, Origin, StackShare, Tree},
    },
    screen::{
        theme::Role,
        ui::{mouse::Target, snapshot_ui::CallRow},
        view::{
            cells, columns,
            ladder::apportion,
            put,
            scroll::select,
            snapshot::{Scene, subject},
            take, title,
        },
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
    text::{Line, Span},
};

/// The widths of the columns.
const BYTES: usize = 11;
const PERCENT: usize = 6;
const BLOCKS: usize = 9;

/// The narrowest picture that counts blocks.
const NARROW: u16 = 60;

/// Draws as many shares as fit, from one of them on; what is left is summed up in the last row. Shares with the same
/// line are one row.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, shares: &[StackShare], whole: u64, from: usize, scene: &Scene) {
    let shares = &scene.snapshot.trace.stacks.merged(shares);
    let rows = usize::from(area.height);
    let from = from.min(most(shares, rows));
    let later = shares.get(from..).unwrap_or_default();
    let fits = later.len() <= rows;
    let shown = if fits { later.len() } else { rows.saturating_sub(1) };
    for (row, it) in later.iter().take(shown).enumerate() {
        let words = scene.snapshot.trace.stacks.line(it.stack);
        put(buffer, area, row, &line(it.bytes, it.blocks, whole, &words, area, scene));
    }
    let rest = later.get(shown..).unwrap_or_default();
    if !fits {
        let bytes = rest.iter().map(|it| it.bytes).fold(0, u64::saturating_add);
        let blocks = rest.iter().map(|it| it.blocks).fold(0, u64::saturating_add);
        let words = counted(rest.len() as u64, "other stack");
        put(buffer, area, shown, &line(bytes, blocks, whole, &words, area, scene));
    }
}

/// Returns how far a list can be scrolled.
pub(super) fn scrolls(shares: &[StackShare], rows: usize, scene: &Scene) -> usize {
    most(&scene.snapshot.trace.stacks.merged(shares), rows)
}

fn most(shares: &[StackShare], rows: usize) -> usize {
    shares.len().saturating_sub(rows)
}

fn line(bytes: u64, blocks: u64, whole: u64, words: &str, area: Rect, scene: &Scene) -> Line<'static> {
    let style = |role| scene.context.style(role);
    let share = cells::percent(Some(Bytes(bytes)), Some(Bytes(whole)));
    let mut spans = vec![
        Span::styled(cells::right(&Bytes(bytes).to_string(), BYTES), style(Role::Text)),
        Span::styled(cells::right(&share, PERCENT), style(Role::Dim)),
    ];
    if area.width >= NARROW {
        let blocks = counted(blocks, "block");
        spans.push(Span::styled(cells::right(&blocks, BLOCKS + 3), style(Role::Dim)));
    }
    let taken: usize = spans.iter().map(Span::width).sum();
    let room = usize::from(area.width).saturating_sub(taken + 2);
    spans.push(Span::styled(format!("  {}", cells::elide(words, room)), style(Role::Text)));
    Line::from(spans)
}

/// The columns that a step inwards takes, and the most that all of them take.
const INDENT: usize = 2;
const INDENT_MAX: usize = 24;

/// The widths from which on there are blocks and bytes of the call alone.
const TREE_BLOCKS: u16 = 60;
const OWN: u16 = 96;

/// Draws the title, the rows, and what a filter hides.
pub(super) fn draw_tree(buffer: &mut Buffer, area: Rect, scene: &Scene) {
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
    let first = columns::first_row(here, rows.len(), height);
    for (place, row) in columns::places(rest).zip(rows.iter().skip(first)) {
        let Some(call) = tree.get(row.call) else { continue };
        put(buffer, place, 0, &tree_line(row, call, bytes, usize::from(rest.width), scene));
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
    if width >= TREE_BLOCKS {
        out += &cells::right("blocks", 9);
    }
    out + "  call"
}

fn tree_line(row: &CallRow, call: &Call, whole: u64, width: usize, scene: &Scene) -> Line<'static> {
    let style = |role| scene.context.style(role);
    let mut spans = vec![
        Span::styled(format!(" {}", cells::right(&Bytes(call.bytes).to_string(), 11)), style(Role::Text)),
        Span::styled(cells::right(&cells::percent(Some(Bytes(call.bytes)), Some(Bytes(whole))), 6), style(Role::Dim)),
    ];
    if width >= usize::from(OWN) {
        let own = if call.own > 0 { Bytes(call.own).to_string() } else { String::new() };
        spans.push(Span::styled(cells::right(&own, 12), style(Role::Dim)));
    }
    if width >= usize::from(TREE_BLOCKS) {
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

/// Boxes so narrow have no room for a name.
const NAMED: u16 = 4;

/// Callers that stay above the selected call where not all rows have room.
const ABOVE: usize = 3;

/// A call in its place; rows are counted from the graph's first call.
struct Place {
    call: usize,
    row: usize,
    x: u16,
    width: u16,
}

/// Draws the title, the boxes, and what is selected.
pub(super) fn draw_flame(buffer: &mut Buffer, area: Rect, scene: &Scene) {
    let mut rest = area;
    let (name, bytes) = subject(scene);
    let order = if scene.ui.inverted { ", by allocating line" } else { "" };
    let right = vec![Span::styled(Bytes(bytes).to_string(), scene.context.style(Role::Text))];
    title(buffer, take(&mut rest, 1), &format!("{name}{order}"), right, &scene.context);
    if bytes == 0 {
        put(buffer, rest, 0, &Line::styled(" no live blocks", scene.context.style(Role::Dim)));
        return;
    }
    let words = if rest.height >= 6 { 2 } else { u16::from(rest.height >= 3) };
    let bottom = Rect { y: rest.bottom() - words, height: words, ..rest };
    rest.height -= words;
    let places = places(&scene.ui.profile.tree, scene.ui.root, rest.width);
    let rows = places.iter().map(|it| it.row + 1).max().unwrap_or(0);
    let here = places.iter().find(|it| it.call == scene.ui.call).map_or(0, |it| it.row);
    let height = usize::from(rest.height);
    // The selected call and those that it calls are worth more than its callers.
    let first = here.saturating_sub(ABOVE.min(height.saturating_sub(1))).min(rows.saturating_sub(height));
    for it in &places {
        let Some(row) = it.row.checked_sub(first).and_then(|row| u16::try_from(row).ok()) else { continue };
        if row < rest.height {
            let place = Rect { x: rest.x + it.x, y: rest.y + row, width: it.width, height: 1 };
            boxed(buffer, place, it.call, scene);
        }
    }
    selected(buffer, bottom, bytes, scene);
}

/// Lays the boxes out. A call that would be narrower than a cell is left out.
fn places(tree: &Tree, root: usize, width: u16) -> Vec<Place> {
    let mut all = Vec::new();
    let mut waiting = vec![Place { call: root, row: 0, x: 0, width }];
    while let Some(it) = waiting.pop() {
        let Some(call) = tree.get(it.call) else { continue };
        let parts: Vec<u64> = call.calls.iter().map(|inner| tree.get(*inner).map_or(0, |inner| inner.bytes)).collect();
        let widths = apportion(&parts, call.bytes, usize::from(it.width));
        let mut x = it.x;
        for (inner, width) in call.calls.iter().zip(widths) {
            let width = u16::try_from(width).unwrap_or(0);
            if width > 0 {
                waiting.push(Place { call: *inner, row: it.row + 1, x, width });
            }
            x = x.saturating_add(width);
        }
        all.push(it);
    }
    all
}

fn boxed(buffer: &mut Buffer, place: Rect, call: usize, scene: &Scene) {
    let Some(it) = scene.ui.profile.tree.get(call) else { return };
    let stacks = &scene.snapshot.trace.stacks;
    let label = if call == 0 { format!("all, {}", Bytes(it.bytes)) } else { stacks.label(it.frame) };
    let is_selected = call == scene.ui.call;
    let style = flame_ink(it.frame, call, scene);
    // A gap between neighbours, where there is room for one.
    let inner = Rect { width: place.width - u16::from(place.width > 2), ..place };
    let room = usize::from(inner.width);
    let mark = if is_selected { "▸" } else { " " };
    let words = if inner.width >= NAMED { format!("{mark}{label}") } else { mark.to_owned() };
    let is_plain = !scene.context.theme.coloured;
    let words = if is_plain { format!("[{}", words.trim_start_matches(' ')) } else { words };
    let style = if is_selected { style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED) } else { style };
    put(buffer, inner, 0, &Line::styled(cells::left(&words, room), style));
    scene.context.claim(place, Target::Line(call));
}

/// A colour each for the job's own lines, for libraries and for native code.
fn flame_ink(frame: Option<u32>, call: usize, scene: &Scene) -> Style {
    let gap = match scene.snapshot.trace.stacks.origin(frame) {
        _ if call == 0 => Gap::Driver,
        Some(Origin::Job) => Gap::Wanted,
        Some(Origin::Library) => Gap::Reserved,
        Some(Origin::Native) => Gap::Pools,
        None => Gap::Driver,
    };
    let style = scene.context.style(Role::Gap(gap));
    if scene.context.theme.coloured { style.add_modifier(Modifier::REVERSED) } else { style }
}

/// The selected call in full: where it is, and what it holds.
fn selected(buffer: &mut Buffer, area: Rect, whole: u64, scene: &Scene) {
    let Some(it) = scene.ui.profile.tree.get(scene.ui.call) else { return };
    let stacks = &scene.snapshot.trace.stacks;
    let own = if it.own > 0 { format!(", {} of it in this line itself", Bytes(it.own)) } else { String::new() };
    let share = cells::percent(Some(Bytes(it.bytes)), Some(Bytes(whole)));
    let figures = format!(" {} ({share}) in {}{own}", Bytes(it.bytes), counted(it.blocks, "block"));
    let callers: Vec<String> = std::iter::successors(Some(scene.ui.call), |call| {
        let tree = &scene.ui.profile.tree;
        tree.get(*call).map(|it| it.caller).filter(|caller| *caller > 0)
    })
    .map(|call| stacks.label(scene.ui.profile.tree.get(call).and_then(|it| it.frame)))
    .collect();
    let between = if scene.ui.inverted { " > " } else { " < " };
    let path = if scene.ui.call == 0 { "all blocks".to_owned() } else { callers.join(between) };
    put(buffer, area, 0, &Line::styled(format!(" {path}"), scene.context.style(Role::Title)));
    put(buffer, area, 1, &Line::styled(figures, scene.context.style(Role::Text)));
}
