//! Commands of keys, the state that handles them, and requests to the outside.

pub use crate::facts::remote::{Signal, Start, Subject};
use crate::{
    facts::remote::Capture,
    model::{alerts, session::Session},
    screen::ui::{Focus, Scope, Screen, Ui},
    storage::replay,
};
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
    /// Move the selection or the cursor.
    Move(Motion),
    /// Focus the next box.
    NextBox,
    /// Focus the previous box.
    PreviousBox,
    /// Open the selected item, and from there the next level.
    Open,
    /// Change what the timeline shows.
    Chart(Chart),
    /// Freeze the view, or continue.
    Freeze,
    /// Select the device with this index, from 0.
    Device(u8),
    /// Type a filter for the processes.
    Filter,
    /// Edit the filter.
    Edit(Edit),
    /// Sort the processes by the next column.
    Order,
    /// Reverse the order.
    Invert,
    /// Redraw everything.
    Redraw,
    /// Copy the selected item.
    Copy,
    /// Limit what is expected to a script or a line, or no longer.
    Limit(Extent),
    /// Confirm.
    Yes,
    /// Switch to the next theme.
    Theme,
    /// Stop, and restore the terminal until the job continues.
    Suspend,
    /// Play, seek or step, in a replay.
    Replay(replay::Command),
    /// A command that only the view of a memory snapshot has.
    Snapshot(SnapshotCommand),
    /// A command that only the screen of many machines has.
    Cluster(ClusterCommand),
    /// A command that only the view of one host has.
    Host(HostCommand),
}

/// A command that only the view of one host has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HostCommand {
    /// Show the run of the selected process, or return.
    Timeline,
    /// Show the alerts, or return.
    Alerts,
    /// List the processes of all devices, or only of the selected one.
    All,
    /// Show the next preset of the overview.
    Preset,
    /// List the processes as a tree, or as rows.
    Tree,
    /// Select the next row that matches, on any device.
    NextMatch,
    /// Select the previous one.
    PreviousMatch,
    /// List the processes that have ended no longer.
    Clear,
    /// Read the devices less often.
    Slower,
    /// Read them more often.
    Faster,
    /// Send a signal to the selected process.
    Signal,
    /// Start the probe in the selected process.
    Attach,
    /// Trace some steps of the selected job, and replay them under other allocator settings.
    Whatif,
    /// Trace a step of the selected job, for what is live at its highest moment.
    Peak,
    /// Request a capture from the selected job.
    Sites,
    /// Explain the cause of the selected alert.
    Explain,
    /// Expect the selected alert from now on, or no longer.
    Allow,
}

/// A move of the selection or of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Motion {
    /// To the row above.
    Up,
    /// To the row below.
    Down,
    /// To the previous device; on the screens of a process, to the previous process or the position before the cursor.
    Left,
    /// To the next device; on the screens of a process, to the next process or position.
    Right,
    /// To the first row.
    First,
    /// To the last row.
    Last,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
}

/// A change of what the timeline or a snapshot's trace shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Chart {
    /// Count in steps, or in time.
    Axis,
    /// Scale to the whole device, or to the range of the values.
    Scale,
    /// Zoom in; on a snapshot's other screens, enlarge the request.
    Plus,
    /// Zoom out; on a snapshot's other screens, shrink the request.
    Minus,
    /// Show the whole run.
    Reset,
}

/// A change of the filter's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Edit {
    /// Add a character.
    Type(char),
    /// Delete the last character; in an empty filter, stop typing.
    Erase,
    /// Delete all characters.
    EraseAll,
}

/// What a command does with the selected alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AlertAction {
    /// Explain its cause.
    Explain,
    /// Ask whether to expect it from now on, or no longer.
    Allow,
    /// Copy its line.
    Copy,
    /// Open its process.
    ShowProcess,
    /// Open the run of its process.
    ShowRun,
}

/// The meaning of a command for an open menu, an open question, or a filter that the user types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Select the item above.
    Up,
    /// Select the item below.
    Down,
    /// Accept the selected item or the text.
    Accept,
    /// Cancel.
    Cancel,
    /// Confirm.
    Yes,
    /// Limit to a script or a line, or no longer.
    Limit(Extent),
    /// Edit the text.
    Edit(Edit),
    /// Any other command.
    Other,
}

/// What has the keys instead of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenDialog {
    /// The menu of signals.
    Signal,
    /// The question whether to expect an alert.
    Allow,
    /// The question whether to start a probe or a trace.
    Start,
    /// The filter that the user types.
    Filter,
}

impl Command {
    /// Returns whether the command is about what is selected. It then stays selected, also where gpuwatch selected it
    /// because it needs attention, so that the command does not act on something else.
    fn concerns_selection(self) -> bool {
        !matches!(
            self,
            Self::Quit
                | Self::Suspend
                | Self::Help
                | Self::Back
                | Self::Freeze
                | Self::Theme
                | Self::Redraw
                | Self::Replay(_)
                | Self::Host(HostCommand::Alerts | HostCommand::Slower | HostCommand::Faster)
        )
    }

    /// Returns the meaning of the command for an open menu, an open question, or a filter that the user types.
    pub(super) fn answer(self) -> Answer {
        match self {
            Self::Move(Motion::Up) => Answer::Up,
            Self::Move(Motion::Down) => Answer::Down,
            Self::Open => Answer::Accept,
            Self::Back => Answer::Cancel,
            Self::Yes => Answer::Yes,
            Self::Limit(it) => Answer::Limit(it),
            Self::Edit(it) => Answer::Edit(it),
            Self::Move(
                Motion::Left | Motion::Right | Motion::First | Motion::Last | Motion::PageUp | Motion::PageDown,
            )
            | Self::Quit
            | Self::Help
            | Self::NextBox
            | Self::PreviousBox
            | Self::Chart(_)
            | Self::Freeze
            | Self::Device(_)
            | Self::Filter
            | Self::Order
            | Self::Invert
            | Self::Redraw
            | Self::Copy
            | Self::Theme
            | Self::Suspend
            | Self::Replay(_)
            | Self::Host(_)
            | Self::Snapshot(_)
            | Self::Cluster(_) => Answer::Other,
        }
    }
}

impl Ui {
    /// Returns the dialog that has the keys: the one place for their precedence.
    pub fn open_dialog(&self) -> Option<OpenDialog> {
        if self.dialog.is_some() {
            Some(OpenDialog::Signal)
        } else if self.allowing.is_some() {
            Some(OpenDialog::Allow)
        } else if self.starting.is_some() {
            Some(OpenDialog::Start)
        } else {
            self.filter.typing.then_some(OpenDialog::Filter)
        }
    }

    /// Handles a command.
    pub fn update(&mut self, command: Command, session: &Session) {
        self.status = None;
        if command.concerns_selection() {
            self.keep_selection();
        }
        match (command, self.open_dialog()) {
            (Command::Quit, _) => self.quit = true,
            (Command::Suspend, _) => self.request = Some(Request::Suspend),
            (_, Some(OpenDialog::Signal)) => self.choose(command.answer()),
            (_, Some(OpenDialog::Allow)) => self.confirm_allow(command.answer()),
            (_, Some(OpenDialog::Start)) => self.confirm_start(command.answer()),
            (_, Some(OpenDialog::Filter)) => self.type_filter(command.answer(), session),
            (_, None) => self.update_screen(command, session),
        }
    }

    /// Handles a command while no dialog is open.
    fn update_screen(&mut self, command: Command, session: &Session) {
        match command {
            Command::Host(it) => self.update_host(it, session),
            Command::Open if self.is_among_alerts() => self.with_alert(AlertAction::ShowProcess, session),
            Command::Open => self.open_next(session),
            Command::Copy if self.is_among_alerts() => self.with_alert(AlertAction::Copy, session),
            Command::Copy => self.copy(session),
            Command::Help => (self.help, self.explained, self.help_scroll) = (!self.help, None, 0),
            Command::Back => self.back(session),
            Command::Freeze => self.frozen = !self.frozen,
            Command::Chart(it) => self.change_chart(it, session),
            Command::NextBox | Command::PreviousBox => self.next_box(command == Command::NextBox, session),
            Command::Device(place) => self.select_device(usize::from(place), session),
            Command::Move(it) => self.travel(it, session),
            Command::Filter => self.begin_filter(),
            Command::Order => self.order_by_next(),
            Command::Invert => self.invert_order(),
            Command::Redraw => self.request = Some(Request::Redraw),
            Command::Theme => self.request = Some(Request::Theme),
            Command::Replay(it) => self.request = Some(Request::Replay(it)),
            // `update` has handled the first two. The others need a dialog, a snapshot, or many hosts.
            Command::Quit
            | Command::Suspend
            | Command::Edit(_)
            | Command::Yes
            | Command::Limit(_)
            | Command::Snapshot(_)
            | Command::Cluster(_) => {}
        }
    }

    fn update_host(&mut self, command: HostCommand, session: &Session) {
        match command {
            HostCommand::Explain => self.explain(session),
            HostCommand::Allow => self.with_alert(AlertAction::Allow, session),
            HostCommand::Timeline if self.is_among_alerts() => self.with_alert(AlertAction::ShowRun, session),
            HostCommand::Timeline if self.screen == Screen::Timeline => self.close(),
            HostCommand::Timeline => self.open(Screen::Timeline),
            HostCommand::Alerts if self.screen == Screen::Alerts => self.close(),
            HostCommand::Alerts => self.open(Screen::Alerts),
            HostCommand::All => {
                // The list is the overview's.
                let is_hidden = self.screen != Screen::Overview;
                while self.screen != Screen::Overview {
                    self.close();
                }
                self.focus = Focus::Processes;
                self.scope = match self.scope {
                    Scope::All if !is_hidden => Scope::Selected,
                    _ => Scope::All,
                };
                self.row_of_device(session);
            }
            HostCommand::Preset => self.next_preset(session),
            HostCommand::Tree => self.turn_tree(session),
            HostCommand::NextMatch => self.next_match(true, session),
            HostCommand::PreviousMatch => self.next_match(false, session),
            HostCommand::Clear => self.clear(session),
            HostCommand::Slower => self.pace(true),
            HostCommand::Faster => self.pace(false),
            HostCommand::Signal => self.ask_signal(session),
            HostCommand::Attach => self.ask_start(Start::Probe, session),
            HostCommand::Whatif => self.ask_start(Start::Trace, session),
            HostCommand::Peak => self.ask_start(Start::Peak, session),
            HostCommand::Sites => self.ask_sites(session),
        }
    }
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
    Ask(Capture),
    /// Determine the change that expects these alerts, or no longer, and ask the user.
    AskAllow(Expecting),
    /// Write the change.
    Allow,
    /// Identify the process, and open the menu of signals for it.
    Hold(Subject),
    /// Send a signal to the held process.
    Send(Signal),
    /// Identify the process, and ask whether to start this at it.
    AskStart(Start, Subject),
    /// Start it at the held process.
    Start(Start),
    /// Return to the screen of many machines.
    Leave,
    /// Play, seek or step.
    Replay(replay::Command),
}

/// A command that only the screen of many machines has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClusterCommand {
    /// Compare ranks by the next figure.
    NextFigure,
    /// Compare ranks by the figure before.
    PreviousFigure,
    /// Show the ranks as a map, or the machines as rows.
    Map,
}

/// The screens of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Page {
    /// Devices, the ladder, streams and pools, the largest stacks.
    #[default]
    Overview,
    /// The segments, and whether a request would fit.
    Segments,
    /// Blocks by call stack, as a tree.
    Stacks,
    /// The same as boxes.
    Flame,
    /// Memory over the events of the trace.
    Trace,
}

impl Page {
    /// In the order of their tabs, with their names.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Overview, "overview"),
        (Self::Segments, "map"),
        (Self::Stacks, "blocks"),
        (Self::Flame, "flame graph"),
        (Self::Trace, "trace"),
    ];
}

/// A command that only the view of a memory snapshot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SnapshotCommand {
    /// Show a screen.
    Show(Page),
    /// Open the selected call, or close it.
    Toggle,
    /// Show the peak of the trace.
    Peak,
    /// The event before the cursor.
    PreviousEvent,
    /// The event after it.
    NextEvent,
    /// The failed request before the cursor.
    PreviousFailure,
    /// The failed request after it.
    NextFailure,
}

/// What an expected alert is limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// Jobs of its script.
    Script,
    /// Its line.
    Line,
}

/// Which alerts to expect from now on, or no longer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expecting {
    /// Their name.
    pub name: String,
    /// The script of the selected one, if known.
    pub script: Option<String>,
    /// Its line, if known.
    pub line: Option<String>,
    /// What it is limited to.
    pub only: Option<Extent>,
    /// The names that are expected no longer; then none is added.
    pub removed: Vec<String>,
}

impl Expecting {
    /// Returns the name to add to the list.
    pub fn added(&self) -> String {
        self.only.and_then(|it| self.limit(it)).map_or_else(|| self.name.clone(), |it| alerts::limited(&self.name, it))
    }

    /// Returns the script or the line.
    pub fn limit(&self, extent: Extent) -> Option<&str> {
        match extent {
            Extent::Script => self.script.as_deref(),
            Extent::Line => self.line.as_deref(),
        }
    }

    /// Limits it, or no longer; `None` where it cannot be limited so.
    pub(super) fn limited(self, extent: Extent) -> Option<Self> {
        self.limit(extent).filter(|_| self.removed.is_empty())?;
        let only = Some(extent).filter(|it| self.only != Some(*it));
        Some(Self { only, ..self })
    }
}
