//! Colours by role: built-in themes as data, and their conversion for terminals with fewer colours.

/// Parses a theme's file.
mod file;

pub use crate::screen::theme::file::{AUTO, Background, Choice, Fault, all, find};
use crate::{facts::text::Foreign, model::analysis::ladder::Gap};
use ratatui::style::{Color, Modifier, Style};
use std::collections::BTreeMap;

/// How many colours the terminal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ColorDepth {
    /// No colours: `NO_COLOR`, `TERM=dumb`.
    None,
    /// The sixteen of the terminal's own palette.
    Ansi16,
    /// The 256 of xterm.
    Ansi256,
    /// 24 bits.
    TrueColor,
}

/// The characters of graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Graph {
    /// Eighths of a cell.
    #[default]
    Block,
    /// Dots, eight to a cell.
    Braille,
    /// ASCII for graphs and for everything else on the screen.
    Ascii,
}

/// The purpose of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Ordinary text.
    Text,
    /// Less important text: units, hints.
    Dim,
    /// Names of boxes and the program.
    Title,
    /// Lines between boxes.
    Border,
    /// The selected row.
    Selected,
    /// All is well.
    Good,
    /// Needs attention.
    Warning,
    /// Wrong.
    Bad,
    /// Sparklines.
    Spark,
    /// A key in the footer and the help.
    Key,
    /// A gap of the ladder.
    Gap(Gap),
}

/// A theme: a style for each role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Theme {
    name: String,
    styles: BTreeMap<Role, Style>,
    depth: ColorDepth,
    /// The background that the theme is made for; `None` for any.
    pub background: Option<Color>,
    /// The characters of graphs.
    pub graph: Graph,
    /// Whether colours alone may distinguish things.
    pub coloured: bool,
    /// Whether it suits any background, because the terminal's own is unknown.
    suits_any: bool,
}

/// Roles other than gaps, with their names in theme files.
const GENERAL: [(&str, Role); 10] = [
    ("text", Role::Text),
    ("dim", Role::Dim),
    ("title", Role::Title),
    ("border", Role::Border),
    ("selected", Role::Selected),
    ("good", Role::Good),
    ("warning", Role::Warning),
    ("bad", Role::Bad),
    ("spark", Role::Spark),
    ("key", Role::Key),
];

/// Every role with its name in the theme files: the general ones, and a role for each gap.
pub const ROLES: [(&str, Role); GENERAL.len() + Gap::ALL.len()] = {
    let mut roles = [GENERAL[0]; GENERAL.len() + Gap::ALL.len()];
    let mut at = 0;
    while at < roles.len() {
        roles[at] = if at < GENERAL.len() {
            GENERAL[at]
        } else {
            let gap = Gap::ALL[at - GENERAL.len()];
            (gap.row().role, Role::Gap(gap))
        };
        at += 1;
    }
    roles
};

/// Returns the role whose style a theme uses if it lacks one: themes need not name every gap, and a new gap needs no
/// change of themes.
fn stand_in(role: Role) -> Option<Role> {
    match role {
        Role::Gap(gap) => Some(gap.row().like.map_or(Role::Text, Role::Gap)),
        _ => None,
    }
}

/// The built-in themes with their files.
const BUILTIN: [(&str, &str); 8] = [
    ("dusk", include_str!("../../themes/dusk.toml")),
    ("paper", include_str!("../../themes/paper.toml")),
    ("contrast", include_str!("../../themes/contrast.toml")),
    ("colorblind", include_str!("../../themes/colorblind.toml")),
    ("colorblind-light", include_str!("../../themes/colorblind-light.toml")),
    ("neutral", include_str!("../../themes/neutral.toml")),
    ("plain", include_str!("../../themes/plain.toml")),
    ("mono", include_str!("../../themes/mono.toml")),
];

/// Returns the names of the built-in themes.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(name, _)| *name)
}

impl Default for Theme {
    fn default() -> Self {
        Self {
            name: "none".to_owned(),
            styles: BTreeMap::new(),
            depth: ColorDepth::TrueColor,
            background: None,
            graph: Graph::default(),
            coloured: false,
            suits_any: false,
        }
    }
}

impl Theme {
    /// Returns a built-in theme.
    pub fn builtin(name: &str) -> Option<Self> {
        let (_, text) = BUILTIN.iter().find(|(known, _)| *known == name)?;
        Self::parse(name, text).ok()
    }

    /// Parses a theme from the text of a file.
    ///
    /// # Errors
    /// Returns what is wrong with it, and what would be valid.
    pub fn parse(name: &str, text: &str) -> Result<Self, Fault> {
        let source = file::Source { file: Foreign::new(name), text: text.to_owned() };
        Ok(Self::made(name, file::read(source, file::builtin)?))
    }

    fn made(name: &str, parsed: file::Parsed) -> Self {
        let is_colour = |it: &Color| *it != Color::Reset;
        let coloured = parsed.styles.values().any(|it| it.fg.iter().chain(&it.bg).any(is_colour));
        Self {
            name: name.to_owned(),
            styles: parsed.styles,
            background: parsed.background,
            depth: ColorDepth::TrueColor,
            graph: Graph::default(),
            coloured,
            suits_any: false,
        }
    }

    /// Returns the next built-in theme, and after the last one the user's own, for the same terminal.
    #[must_use]
    pub fn next(&self, own: &Self) -> Self {
        let mut names: Vec<&str> = names().collect();
        if !names.contains(&own.name()) {
            names.push(own.name());
        }
        let here = names.iter().position(|it| *it == self.name);
        let next = names.get(here.map_or(0, |it| (it + 1) % names.len()));
        let builtin = next.and_then(|it| Self::builtin(it));
        let Some(next) = builtin else { return own.clone() };
        let next = Self { graph: self.graph, ..next.at(self.depth) };
        if self.suits_any { next.for_any_background() } else { next }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the style of a role.
    pub fn style(&self, role: Role) -> Style {
        self.styles.get(&role).copied().unwrap_or_default()
    }

    /// Converts the theme for a terminal with fewer colours.
    #[must_use]
    pub fn at(mut self, depth: ColorDepth) -> Self {
        for style in self.styles.values_mut() {
            style.fg = style.fg.map(|it| at(it, depth));
            style.bg = style.bg.map(|it| at(it, depth));
        }
        self.depth = depth;
        self.background = self.background.map(|it| at(it, depth));
        if depth <= ColorDepth::Ansi16 {
            // Sixteen colours do not include the shade of a selected row.
            self.reverse_selected();
        }
        if depth == ColorDepth::None {
            self.coloured = false;
            // Without colours, bold distinguishes it.
            let bad = self.style(Role::Bad).add_modifier(Modifier::BOLD);
            self.styles.insert(Role::Bad, bad);
        }
        self
    }

    /// Returns the theme for a terminal of unknown background: plain text has the terminal's own foreground, and the
    /// selected row is reversed.
    #[must_use]
    pub fn for_any_background(mut self) -> Self {
        let ink = self.style(Role::Text).fg;
        for style in self.styles.values_mut().filter(|it| it.fg == ink) {
            style.fg = Some(Color::Reset);
        }
        self.reverse_selected();
        Self { suits_any: true, ..self }
    }

    fn reverse_selected(&mut self) {
        let mut selected = self.style(Role::Selected).add_modifier(Modifier::REVERSED);
        (selected.fg, selected.bg) = (None, None);
        self.styles.insert(Role::Selected, selected);
    }

    /// Returns the theme with other characters for graphs.
    #[must_use]
    pub fn drawn_in(self, graph: Graph) -> Self {
        Self { graph, ..self }
    }

    /// Returns the theme for a terminal whose locale is not UTF-8.
    #[must_use]
    pub fn in_ascii(self) -> Self {
        self.drawn_in(Graph::Ascii)
    }

    /// Returns whether it draws only ASCII.
    pub fn is_ascii(&self) -> bool {
        self.graph == Graph::Ascii
    }
}

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
fn at(colour: Color, depth: ColorDepth) -> Color {
    match (depth, colour) {
        (ColorDepth::None, _) => Color::Reset,
        (ColorDepth::Ansi256, Color::Rgb(r, g, b)) => Color::Indexed(indexed([r, g, b])),
        (ColorDepth::Ansi16, Color::Rgb(r, g, b)) => ansi([r, g, b]),
        (ColorDepth::Ansi16, Color::Indexed(index)) => ansi(indexed_rgb(index)),
        _ => colour,
    }
}

/// Returns a colour's RGB value, with xterm's values for the terminal's palette; `None` for the terminal's default.
pub fn rgb(colour: Color) -> Option<[u8; 3]> {
    match colour {
        Color::Rgb(r, g, b) => Some([r, g, b]),
        Color::Indexed(index) => Some(indexed_rgb(index)),
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
    (16..=255).min_by_key(|it| distance(indexed_rgb(*it), wanted)).unwrap_or(16)
}

fn indexed_rgb(index: u8) -> [u8; 3] {
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
    fn every_theme_defines_every_role() {
        for (name, text) in BUILTIN {
            let theme = Theme::parse(name, text).unwrap();
            assert_eq!(theme.styles.len(), ROLES.len(), "{name}");
            assert_eq!(Theme::builtin(name), Some(theme));
        }
        assert_eq!(Theme::builtin("none"), None);
    }

    /// Also without a parent theme, as in a theme that is older than a gap.
    #[test]
    fn a_theme_without_a_gap_draws_it_like_another_one() {
        let general = GENERAL.map(|(name, _)| format!("{name} = 'white'\n")).concat();
        let theme = Theme::parse("own", &format!("[roles]\n{general}releasable = 'green'")).unwrap();
        assert_eq!(theme.style(Role::Gap(Gap::Releasable)).fg, Some(Color::Green));
        assert_eq!(theme.style(Role::Gap(Gap::Pools)).fg, Some(Color::Green));
        assert_eq!(theme.style(Role::Gap(Gap::Rounding)).fg, Some(Color::White));
    }

    #[test]
    fn a_theme_inherits_what_it_lacks() {
        let theme = Theme::parse("own", "inherits = 'dusk'\n[roles]\nbad = '#102030 bold'").unwrap();
        assert_eq!(theme.style(Role::Bad).fg, Some(Color::Rgb(0x10, 0x20, 0x30)));
        assert_eq!(theme.style(Role::Good), Theme::builtin("dusk").unwrap().style(Role::Good));
    }

    #[test]
    fn faults_are_named_with_line_key_and_what_is_near() {
        for (text, fault) in [
            ("\ninherits = 'dsk'", "own:2: there is no theme of that name; there are dusk, paper"),
            ("inherits = 'dusk'\n[roles]\nbda = 'red'", "own:3: there is no role \"bda\"; the nearest is \"bad\""),
            (
                "inherits = 'dusk'\n[roles]\nbad = 'reddish'",
                "own:3: there is no colour \"reddish\"; the nearest is \"red\"",
            ),
            ("inherits = 'dusk'\n[palette]\nred = '#12'", "own:3: \"#12\" is not a colour; write #rrggbb"),
            ("inherits = 'dusk'\nbackground = 'skyy'", "own:2: there is no colour \"skyy\"; the nearest is \"sky\""),
            (
                "[roles]\nbad = 'red'",
                "own: role \"text\" has no style; inherits = \"dusk\" takes what is missing from there",
            ),
            ("role = 1", "own:1: there is no key \"role\"; the nearest is \"roles\""),
            ("roles = 1", "own:1: roles: expected a table, as in [roles]"),
            ("inherits = 'dusk'\n[roles]\nbad = 3", "own:3: bad: expected a string"),
            ("\n[roles", "own:2: unclosed table, expected `]`"),
        ] {
            let parsed = Theme::parse("own", text).unwrap_err().to_string();
            assert!(parsed.starts_with(fault), "{parsed}");
        }
    }

    #[test]
    fn without_colours_nothing_but_weight_is_left() {
        for name in names() {
            let theme = Theme::builtin(name).unwrap().at(ColorDepth::None);
            for style in theme.styles.values() {
                assert!([style.fg, style.bg].iter().flatten().all(|it| *it == Color::Reset), "{name}");
            }
            assert!(theme.style(Role::Selected).add_modifier.contains(Modifier::REVERSED));
        }
    }

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
