//! Writes a frame's changes to the terminal: the fewest bytes, in one write, and nothing if nothing changed.
//!
//! It takes the changed cells. The writer remembers the terminal's pen and cursor between frames, so it does not
//! send what the terminal already has; a blank needs no foreground colour.

use ratatui::{
    buffer::Cell,
    layout::Position,
    style::{Color, Modifier},
};
use std::io::{self, Write};

/// Between these the terminal does not refresh, so that no partial frame is visible (DEC private mode 2026).
const BEGIN: &[u8] = b"\x1b[?2026h";
const END: &[u8] = b"\x1b[?2026l";

/// From this many blanks on, erasing is shorter than writing.
const ERASED: u16 = 9;

/// Writes to the terminal.
pub(super) struct Writer<W> {
    to: W,
    /// The bytes of the frame, until it is complete.
    pending: Vec<u8>,
    pen: Pen,
    /// The cursor's position; `None` if only the terminal knows. After the last column it is undefined in a way that
    /// differs between terminals, so from there it only moves to a position or to the row's beginning, which is the
    /// same on all.
    at: Option<Position>,
    /// The last column that was written: up to here the cursor is not after the last column.
    right: u16,
}

/// Neighbouring cells in a row with one pen.
struct Run {
    from: Position,
    pen: Pen,
    text: String,
    /// Its width in columns, if known.
    columns: Option<u16>,
    /// Blanks pending at its end.
    blanks: u16,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, pending: Vec::new(), pen: Pen::PLAIN, at: None, right: 0 }
    }

    /// Sends the caller's sequences at once. They must not change pen or cursor.
    pub(super) fn send(&mut self, orders: &str) -> io::Result<()> {
        self.to.write_all(orders.as_bytes())?;
        self.to.flush()
    }

    /// Takes the cells that changed, from left to right and from top to bottom.
    pub(super) fn draw<'a>(&mut self, cells: impl Iterator<Item = (u16, u16, &'a Cell)>) {
        let mut runs = runs(cells, self.pen);
        // Writes pen by pen, the current one first: changing it costs more than moving the cursor, and nothing is
        // visible before all is written.
        let mut pens = vec![self.pen];
        for run in &runs {
            if !pens.contains(&run.pen) {
                pens.push(run.pen);
            }
        }
        runs.sort_by_key(|run| pens.iter().position(|it| *it == run.pen));
        let last = runs.iter().map(|it| it.end().map_or(it.from.x, |end| end.x.saturating_sub(1)));
        self.right = last.fold(self.right, u16::max);
        for run in &runs {
            self.run(run);
        }
    }

    /// Clears the terminal, whose size may have changed.
    pub(super) fn clear(&mut self) {
        self.pen.become_pen(Pen::PLAIN, &mut self.pending);
        self.pending.extend_from_slice(b"\x1b[2J");
        // A resized terminal may have moved the cursor, and may have fewer columns.
        (self.at, self.right) = (None, 0);
    }

    /// Sends the frame, if anything changed.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.pending.is_empty() {
            self.pending.extend_from_slice(END);
            let all = [BEGIN, &self.pending].concat();
            self.pending.clear();
            self.to.write_all(&all)?;
        }
        self.to.flush()
    }

    fn append(&mut self, words: std::fmt::Arguments) {
        // Writing to a vector cannot fail.
        let _ = self.pending.write_fmt(words);
    }

    /// Moves the cursor by the shortest sequence.
    fn go(&mut self, to: Position) {
        if self.at == Some(to) {
            return;
        }
        let place = match (to.x, to.y) {
            (0, 0) => "\x1b[H".to_owned(),
            (0, y) => format!("\x1b[{}H", y + 1),
            (x, y) => format!("\x1b[{};{}H", y + 1, x + 1),
        };
        let path = self.at.and_then(|at| self.path(at, to)).filter(|it| it.len() <= place.len());
        self.pending.extend_from_slice(path.unwrap_or(place).as_bytes());
        self.at = Some(to);
    }

    /// Returns the relative path from one position to another, if it is the same on all terminals: across, then down or
    /// up.
    fn path(&self, at: Position, to: Position) -> Option<String> {
        let across = if to.x == 0 && at.x > 0 {
            "\r".to_owned()
        } else if at.x > self.right {
            return None;
        } else if to.x < at.x {
            shorter('\x08', at.x - to.x, 'D')
        } else {
            steps(to.x - at.x, 'C')
        };
        // The rows below exist, so nothing scrolls.
        let along = if to.y < at.y { steps(at.y - to.y, 'A') } else { shorter('\n', to.y - at.y, 'B') };
        Some(across + &along)
    }

    fn run(&mut self, run: &Run) {
        self.go(run.from);
        self.pen.become_pen(run.pen, &mut self.pending);
        self.pending.extend_from_slice(run.text.as_bytes());
        self.advance(run.columns);
        // Erased cells get the terminal's default background on all terminals.
        if run.blanks >= ERASED && run.pen.bg == Color::Reset {
            self.append(format_args!("\x1b[{}X", run.blanks));
        } else {
            self.pending.resize(self.pending.len() + usize::from(run.blanks), b' ');
            self.advance(Some(run.blanks));
        }
    }

    fn advance(&mut self, by: Option<u16>) {
        self.at = self.at.zip(by).map(|(at, by)| Position { x: at.x.saturating_add(by), ..at });
    }
}

/// Returns the sequence to move this many cells in a direction.
fn steps(count: u16, direction: char) -> String {
    match count {
        0 => String::new(),
        1 => format!("\x1b[{direction}"),
        _ => format!("\x1b[{count}{direction}"),
    }
}

/// Returns the same with a character that moves one cell, if that is no longer.
fn shorter(step: char, count: u16, direction: char) -> String {
    let order = steps(count, direction);
    if usize::from(count) <= order.len() { step.to_string().repeat(count.into()) } else { order }
}

/// Splits cells into runs, from left to right and from top to bottom.
fn runs<'a>(cells: impl Iterator<Item = (u16, u16, &'a Cell)>, pen: Pen) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (x, y, cell) in cells {
        let here = Position { x, y };
        let wanted = Pen::of(cell);
        let is_blank = cell.symbol() == " " && !wanted.marks_blanks();
        let last = runs.last_mut().filter(|it| it.end() == Some(here));
        match last {
            Some(run) if is_blank && run.pen.leaves_blanks_on(cell.bg) => run.blanks += 1,
            Some(run) if !is_blank && run.pen == wanted && run.blanks < ERASED => run.write(cell.symbol()),
            _ => {
                let plain = if pen.leaves_blanks_on(cell.bg) { pen } else { Pen::blank(cell.bg) };
                let pen = if is_blank { plain } else { wanted };
                let mut run = Run { from: here, pen, text: String::new(), columns: Some(0), blanks: 0 };
                if is_blank {
                    run.blanks = 1;
                } else {
                    run.write(cell.symbol());
                }
                runs.push(run);
            }
        }
    }
    runs
}

impl Run {
    fn end(&self) -> Option<Position> {
        Some(Position { x: self.from.x.saturating_add(self.columns?).saturating_add(self.blanks), ..self.from })
    }

    fn write(&mut self, symbol: &str) {
        self.text.extend(std::iter::repeat_n(' ', usize::from(self.blanks)));
        self.text.push_str(symbol);
        self.columns = self.columns.zip(width(symbol)).map(|(all, it)| all.saturating_add(self.blanks + it));
        self.blanks = 0;
    }
}

/// Returns the columns of a symbol, if all terminals agree.
pub(super) fn width(symbol: &str) -> Option<u16> {
    let mut chars = symbol.chars();
    let (Some(char), None) = (chars.next(), chars.next()) else { return None };
    let is_narrow = matches!(char, ' '..='~' | '\u{a0}'..='\u{2ff}' | '\u{2010}'..='\u{2027}' | '\u{2190}'..='\u{22ff}')
        || matches!(char, '\u{2500}'..='\u{25f7}' | '\u{2800}'..='\u{28ff}');
    is_narrow.then_some(1)
}

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

#[cfg(test)]
mod tests;
