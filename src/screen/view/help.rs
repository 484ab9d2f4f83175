//! The keys by purpose, what is unavailable and why, and what the screen means: over everything else.

use crate::{
    model::analysis::cause::Cause,
    screen::{
        keys::{self, BINDINGS, Binding, Group},
        theme::Role,
        ui::{Extent, Source, alert_list::Allowing},
        view::{
            RenderContext, cells,
            dialogs::{self, Frame},
        },
    },
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
    dialogs::draw_box(buffer, area, &frame, &lines, context.ui.help_scroll, context).1
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
        let Some(why) = it.unavailable(context.ui) else { continue };
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

const WIDTH: u16 = 84;

/// Draws the open explanation, and returns how far it can be scrolled.
pub(super) fn draw_explain(buffer: &mut Buffer, area: Rect, context: &RenderContext) -> usize {
    let Some(entry) = context.ui.explained.map(Cause::entry) else { return 0 };
    let inner = usize::from(area.width.min(WIDTH).saturating_sub(4));
    let mut lines = Vec::new();
    let mut add = |words: &str, role| {
        lines.extend(cells::wrapped(words, inner).iter().map(|it| Line::styled(format!(" {it}"), context.style(role))));
    };
    add(entry.title, Role::Title);
    for paragraph in entry.text.trim_end().split("\n\n") {
        add("", Role::Text);
        add(&paragraph.replace('\n', " "), Role::Text);
    }
    add("", Role::Text);
    add(&format!("→ {}", entry.advice), Role::Good);
    let frame = Frame {
        title: entry.id,
        hint: "Esc: back",
        hint_more: "↑↓: more  Esc: back",
        border: Role::Border,
        width: WIDTH,
    };
    dialogs::draw_box(buffer, area, &frame, &lines, context.ui.help_scroll, context).1
}

/// Draws the open question.
pub(super) fn question(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let Some(Allowing { what, lines, file, is_new }) = &context.ui.allowing else { return };
    let inner = usize::from(area.width.min(WIDTH).saturating_sub(4));
    let mut shown = Vec::new();
    let mut add = |words: &str, role| {
        let wrapped = cells::wrapped(&cells::raw(words), inner);
        shown.extend(wrapped.iter().map(|it| Line::styled(format!(" {it}"), context.style(role))));
    };
    let (asked, does) = if what.removed.is_empty() {
        let of = match what.only.and_then(|it| Some((it, what.limit(it)?))) {
            None => "in every run that reads this file".to_owned(),
            Some((Extent::Script, script)) => format!("in runs of {script}"),
            Some((Extent::Line, line)) => format!("of line {line}"),
        };
        let asked = format!("expect {} {of}? It then counts in no badge, rings no bell and fails no check.", what.name);
        (asked, if *is_new { "makes" } else { "writes into" })
    } else {
        let names = what.removed.join(", ");
        (format!("expect {names} no longer? It then counts, rings and fails a check again."), "removes it from")
    };
    add(&asked, Role::Title);
    add(&format!("{does} {file}:"), Role::Text);
    for line in lines.iter().filter(|it| !it.is_empty()) {
        add(line, Role::Good);
    }
    let limits = [("s", Extent::Script), ("l", Extent::Line)];
    let limits = limits.into_iter().filter(|_| what.removed.is_empty());
    let mut answers = vec![("y", "writes it".to_owned())];
    answers.extend(limits.filter_map(|(key, it)| {
        let limit = what.limit(it)?;
        Some((key, if what.only == Some(it) { "every run".to_owned() } else { format!("only {}", cells::raw(limit)) }))
    }));
    for (key, words) in answers {
        shown.push(Line::from(vec![
            Span::styled(format!(" {key}"), context.style(Role::Key)),
            Span::styled(format!(" {words}"), context.style(Role::Text)),
        ]));
    }
    shown.push(Line::styled(" any other key writes nothing", context.style(Role::Text)));
    let frame =
        Frame { title: "expect an alert", hint: "Esc: back", hint_more: "Esc: back", border: Role::Bad, width: WIDTH };
    dialogs::draw_box(buffer, area, &frame, &shown, 0, context);
}
