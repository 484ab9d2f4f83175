//! The menu of signals, and the question before one is sent, over everything else.

use crate::{
    facts::event::replayed::WINDOW_STEPS,
    screen::{
        theme::Role,
        ui::{
            Signal, Start,
            mouse::Target,
            process_actions::{Dialog, Starting},
        },
        view::{RenderContext, cells, put},
    },
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
    widgets::{Block, Clear, Widget},
};

const WIDTH: u16 = 62;

/// Most lines of a command line.
const COMMAND_LINES: usize = 3;

/// Draws a box in the middle, while the menu is open.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let Some(dialog) = &context.ui.dialog else { return };
    let width = area.width.min(WIDTH);
    let inner = usize::from(width.saturating_sub(4));
    let lines = if dialog.asked { question(dialog, inner, context) } else { menu(dialog, inner, context) };
    let height = area.height.min(u16::try_from(lines.len() + 2).unwrap_or(u16::MAX));
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    Clear.render(place, buffer);
    buffer.set_style(place, context.style(Role::Text));
    let frame = Block::bordered()
        .border_style(context.style(if dialog.asked { Role::Bad } else { Role::Border }))
        .title(Span::styled(
            format!(" signal to pid {}{} ", dialog.pid, context.ui.on_machine()),
            context.style(Role::Title),
        ))
        .title(
            Line::styled(
                if dialog.asked { " Esc: back " } else { " Enter: choose  Esc: none " },
                context.style(Role::Dim),
            )
            .right_aligned(),
        );
    let inside = frame.inner(place);
    // Without room for a frame, its content is worth more.
    let inside = if height >= 5 {
        frame.render(place, buffer);
        inside
    } else {
        place
    };
    for (place, row) in inside.rows().enumerate().take(if dialog.asked { 0 } else { Signal::MENU.len() }) {
        context.claim(row, Target::Signal(place));
    }
    for (row, line) in lines.iter().enumerate() {
        put(buffer, inside, row, line);
    }
}

fn menu(dialog: &Dialog, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let mut lines: Vec<Line> = Vec::new();
    for (place, (_, name, meaning)) in Signal::MENU.iter().enumerate() {
        let marker = if place == dialog.place { "▸" } else { " " };
        let line = Line::from(vec![
            Span::styled(format!(" {marker} {}", cells::left(name, 6)), context.style(Role::Key)),
            Span::styled(cells::left(meaning, width.saturating_sub(8)), context.style(Role::Text)),
        ]);
        lines.push(if place == dialog.place { line.patch_style(context.style(Role::Selected)) } else { line });
    }
    lines.push(Line::default());
    lines.extend(who(dialog, width, context));
    lines
}

fn question(dialog: &Dialog, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let (_, name, meaning) = dialog.signal();
    let asked = format!(" send {name} to pid {}{}?", dialog.pid, context.ui.on_machine());
    let mut lines = vec![Line::styled(asked, context.style(Role::Bad))];
    lines.extend(who(dialog, width, context));
    lines.push(Line::styled(format!(" {}", cells::elide(meaning, width)), context.style(Role::Dim)));
    lines.push(Line::from(vec![
        Span::styled(" y", context.style(Role::Key)),
        Span::styled(" sends it; any other key does not", context.style(Role::Text)),
    ]));
    lines
}

/// Returns the process's owner and command, in some lines.
fn who(dialog: &Dialog, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let words = format!("{}: {}", cells::foreign(&dialog.user), cells::raw(&dialog.command));
    let mut lines = cells::wrapped(&words, width);
    if lines.len() > COMMAND_LINES {
        lines.truncate(COMMAND_LINES);
        if let Some(last) = lines.last_mut() {
            *last = cells::elide(&format!("{last} …"), width);
        }
    }
    lines.into_iter().map(|it| Line::styled(format!(" {it}"), context.style(Role::Text))).collect()
}

/// Draws the open question.
pub(super) fn draw_start(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let Some(it) = &context.ui.starting else { return };
    let inner = usize::from(area.width.min(WIDTH).saturating_sub(4));
    let (title, question, yes) = words(it, &context.ui.on_machine());
    let mut lines = Vec::new();
    let mut add = |words: &str, most: usize, role| {
        let wrapped = cells::wrapped(words, inner).into_iter().take(most);
        lines.extend(wrapped.map(|line| Line::styled(format!(" {line}"), context.style(role))));
    };
    add(&question, usize::MAX, Role::Title);
    add(&format!("{}: {}", cells::foreign(&it.user), cells::raw(&it.command)), COMMAND_LINES, Role::Text);
    lines.push(Line::from(vec![
        Span::styled(" y", context.style(Role::Key)),
        Span::styled(format!(" {yes}; any other key does not"), context.style(Role::Text)),
    ]));
    let frame = Frame { title: &title, hint: "Esc: back", hint_more: "Esc: back", border: Role::Bad, width: WIDTH };
    draw_box(buffer, area, &frame, &lines, 0, context);
}

/// Returns the title, the question with what it costs the job, and what a yes does.
fn words(it: &Starting, machine: &str) -> (String, String, &'static str) {
    let pid = format!("{}{machine}", it.pid);
    match it.what {
        Start::Probe => (
            format!("probe for pid {pid}"),
            format!("Start the probe in pid {pid}? The job pauses for about a millisecond."),
            "starts it, and records the job",
        ),
        Start::Trace => (
            format!("other settings for pid {pid}"),
            format!(
                "Trace {WINDOW_STEPS} steps of pid {pid} and replay them under other allocator settings? The job pauses for \
                 some milliseconds a few times."
            ),
            "traces and replays them",
        ),
        Start::Peak => (
            format!("the peak of pid {pid}"),
            format!(
                "Record the call stacks of one step of pid {pid}, to see what is live at its highest moment? The job pauses \
                 for at most 50 ms in all."
            ),
            "traces it",
        ),
    }
}

/// The texts of its frame.
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    /// The available keys, at the right.
    pub(super) hint: &'a str,
    /// The hint if not all lines fit.
    pub(super) hint_more: &'a str,
    pub(super) border: Role,
    /// Its maximum width.
    pub(super) width: u16,
}

/// Below this many rows there is no frame, because its content is worth more.
const FRAMED: u16 = 5;

/// Draws the lines from an offset on. Returns where they are, and how far they can be scrolled.
pub(super) fn draw_box(
    buffer: &mut Buffer,
    area: Rect,
    frame: &Frame,
    lines: &[Line],
    scroll: usize,
    context: &RenderContext,
) -> (Rect, usize) {
    let width = area.width.min(frame.width);
    let height = area.height.min(u16::try_from(lines.len() + 2).unwrap_or(u16::MAX));
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    Clear.render(place, buffer);
    buffer.set_style(place, context.style(Role::Text));
    let mut inner = place;
    if height >= FRAMED {
        let room = usize::from(height) - 2;
        let hint = if lines.len() > room { frame.hint_more } else { frame.hint };
        let block = Block::bordered()
            .border_style(context.style(frame.border))
            .title(Span::styled(format!(" {} ", frame.title), context.style(Role::Title)))
            .title(Line::styled(format!(" {hint} "), context.style(Role::Dim)).right_aligned());
        inner = block.inner(place);
        block.render(place, buffer);
    }
    let most = lines.len().saturating_sub(usize::from(inner.height));
    for (row, line) in lines.iter().skip(scroll.min(most)).enumerate() {
        put(buffer, inner, row, line);
    }
    (inner, most)
}
