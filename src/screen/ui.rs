//! The state of the user interface: selection, screen, freeze. No facts, no clock.

/// Alerts as rows.
pub mod alert_list;
/// The screen of many machines.
pub mod cluster_ui;
/// Commands and requests.
mod command;
/// Mouse events.
pub mod mouse;
/// The order of rows.
pub mod order;
/// The presets of the overview.
pub mod preset;
/// The question before something is started at a process.
pub mod process_actions;
/// The rows of the process list.
pub mod rows;
/// The rungs of the ladder as rows.
mod rungs;
/// The view of a memory snapshot.
pub mod snapshot_ui;
/// The part of a run that the timeline shows.
pub mod timeline_range;
/// The process list as a tree.
pub mod tree;

pub use crate::screen::ui::command::{
    Answer, Chart, Command, Edit, Expecting, Extent, HostCommand, Motion, OpenDialog, Request, Signal, Start, Subject,
};
use crate::{
    facts::{event::DeviceId, text::Foreign, units::Stamp},
    model::{
        alerts::Policy,
        analysis::{
            cause::Cause,
            ladder::{Gap, GapSet},
            severity::Severity,
        },
        findings::{Finding, Findings, Identity},
        session::Session,
    },
    screen::ui::{
        alert_list::{Allowing, Sight},
        mouse::Grab,
        order::Order,
        preset::Preset,
        process_actions::{Dialog, Starting},
        rows::{Filter, RowId},
        timeline_range::Section,
        tree::Listing,
    },
};
use std::time::Duration;

/// What the main area shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Screen {
    /// Devices, the selected one's ladder and processes.
    #[default]
    Overview,
    /// The ladder of the selected device with every gap explained.
    Device,
    /// One process on one device: description, memory, growth.
    Process,
    /// Every rung of that process over its run.
    Timeline,
    /// The findings: open and resolved ones.
    Alerts,
}

/// The boxes that the arrows can move in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Focus {
    /// The device list.
    #[default]
    Devices,
    /// The processes of the selected device.
    Processes,
    /// The alerts.
    Alerts,
    /// The rungs of the ladder.
    Ladder,
}

/// Which processes are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The processes of the selected device.
    #[default]
    Selected,
    /// The processes of every device: the ranks of a run together.
    All,
}

/// Why this view requests no captures.
pub const NO_QUESTIONS: &str = "this view sends no requests to jobs";

/// Why this view starts no probes.
pub const NO_PROBES: &str = "this view starts no probes";

/// Why this view traces no jobs.
pub const NO_TRACES: &str = "this view traces no jobs";

/// Why this view cannot change the refresh rate.
pub const NO_PACE: &str = "no driver is read here: there is no refresh rate to change";

/// Rows that a page key moves by.
const PAGE: usize = 10;

/// The state of the user interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ui {
    /// The current screen.
    pub screen: Screen,
    /// The preset of the overview.
    pub preset: Preset,
    /// The screens that it was opened from, latest last, with the focused box of each.
    pub back_stack: Vec<(Screen, Focus)>,
    /// The part of a run that the timeline shows.
    pub timeline: Section,
    /// Whether the help is open.
    pub help: bool,
    /// The focused box.
    pub focus: Focus,
    /// The selected device. Before the user selects one, `None` means the one that needs attention, otherwise the first
    /// with a probed process, or the first.
    pub device: Option<DeviceId>,
    /// What needs the most attention, before the user selects anything.
    pub attention: Option<Attention>,
    /// The selected rung. Before the user selects one, `None` means the largest one that can be reduced.
    pub gap: Option<Gap>,
    /// For each device, the rungs that had bytes since the view began, one bit each.
    pub held_bytes: Vec<(DeviceId, GapSet)>,
    /// The selected row of the processes, if `held` is not listed.
    pub row: usize,
    /// The selected process: it stays selected wherever it moves in the order.
    pub held: Option<RowId>,
    /// Which processes are listed.
    pub scope: Scope,
    /// The user's rules for alerts.
    pub policy: Policy,
    /// The selected alert; `None` is the first in the list.
    pub alert: Option<Identity>,
    /// How much of it is visible.
    pub sight: Sight,
    /// The cause whose explanation is open.
    pub explained: Option<Cause>,
    /// The open question whether to expect an alert.
    pub allowing: Option<Allowing>,
    /// The open question whether to start something at a process.
    pub starting: Option<Starting>,
    /// Why this view cannot allow alerts; `None` if it can.
    pub no_allow: Option<&'static str>,
    /// Lines by which the help is scrolled.
    pub help_scroll: usize,
    /// Lines by which the detail or the alerts are scrolled; the loop limits it to the lines of the frame.
    pub scroll: usize,
    /// The source of the view.
    pub source: Source,
    /// The machine that the view is of, if it is one of many.
    pub machine: Option<Machine>,
    /// Whether the view is frozen. The loop keeps the session and findings of that moment and draws them, while it
    /// continues to fold events into the live session.
    pub frozen: bool,
    /// The filter of the processes.
    pub filter: Filter,
    /// The order of the processes.
    pub order: Order,
    /// Processes that had ended by then are no longer listed.
    pub cleared: Option<Stamp>,
    /// How the processes are listed.
    pub listing: Listing,
    /// The menu of signals, while it is open.
    pub dialog: Option<Dialog>,
    /// Why this view sends no signals; `None` if it does.
    pub no_signals: Option<&'static str>,
    /// The refresh rate of the devices; `None` if this view cannot change it.
    pub interval: Option<Duration>,
    /// The message about the last key; the next key removes it.
    pub status: Option<String>,
    /// Complaints about the alert program.
    pub complaint: Option<Foreign>,
    /// The part of the run that the user drags with the mouse.
    pub grabbed: Option<Grab>,
    /// The last command's request to the loop.
    pub request: Option<Request>,
    /// Whether the user quit.
    pub quit: bool,
}

impl Ui {
    /// Shows a message until the next key.
    pub fn show_message(&mut self, word: impl Into<String>) {
        self.status = Some(word.into());
    }

    /// Focuses the next box: on the overview the most used first, on other screens the alerts and the rest.
    fn next_box(&mut self, forward: bool, session: &Session) {
        let mut boxes = vec![Focus::Devices, Focus::Processes, Focus::Alerts, Focus::Ladder];
        if self.screen != Screen::Overview {
            boxes.retain(|it| matches!(it, Focus::Processes | Focus::Alerts));
        }
        if self.alerts(&self.policy.findings(session), session).is_empty() {
            boxes.retain(|it| *it != Focus::Alerts);
        }
        let here = boxes.iter().position(|it| *it == self.focus).unwrap_or(0);
        let step = if forward { 1 } else { boxes.len() - 1 };
        self.focus = boxes.get((here + step) % boxes.len()).copied().unwrap_or_default();
        self.sight.reveal = self.focus == Focus::Alerts;
    }

    fn back(&mut self, session: &Session) {
        if self.help || self.explained.is_some() {
            (self.help, self.explained) = (false, None);
        } else if self.screen != Screen::Overview {
            self.close();
        } else if !self.filter.text.is_empty() {
            self.filter = Filter::default();
            self.row = self.place(&self.rows(session));
        } else if self.machine.is_some() {
            self.request = Some(Request::Leave);
        }
    }

    /// Opens a screen; if it is in the back stack, returns to it.
    fn open(&mut self, screen: Screen) {
        if let Some(at) = self.back_stack.iter().position(|it| it.0 == screen) {
            self.back_stack.truncate(at);
        } else if self.screen != screen {
            self.back_stack.push((self.screen, self.focus));
        }
        (self.screen, self.scroll, self.sight) = (screen, 0, Sight::default());
        if self.focus == Focus::Alerts {
            self.focus = Focus::Processes;
        }
    }

    fn close(&mut self) {
        let (screen, focus) = self.back_stack.pop().unwrap_or_default();
        (self.screen, self.scroll, self.sight) = (screen, 0, Sight::default());
        // Back in the alerts, the selection moves to the next one.
        if focus == Focus::Alerts || self.focus == Focus::Alerts {
            self.focus = focus;
        }
        self.sight.reveal = self.is_among_alerts();
    }

    /// Opens the next level: a device's processes, a process's run.
    fn open_next(&mut self, session: &Session) {
        let probed = self.process(session).is_some();
        match self.screen {
            Screen::Overview
                if self.focus == Focus::Processes
                    && self.chosen(session).is_some_and(|it| it.run(session).is_some()) =>
            {
                self.open(Screen::Process);
            }
            Screen::Overview => self.open(Screen::Device),
            Screen::Device if probed => self.open(Screen::Process),
            Screen::Process => self.open(Screen::Timeline),
            Screen::Device | Screen::Timeline | Screen::Alerts => {}
        }
    }

    fn change_chart(&mut self, chart: Chart, session: &Session) {
        if self.screen == Screen::Timeline
            && let Some((_, on)) = self.process(session)
        {
            self.timeline.change(chart, on);
        }
    }

    /// Returns the index of the selected device in the session.
    pub fn selected(&self, session: &Session) -> usize {
        let place = |id: &DeviceId| session.devices.iter().position(|it| it.id == *id);
        let chosen = self.device.as_ref().or(self.attended().map(|it| &it.device)).and_then(place);
        let watched = || {
            let alive =
                session.probed(None).into_iter().filter(|(process, it)| process.is_alive() && it.first.is_some());
            alive.filter_map(|(_, it)| place(&it.device)).min()
        };
        chosen.or_else(watched).unwrap_or(0)
    }

    /// Returns the device whose processes are listed; `None` for all devices.
    pub fn listed<'a>(&self, session: &'a Session) -> Option<&'a DeviceId> {
        session.devices.get(self.selected(session)).map(|it| &it.id).filter(|_| self.scope == Scope::Selected)
    }

    /// Moves sideways among devices, processes or positions; up and down in the focused box or the text.
    fn travel(&mut self, motion: Motion, session: &Session) {
        match motion {
            Motion::Left | Motion::Right => self.travel_sideways(motion, session),
            Motion::Up | Motion::Down | Motion::First | Motion::Last | Motion::PageUp | Motion::PageDown => {
                self.travel_rows(motion, session);
            }
        }
    }

    fn travel_sideways(&mut self, motion: Motion, session: &Session) {
        let (here, right) = (self.selected(session), motion == Motion::Right);
        match self.screen {
            Screen::Timeline => self.seek(motion, session),
            Screen::Process => self.neighbour(right, session),
            Screen::Overview | Screen::Device | Screen::Alerts => {
                self.select_device(if right { here + 1 } else { here.saturating_sub(1) }, session);
            }
        }
    }

    fn seek(&mut self, motion: Motion, session: &Session) {
        if let Some((_, on)) = self.process(session) {
            self.timeline.seek(motion, on);
        }
    }

    fn travel_rows(&mut self, motion: Motion, session: &Session) {
        if self.help || self.explained.is_some() {
            self.help_scroll = moved(motion, self.help_scroll);
            return;
        }
        match self.screen {
            _ if self.is_among_alerts() => return self.travel_alerts(motion, session),
            Screen::Overview => {}
            Screen::Timeline if matches!(motion, Motion::Up | Motion::Down) => {
                return self.neighbour(motion == Motion::Down, session);
            }
            Screen::Timeline => return self.seek(motion, session),
            Screen::Device | Screen::Process | Screen::Alerts => {
                self.scroll = moved(motion, self.scroll);
                return;
            }
        }
        match self.focus {
            Focus::Devices => self.select_device(moved(motion, self.selected(session)), session),
            Focus::Ladder => self.travel_rungs(motion, session),
            Focus::Processes | Focus::Alerts => {
                self.select_row(moved(motion, self.place(&self.rows(session))), session);
            }
        }
    }

    fn select_device(&mut self, place: usize, session: &Session) {
        let last = session.devices.len().saturating_sub(1);
        if let Some(device) = session.devices.get(place.min(last))
            && self.device.as_ref() != Some(&device.id)
        {
            self.device = Some(device.id.clone());
            self.row_of_device(session);
        }
    }
}

/// Returns the index that a motion leads to from an index; sideways, it is the first.
fn moved(motion: Motion, here: usize) -> usize {
    match motion {
        Motion::Up => here.saturating_sub(1),
        Motion::Down => here.saturating_add(1),
        Motion::PageUp => here.saturating_sub(PAGE),
        Motion::PageDown => here.saturating_add(PAGE),
        Motion::Last => usize::MAX,
        Motion::First | Motion::Left | Motion::Right => 0,
    }
}

/// The source of the view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Live events.
    #[default]
    Live,
    /// Recordings; their keys come first.
    Replay,
    /// A memory snapshot, which has screens of its own.
    Snapshot,
    /// Many machines, which have a screen of their own.
    Cluster,
    /// The recordings of many machines, on the same screen.
    Recordings,
    /// The figures of many machines in a store, on the same screen.
    Store,
}

/// Another machine that the view is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its place in the list of machines.
    pub node: usize,
    /// Its name.
    pub host: Foreign,
    /// Why its events do not arrive; `None` if they do.
    pub trouble: Option<Foreign>,
}

impl Ui {
    /// Returns whether it plays recordings.
    pub fn is_replay(&self) -> bool {
        matches!(self.source, Source::Replay | Source::Recordings)
    }

    /// Returns ` on NAME` if the view is of another machine.
    pub fn on_machine(&self) -> String {
        self.machine.as_ref().map_or_else(String::new, |it| format!(" on {}", it.host))
    }

    /// Returns whether the view is of a memory snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.source == Source::Snapshot
    }

    /// Returns whether the view is of many machines.
    pub fn is_of_many(&self) -> bool {
        matches!(self.source, Source::Cluster | Source::Recordings | Source::Store)
    }

    /// Returns whether the view has the screens of one machine.
    pub fn is_of_one(&self) -> bool {
        matches!(self.source, Source::Live | Source::Replay)
    }
}

/// A device, and the process on it that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attention {
    device: DeviceId,
    row: Option<RowId>,
}

impl Ui {
    /// Selects the worst open finding while the user has selected nothing, and notes which rungs have bytes. Call it
    /// before each live frame.
    pub fn attend(&mut self, session: &Session, findings: &Findings) {
        self.note_rungs(findings);
        // Information about processes without a probe draws no attention from those that train.
        let draws = |it: &&Finding| it.probe.is_some() || it.severity > Severity::Info;
        let open = findings.all.iter().filter(|it| !it.is_allowed() && self.is_open(it, session)).filter(draws);
        self.attention = open.filter(|_| self.is_free()).find_map(|it| subject(it, session));
    }

    /// Returns what needs attention, if the user has selected nothing.
    fn attended(&self) -> Option<&Attention> {
        self.attention.as_ref().filter(|_| self.is_free())
    }

    fn is_free(&self) -> bool {
        self.device.is_none() && self.held.is_none()
    }

    /// Selects what needs attention as if the user had selected it.
    fn keep_selection(&mut self) {
        if let Some(it) = self.attended().cloned() {
            (self.device, self.held) = (Some(it.device), it.row);
        }
    }
}

/// Returns the device and the process of a finding; for host memory, the first device of the process.
fn subject(it: &Finding, session: &Session) -> Option<Attention> {
    let first = || it.process(session)?.devices.first();
    let device = it.device.clone().or_else(|| Some(first()?.device.clone()))?;
    let Some(probe) = it.probe else {
        let row = it.pid.map(|pid| RowId::Unprobed(pid, device.clone()));
        return Some(Attention { device, row });
    };
    let ordinal = it.ordinal.or_else(|| first().filter(|on| on.device == device).map(|on| on.ordinal));
    Some(Attention { device, row: ordinal.map(|ordinal| RowId::Probed(probe, ordinal)) })
}
