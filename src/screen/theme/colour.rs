//! Converts to fewer colours, because no library below does.

use super::ColorDepth;
use ratatui::style::Color;

/// The sixteen colours as xterm shows them, in numeric order.
const ANSI: [(Color, [u8; 3]); 16] = [
    (Color::Black, [0, 0, 0]),
    (Color::Red, [205, 0, 0]),
    (Color::Green, [0, 205, 0]),
    (Color::Yellow, [205, 205, 0]),
    (Color::Blue, [0, 0, 238]),
    (Color::Magenta, [205, 0, 205]),
    (Color::Cyan, [0, 205, 205]),
    (Color::Gray, [229, 229, 229]),
    (Color::DarkGray, [127, 127, 127]),
    (Color::LightRed, [255, 0, 0]),
    (Color::LightGreen, [0, 255, 0]),
    (Color::LightYellow, [255, 255, 0]),
    (Color::LightBlue, [92, 92, 255]),
    (Color::LightMagenta, [255, 0, 255]),
    (Color::LightCyan, [0, 255, 255]),
    (Color::White, [255, 255, 255]),
];

/// Levels of each channel in xterm's 6 × 6 × 6 cube.
const CUBE: [u8; 6] = [0, 95, 135, 175, 215, 255];

/// Returns the nearest colour that the terminal has.
pub(super) fn at(colour: Color, depth: ColorDepth) -> Color {
    match (depth, colour) {
        (ColorDepth::None, _) => Color::Reset,
        (ColorDepth::Ansi256, Color::Rgb(r, g, b)) => Color::Indexed(indexed([r, g, b])),
        (ColorDepth::Ansi16, Color::Rgb(r, g, b)) => ansi([r, g, b]),
        (ColorDepth::Ansi16, Color::Indexed(index)) => ansi(rgb(index)),
        _ => colour,
    }
}

/// Returns a colour's RGB value, with xterm's values for the terminal's palette; `None` for the terminal's default.
pub fn shown(colour: Color) -> Option<[u8; 3]> {
    match colour {
        Color::Rgb(r, g, b) => Some([r, g, b]),
        Color::Indexed(index) => Some(rgb(index)),
        named => ANSI.iter().find(|it| it.0 == named).map(|it| it.1),
    }
}

/// Colours whose channels differ by less than this are greys.
const GREY: u8 = 36;

/// From this brightness on, a colour is one of the bright eight.
const LIGHT: u8 = 210;

/// Returns the one of the sixteen with the same hue. By distance, most pale colours would become greys. The hues are
/// divided unevenly, like the names of colours.
fn ansi([r, g, b]: [u8; 3]) -> Color {
    let (most, least) = (r.max(g).max(b), r.min(g).min(b));
    if most - least < GREY {
        return match most {
            0..48 => Color::Black,
            48..150 => Color::DarkGray,
            150..225 => Color::Gray,
            _ => Color::White,
        };
    }
    let [r, g, b] = [r, g, b].map(i32::from);
    let span = i32::from(most - least);
    let hue = match i32::from(most) {
        it if it == r => (60 * (g - b) / span).rem_euclid(360),
        it if it == g => 120 + 60 * (b - r) / span,
        _ => 240 + 60 * (r - g) / span,
    };
    let (plain, light) = match hue {
        20..75 => (Color::Yellow, Color::LightYellow),
        75..160 => (Color::Green, Color::LightGreen),
        160..200 => (Color::Cyan, Color::LightCyan),
        200..245 => (Color::Blue, Color::LightBlue),
        245..330 => (Color::Magenta, Color::LightMagenta),
        _ => (Color::Red, Color::LightRed),
    };
    if most >= LIGHT { light } else { plain }
}

/// Returns the nearest of the cube and the grey ramp; the first sixteen differ between terminals.
fn indexed(wanted: [u8; 3]) -> u8 {
    (16..=255).min_by_key(|it| distance(rgb(*it), wanted)).unwrap_or(16)
}

fn rgb(index: u8) -> [u8; 3] {
    match index {
        0..=15 => ANSI.get(usize::from(index)).map_or([0; 3], |(_, rgb)| *rgb),
        16..=231 => {
            let it = usize::from(index - 16);
            [CUBE[it / 36], CUBE[it / 6 % 6], CUBE[it % 6]]
        }
        232..=255 => [8 + (index - 232) * 10; 3],
    }
}

fn distance(a: [u8; 3], b: [u8; 3]) -> u32 {
    // The eye is most sensitive to green and least to blue.
    [2, 4, 3].iter().zip(a.iter().zip(b)).map(|(weight, (a, b))| weight * u32::from(a.abs_diff(b)).pow(2)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_colour_is_taken() {
        assert_eq!(at(Color::Rgb(255, 0, 0), ColorDepth::Ansi256), Color::Indexed(196));
        assert_eq!(at(Color::Rgb(128, 128, 128), ColorDepth::Ansi256), Color::Indexed(244));
        assert_eq!(at(Color::Rgb(250, 20, 20), ColorDepth::Ansi16), Color::LightRed);
        assert_eq!(at(Color::Indexed(196), ColorDepth::Ansi16), Color::LightRed);
        assert_eq!(at(Color::Rgb(232, 150, 95), ColorDepth::Ansi16), Color::LightYellow);
        assert_eq!(at(Color::Rgb(93, 74, 168), ColorDepth::Ansi16), Color::Magenta);
        assert_eq!(at(Color::Rgb(125, 132, 143), ColorDepth::Ansi16), Color::DarkGray);
        assert_eq!(at(Color::Red, ColorDepth::Ansi256), Color::Red);
        assert_eq!(at(Color::Red, ColorDepth::None), Color::Reset);
    }
}
