//! The line of keys: the available commands, and always how to leave.

use super::{RenderContext, cells, put};
use crate::{
    screen::{
        keys,
        theme::Role,
        ui::{Chart, Command, HostCommand, Motion, Screen, mouse::Target},
    },
    storage::replay::Command as Replay,
};
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

/// Commands whose first keys are shown, and their label; a click runs a single one.
pub(super) type Hint = (&'static [Command], &'static str);

/// The keys shown here, most useful first.
const OVERVIEW: &[Hint] = &[
    QUIT,
    HELP,
    ALERTS,
    FREEZE,
    (&[Command::Open], "open"),
    (&[Command::Host(HostCommand::Timeline)], "timeline"),
    (&[Command::Host(HostCommand::All)], "all"),
    (&[Command::Filter], "filter"),
    (&[Command::Order], "sort"),
    (&[Command::Device(0)], "GPU"),
    (&[Command::Move(Motion::Up), Command::Move(Motion::Down)], "move"),
    (&[Command::NextBox], "box"),
    (&[Command::Copy], "copy"),
    (&[Command::Host(HostCommand::Signal)], "signal"),
];
const OPENED: &[Hint] = &[BACK, QUIT, HELP, SCROLL, TO_ALERTS, (&[Command::Device(0)], "device"), FREEZE];
const AMONG_ALERTS: &[Hint] = &[
    BACK,
    QUIT,
    HELP,
    (&[Command::Move(Motion::Up), Command::Move(Motion::Down)], "select"),
    (&[Command::Open], "process"),
    (&[Command::Host(HostCommand::Timeline)], "its step"),
    (&[Command::Host(HostCommand::Explain)], "explain"),
    (&[Command::Host(HostCommand::Allow)], "expect it"),
    (&[Command::Copy], "copy"),
    FREEZE,
];
const PROCESS: &[Hint] = &[
    BACK,
    QUIT,
    HELP,
    (&[Command::Host(HostCommand::Timeline)], "timeline"),
    (&[Command::Host(HostCommand::Sites)], "which line"),
    (&[Command::Move(Motion::Left), Command::Move(Motion::Right)], "process"),
    SCROLL,
    TO_ALERTS,
    (&[Command::Copy], "copy"),
    (&[Command::Host(HostCommand::Signal)], "signal"),
    FREEZE,
];
const TIMELINE: &[Hint] = &[
    BACK,
    QUIT,
    HELP,
    (&[Command::Move(Motion::Left), Command::Move(Motion::Right)], "cursor"),
    (&[Command::Chart(Chart::Plus)], "nearer"),
    (&[Command::Chart(Chart::Minus)], "wider"),
    (&[Command::Chart(Chart::Reset)], "all"),
    (&[Command::Chart(Chart::Axis)], "steps/time"),
    (&[Command::Chart(Chart::Scale)], "scale"),
    (&[Command::Move(Motion::Up), Command::Move(Motion::Down)], "process"),
    FREEZE,
];
const HELPED: &[Hint] = &[BACK, QUIT, SCROLL];

/// The keys of a replay.
const REPLAY: &[Hint] = &[
    (&[Command::Replay(Replay::Play)], "play"),
    (&[Command::Replay(Replay::Hundredths(-1)), Command::Replay(Replay::Hundredths(1))], "seek"),
    (&[Command::Replay(Replay::PreviousStep), Command::Replay(Replay::NextStep)], "step"),
    (&[Command::Replay(Replay::PreviousTrouble), Command::Replay(Replay::NextTrouble)], "trouble"),
    (&[Command::Replay(Replay::NextMark)], "mark"),
    (&[Command::Replay(Replay::Slower), Command::Replay(Replay::Faster)], "speed"),
];

const QUIT: Hint = (&[Command::Quit], "quit");
const HELP: Hint = (&[Command::Help], "help");
const BACK: Hint = (&[Command::Back], "back");
const MACHINES: Hint = (&[Command::Back], "machines");
const ALERTS: Hint = (&[Command::Host(HostCommand::Alerts)], "alerts");
const FREEZE: Hint = (&[Command::Freeze], "freeze");
const TO_ALERTS: Hint = (&[Command::NextBox], "alerts");
const SCROLL: Hint = (&[Command::Move(Motion::Up), Command::Move(Motion::Down)], "scroll");

/// Returns whether there is a question or a message: then the line is shown on any screen.
pub(super) fn has_text(context: &RenderContext) -> bool {
    context.ui.filter.typing || context.ui.status.is_some()
}

/// Draws the question or message, or else as many keys as fit.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    if has_text(context) { message(buffer, area, context) } else { keys(buffer, area, context) }
}

/// Draws the same with other keys.
pub(super) fn draw_with(buffer: &mut Buffer, area: Rect, hints: &[Hint], context: &RenderContext) {
    if has_text(context) {
        return message(buffer, area, context);
    }
    let shown = hints.iter().filter_map(|hint| named(hint, context)).collect();
    written(buffer, area, with_replay(shown, context), context);
}

fn message(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let width = usize::from(area.width);
    let ui = context.ui;
    if ui.filter.typing {
        // The end of the typed text stays visible.
        let text = cells::raw(&ui.filter.text);
        let shown: String = text.chars().skip(text.chars().count().saturating_sub(width.saturating_sub(2))).collect();
        let mut line =
            vec![Span::styled("/", context.style(Role::Key)), Span::styled(shown, context.style(Role::Text))];
        line.push(Span::styled("█", context.style(Role::Key)));
        line.push(Span::styled("  Enter keep  Esc none", context.style(Role::Dim)));
        put(buffer, area, 0, &Line::from(line));
    } else if let Some(word) = &ui.status {
        put(buffer, area, 0, &Line::styled(cells::elide(&cells::raw(word), width), context.style(Role::Title)));
    }
}

/// The keys of a hint, its label, and the command of a click on it.
type Shown = (String, &'static str, Option<Command>);

fn named((commands, word): &Hint, context: &RenderContext) -> Option<Shown> {
    let keys: Option<Vec<_>> = commands.iter().map(|it| keys::first(*it, context.ui)).collect();
    Some((keys?.concat(), *word, commands.first().copied().filter(|_| commands.len() == 1)))
}

/// Draws as many keys as fit.
pub(super) fn keys(buffer: &mut Buffer, area: Rect, context: &RenderContext) {
    let ui = context.ui;
    let hints = match ui.screen {
        _ if ui.help || ui.explained.is_some() => HELPED,
        _ if ui.is_among_alerts() => AMONG_ALERTS,
        Screen::Overview => OVERVIEW,
        Screen::Process => PROCESS,
        Screen::Timeline => TIMELINE,
        Screen::Device | Screen::Alerts => OPENED,
    };
    // Nothing can be asked of a process that has ended.
    let has_ended = ui.screen == Screen::Process && ui.process(context.session).is_some_and(|it| !it.0.is_alive());
    let is_of_living = |hint: &&Hint| matches!(hint.0, [Command::Host(HostCommand::Sites | HostCommand::Signal)]);
    let hints = hints.iter().filter(|hint| !(has_ended && is_of_living(hint)));
    let mut shown: Vec<_> = hints.filter_map(|hint| named(hint, context)).collect();
    if ui.machine.is_some() && ui.screen == Screen::Overview && !ui.help && !ui.is_among_alerts() {
        shown.splice(0..0, named(&MACHINES, context));
    }
    written(buffer, area, with_replay(shown, context), context);
}

/// Adds a replay's keys after those that leave.
fn with_replay(mut shown: Vec<Shown>, context: &RenderContext) -> Vec<Shown> {
    let ui = context.ui;
    if ui.is_replay() && !ui.help && ui.explained.is_none() && ui.screen != Screen::Timeline {
        let own = REPLAY.iter().filter_map(|hint| named(hint, context));
        shown.splice(2.min(shown.len())..2.min(shown.len()), own);
    }
    shown
}

fn written(buffer: &mut Buffer, area: Rect, shown: impl IntoIterator<Item = Shown>, context: &RenderContext) {
    let mut rest = area;
    for (key, word, command) in shown {
        let (key, word) = (Span::styled(key, context.style(Role::Key)), format!(" {word}"));
        let word = Span::styled(word, context.style(Role::Dim));
        let width = u16::try_from(key.width() + word.width()).unwrap_or(u16::MAX);
        if width > rest.width {
            break;
        }
        let place = Rect { width, ..rest };
        put(buffer, place, 0, &Line::from(vec![key, word]));
        if let Some(command) = command {
            context.claim(place, Target::Key(command));
        }
        let taken = width.saturating_add(2).min(rest.width);
        (rest.x, rest.width) = (rest.x + taken, rest.width - taken);
    }
}
