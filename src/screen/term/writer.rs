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
mod tests {
    //! Frames as a terminal receives them, and their size.

    use super::*;
    use crate::screen::term::shown::Picture;
    use proptest::prelude::*;
    use ratatui::{
        backend::{Backend, CrosstermBackend},
        buffer::Buffer,
        layout::Rect,
        style::{Modifier, Style},
    };
    use std::num::NonZeroU16;

    const AREA: Rect = Rect { x: 0, y: 0, width: 24, height: 5 };

    /// The bytes sent to show a frame.
    fn sent(writer: &mut Writer<Vec<u8>>, shown: &mut Picture, frame: &Buffer) -> Vec<u8> {
        writer.draw(shown.news(frame));
        writer.flush().unwrap();
        std::mem::take(&mut writer.to)
    }

    /// What a terminal shows after a frame.
    fn shows(frame: &Buffer) -> Picture {
        let mut shown = Picture::blank(frame.area);
        shown.news(frame).for_each(drop);
        shown
    }

    fn terminal() -> vt100::Parser {
        let [rows, columns] = [AREA.height, AREA.width].map(|it| NonZeroU16::new(it).unwrap());
        vt100::Parser::new(rows, columns, 0)
    }

    fn assert_shows(terminal: &vt100::Parser, picture: &Buffer) {
        let colour = |it| match it {
            Color::Reset => vt100::Color::Default,
            Color::Red => vt100::Color::Idx(1),
            Color::White => vt100::Color::Idx(15),
            Color::Indexed(number) => vt100::Color::Idx(number),
            Color::Rgb(red, green, blue) => vt100::Color::Rgb(red, green, blue),
            other => panic!("{other:?}"),
        };
        let is_wide = |x: u16, y: u16| picture[(x, y)].symbol() == "日";
        let mut covered = None;
        for (x, y) in (0..AREA.height).flat_map(|y| (0..AREA.width).map(move |x| (x, y))) {
            if covered == Some((x, y)) {
                continue;
            }
            covered = is_wide(x, y).then_some((x + 1, y));
            let (wanted, shown) = (&picture[(x, y)], terminal.screen().cell(y, x).unwrap());
            // Cells that were never written are blank.
            let text = if shown.contents().is_empty() { " " } else { shown.contents() };
            let is_plain =
                wanted.symbol() == " " && !wanted.modifier.intersects(Modifier::REVERSED | Modifier::UNDERLINED);
            assert_eq!((text, shown.bgcolor()), (wanted.symbol(), colour(wanted.bg)), "{x} {y}");
            assert!(is_plain || shown.fgcolor() == colour(wanted.fg), "{x} {y}");
            let has = |it| wanted.modifier.contains(it);
            assert!(
                is_plain || (shown.bold(), shown.italic()) == (has(Modifier::BOLD), has(Modifier::ITALIC)),
                "{x} {y}"
            );
            assert_eq!(shown.inverse(), has(Modifier::REVERSED), "{x} {y}");
            assert_eq!(shown.underline(), has(Modifier::UNDERLINED), "{x} {y}");
        }
    }

    fn style() -> impl Strategy<Value = Style> {
        let colours = [Color::Reset, Color::Red, Color::White, Color::Indexed(99), Color::Rgb(1, 200, 3)];
        let colour = || prop::sample::select(colours.to_vec());
        let marks = [Modifier::BOLD, Modifier::ITALIC, Modifier::REVERSED, Modifier::UNDERLINED];
        let modifier = prop::collection::vec(prop::sample::select(marks.to_vec()), 0..3);
        (colour(), colour(), modifier).prop_map(|(fg, bg, modifier)| {
            Style::new().fg(fg).bg(bg).add_modifier(modifier.into_iter().fold(Modifier::empty(), |all, it| all | it))
        })
    }

    /// Some runs of text, written over one another.
    fn picture() -> impl Strategy<Value = Buffer> {
        let words =
            prop::sample::select(vec!["              ", "full 42 %", "█▓▒░", "⣀⠤ ", "x", " ", "–é°", "日", "日日 "]);
        let stretch = (0..AREA.width, 0..AREA.height, words, style());
        prop::collection::vec(stretch, 0..24).prop_map(|stretches| {
            let mut picture = Buffer::empty(AREA);
            for (x, y, words, style) in stretches {
                picture.set_string(x, y, words, style);
            }
            picture
        })
    }

    proptest! {
        #[test]
        fn the_terminal_shows_every_picture_as_it_was_drawn(pictures in prop::collection::vec(picture(), 1..6)) {
            let (mut writer, mut terminal) = (Writer::new(Vec::new()), terminal());
            let mut shown = Picture::blank(AREA);
            for picture in pictures {
                terminal.process(&sent(&mut writer, &mut shown, &picture));
                assert_shows(&terminal, &picture);
            }
        }
    }

    #[test]
    fn a_frame_is_as_short_as_possible_and_empty_without_changes() {
        let mut writer = Writer::new(Vec::new());
        let blue = Style::new().fg(Color::Rgb(1, 2, 3));
        let mut pictures = vec![Buffer::empty(AREA)];
        for (x, y, words, style) in [
            (0, 0, "used=1.25", blue),
            (5, 0, "2.37", blue),
            (0, 1, "7", blue.add_modifier(Modifier::BOLD)),
            (3, 2, "8", blue),
            (3, 4, "9", blue),
            (6, 1, "5", blue),
            (0, 0, "                    ", Style::new()),
        ] {
            let mut next = pictures.last().unwrap().clone();
            next.set_string(x, y, words, style);
            pictures.push(next);
        }
        let mut bytes = |before: usize, after: usize| {
            let bytes = String::from_utf8(sent(&mut writer, &mut shows(&pictures[before]), &pictures[after])).unwrap();
            bytes.replace('\u{1b}', "E")
        };
        assert_eq!(bytes(0, 1), "E[?2026hE[HE[38;2;1;2;3mused=1.25E[?2026l");
        assert_eq!(bytes(1, 1), "");
        assert_eq!(bytes(1, 2), "E[?2026hE[1;6H2E[C37E[?2026l");
        assert_eq!(bytes(2, 3), "E[?2026h\r\nE[1m7E[?2026l");
        assert_eq!(bytes(3, 4), "E[?2026hE[2C\nE[22m8E[?2026l");
        assert_eq!(bytes(4, 5), "E[?2026h\u{8}\n\n9E[?2026l");
        assert_eq!(bytes(5, 6), "E[?2026hE[2;7H5E[?2026l");
        assert_eq!(bytes(6, 7), "E[?2026hE[HE[9XE[?2026l");
    }

    /// A second on a screen of eight devices: their figures and gauges, each in its own colours.
    fn devices(second: u16) -> Buffer {
        let mut picture = Buffer::empty(Rect::new(0, 0, 120, 30));
        for device in 0..8 {
            let used = 40 + (second * (device + 1)) % 37;
            let level = Style::new().fg(Color::Rgb(40, 120 + u8::try_from(device).unwrap(), 200));
            let name = Style::new().fg(Color::Rgb(200, 200, 200)).add_modifier(Modifier::BOLD);
            picture.set_string(0, 3 * device, format!("{device} NVIDIA H200"), name);
            picture.set_string(20, 3 * device, format!("{used}.{} GiB of 140 GiB", second % 10), level);
            picture.set_string(50, 3 * device, "█".repeat(usize::from(used / 2)), level);
            picture.set_string(90, 3 * device, format!("{} %", (used * 7) % 100), level.fg(Color::Rgb(220, 160, 0)));
        }
        picture
    }

    /// The purpose of this file. It counts bytes of fixed frames, so that the result is the same on every machine.
    #[test]
    fn pictures_take_a_third_less_than_with_ratatuis_own_backend() {
        let pictures: Vec<Buffer> = (0..60).map(devices).collect();
        let (mut writer, mut own, mut theirs) = (Writer::new(Vec::new()), 0, Vec::new());
        let mut backend = CrosstermBackend::new(&mut theirs);
        for pair in pictures.windows(2) {
            own += sent(&mut writer, &mut shows(&pair[0]), &pair[1]).len();
            backend.draw(pair[0].diff(&pair[1]).into_iter()).unwrap();
            Backend::flush(&mut backend).unwrap();
        }
        assert!(3 * own <= 2 * theirs.len(), "{own} bytes, and {} with ratatui's", theirs.len());
    }
}
