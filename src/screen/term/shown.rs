//! What the terminal shows, and what of a frame differs from it.
//!
//! In place of the second buffer of ratatui's `Terminal`, which for 200×50 cells takes half a megabyte, and a fifth of
//! the CPU time of a frame to compare.

use super::writer;
use crate::screen::term::writer::Pen;
use ratatui::{
    buffer::{Buffer, Cell, CellWidth},
    layout::Rect,
};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    mem::replace,
};

/// A cell as the terminal shows it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shown {
    symbol: [u8; 8],
    pen: Pen,
}

/// A cell that the symbol before it covers. No symbol has this byte.
const COVERED: Shown = Shown { symbol: [0xfe; 8], pen: Pen::PLAIN };

/// Makes an emoji of a character. On some terminals it takes one column even so, and what was in the next one stays.
const SELECTOR: char = '\u{fe0f}';

/// The first byte of a long symbol's hash. No symbol begins with it.
const LONG: u8 = 0xff;

impl Shown {
    fn of(cell: &Cell) -> Self {
        let (text, pen) = (cell.symbol(), Pen::of(cell));
        // A foreground is invisible on a blank.
        let pen = if text == " " && !pen.marks_blanks() { Pen::blank(cell.bg) } else { pen };
        let mut symbol = [0; 8];
        if let Some(place) = symbol.get_mut(..text.len()) {
            place.copy_from_slice(text.as_bytes());
        } else {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            symbol = hasher.finish().to_be_bytes();
            symbol[0] = LONG;
        }
        Self { symbol, pen }
    }
}

/// All cells of the terminal.
pub(super) struct Picture(Vec<Shown>);

impl Picture {
    /// Returns the picture of a terminal that shows nothing.
    pub(super) fn blank(area: Rect) -> Self {
        Self(vec![Shown::of(&Cell::EMPTY); usize::from(area.width) * usize::from(area.height)])
    }

    /// Returns the cells of a frame of the same size that the terminal does not show yet, from left to right and from
    /// top to bottom. When they are taken, it counts as shown.
    pub(super) fn news<'a>(&'a mut self, frame: &'a Buffer) -> impl Iterator<Item = (u16, u16, &'a Cell)> {
        let width = usize::from(frame.area.width).max(1);
        let rows = self.0.chunks_mut(width).zip(frame.content.chunks(width)).zip(0..);
        rows.flat_map(|((shown, cells), y)| {
            let (mut covered, mut may_be_narrow) = (0, false);
            shown.iter_mut().zip(cells).zip(0..).filter_map(move |((shown, cell), x)| {
                let now = Shown::of(cell);
                let is_news = if covered == 0 {
                    covered = columns(cell.symbol());
                    let is_news = replace(shown, now) != now;
                    may_be_narrow = is_news && cell.symbol().contains(SELECTOR);
                    is_news
                } else {
                    let before = replace(shown, COVERED).symbol;
                    may_be_narrow && before != now.symbol && before != COVERED.symbol
                };
                covered = covered.saturating_sub(1);
                is_news.then_some((x, y, cell))
            })
        })
    }
}

/// Returns the columns that a symbol takes.
fn columns(symbol: &str) -> u16 {
    writer::width(symbol).unwrap_or_else(|| symbol.cell_width())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::style::{Color, Style};

    fn news(picture: &mut Picture, frame: &Buffer) -> Vec<(u16, u16, String)> {
        picture.news(frame).map(|(x, y, cell)| (x, y, cell.symbol().to_owned())).collect()
    }

    fn frame(words: &str) -> Buffer {
        Buffer::with_lines([words, "second row"])
    }

    #[test]
    fn only_cells_that_differ_in_text_or_style_are_news_and_only_once() {
        let mut frame = frame("used 1.25 ");
        let mut picture = Picture::blank(frame.area);
        assert_eq!(news(&mut picture, &frame).len(), 8 + 9, "blanks are there");
        assert!(news(&mut picture, &frame).is_empty());
        frame[(6, 0)].set_symbol("7");
        frame[(9, 1)].set_style(Style::new().fg(Color::Red));
        frame[(9, 0)].set_style(Style::new().fg(Color::Red));
        let expected = [(6, 0, "7".to_owned()), (9, 1, "w".to_owned())];
        assert_eq!(news(&mut picture, &frame), expected);
    }

    #[test]
    fn cells_that_a_wide_symbol_covered_are_news_when_it_goes() {
        let mut picture = Picture::blank(frame("日 本     ").area);
        news(&mut picture, &frame("日 本     "));
        let gone: Vec<_> = news(&mut picture, &frame("a 本     ")).into_iter().map(|it| (it.0, it.2)).collect();
        assert_eq!(gone[..2], [(0, "a".to_owned()), (1, " ".to_owned())]);
        // It begins a column further left now.
        assert!(gone.contains(&(2, "本".to_owned())), "{gone:?}");
    }

    #[test]
    fn an_emoji_by_selector_clears_the_cell_that_it_may_not_cover_once() {
        let mut frame = frame("⚠\u{fe0f} x      ");
        let mut picture = Picture::blank(frame.area);
        picture.news(&Buffer::with_lines(["ab x      ", "second row"])).for_each(drop);
        let first: Vec<_> = news(&mut picture, &frame).into_iter().map(|it| it.0).collect();
        assert_eq!(first, [0, 1]);
        frame[(1, 0)].set_bg(Color::Red);
        assert!(news(&mut picture, &frame).is_empty());
        frame[(0, 0)].set_symbol("a");
        let after: Vec<_> = news(&mut picture, &frame).into_iter().map(|it| (it.0, it.2)).collect();
        assert_eq!(after, [(0, "a".to_owned()), (1, " ".to_owned())]);
    }

    #[test]
    fn different_long_symbols_differ() {
        let cell = |symbol: &'static str| Shown::of(&Cell::new(symbol));
        let (family, other) = ("👨\u{200d}👩\u{200d}👧", "👨\u{200d}👩\u{200d}👦");
        assert!(cell(family) == cell(family) && cell(family) != cell(other));
        assert!(cell("a") != cell("b") && cell("é") == cell("é"));
    }
}
