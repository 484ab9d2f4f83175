//! How the terminal writes: colours and weight, and the shortest order from one pen to another.

use ratatui::{
    buffer::Cell,
    style::{Color, Modifier},
};
use std::io::Write;

/// What the terminal writes with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pen {
    fg: Color,
    pub(super) bg: Color,
    modifier: Modifier,
}

/// A modifier, the order for it, and the one against it.
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

/// What is seen where nothing is written.
const MARKS: Modifier =
    Modifier::REVERSED.union(Modifier::UNDERLINED).union(Modifier::CROSSED_OUT).union(Modifier::HIDDEN);

impl Pen {
    /// The pen that writes a cell.
    pub(super) fn of(cell: &Cell) -> Self {
        Self { fg: cell.fg, bg: cell.bg, modifier: cell.modifier }
    }

    /// A pen for blanks on a background.
    pub(super) fn blank(bg: Color) -> Self {
        Self { bg, ..Self::default() }
    }

    /// Whether its blanks can be told from others on the same background.
    pub(super) fn marks_blanks(self) -> bool {
        self.modifier.intersects(MARKS)
    }

    /// Whether its blanks are as those of any pen on this background: their colour and weight nobody sees.
    pub(super) fn leaves_blanks_on(self, bg: Color) -> bool {
        self.bg == bg && !self.marks_blanks()
    }

    /// Says the shortest order that makes it another pen.
    pub(super) fn become_pen(&mut self, wanted: Self, out: &mut Vec<u8>) {
        if *self == wanted {
            return;
        }
        let (change, anew) = (Self::orders(*self, wanted), Self::orders(Self::default(), wanted));
        // From the terminal's own pen on (an empty parameter), where that is shorter.
        let anew = if anew.is_empty() { anew } else { format!(";{anew}") };
        let shorter = if change.len() <= anew.len() { change } else { anew };
        // A vector takes everything.
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
                // One order ends two of them.
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

/// The order for a colour; `place` is 30 for what is written and 40 for what is behind it.
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
