//! Colours and attributes of the terminal, and the shortest escape sequence from one state to another.

use ratatui::{
    buffer::Cell,
    style::{Color, Modifier},
};
use std::io::Write;

/// The terminal's current colours and attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pen {
    fg: Color,
    pub(super) bg: Color,
    modifier: Modifier,
}

/// A modifier, the code that sets it, and the code that resets it.
const MODIFIERS: [(Modifier, &str, &str); 9] = [
    (Modifier::BOLD, "1", "22"),
    (Modifier::DIM, "2", "22"),
    (Modifier::ITALIC, "3", "23"),
    (Modifier::UNDERLINED, "4", "24"),
    (Modifier::SLOW_BLINK, "5", "25"),
    (Modifier::RAPID_BLINK, "6", "25"),
    (Modifier::REVERSED, "7", "27"),
    (Modifier::HIDDEN, "8", "28"),
    (Modifier::CROSSED_OUT, "9", "29"),
];

/// Modifiers that are visible on blanks.
const MARKS: Modifier =
    Modifier::REVERSED.union(Modifier::UNDERLINED).union(Modifier::CROSSED_OUT).union(Modifier::HIDDEN);

impl Pen {
    /// The pen of a terminal that has just been reset.
    pub(super) const PLAIN: Self = Self { fg: Color::Reset, bg: Color::Reset, modifier: Modifier::empty() };

    /// Returns the pen of a cell.
    pub(super) fn of(cell: &Cell) -> Self {
        Self { fg: cell.fg, bg: cell.bg, modifier: cell.modifier }
    }

    /// Returns a pen for blanks on a background.
    pub(super) fn blank(bg: Color) -> Self {
        Self { bg, ..Self::PLAIN }
    }

    /// Returns whether its blanks look different from others on the same background.
    pub(super) fn marks_blanks(self) -> bool {
        self.modifier.intersects(MARKS)
    }

    /// Returns whether its blanks look like those of any pen on this background: foreground and weight are invisible
    /// there.
    pub(super) fn leaves_blanks_on(self, bg: Color) -> bool {
        self.bg == bg && !self.marks_blanks()
    }

    /// Appends the shortest sequence that changes it into another pen.
    pub(super) fn become_pen(&mut self, wanted: Self, out: &mut Vec<u8>) {
        if *self == wanted {
            return;
        }
        let (change, reset) = (Self::orders(*self, wanted), Self::orders(Self::PLAIN, wanted));
        // Starts from the terminal's default (an empty parameter) if that is shorter.
        let reset = if reset.is_empty() { reset } else { format!(";{reset}") };
        let shorter = if change.len() <= reset.len() { change } else { reset };
        // Writing to a vector cannot fail.
        let _ = write!(out, "\x1b[{shorter}m");
        *self = wanted;
    }

    fn orders(from: Self, to: Self) -> String {
        let mut all: Vec<String> = Vec::new();
        let lost = from.modifier - to.modifier;
        let mut kept = from.modifier & to.modifier;
        for (modifier, _, off) in MODIFIERS {
            if lost.contains(modifier) && !all.iter().any(|it| it == off) {
                all.push(off.to_owned());
                // One code resets two of them.
                kept -= MODIFIERS.iter().filter(|it| it.2 == off).fold(Modifier::empty(), |all, it| all | it.0);
            }
        }
        for (modifier, on, _) in MODIFIERS {
            if (to.modifier - kept).contains(modifier) {
                all.push(on.to_owned());
            }
        }
        for (from, to, place) in [(from.fg, to.fg, 30), (from.bg, to.bg, 40)] {
            if from != to {
                all.push(colour(to, place));
            }
        }
        all.join(";")
    }
}

/// Returns the code of a colour; `place` is 30 for the foreground and 40 for the background.
fn colour(colour: Color, place: u8) -> String {
    let of_sixteen = |number: u8| if number < 8 { place + number } else { place + 60 + number - 8 };
    let number = match colour {
        Color::Reset => return (place + 9).to_string(),
        Color::Rgb(red, green, blue) => return format!("{};2;{red};{green};{blue}", place + 8),
        Color::Indexed(number @ 16..) => return format!("{};5;{number}", place + 8),
        Color::Indexed(number) => number,
        Color::Black => 0,
        Color::Red => 1,
        Color::Green => 2,
        Color::Yellow => 3,
        Color::Blue => 4,
        Color::Magenta => 5,
        Color::Cyan => 6,
        Color::Gray => 7,
        Color::DarkGray => 8,
        Color::LightRed => 9,
        Color::LightGreen => 10,
        Color::LightYellow => 11,
        Color::LightBlue => 12,
        Color::LightMagenta => 13,
        Color::LightCyan => 14,
        Color::White => 15,
    };
    of_sixteen(number).to_string()
}
