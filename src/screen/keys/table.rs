//! The table of keys: key, command, and the line for it in the help, the reference and the manual, in one place.

use super::{Binding, CONTROL, Group, NONE, SHIFT, View};
use crate::{
    screen::{
        keys::KeyContext,
        ui::{
            Chart, Command, Edit, Extent, HostCommand, Motion, NO_PACE, NO_QUESTIONS, Start, Ui,
            cluster_ui::ClusterCommand,
            snapshot_ui::{Page, SnapshotCommand},
        },
    },
    storage::replay::Command as Replay,
};
use crossterm::event::{KeyCode, KeyModifiers};

/// Every key, by what it is for. `1`–`9` stand at the end because their command carries the number.
pub const BINDINGS: &[Binding] = &[
    screens(
        Command::Quit,
        "q Ctrl-C F10",
        "quit",
        &[(NONE, KeyCode::Char('q')), (CONTROL, KeyCode::Char('c')), (NONE, KeyCode::F(10))],
    )
    .of(ALL),
    screens(Command::Open, "Enter", "open what is selected", &[(NONE, KeyCode::Enter)]).of(LISTS),
    screens(Command::Back, "Esc", "back; clear the filter", &[(NONE, KeyCode::Esc)]).of(ALL),
    screens(Command::Host(HostCommand::Timeline), "t", "timeline", &[(NONE, KeyCode::Char('t'))]),
    screens(Command::Host(HostCommand::Alerts), "a", "alerts", &[(NONE, KeyCode::Char('a'))]),
    screens(Command::Host(HostCommand::All), "p", "all processes", &[(NONE, KeyCode::Char('p'))]),
    screens(Command::Host(HostCommand::Preset), "v", "next preset", &[(NONE, KeyCode::Char('v'))]),
    screens(Command::Help, "? F1", "this help", &[(NONE, KeyCode::Char('?')), (NONE, KeyCode::F(1))]).of(ALL),
    moving(Command::Move(Motion::Up), "↑ k", "up", &[(NONE, KeyCode::Up), (NONE, KeyCode::Char('k'))]).of(ALL),
    moving(Command::Move(Motion::Down), "↓ j", "down", &[(NONE, KeyCode::Down), (NONE, KeyCode::Char('j'))]).of(ALL),
    moving(
        Command::Move(Motion::Left),
        "← h",
        "device or cursor before",
        &[(NONE, KeyCode::Left), (NONE, KeyCode::Char('h'))],
    )
    .of(ALL),
    moving(
        Command::Move(Motion::Right),
        "→ l",
        "device or cursor after",
        &[(NONE, KeyCode::Right), (NONE, KeyCode::Char('l'))],
    )
    .of(ALL),
    moving(Command::NextBox, "Tab", "next box", &[(NONE, KeyCode::Tab)]),
    moving(Command::PreviousBox, "Shift-Tab", "previous box", &[(NONE, KeyCode::BackTab)]),
    moving(Command::Move(Motion::First), "g Home", "first row", &[(NONE, KeyCode::Char('g')), (NONE, KeyCode::Home)])
        .of(ALL),
    moving(Command::Move(Motion::Last), "G End", "last row", &[(NONE, KeyCode::Char('G')), (NONE, KeyCode::End)])
        .of(ALL),
    moving(Command::Move(Motion::PageUp), "PgUp", "ten rows up", &[(NONE, KeyCode::PageUp)]).of(ALL),
    moving(Command::Move(Motion::PageDown), "PgDn", "ten rows down", &[(NONE, KeyCode::PageDown)]).of(ALL),
    processes(Command::Filter, "/", "filter processes", &[(NONE, KeyCode::Char('/'))]),
    processes(Command::Host(HostCommand::NextMatch), "n", "next match", &[(NONE, KeyCode::Char('n'))]),
    processes(Command::Host(HostCommand::PreviousMatch), "N", "previous match", &[(NONE, KeyCode::Char('N'))]),
    processes(Command::Order, "s F6", "sort by the next column", &[(NONE, KeyCode::Char('s')), (NONE, KeyCode::F(6))]),
    processes(Command::Invert, "i", "reverse order", &[(NONE, KeyCode::Char('i'))]),
    processes(Command::Host(HostCommand::Clear), "C", "clear what has ended", &[(NONE, KeyCode::Char('C'))]),
    processes(Command::Host(HostCommand::Tree), "V", "tree of processes", &[(NONE, KeyCode::Char('V'))]),
    processes(Command::Copy, "c", "copy what is selected", &[(NONE, KeyCode::Char('c'))]),
    processes(Command::Host(HostCommand::Sites), "w", "find the culprit's line", &[(NONE, KeyCode::Char('w'))])
        .unless(|ui| ui.no_signals.map(|_| NO_QUESTIONS)),
    processes(Command::Host(HostCommand::Whatif), "W", "try other settings", &[(NONE, KeyCode::Char('W'))])
        .unless(|ui| ui.no_signals.map(|_| Start::Trace.forbidden())),
    processes(Command::Host(HostCommand::Peak), "H", "what is in its peak", &[(NONE, KeyCode::Char('H'))])
        .unless(|ui| ui.no_signals.map(|_| Start::Peak.forbidden())),
    processes(Command::Host(HostCommand::Attach), "P", "start the probe in it", &[(NONE, KeyCode::Char('P'))])
        .unless(|ui| ui.no_signals.map(|_| Start::Probe.forbidden())),
    processes(
        Command::Host(HostCommand::Signal),
        "K F9",
        "signal the process",
        &[(NONE, KeyCode::Char('K')), (NONE, KeyCode::F(9))],
    )
    .unless(|ui| ui.no_signals),
    alerts(Command::Host(HostCommand::Explain), "e", "explain its cause", &[(NONE, KeyCode::Char('e'))]),
    alerts(Command::Host(HostCommand::Allow), "A", "expect it, or not", &[(NONE, KeyCode::Char('A'))])
        .unless(|ui| ui.no_allow),
    display(Command::Freeze, "Space f", "freeze or resume", &[(NONE, KeyCode::Char(' ')), (NONE, KeyCode::Char('f'))])
        .of(HOSTS),
    display(Command::Host(HostCommand::Faster), "+", "read devices more often", &[(NONE, KeyCode::Char('+'))])
        .unless(no_interval),
    display(Command::Host(HostCommand::Slower), "-", "read devices less often", &[(NONE, KeyCode::Char('-'))])
        .unless(no_interval),
    display(Command::Theme, "T F2", "next theme", &[(NONE, KeyCode::Char('T')), (NONE, KeyCode::F(2))]).of(ALL),
    display(
        Command::Redraw,
        "r F5 Ctrl-L",
        "redraw",
        &[(NONE, KeyCode::Char('r')), (NONE, KeyCode::F(5)), (CONTROL, KeyCode::Char('l'))],
    )
    .of(ALL),
    display(Command::Suspend, "Ctrl-Z", "suspend (fg resumes)", &[(CONTROL, KeyCode::Char('z'))]).of(ALL),
    timeline(Command::Chart(Chart::Plus), "+", "nearer", &[(NONE, KeyCode::Char('+'))]),
    timeline(Command::Chart(Chart::Minus), "-", "wider", &[(NONE, KeyCode::Char('-'))]),
    timeline(Command::Chart(Chart::Reset), "=", "whole run", &[(NONE, KeyCode::Char('='))]),
    timeline(Command::Chart(Chart::Axis), "x", "steps or time", &[(NONE, KeyCode::Char('x'))]),
    timeline(Command::Chart(Chart::Scale), "y", "full or fitted scale", &[(NONE, KeyCode::Char('y'))]),
    filter(Command::Open, "Enter", "keep the filter", &[(NONE, KeyCode::Enter)]),
    filter(Command::Back, "Esc", "clear the filter", &[(NONE, KeyCode::Esc)]),
    filter(Command::Move(Motion::Up), "↑", "up", &[(NONE, KeyCode::Up)]),
    filter(Command::Move(Motion::Down), "↓", "down", &[(NONE, KeyCode::Down)]),
    filter(Command::Edit(Edit::Erase), "Backspace", "delete a character", &[(NONE, KeyCode::Backspace)]),
    filter(Command::Edit(Edit::EraseAll), "Ctrl-U", "clear the line", &[(CONTROL, KeyCode::Char('u'))]),
    signal(Command::Move(Motion::Up), "↑ k", "signal above", &[(NONE, KeyCode::Up), (NONE, KeyCode::Char('k'))]),
    signal(Command::Move(Motion::Down), "↓ j", "signal below", &[(NONE, KeyCode::Down), (NONE, KeyCode::Char('j'))]),
    signal(Command::Open, "Enter", "choose it", &[(NONE, KeyCode::Enter)]),
    signal(Command::Yes, "y", "send it", &[(NONE, KeyCode::Char('y'))]),
    signal(Command::Back, "Esc n", "send none", &[(NONE, KeyCode::Esc), (NONE, KeyCode::Char('n'))]),
    allow(Command::Yes, "y", "write it", &[(NONE, KeyCode::Char('y'))]),
    allow(Command::Limit(Extent::Script), "s", "only of its script", &[(NONE, KeyCode::Char('s'))]),
    allow(Command::Limit(Extent::Line), "l", "only of its line", &[(NONE, KeyCode::Char('l'))]),
    allow(Command::Back, "Esc n", "write nothing", &[(NONE, KeyCode::Esc), (NONE, KeyCode::Char('n'))]),
    start(Command::Yes, "y", "start it", &[(NONE, KeyCode::Char('y'))]),
    start(Command::Back, "Esc n", "start none", &[(NONE, KeyCode::Esc), (NONE, KeyCode::Char('n'))]),
    replay(
        [Replay::Play, Replay::Play],
        "Space f",
        "play or pause",
        &[(NONE, KeyCode::Char(' ')), (NONE, KeyCode::Char('f'))],
    ),
    replay(
        [Replay::Hundredths(-1), Replay::Hundredths(1)],
        "← →",
        "seek ±1 % (1 s at least)",
        &[(NONE, KeyCode::Left), (NONE, KeyCode::Right)],
    ),
    replay(
        [Replay::Hundredths(-10), Replay::Hundredths(10)],
        "Shift-← →",
        "seek ±10 % (10 s at least)",
        &[(SHIFT, KeyCode::Left), (SHIFT, KeyCode::Right)],
    ),
    replay([Replay::Start, Replay::End], "Home End", "beginning, end", &[(NONE, KeyCode::Home), (NONE, KeyCode::End)]),
    replay(
        [Replay::PreviousStep, Replay::NextStep],
        "[ ]",
        "previous, next step",
        &[(NONE, KeyCode::Char('[')), (NONE, KeyCode::Char(']'))],
    ),
    replay(
        [Replay::PreviousTrouble, Replay::NextTrouble],
        "{ }",
        "previous, next trouble",
        &[(NONE, KeyCode::Char('{')), (NONE, KeyCode::Char('}'))],
    ),
    replay(
        [Replay::NextMark, Replay::PreviousMark],
        "m M",
        "next, previous mark",
        &[(NONE, KeyCode::Char('m')), (NONE, KeyCode::Char('M'))],
    ),
    replay(
        [Replay::Slower, Replay::Faster],
        "< >",
        "slower, faster",
        &[(NONE, KeyCode::Char('<')), (NONE, KeyCode::Char('>'))],
    ),
    snapshot(Command::Snapshot(SnapshotCommand::Show(Page::Overview)), "o", "overview", &[(NONE, KeyCode::Char('o'))]),
    snapshot(
        Command::Snapshot(SnapshotCommand::Show(Page::Segments)),
        "m",
        "map of the segments",
        &[(NONE, KeyCode::Char('m'))],
    ),
    snapshot(
        Command::Snapshot(SnapshotCommand::Show(Page::Stacks)),
        "b",
        "live blocks by stack",
        &[(NONE, KeyCode::Char('b'))],
    ),
    snapshot(Command::Snapshot(SnapshotCommand::Show(Page::Flame)), "f", "flame graph", &[(NONE, KeyCode::Char('f'))]),
    snapshot(
        Command::Snapshot(SnapshotCommand::Show(Page::Trace)),
        "t",
        "memory over events",
        &[(NONE, KeyCode::Char('t'))],
    ),
    snapshot(Command::NextBox, "Tab", "next screen", &[(NONE, KeyCode::Tab)]),
    snapshot(Command::PreviousBox, "Shift-Tab", "previous screen", &[(NONE, KeyCode::BackTab)]),
    snapshot(Command::Snapshot(SnapshotCommand::Peak), "p", "peak of the trace", &[(NONE, KeyCode::Char('p'))]),
    snapshot_pair(
        [SnapshotCommand::PreviousEvent, SnapshotCommand::NextEvent],
        "[ ]",
        "previous, next event",
        &[(NONE, KeyCode::Char('[')), (NONE, KeyCode::Char(']'))],
    ),
    snapshot_pair(
        [SnapshotCommand::PreviousFailure, SnapshotCommand::NextFailure],
        "{ }",
        "previous, next failure",
        &[(NONE, KeyCode::Char('{')), (NONE, KeyCode::Char('}'))],
    ),
    snapshot(Command::Chart(Chart::Plus), "+", "larger request; nearer", &[(NONE, KeyCode::Char('+'))]),
    snapshot(Command::Chart(Chart::Minus), "-", "smaller request; wider", &[(NONE, KeyCode::Char('-'))]),
    snapshot(Command::Chart(Chart::Reset), "=", "whole trace; all blocks", &[(NONE, KeyCode::Char('='))]),
    snapshot(
        Command::Snapshot(SnapshotCommand::Toggle),
        "Space",
        "open or close a call",
        &[(NONE, KeyCode::Char(' '))],
    ),
    snapshot(Command::Invert, "i", "allocating line first", &[(NONE, KeyCode::Char('i'))]),
    snapshot(Command::Order, "s", "sort segments", &[(NONE, KeyCode::Char('s'))]),
    snapshot(Command::Filter, "/", "filter calls, streams", &[(NONE, KeyCode::Char('/'))]),
    snapshot(Command::Copy, "c", "copy what is selected", &[(NONE, KeyCode::Char('c'))]),
    cluster(
        [Command::Cluster(ClusterCommand::PreviousFigure), Command::Cluster(ClusterCommand::NextFigure)],
        "< >",
        "previous, next figure",
        &[(NONE, KeyCode::Char('<')), (NONE, KeyCode::Char('>'))],
    ),
    cluster([Command::Cluster(ClusterCommand::Map); 2], "m", "map, or machines", &[(NONE, KeyCode::Char('m'))]),
    cluster([Command::Order; 2], "s F6", "next order", &[(NONE, KeyCode::Char('s')), (NONE, KeyCode::F(6))]),
    cluster([Command::Filter; 2], "/", "filter machines, ranks", &[(NONE, KeyCode::Char('/'))]),
    cluster([Command::Copy; 2], "c", "copy the machine's name", &[(NONE, KeyCode::Char('c'))]),
    recordings(
        [Command::Replay(Replay::NextMark), Command::Replay(Replay::PreviousMark)],
        "n N",
        "next, previous mark",
        &[(NONE, KeyCode::Char('n')), (NONE, KeyCode::Char('N'))],
    ),
    recordings(
        [Command::Replay(Replay::Slower), Command::Replay(Replay::Faster)],
        "- +",
        "slower, faster",
        &[(NONE, KeyCode::Char('-')), (NONE, KeyCode::Char('+'))],
    ),
    past(
        [Command::Chart(Chart::Minus), Command::Chart(Chart::Plus)],
        "- +",
        "longer, shorter",
        &[(NONE, KeyCode::Char('-')), (NONE, KeyCode::Char('+'))],
    ),
    past(
        [Command::Cluster(ClusterCommand::PreviousFigure), Command::Cluster(ClusterCommand::NextFigure)],
        "< >",
        "previous, next figure",
        &[(NONE, KeyCode::Char('<')), (NONE, KeyCode::Char('>'))],
    ),
];

/// The help's line for the number keys.
pub const DEVICES: (&str, &str) = ("1 … 9", "that device");

/// The views that have a key of `Anywhere`.
const HOST: &[View] = &[View::Host];
const HOSTS: &[View] = &[View::Host, View::Cluster];
const LISTS: &[View] = &[View::Host, View::Snapshot, View::Cluster];
const ALL: &[View] = &[View::Host, View::Snapshot, View::Cluster, View::Past];

impl Binding {
    /// A key of this host's screens that always works.
    const fn new(
        place: KeyContext,
        group: Group,
        command: Command,
        keys: &'static str,
        help: &'static str,
        codes: Codes,
    ) -> Self {
        Self { place, group, command, opposite: None, keys, help, codes, views: HOST, missing: nothing }
    }

    /// The same with a second key, which does the opposite.
    const fn and(self, opposite: Command) -> Self {
        Self { opposite: Some(opposite), ..self }
    }

    /// The same for these views.
    const fn of(self, views: &'static [View]) -> Self {
        Self { views, ..self }
    }

    /// The same where nothing is missing.
    const fn unless(self, missing: fn(&Ui) -> Option<&'static str>) -> Self {
        Self { missing, ..self }
    }
}

fn no_interval(ui: &Ui) -> Option<&'static str> {
    ui.interval.is_none().then_some(NO_PACE)
}

fn nothing(_: &Ui) -> Option<&'static str> {
    None
}

type Codes = &'static [(KeyModifiers, KeyCode)];

/// A row of the table for each place and group.
macro_rules! rows {
    ($($name:ident: $place:ident, $group:ident;)+) => {
        $(const fn $name(command: Command, keys: &'static str, help: &'static str, codes: Codes) -> Binding {
            Binding::new(KeyContext::$place, Group::$group, command, keys, help, codes)
        })+
    };
}

rows! {
    screens: Anywhere, Screens;
    moving: Anywhere, Moving;
    processes: Anywhere, Processes;
    alerts: Anywhere, Alerts;
    display: Anywhere, Display;
    timeline: Timeline, Timeline;
    filter: Filter, Asking;
    signal: Signal, Asking;
    allow: Allow, Asking;
    start: Start, Asking;
    snapshot: Snapshot, Snapshot;
}

const fn replay(pair: [Replay; 2], keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    let [command, opposite] = [Command::Replay(pair[0]), Command::Replay(pair[1])];
    Binding::new(KeyContext::Replay, Group::Replay, command, keys, help, codes).and(opposite)
}

const fn snapshot_pair(pair: [SnapshotCommand; 2], keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    let [command, opposite] = [Command::Snapshot(pair[0]), Command::Snapshot(pair[1])];
    Binding::new(KeyContext::Snapshot, Group::Snapshot, command, keys, help, codes).and(opposite)
}

const fn cluster(pair: [Command; 2], keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    let [command, opposite] = pair;
    Binding::new(KeyContext::Cluster, Group::Cluster, command, keys, help, codes).and(opposite)
}

const fn recordings(pair: [Command; 2], keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    let [command, opposite] = pair;
    Binding::new(KeyContext::Recordings, Group::Recordings, command, keys, help, codes).and(opposite)
}

const fn past(pair: [Command; 2], keys: &'static str, help: &'static str, codes: Codes) -> Binding {
    let [command, opposite] = pair;
    Binding::new(KeyContext::Past, Group::Past, command, keys, help, codes).and(opposite)
}
