//! The keys by purpose, what is unavailable and why, and what the screen means: over everything else.

use super::{
    RenderContext, cells,
    over::{self, Frame},
};
use crate::screen::{
    keys::{self, BINDINGS, Binding, Group},
    theme::Role,
    ui::Source,
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// The width of a column.
const ENTRY: usize = 37;

/// The columns of a key.
const KEYS: usize = 13;

/// Explanations of what is not a key.
const NOTES: [&str; 7] = [
    "–  unknown; it is never drawn as 0",
    "≈  approximate: samples are missing in what it rests on",
    "!  two readings contradict each other; the rest is unattributed",
    "⠤  the line fitted to a growth; ahead of the curve, until it is full",
    "Alerts: critical and warning end the run, or slow it; info does neither.",
    "The bar is the whole device, from what the job wanted to what is free.",
    "Mouse: select, open (twice), sort by a column's title, scroll, press a key of the last line.",
];

/// The same for the view of a memory snapshot.
const OF_SNAPSHOTS: [&str; 5] = [
    "–  unknown; it is never drawn as 0",
    "●  the free block of this segment would serve the request",
    "A trace has the bytes that were requested; blocks are larger where requests are rounded up.",
    "Flame graph: a box is as wide as its bytes; the job's own lines, libraries and native code have a colour each.",
    "Mouse: select, open (twice), move the cursor of the trace, scroll, press a key of the last line.",
];

/// The same for the screen of many machines.
const OF_CLUSTERS: [&str; 5] = [
    "–  unknown; it is never drawn as 0",
    "Ranks are compared by one figure: 0 is the best, 9 the worst; a share is drawn as its tenths.",
    "!  a critical finding of the rank    +  a warning    ?  its machine's link is not up",
    "An outlier is a rank whose figure is much worse than the median of its job.",
    "Mouse: select, open (twice), scroll, press a key of the last line.",
];

/// A heading and its entries.
type Section = (&'static str, Vec<(&'static str, &'static str)>);

/// Draws a box in the middle, as large as needed and possible, and returns how far it can be scrolled.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) -> usize {
    let columns = (usize::from(area.width).saturating_sub(2) / ENTRY).clamp(1, 3);
    let width = u16::try_from(columns * ENTRY + 2).unwrap_or(u16::MAX);
    let sections = sections(context);
    let mut lines = side_by_side(&sections, columns, context);
    let mut note = |words: &str| {
        let wrapped = cells::wrapped(words, usize::from(width.min(area.width)).saturating_sub(4));
        let indented =
            wrapped.into_iter().enumerate().map(|(at, it)| format!("{}{it}", if at == 0 { " " } else { "   " }));
        lines.extend(indented.map(|it| Line::styled(it, context.style(Role::Dim))));
    };
    for (why, keys) in missing(context) {
        note(&format!("Not here: {} ({why})", keys.join(", ")));
    }
    for it in match context.ui.source {
        Source::Snapshot => &OF_SNAPSHOTS[..],
        Source::Cluster | Source::Recordings | Source::Store => &OF_CLUSTERS[..],
        Source::Live | Source::Replay => &NOTES[..],
    } {
        note(it);
    }
    let frame =
        Frame { title: "help", hint: "Esc: back", hint_more: "↑↓: more  Esc: back", border: Role::Border, width };
    over::draw(buffer, area, &frame, &lines, context.ui.help_scroll, context).1
}

/// Returns the sections of the help; filter, menu and question show their own keys.
fn sections(context: &RenderContext) -> Vec<Section> {
    // The keys of a timeline are in the help of every screen; while it is closed they replace no other.
    let is_of_timeline = |it: &Binding| match context.ui.source {
        Source::Live | Source::Replay => it.group == Group::Timeline,
        Source::Store => it.group == Group::Past,
        Source::Snapshot | Source::Cluster | Source::Recordings => false,
    };
    let is_there = |it: &&Binding| keys::reaches(it, context.ui) || is_of_timeline(it);
    let of = |group: Group| BINDINGS.iter().filter(move |it| it.group == group).filter(is_there);
    let own = [Group::Replay, Group::Snapshot, Group::Cluster, Group::Recordings, Group::Past];
    let groups = Group::HELP.into_iter().chain(own);
    let mut sections: Vec<Section> =
        groups.map(|group| (group.name(), of(group).map(|it| (it.keys, it.help)).collect())).collect();
    if let Some((_, own)) = sections.iter_mut().find(|it| it.0 == Group::Moving.name()) {
        own.extend((!context.ui.is_of_many()).then_some(keys::DEVICES));
    }
    sections.retain(|it| !it.1.is_empty());
    sections
}

/// Returns why a command is unavailable, with its keys.
fn missing(context: &RenderContext) -> Vec<(&'static str, Vec<String>)> {
    let mut all: Vec<(&str, Vec<String>)> = Vec::new();
    for it in BINDINGS.iter().filter(|_| context.ui.is_of_one()) {
        let Some(why) = keys::unavailable(it.command, context.ui) else { continue };
        let keys = format!("{} {}", it.keys, it.help);
        match all.iter_mut().find(|known| known.0 == why) {
            Some(known) => known.1.push(keys),
            None => all.push((why, vec![keys])),
        }
    }
    all
}

/// Distributes sections over columns of about the same height, without splitting one.
fn side_by_side(sections: &[Section], columns: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let whole: usize = sections.iter().map(|it| it.1.len() + 1).sum();
    let mut stacks: Vec<Vec<[Span; 2]>> = vec![Vec::new()];
    for (name, entries) in sections {
        let full = stacks.last().is_some_and(|it| it.len() + entries.len().div_ceil(2) > whole.div_ceil(columns));
        if full && stacks.len() < columns {
            stacks.push(Vec::new());
        }
        let Some(stack) = stacks.last_mut() else { continue };
        let heading = cells::left(&format!(" {name}"), ENTRY);
        stack.push([Span::styled(heading, context.style(Role::Title)), Span::raw("")]);
        stack.extend(entries.iter().map(|(keys, help)| {
            [
                Span::styled(format!(" {}", cells::left(keys, KEYS)), context.style(Role::Key)),
                Span::styled(cells::left(help, ENTRY - KEYS - 1), context.style(Role::Text)),
            ]
        }));
    }
    let rows = stacks.iter().map(Vec::len).max().unwrap_or(0);
    let blank = || [Span::raw(" ".repeat(ENTRY)), Span::raw("")];
    (0..rows).map(|row| stacks.iter().flat_map(|it| it.get(row).cloned().unwrap_or_else(blank)).collect()).collect()
}
