//! What keys ask for, who does it, and what of that is asked of the world outside the picture.

use super::{Focus, Scope, Screen, Ui};
use crate::{facts::event::Ask, model::session::Session, storage::replay};
use std::time::Duration;

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
    /// Type what is looked for among the processes.
    Filter,
    /// A letter of it.
    Type(char),
    /// One letter less.
    Erase,
    /// None of it.
    EraseAll,
    /// The next row that matches, on any device.
    NextMatch,
    /// The one before.
    PreviousMatch,
    /// Order the processes by the next column.
    Order,
    /// The other end first.
    Invert,
    /// Read the devices less often.
    Slower,
    /// Read them more often.
    Faster,
    /// Draw everything again.
    Redraw,
    /// Copy what is selected.
    Copy,
    /// Send the selected process a signal.
    Signal,
    /// Ask the selected job which lines allocate what grows.
    Sites,
    /// Explain the cause of the selected alert.
    Explain,
    /// Expect the selected alert from now on.
    Allow,
    /// Yes, do it.
    Yes,
    /// The next theme.
    Theme,
    /// Stop, and give the terminal back until the job goes on.
    Suspend,
    /// Play, seek, step: where recordings are played.
    Replay(replay::Command),
}

impl Ui {
    /// Takes a command.
    pub fn update(&mut self, command: Command, session: &Session) {
        self.status = None;
        self.settle(command);
        match command {
            Command::Quit => self.quit = true,
            Command::Suspend => self.request = Some(Request::Suspend),
            command if self.dialog.is_some() => self.choose(command),
            command if self.allowing.is_some() => self.answer(command),
            command if self.filter.typing => self.type_filter(command, session),
            command if self.with_alert(command, session) => {}
            Command::Help => (self.help, self.explained, self.help_scroll) = (!self.help, None, 0),
            Command::Back => self.back(session),
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
            Command::NextBox | Command::PreviousBox => self.next_box(command == Command::NextBox, session),
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
            Command::Filter => self.begin_filter(),
            Command::NextMatch | Command::PreviousMatch => self.next_match(command == Command::NextMatch, session),
            Command::Order => self.order_by_next(),
            Command::Invert => self.invert_order(),
            Command::Slower | Command::Faster => self.pace(command == Command::Slower),
            Command::Redraw => self.request = Some(Request::Redraw),
            Command::Theme => self.request = Some(Request::Theme),
            Command::Copy => self.copy(session),
            Command::Signal => self.ask_signal(session),
            Command::Sites => self.ask_sites(session),
            Command::Replay(it) => self.request = Some(Request::Replay(it)),
            // Letters and answers, where nothing is asked; and those for the selected alert, which took them before.
            Command::Type(_)
            | Command::Erase
            | Command::EraseAll
            | Command::Yes
            | Command::Explain
            | Command::Allow => {}
        }
    }
}

/// A signal that the menu offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// To end in good order.
    Term,
    /// As Ctrl-C does.
    Int,
    /// To end at once, whatever it does.
    Kill,
    /// To stand still.
    Stop,
    /// To go on.
    Cont,
    /// What the job made of it.
    Usr1,
}

impl Signal {
    /// The menu, top to bottom: its name, and what it does.
    pub const MENU: [(Self, &'static str, &'static str); 6] = [
        (Self::Term, "TERM", "asks it to exit"),
        (Self::Int, "INT", "interrupts it, as Ctrl-C does"),
        (Self::Kill, "KILL", "kills it; nothing is saved"),
        (Self::Stop, "STOP", "suspends it; its memory stays allocated"),
        (Self::Cont, "CONT", "resumes it"),
        (Self::Usr1, "USR1", "runs the job's handler, or ends it"),
    ];
}

/// Which process a signal is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its number.
    pub pid: u32,
    /// Its start in the kernel's clock ticks since boot, where it is known.
    pub start_ticks: Option<u64>,
    /// Whether the kernel vouched for the number; the driver's is the host's, whatever it is here.
    pub vouched: bool,
}

/// What a command asks of the world outside the picture; whoever runs the loop does it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Draw everything again, whatever the terminal shows.
    Redraw,
    /// Put a text into the clipboard.
    Copy(String),
    /// Give the terminal back until the job goes on.
    Suspend,
    /// Take the next theme.
    Theme,
    /// Read the devices at this pace.
    Interval(Duration),
    /// Ask a probe.
    Ask(Ask),
    /// Find out what has to be written for this alert to be expected, and ask whether to.
    AskAllow(String),
    /// Write it.
    Allow,
    /// Make sure which process it is, and open the menu of signals for it.
    Hold(Subject),
    /// Send the process that is held a signal; its name.
    Send(Signal, &'static str),
    /// Play, seek, step.
    Replay(replay::Command),
}
