//! Blocks by call stack as boxes: callers above what they call, each as wide as its bytes.

use super::{Scene, subject};
use crate::{
    facts::units::{Bytes, counted},
    model::{
        analysis::ladder::Gap,
        trace::{Origin, Tree},
    },
    screen::{
        theme::Role,
        ui::mouse::Target,
        view::{cells, ladder::apportion, put, take, title},
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
    text::{Line, Span},
};

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
pub(super) fn draw(buffer: &mut Buffer, area: Rect, scene: &Scene) {
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
    let style = ink(it.frame, call, scene);
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
fn ink(frame: Option<u32>, call: usize, scene: &Scene) -> Style {
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
