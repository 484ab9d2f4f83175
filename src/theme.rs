//! Colours by role: built-in themes as data, and their way down to terminals with fewer colours.

/// The way down to fewer colours.
mod colour;

use crate::analysis::ladder::Gap;
use ratatui::style::{Color, Modifier, Style};
use serde::Deserialize;
use std::{collections::BTreeMap, str::FromStr};

/// How many colours the terminal shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ColorDepth {
    /// None: `NO_COLOR`, `TERM=dumb`.
    None,
    /// The sixteen of the terminal's own palette.
    Ansi16,
    /// The 256 of xterm.
    Ansi256,
    /// 24 bits.
    TrueColor,
}

/// What a colour is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Ordinary text.
    Text,
    /// What matters less: units, hints.
    Dim,
    /// Names of boxes and the program.
    Title,
    /// Lines between boxes.
    Border,
    /// The selected row.
    Selected,
    /// All is well.
    Good,
    /// Worth a look.
    Warning,
    /// Wrong.
    Bad,
    /// Sparklines.
    Spark,
    /// A key in the footer and the help.
    Key,
    /// A stretch of the ladder.
    Gap(Gap),
}

/// A theme: a style for each role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Theme {
    name: String,
    styles: BTreeMap<Role, Style>,
    depth: ColorDepth,
    /// Whether only ASCII is drawn.
    pub ascii: bool,
    /// Whether colours alone may tell one thing from another.
    pub coloured: bool,
}

/// Every role with its name in the theme files.
pub const ROLES: [(&str, Role); 24] = [
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
    ("wanted", Role::Gap(Gap::Wanted)),
    ("allocated", Role::Gap(Gap::Allocated)),
    ("rounding", Role::Gap(Gap::Rounding)),
    ("pending", Role::Gap(Gap::Pending)),
    ("stuck", Role::Gap(Gap::Stuck)),
    ("pools", Role::Gap(Gap::Pools)),
    ("releasable", Role::Gap(Gap::Releasable)),
    ("cached", Role::Gap(Gap::Cached)),
    ("reserved", Role::Gap(Gap::Reserved)),
    ("non_torch", Role::Gap(Gap::NonTorch)),
    ("others", Role::Gap(Gap::Others)),
    ("driver", Role::Gap(Gap::Driver)),
    ("unattributed", Role::Gap(Gap::Unattributed)),
    ("free", Role::Gap(Gap::Free)),
];

/// The built-in themes and their files.
const BUILTIN: [(&str, &str); 3] = [
    ("dusk", include_str!("../themes/dusk.toml")),
    ("paper", include_str!("../themes/paper.toml")),
    ("plain", include_str!("../themes/plain.toml")),
];

/// Themes may inherit from one another this deep.
const DEPTH_MAX: usize = 4;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    inherits: Option<String>,
    #[serde(default)]
    palette: BTreeMap<String, String>,
    #[serde(default)]
    roles: BTreeMap<String, String>,
}

/// Names of the built-in themes; the first is the default.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(name, _)| *name)
}

impl Default for Theme {
    fn default() -> Self {
        let depth = ColorDepth::TrueColor;
        Self { name: "none".to_owned(), styles: BTreeMap::new(), depth, ascii: false, coloured: false }
    }
}

impl Theme {
    /// A theme that comes with the program.
    pub fn builtin(name: &str) -> Option<Self> {
        let (_, text) = BUILTIN.iter().find(|(known, _)| *known == name)?;
        Self::parse(name, text).ok()
    }

    /// A theme from the text of a file, or what is wrong with it.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut roles = BTreeMap::new();
        let mut palette = BTreeMap::new();
        let mut next = Some(text.to_owned());
        for _ in 0..DEPTH_MAX {
            let Some(text) = next.take() else { break };
            let file: File = toml::from_str(&text).map_err(|fault| fault.to_string())?;
            // What is nearer wins: the parent fills only what is missing.
            for (role, style) in file.roles {
                roles.entry(role).or_insert(style);
            }
            for (colour, value) in file.palette {
                palette.entry(colour).or_insert(value);
            }
            if let Some(parent) = file.inherits {
                let (_, text) = BUILTIN
                    .iter()
                    .find(|(known, _)| *known == parent)
                    .ok_or_else(|| format!("there is no theme {parent:?} to inherit from"))?;
                next = Some((*text).to_owned());
            }
        }
        if next.is_some() {
            return Err(format!("themes inherit at most {DEPTH_MAX} deep"));
        }
        if let Some(unknown) = roles.keys().find(|it| ROLES.iter().all(|(name, _)| name != it)) {
            return Err(format!("there is no role {unknown:?}"));
        }
        let mut styles = BTreeMap::new();
        for (role_name, role) in ROLES {
            let words = roles.get(role_name).ok_or_else(|| format!("role {role_name:?} has no style"))?;
            styles.insert(role, style(words, &palette)?);
        }
        Ok(Self { name: name.to_owned(), styles, depth: ColorDepth::TrueColor, ascii: false, coloured: true })
    }

    /// The next of the built-in themes, and after the last one the user's own, for the same terminal.
    #[must_use]
    pub fn next(&self, own: &Self) -> Self {
        let mut names: Vec<&str> = names().collect();
        if !names.contains(&own.name()) {
            names.push(own.name());
        }
        let here = names.iter().position(|it| *it == self.name);
        let next = names.get(here.map_or(0, |it| (it + 1) % names.len()));
        let builtin = next.and_then(|it| Self::builtin(it));
        builtin.map_or_else(|| own.clone(), |it| Self { ascii: self.ascii, ..it.at(self.depth) })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The style of a role.
    pub fn style(&self, role: Role) -> Style {
        self.styles.get(&role).copied().unwrap_or_default()
    }

    /// The same theme for a terminal that shows only so many colours.
    #[must_use]
    pub fn at(mut self, depth: ColorDepth) -> Self {
        for style in self.styles.values_mut() {
            style.fg = style.fg.map(|it| colour::at(it, depth));
            style.bg = style.bg.map(|it| colour::at(it, depth));
        }
        self.depth = depth;
        if depth == ColorDepth::None {
            self.coloured = false;
            // Without colours, weight and reversal have to say it.
            for (role, modifier) in [(Role::Selected, Modifier::REVERSED), (Role::Bad, Modifier::BOLD)] {
                let style = self.style(role);
                self.styles.insert(role, style.add_modifier(modifier));
            }
        }
        self
    }

    /// The same theme for a terminal whose locale is not UTF-8.
    #[must_use]
    pub fn in_ascii(mut self) -> Self {
        self.ascii = true;
        self
    }
}

/// A style from words: `blue bold`, `ink on shade`.
fn style(words: &str, palette: &BTreeMap<String, String>) -> Result<Style, String> {
    let mut style = Style::new();
    let mut background = false;
    for word in words.split_whitespace() {
        match word {
            "on" => background = true,
            "bold" => style = style.add_modifier(Modifier::BOLD),
            "reverse" => style = style.add_modifier(Modifier::REVERSED),
            "underline" => style = style.add_modifier(Modifier::UNDERLINED),
            name => {
                let value = palette.get(name).map_or(name, String::as_str);
                let colour = Color::from_str(value).map_err(|_unknown| format!("{name:?} is no colour"))?;
                style = if background { style.bg(colour) } else { style.fg(colour) };
                background = false;
            }
        }
    }
    Ok(style)
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

    #[test]
    fn a_theme_inherits_what_it_does_not_say() {
        let theme = Theme::parse("own", "inherits = 'dusk'\n[roles]\nbad = '#102030 bold'").unwrap();
        assert_eq!(theme.style(Role::Bad).fg, Some(Color::Rgb(0x10, 0x20, 0x30)));
        assert_eq!(theme.style(Role::Good), Theme::builtin("dusk").unwrap().style(Role::Good));
    }

    #[test]
    fn faults_are_named() {
        for (text, fault) in [
            ("inherits = 'gone'", "no theme"),
            ("inherits = 'dusk'\n[roles]\nnope = 'red'", "no role"),
            ("inherits = 'dusk'\n[roles]\nbad = 'reddish'", "no colour"),
            ("[roles]\nbad = 'red'", "has no style"),
            ("colour = 1", "unknown field"),
        ] {
            let said = Theme::parse("own", text).unwrap_err();
            assert!(said.contains(fault), "{said}");
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
