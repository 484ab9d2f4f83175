//! What the user looks at: selection, screen, freeze. No facts, no clock.

/// What keys do beside moving.
mod act;
/// Alerts as rows.
pub mod alerts;
/// What is looked at before anything is selected.
mod attention;
/// What keys ask for.
mod command;
/// What is looked for.
pub mod filter;
/// What clicks do.
pub mod mouse;
/// What rows are ordered by.
pub mod order;
/// The rows of the process list.
pub mod rows;
/// The rungs of the ladder as rows.
mod rungs;
/// The menu of signals.
pub mod signal;
/// Asking a job which lines allocate what grows.
mod sites;
/// What part of a run the timeline shows.
pub mod timeline;

use crate::{
    facts::{event::DeviceId, text::Foreign},
    model::{
        alerts::{Identity, Policy},
        analysis::{
            cause::Cause,
            ladder::{Gap, GapSet},
        },
        session::Session,
    },
};
use alerts::{Allowing, Sight};
pub use attention::Attention;
pub use command::{Command, Request, Signal, Subject};
use filter::Filter;
use mouse::Grab;
use order::Order;
use rows::RowId;
use signal::Dialog;
use std::time::Duration;
use timeline::Section;

/// The screens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Screen {
    /// Devices, the selected one's ladder, its processes.
    #[default]
    Overview,
    /// The ladder of the selected device with every gap explained.
    Device,
    /// One process on one device: who it is, what it holds, how that moves.
    Process,
    /// Every rung of that process over its run.
    Timeline,
    /// What was found: open, and ended.
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

/// What is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// What happens now.
    #[default]
    Live,
    /// Recordings, whose keys come first.
    Replay,
}

/// Whose processes are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Those of the selected device.
    #[default]
    Selected,
    /// Those of every device: the ranks of a run side by side.
    All,
}

/// Why no job is asked anything.
pub const NO_QUESTIONS: &str = "this view sends no requests to jobs";

/// Why no pace can be changed.
pub const NO_PACE: &str = "no driver is read here: there is no refresh rate to change";

/// Rows that a page key moves by.
const PAGE: usize = 10;

/// What the user looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ui {
    /// Which screen.
    pub screen: Screen,
    /// The screens that it was opened from, the latest last, and which box had the arrows there.
    pub back_stack: Vec<(Screen, Focus)>,
    /// What part of a run the timeline shows.
    pub timeline: Section,
    /// Whether the help lies over it.
    pub help: bool,
    /// Which box has the arrows.
    pub focus: Focus,
    /// The selected device; `None`, before anybody chose, is the one that needs attention, else the first that a probed
    /// process works on, or the first.
    pub device: Option<DeviceId>,
    /// What needs attention most, before anybody chose.
    pub attention: Option<Attention>,
    /// The selected rung; `None`, before anybody chose, is the largest that something can be done about.
    pub gap: Option<Gap>,
    /// Of each device the rungs that held something since the view began, a bit each.
    pub held_bytes: Vec<(DeviceId, GapSet)>,
    /// The selected row of the processes, where `held` is not listed.
    pub row: usize,
    /// The process that was selected: it stays selected wherever the order takes it.
    pub held: Option<RowId>,
    /// Whose processes are listed.
    pub scope: Scope,
    /// What the user asks of alerts.
    pub policy: Policy,
    /// The selected alert; `None` is the first that is listed.
    pub alert: Option<Identity>,
    /// How much of it is seen.
    pub sight: Sight,
    /// The cause that is explained over the picture.
    pub explained: Option<Cause>,
    /// The question whether an alert is to be expected.
    pub allowing: Option<Allowing>,
    /// Why no alert can be allowed from here; `None` where it can.
    pub no_allow: Option<&'static str>,
    /// Lines that the help is scrolled by.
    pub help_scroll: usize,
    /// Lines that the detail or the alerts are scrolled by; the loop takes back what the picture has no lines for.
    pub scroll: usize,
    /// What is shown.
    pub source: Source,
    /// Whether the picture stands still. The loop keeps the session and findings of that moment and draws
    /// them, while events go on being folded into the live one.
    pub frozen: bool,
    /// What is looked for among the processes.
    pub filter: Filter,
    /// What the processes are ordered by.
    pub order: Order,
    /// The menu of signals, while it is open.
    pub dialog: Option<Dialog>,
    /// Why no signals are sent from here; `None` where they are.
    pub no_signals: Option<&'static str>,
    /// The pace at which devices are read; `None` where it is not ours to change.
    pub interval: Option<Duration>,
    /// What is to be said of the last key; the next one takes it away.
    pub status: Option<String>,
    /// The complaints of the program that alerts start.
    pub complaint: Option<Foreign>,
    /// The run, while the mouse holds it.
    pub grabbed: Option<Grab>,
    /// What the last command asked of the loop, which takes it.
    pub request: Option<Request>,
    /// Whether the user asked to leave.
    pub quit: bool,
}

impl Ui {
    /// Whether recordings are played.
    pub fn is_replay(&self) -> bool {
        self.source == Source::Replay
    }

    /// Says something until the next key.
    pub fn say(&mut self, word: impl Into<String>) {
        self.status = Some(word.into());
    }

    /// The boxes of the overview, those that are used most first; on the other screens the alerts, and all the rest.
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
        }
    }

    /// Opens a screen; one that is open behind this one comes forward.
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
        // Back among the alerts it goes on with the next one.
        if focus == Focus::Alerts || self.focus == Focus::Alerts {
            self.focus = focus;
        }
        self.sight.reveal = self.is_among_alerts();
    }

    /// What is inside of what is shown: a device's processes, a process's run.
    fn open_next(&mut self, session: &Session) {
        let probed = self.process(session).is_some();
        match self.screen {
            Screen::Overview
                if self.focus == Focus::Processes && self.chosen(session).is_some_and(|it| it.probed().is_some()) =>
            {
                self.open(Screen::Process);
            }
            Screen::Overview => self.open(Screen::Device),
            Screen::Device if probed => self.open(Screen::Process),
            Screen::Process => self.open(Screen::Timeline),
            Screen::Device | Screen::Timeline | Screen::Alerts => {}
        }
    }

    fn look_at_run(&mut self, command: Command, session: &Session) {
        if self.screen == Screen::Timeline
            && let Some((_, on)) = self.process(session)
        {
            self.timeline.update(command, on);
        }
    }

    /// The place of the selected device in the session's list.
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

    /// The device whose processes are listed; `None` for those of all devices.
    pub fn listed<'a>(&self, session: &'a Session) -> Option<&'a DeviceId> {
        session.devices.get(self.selected(session)).map(|it| &it.id).filter(|_| self.scope == Scope::Selected)
    }

    fn travel(&mut self, command: Command, session: &Session) {
        if self.help || self.explained.is_some() {
            self.help_scroll = moved(command, self.help_scroll);
            return;
        }
        match self.screen {
            _ if self.is_among_alerts() => return self.travel_alerts(command, session),
            Screen::Overview => {}
            Screen::Timeline if matches!(command, Command::Up | Command::Down) => {
                return self.neighbour(command == Command::Down, session);
            }
            Screen::Timeline => return self.look_at_run(command, session),
            Screen::Device | Screen::Process | Screen::Alerts => {
                self.scroll = moved(command, self.scroll);
                return;
            }
        }
        match self.focus {
            Focus::Devices => self.select_device(moved(command, self.selected(session)), session),
            Focus::Ladder => self.travel_rungs(command, session),
            Focus::Processes | Focus::Alerts => {
                self.select_row(moved(command, self.place(&self.rows(session))), session);
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

fn moved(command: Command, here: usize) -> usize {
    match command {
        Command::Up => here.saturating_sub(1),
        Command::Down => here.saturating_add(1),
        Command::PageUp => here.saturating_sub(PAGE),
        Command::PageDown => here.saturating_add(PAGE),
        Command::Last => usize::MAX,
        _ => 0,
    }
}
