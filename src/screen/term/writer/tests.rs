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
        let is_plain = wanted.symbol() == " " && !wanted.modifier.intersects(Modifier::REVERSED | Modifier::UNDERLINED);
        assert_eq!((text, shown.bgcolor()), (wanted.symbol(), colour(wanted.bg)), "{x} {y}");
        assert!(is_plain || shown.fgcolor() == colour(wanted.fg), "{x} {y}");
        let has = |it| wanted.modifier.contains(it);
        assert!(is_plain || (shown.bold(), shown.italic()) == (has(Modifier::BOLD), has(Modifier::ITALIC)), "{x} {y}");
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
