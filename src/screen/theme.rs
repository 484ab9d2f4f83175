//! Colours by role: built-in themes as data, and their conversion for terminals with fewer colours.

/// Chooses by the terminal's background.
mod choice;
/// Converts to fewer colours.
mod colour;
/// Parses a theme's file.
mod file;
/// Finds themes.
mod find;

use crate::{facts::text::Foreign, model::analysis::ladder::Gap};
pub use choice::{AUTO, Background, Choice};
pub use colour::shown as rgb;
pub use file::Fault;
pub use find::{all, find};
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
        Ok(Self::made(name, file::read(source, find::builtin)?))
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
            style.fg = style.fg.map(|it| colour::at(it, depth));
            style.bg = style.bg.map(|it| colour::at(it, depth));
        }
        self.depth = depth;
        self.background = self.background.map(|it| colour::at(it, depth));
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
            ("colour = 1", "own:1: there is no key \"colour\"; the nearest is \"roles\""),
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
}
