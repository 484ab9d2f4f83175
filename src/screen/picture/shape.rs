//! Signs that are drawn as rectangles within a cell: blocks, shades, quadrants, lines and braille.

/// A rectangle within a cell, in percent of its width and height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) width: u32,
    pub(super) height: u32,
}

/// The thickness of a line, in percent of a cell's width and height.
const ACROSS: u32 = 12;
const DOWN: u32 = 6;

/// The centre, where lines meet.
const MIDDLE: (u32, u32) = (50 - ACROSS / 2, 50 - DOWN / 2);

impl Part {
    /// The whole cell.
    pub(super) fn whole() -> Self {
        Self { x: 0, y: 0, width: 100, height: 100 }
    }
}

/// Returns whether a sign is drawn as rectangles.
pub(super) fn is_drawn(symbol: &str) -> bool {
    parts(symbol).next().is_some()
}

/// Returns a sign's rectangles with their opacity in percent; none for text.
pub(super) fn parts(symbol: &str) -> impl Iterator<Item = (Part, u32)> {
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
