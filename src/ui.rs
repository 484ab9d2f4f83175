//! What the user looks at: selection, screen, freeze. No facts, no clock.

/// What part of a run the timeline shows.
pub mod timeline;

use crate::{
    event::DeviceId,
    session::{
        Session,
        process::{OnDevice, Process},
    },
};
use timeline::Section;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// End the program.
    Quit,
    /// Show the help, or hide it.
    Help,
    /// Leave what was opened last.
    Back,
    /// The row above.
    Up,
    /// The row below.
    Down,
    /// The device before; on the screens of a process, what was before: the process, or the place in its run.
    Left,
    /// The device after; on the screens of a process, what comes after.
    Right,
    /// The box after.
    NextBox,
    /// The box before.
    PreviousBox,
    /// The first row.
    First,
    /// The last row.
    Last,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// Open what is selected, and from there what is inside of it.
    Open,
    /// Show the run of the selected process, or what was there before.
    Timeline,
    /// Count the timeline in steps, or in time.
    Axis,
    /// Draw the timeline from nothing to the whole device, or only where it moves.
    Scale,
    /// More: of the timeline, a nearer look.
    Plus,
    /// Less: of the timeline, a wider look.
    Minus,
    /// As it was at first: of the timeline, the whole run.
    Reset,
    /// Show the alerts, or what was there before.
    Alerts,
    /// List the processes of all devices, or those of the selected one alone.
    All,
    /// Stop the picture, or let it go on.
    Freeze,
    /// The device with this place in the list, from 0.
    Device(u8),
}

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

/// Rows that a page key moves by.
const PAGE: usize = 10;

/// What the user looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ui {
    /// Which screen.
    pub screen: Screen,
    /// The screens that it was opened from, the latest last.
    pub behind: Vec<Screen>,
    /// What part of a run the timeline shows.
    pub timeline: Section,
    /// Whether the help lies over it.
    pub help: bool,
    /// Which box has the arrows.
    pub focus: Focus,
    /// The selected device; `None`, before anybody chose, is the first that a probed process works on, or the first.
    pub device: Option<DeviceId>,
    /// The selected row of the processes.
    pub row: usize,
    /// Whose processes are listed.
    pub scope: Scope,
    /// Lines that the detail or the alerts are scrolled by; the loop takes back what the picture has no lines for.
    pub scroll: usize,
    /// Whether the picture stands still. The loop keeps the session and findings of that moment and draws
    /// them, while events go on being folded into the live one.
    pub frozen: bool,
    /// Whether the user asked to leave.
    pub quit: bool,
}

impl Ui {
    /// Takes a command.
    pub fn update(&mut self, command: Command, session: &Session) {
        match command {
            Command::Quit => self.quit = true,
            Command::Help => self.help = !self.help,
            Command::Back if self.help => self.help = false,
            Command::Back => self.close(),
            Command::Freeze => self.frozen = !self.frozen,
            Command::All => {
                self.focus = Focus::Processes;
                self.scope = match self.scope {
                    Scope::Selected => Scope::All,
                    Scope::All => Scope::Selected,
                };
                self.row_of_device(session);
            }
            Command::Open => self.open_next(session),
            Command::Alerts if self.screen == Screen::Alerts => self.close(),
            Command::Alerts => self.open(Screen::Alerts),
            Command::Timeline if self.screen == Screen::Timeline => self.close(),
            Command::Timeline => self.open(Screen::Timeline),
            Command::Axis | Command::Scale | Command::Plus | Command::Minus | Command::Reset => {
                self.look_at_run(command, session);
            }
            Command::NextBox | Command::PreviousBox => {
                self.focus = match self.focus {
                    Focus::Devices => Focus::Processes,
                    Focus::Processes => Focus::Devices,
                };
            }
            Command::Device(place) => self.select_device(usize::from(place), session),
            Command::Left | Command::Right if self.screen == Screen::Timeline => self.look_at_run(command, session),
            Command::Left | Command::Right if self.screen == Screen::Process => {
                self.neighbour(command == Command::Right, session);
            }
            Command::Left => self.select_device(self.selected(session).saturating_sub(1), session),
            Command::Right => self.select_device(self.selected(session) + 1, session),
            Command::Up | Command::Down | Command::First | Command::Last | Command::PageUp | Command::PageDown => {
                self.travel(command, session);
            }
        }
    }

    /// Opens a screen; one that is open behind this one comes forward.
    fn open(&mut self, screen: Screen) {
        if let Some(at) = self.behind.iter().position(|it| *it == screen) {
            self.behind.truncate(at);
        } else if self.screen != screen {
            self.behind.push(self.screen);
        }
        self.screen = screen;
        self.scroll = 0;
    }

    fn close(&mut self) {
        self.screen = self.behind.pop().unwrap_or_default();
        self.scroll = 0;
    }

    /// What is inside of what is shown: a device's processes, a process's run.
    fn open_next(&mut self, session: &Session) {
        let probed = self.process(session).is_some();
        match self.screen {
            Screen::Overview if self.focus == Focus::Processes && self.is_on_probed(session) => {
                self.open(Screen::Process);
            }
            Screen::Overview => self.open(Screen::Device),
            Screen::Device if probed => self.open(Screen::Process),
            Screen::Process => self.open(Screen::Timeline),
            Screen::Device | Screen::Timeline | Screen::Alerts => {}
        }
    }

    /// The process of the selected row, if it is a probed one, else the first that is listed.
    pub fn process<'a>(&self, session: &'a Session) -> Option<(&'a Process, &'a OnDevice)> {
        let probed = session.probed(self.listed(session));
        probed.get(self.row).or(probed.first()).copied()
    }

    fn is_on_probed(&self, session: &Session) -> bool {
        self.row < session.probed(self.listed(session)).len()
    }

    /// The process after or before the selected one, on whichever device it is.
    fn neighbour(&mut self, after: bool, session: &Session) {
        let all = session.probed(None);
        let Some(here) = self.process(session) else { return };
        let is_here = |it: &(&Process, &OnDevice)| it.0.probe == here.0.probe && it.1.ordinal == here.1.ordinal;
        let Some(place) = all.iter().position(is_here) else { return };
        let there = if after { place + 1 } else { place.wrapping_sub(1) };
        let Some((process, on)) = all.get(there) else { return };
        self.device = Some(on.device.clone());
        let listed = session.probed(self.listed(session));
        let row = listed.iter().position(|it| it.0.probe == process.probe && it.1.ordinal == on.ordinal);
        self.row = row.unwrap_or(0);
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
        let chosen = self.device.as_ref().and_then(place);
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

    fn rows(&self, session: &Session) -> usize {
        self.devices_of_rows(session).len()
    }

    fn travel(&mut self, command: Command, session: &Session) {
        match self.screen {
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
        let here = match self.focus {
            Focus::Devices => self.selected(session),
            Focus::Processes => self.row,
        };
        let there = moved(command, here);
        match self.focus {
            Focus::Devices => self.select_device(there, session),
            Focus::Processes => {
                self.row = there.min(self.rows(session).saturating_sub(1));
                self.device_of_row(session);
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

    /// The first row of the selected device.
    fn row_of_device(&mut self, session: &Session) {
        let rows = self.devices_of_rows(session);
        let device = session.devices.get(self.selected(session)).map(|it| &it.id);
        self.row = rows.iter().position(|it| Some(*it) == device).unwrap_or(0);
    }

    /// The ladder follows the row where rows of several devices are listed.
    fn device_of_row(&mut self, session: &Session) {
        if let Some(device) = self.devices_of_rows(session).get(self.row) {
            self.device = Some((*device).clone());
        }
    }

    fn devices_of_rows<'a>(&self, session: &'a Session) -> Vec<&'a DeviceId> {
        let listed = self.listed(session);
        let probed = session.probed(listed).into_iter().map(|(_, it)| &it.device);
        probed.chain(session.unprobed(listed).into_iter().map(|(it, _)| &it.id)).collect()
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
