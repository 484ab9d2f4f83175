//! Draws the screen as SVG, from the same cells that a terminal gets: for documents and bug reports.
//!
//! Text is drawn in runs of one style, each with the length of its cells, so that columns stay aligned in any font.
//! Signs that fonts may draw with gaps (blocks, shades, lines, braille) are drawn as rectangles.

use crate::screen::theme::{self, Theme};
use ratatui::{
    buffer::{Buffer, Cell},
    style::{Color, Modifier},
    text::Span,
};
use std::collections::BTreeMap;

/// The size of a cell and of its font: in most monospaced fonts, letters are 0.6 of it wide.
const WIDTH: u32 = 9;
const HEIGHT: u32 = 18;
const FONT: u32 = 15;

/// The baseline of letters in a cell, from above.
const BASELINE: u32 = 14;

/// The margin around the cells.
const MARGIN: u32 = 12;

/// The background for a theme without one.
const DARK: [u8; 3] = [0x1f, 0x23, 0x2b];
const ON_DARK: [u8; 3] = [0xd8, 0xde, 0xe9];
const ON_LIGHT: [u8; 3] = [0x2b, 0x30, 0x3b];

/// The style of a cell's letters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ink {
    fill: [u8; 3],
    bold: bool,
    underlined: bool,
    faint: bool,
}

/// The default colours.
struct Paper {
    ink: [u8; 3],
    ground: [u8; 3],
}

/// Draws a buffer with its theme; `about` is the description for screen readers.
pub fn svg(buffer: &Buffer, theme: &Theme, about: &str) -> String {
    let ground = theme.background.and_then(theme::rgb).unwrap_or(DARK);
    let is_light = ground.iter().map(|it| u32::from(*it)).sum::<u32>() > 3 * 128;
    let paper = Paper { ink: if is_light { ON_LIGHT } else { ON_DARK }, ground };
    let (columns, rows) = (u32::from(buffer.area.width), u32::from(buffer.area.height));
    let (width, height) = (columns * WIDTH + 2 * MARGIN, rows * HEIGHT + 2 * MARGIN);
    let about = escaped(about);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\" aria-label=\"{about}\">\n<title>{about}</title>\n<rect width=\"{width}\" height=\"{height}\" \
         rx=\"8\" fill=\"{}\"/>\n<g transform=\"translate({MARGIN} {MARGIN})\">\n",
        hex(ground)
    );
    let lines = || buffer.content.chunks(usize::from(buffer.area.width).max(1)).zip(0_u32..);
    let mut grounds = Paths::default();
    let mut shapes = Paths::default();
    for (cells, row) in lines() {
        for (cell, column) in cells.iter().zip(0_u32..) {
            if let Some(fill) = paper.ground(cell) {
                grounds.add((fill, 100), &Part::whole(), column, row);
            }
            for (part, percent) in parts(cell.symbol()) {
                shapes.add((paper.ink(cell).fill, percent), &part, column, row);
            }
        }
    }
    out += &grounds.written();
    out += "<g shape-rendering=\"crispEdges\">\n";
    out += &shapes.written();
    out += "</g>\n";
    let letters = format!(
        "<g font-family=\"ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,'Liberation Mono',monospace\" \
         font-size=\"{FONT}\" xml:space=\"preserve\">\n"
    );
    out += &letters;
    lines().for_each(|(cells, row)| out += &text(cells, row, &paper));
    out + "</g>\n</g>\n</svg>\n"
}

/// Draws a row's letters: a run for each style, split at gaps of two cells or more.
fn text(cells: &[Cell], row: u32, paper: &Paper) -> String {
    let mut runs: Vec<(Ink, u32, String)> = Vec::new();
    let mut end = 0;
    for (cell, column) in cells.iter().zip(0_u32..) {
        let symbol = cell.symbol();
        if symbol.trim().is_empty() || is_drawn(symbol) {
            continue;
        }
        let ink = paper.ink(cell);
        match runs.last_mut() {
            Some((last, _, run)) if *last == ink && column <= end + 1 => {
                if column > end {
                    run.push(' ');
                }
                run.push_str(symbol);
            }
            _ => runs.push((ink, column, symbol.to_owned())),
        }
        end = column + columns(symbol);
    }
    runs.iter().map(|(ink, column, run)| written(*ink, *column, row, run)).collect()
}

fn written(ink: Ink, column: u32, row: u32, run: &str) -> String {
    let attributes = [
        (ink.bold, " font-weight=\"bold\""),
        (ink.underlined, " text-decoration=\"underline\""),
        (ink.faint, " opacity=\".6\""),
    ];
    let attributes: String = attributes.iter().filter(|it| it.0).map(|it| it.1).collect();
    format!(
        "<text x=\"{}\" y=\"{}\" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{}\"{attributes}>{}</text>\n",
        column * WIDTH,
        row * HEIGHT + BASELINE,
        columns(run) * WIDTH,
        hex(ink.fill),
        escaped(run)
    )
}

fn columns(text: &str) -> u32 {
    u32::try_from(Span::raw(text).width()).unwrap_or(0)
}

impl Paper {
    fn ink(&self, cell: &Cell) -> Ink {
        let has = |it: Modifier| cell.modifier.contains(it);
        let (front, behind) = (theme::rgb(cell.fg).unwrap_or(self.ink), theme::rgb(cell.bg).unwrap_or(self.ground));
        let fill = if has(Modifier::REVERSED) { behind } else { front };
        Ink { fill, bold: has(Modifier::BOLD), underlined: has(Modifier::UNDERLINED), faint: has(Modifier::DIM) }
    }

    /// Returns the background of a cell, if it differs from the picture's.
    fn ground(&self, cell: &Cell) -> Option<[u8; 3]> {
        let is_reversed = cell.modifier.contains(Modifier::REVERSED);
        let (colour, else_) = if is_reversed { (cell.fg, Some(self.ink)) } else { (cell.bg, None) };
        if colour == Color::Reset { else_ } else { theme::rgb(colour) }
    }
}

/// Rectangles by colour and opacity in percent: one path each.
#[derive(Default)]
struct Paths(BTreeMap<([u8; 3], u32), Vec<Rectangle>>);

/// A rectangle, in hundredths of a pixel.
#[derive(Clone, Copy)]
struct Rectangle {
    x: u32,
    y: u32,
    width: u32,
    height: u32,
}

impl Paths {
    /// Adds a part of a cell; if it continues the last rectangle of the same colour, extends that one.
    fn add(&mut self, colour: ([u8; 3], u32), part: &Part, column: u32, row: u32) {
        let next = Rectangle {
            x: column * WIDTH * 100 + part.x * WIDTH,
            y: row * HEIGHT * 100 + part.y * HEIGHT,
            width: part.width * WIDTH,
            height: part.height * HEIGHT,
        };
        let all = self.0.entry(colour).or_default();
        match all.last_mut() {
            Some(last) if last.x + last.width == next.x && (last.y, last.height) == (next.y, next.height) => {
                last.width += next.width;
            }
            _ => all.push(next),
        }
    }

    fn written(&self) -> String {
        let path = |((fill, percent), all): (&([u8; 3], u32), &Vec<Rectangle>)| {
            let faint = if *percent < 100 { format!(" fill-opacity=\".{percent}\"") } else { String::new() };
            let moves: String = all.iter().map(Rectangle::written).collect();
            format!("<path fill=\"{}\"{faint} d=\"{moves}\"/>\n", hex(*fill))
        };
        self.0.iter().map(path).collect()
    }
}

impl Rectangle {
    fn written(&self) -> String {
        let width = pixels(self.width);
        format!("M{} {}h{width}v{}h-{width}z", pixels(self.x), pixels(self.y), pixels(self.height))
    }
}

/// Formats hundredths of a pixel as briefly as possible.
fn pixels(hundredths: u32) -> String {
    let (whole, part) = (hundredths / 100, hundredths % 100);
    match part {
        0 => whole.to_string(),
        part if part % 10 == 0 => format!("{whole}.{}", part / 10),
        part => format!("{whole}.{part:02}"),
    }
}

fn hex([r, g, b]: [u8; 3]) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Escapes text for XML 1.0, which cannot represent control characters.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().filter(|it| !it.is_control()) {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

/// A rectangle within a cell, in percent of its width and height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    x: u32,
    y: u32,
    width: u32,
    height: u32,
}

/// The thickness of a line, in percent of a cell's width and height.
const ACROSS: u32 = 12;
const DOWN: u32 = 6;

/// The centre, where lines meet.
const MIDDLE: (u32, u32) = (50 - ACROSS / 2, 50 - DOWN / 2);

impl Part {
    /// The whole cell.
    fn whole() -> Self {
        Self { x: 0, y: 0, width: 100, height: 100 }
    }
}

/// Returns whether a sign is drawn as rectangles.
fn is_drawn(symbol: &str) -> bool {
    parts(symbol).next().is_some()
}

/// Returns a sign's rectangles with their opacity in percent; none for text.
fn parts(symbol: &str) -> impl Iterator<Item = (Part, u32)> {
    let sign = symbol.chars().next().unwrap_or(' ');
    let percent = match sign {
        '░' => 25,
        '▒' => 50,
        '▓' => 75,
        _ => 100,
    };
    all(sign).into_iter().map(move |it| (it, percent))
}

fn all(sign: char) -> Vec<Part> {
    let number = u32::from(sign);
    match sign {
        '░' | '▒' | '▓' | '█' => vec![Part::whole()],
        '▁'..='▇' => {
            let height = (number - u32::from('▁') + 1) * 100 / 8;
            vec![Part { y: 100 - height, height, ..Part::whole() }]
        }
        '▀' => vec![Part { height: 50, ..Part::whole() }],
        '▉'..='▏' => vec![Part { width: (u32::from('▏') - number + 1) * 100 / 8, ..Part::whole() }],
        '▐' => vec![Part { x: 50, width: 50, ..Part::whole() }],
        '▖'..='▟' => quadrants(sign),
        '\u{2800}'..='\u{28ff}' => dots(number - 0x2800),
        '━' => vec![Part { y: 50 - DOWN, height: 2 * DOWN, ..Part::whole() }],
        _ => lines(sign),
    }
}

/// Returns the filled quadrants: upper left, upper right, lower left, lower right.
fn quadrants(sign: char) -> Vec<Part> {
    let full = match sign {
        '▘' => [true, false, false, false],
        '▝' => [false, true, false, false],
        '▖' => [false, false, true, false],
        '▗' => [false, false, false, true],
        '▚' => [true, false, false, true],
        '▞' => [false, true, true, false],
        '▙' => [true, false, true, true],
        '▛' => [true, true, true, false],
        '▜' => [true, true, false, true],
        _ => [false, true, true, true],
    };
    let places = [(0, 0), (50, 0), (0, 50), (50, 50)].into_iter().zip(full).filter(|it| it.1);
    places.map(|((x, y), _)| Part { x, y, width: 50, height: 50 }).collect()
}

/// Returns braille dots: a bit of the number each, the lowest row last.
fn dots(bits: u32) -> Vec<Part> {
    const PLACES: [(u32, u32); 8] = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)];
    let set = PLACES.into_iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1);
    set.map(|(_, (x, y))| Part { x: 14 + x * 50, y: 7 + y * 25, width: 24, height: 12 }).collect()
}

/// Returns lines from the centre: to the left, right, up, down.
fn lines(sign: char) -> Vec<Part> {
    let ways = match sign {
        '─' => [true, true, false, false],
        '│' => [false, false, true, true],
        '┌' | '╭' => [false, true, false, true],
        '┐' | '╮' => [true, false, false, true],
        '└' | '╰' => [false, true, true, false],
        '┘' | '╯' => [true, false, true, false],
        '├' => [false, true, true, true],
        '┤' => [true, false, true, true],
        '┬' => [true, true, false, true],
        '┴' => [true, true, true, false],
        '┼' => [true, true, true, true],
        _ => return Vec::new(),
    };
    if ways == [true, true, false, false] {
        return vec![Part { y: MIDDLE.1, height: DOWN, ..Part::whole() }];
    }
    let arms = [
        Part { x: 0, y: MIDDLE.1, width: 50, height: DOWN },
        Part { x: 50, y: MIDDLE.1, width: 50, height: DOWN },
        Part { x: MIDDLE.0, y: 0, width: ACROSS, height: 50 + DOWN / 2 },
        Part { x: MIDDLE.0, y: MIDDLE.1, width: ACROSS, height: 100 - MIDDLE.1 },
    ];
    arms.into_iter().zip(ways).filter(|it| it.1).map(|it| it.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_stays_in_its_cell() {
        let mut drawn = 0;
        for sign in ('\u{2500}'..='\u{259f}').chain('\u{2800}'..='\u{28ff}') {
            for (part, percent) in parts(&sign.to_string()) {
                drawn += 1;
                assert!(part.x + part.width <= 100 && part.y + part.height <= 100 && percent <= 100, "{sign}");
                assert!(part.width > 0 && part.height > 0, "{sign}");
            }
        }
        assert!(drawn > 1000, "{drawn}");
        assert!(["a", " ", "–", "·", "▸", "训"].iter().all(|it| !is_drawn(it)));
        assert_eq!(all('▄'), [Part { y: 50, height: 50, ..Part::whole() }]);
        assert_eq!((all('▌'), all('⣿').len()), (vec![Part { width: 50, ..Part::whole() }], 8));
    }
}
