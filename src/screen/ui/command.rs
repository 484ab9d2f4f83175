//! Commands of keys, the state that handles them, and requests to the outside.

use super::{Focus, Scope, Screen, Ui, look::Look};
use crate::{facts::event::Ask, model::session::Session, storage::replay};
use std::time::Duration;

/// A command of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// End the program.
    Quit,
    /// Show or hide the help.
    Help,
    /// Close what was opened last.
    Back,
    /// Select the row above.
    Up,
    /// Select the row below.
    Down,
    /// Select the previous device; on the screens of a process, the previous process or the position before the cursor.
    Left,
    /// Select the next device; on the screens of a process, the next process or position.
    Right,
    /// Focus the next box.
    NextBox,
    /// Focus the previous box.
    PreviousBox,
    /// Select the first row.
    First,
    /// Select the last row.
    Last,
    /// Move a page up.
    PageUp,
    /// Move a page down.
    PageDown,
    /// Open the selected item, and from there the next level.
    Open,
    /// Show the run of the selected process, or return.
    Timeline,
    /// Count the timeline in steps, or in time.
    Axis,
    /// Scale the timeline to the whole device, or to its range.
    Scale,
    /// Increase: on the timeline, zoom in.
    Plus,
    /// Decrease: on the timeline, zoom out.
    Minus,
    /// Reset: on the timeline, show the whole run.
    Reset,
    /// Show the alerts, or return.
    Alerts,
    /// List the processes of all devices, or only of the selected one.
    All,
    /// Freeze the view, or continue.
    Freeze,
    /// Select the device with this index, from 0.
    Device(u8),
    /// Type a filter for the processes.
    Filter,
    /// Add a character to the filter.
    Type(char),
    /// Delete its last character.
    Erase,
    /// Clear it.
    EraseAll,
    /// Select the next row that matches, on any device.
    NextMatch,
    /// Select the previous one.
    PreviousMatch,
    /// Sort the processes by the next column.
    Order,
    /// Reverse the order.
    Invert,
    /// Read the devices less often.
    Slower,
    /// Read them more often.
    Faster,
    /// Redraw everything.
    Redraw,
    /// Copy the selected item.
    Copy,
    /// Send a signal to the selected process.
    Signal,
    /// Request a capture from the selected job.
    Sites,
    /// Explain the cause of the selected alert.
    Explain,
    /// Expect the selected alert from now on.
    Allow,
    /// Confirm.
    Yes,
    /// Switch to the next theme.
    Theme,
    /// Stop, and restore the terminal until the job continues.
    Suspend,
    /// Play, seek or step, in a replay.
    Replay(replay::Command),
    /// What only a snapshot has.
    Look(Look),
}

impl Ui {
    /// Handles a command.
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
            // Characters and answers without a question, and commands for the selected alert, which handled them
            // before.
            Command::Type(_)
            | Command::Look(_)
            | Command::Erase
            | Command::EraseAll
            | Command::Yes
            | Command::Explain
            | Command::Allow => {}
        }
    }
}

/// A signal in the menu.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ends it cleanly.
    Term,
    /// Like Ctrl-C.
    Int,
    /// Ends it at once.
    Kill,
    /// Suspends it.
    Stop,
    /// Resumes it.
    Cont,
    /// The job defines it.
    Usr1,
}

impl Signal {
    /// The menu, top to bottom: name and effect.
    pub const MENU: [(Self, &'static str, &'static str); 6] = [
        (Self::Term, "TERM", "asks it to exit"),
        (Self::Int, "INT", "interrupts it, as Ctrl-C does"),
        (Self::Kill, "KILL", "kills it; nothing is saved"),
        (Self::Stop, "STOP", "suspends it; its memory stays allocated"),
        (Self::Cont, "CONT", "resumes it"),
        (Self::Usr1, "USR1", "runs the job's handler, or ends it"),
    ];
}

/// The process that a signal is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its pid.
    pub pid: u32,
    /// Its start in the kernel's clock ticks since boot, if known.
    pub start_ticks: Option<u64>,
    /// Whether the kernel vouched for the pid; the driver reports the host's pid, which may differ here.
    pub vouched: bool,
}

/// A command's request to the outside, which the loop carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Redraw everything, whatever the terminal shows.
    Redraw,
    /// Copy a text to the clipboard.
    Copy(String),
    /// Restore the terminal until the job continues.
    Suspend,
    /// Switch to the next theme.
    Theme,
    /// Change the refresh rate of the devices.
    Interval(Duration),
    /// Send a request to a probe.
    Ask(Ask),
    /// Determine the change that allows this name, and ask the user.
    AskAllow(String),
    /// Write the change.
    Allow,
    /// Identify the process, and open the menu of signals for it.
    Hold(Subject),
    /// Send a signal, with its name, to the held process.
    Send(Signal, &'static str),
    /// Play, seek or step.
    Replay(replay::Command),
}
