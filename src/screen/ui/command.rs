//! What keys ask for, and what of that is asked of the world outside the picture.

use crate::facts::event::Ask;
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
}
