//! Parses a theme's file: a palette, a style for each role, and the theme that it inherits from.

use crate::{
    facts::text::{Foreign, nearest},
    screen::theme::{ROLES, Role, Theme, names},
    storage::input,
};
use etcetera::{BaseStrategy, choose_base_strategy};
use ratatui::style::{Color, Modifier, Style};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    str::FromStr,
};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Most levels of inheritance.
const DEPTH_MAX: usize = 4;

/// Most characters quoted from the file.
const QUOTED: usize = 60;

/// Words of a style that are not colours.
const WORDS: [&str; 5] = ["on", "bold", "dim", "reverse", "underline"];

const KEYS: [&str; 4] = ["inherits", "background", "palette", "roles"];

/// The sixteen colours that every terminal has, and the default.
const COLOURS: [&str; 17] = [
    "reset",
    "black",
    "red",
    "green",
    "yellow",
    "blue",
    "magenta",
    "cyan",
    "gray",
    "darkgray",
    "lightred",
    "lightgreen",
    "lightyellow",
    "lightblue",
    "lightmagenta",
    "lightcyan",
    "white",
];

/// An error in a file: its name, the line, the key, and what would be valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {what}", .file, .line.map(|it| format!(":{it}")).unwrap_or_default())]
pub struct Fault {
    /// The path of the file, as the user gave it.
    pub file: Foreign,
    /// The line in it, from 1.
    pub line: Option<usize>,
    /// The error.
    pub what: String,
}

/// A file's name and text.
pub(super) struct Source {
    pub(super) file: Foreign,
    pub(super) text: String,
}

/// The merged contents of the files, nearest first: a parent only fills gaps.
#[derive(Default)]
pub(super) struct Parsed {
    /// The background that the theme is made for, if it has one.
    pub(super) background: Option<Color>,
    pub(super) styles: BTreeMap<Role, Style>,
}

/// A text and its position.
struct Word {
    text: String,
    source: usize,
    at: Range<usize>,
}

struct Reader {
    sources: Vec<Source>,
    palette: BTreeMap<String, Word>,
    roles: BTreeMap<String, Word>,
    background: Option<Word>,
}

/// Reads a theme; `parent` finds the files that it inherits from by name, or lists the existing ones.
pub(super) fn read(source: Source, parent: impl Fn(&str) -> Result<Source, String>) -> Result<Parsed, Fault> {
    let mut reader = Reader { sources: Vec::new(), palette: BTreeMap::new(), roles: BTreeMap::new(), background: None };
    let mut next = Some(source);
    while let Some(source) = next.take() {
        if reader.sources.len() == DEPTH_MAX {
            let what = format!("themes inherit at most {DEPTH_MAX} deep");
            return Err(Fault { file: source.file, line: None, what });
        }
        reader.sources.push(source);
        if let Some(inherits) = reader.take()? {
            next = Some(parent(&inherits.text).map_err(|what| reader.fault(&inherits, what))?);
        }
    }
    reader.parsed()
}

impl Reader {
    /// Parses the latest file, and returns the name of its parent.
    fn take(&mut self) -> Result<Option<Word>, Fault> {
        let source = self.sources.len() - 1;
        let text = self.sources[source].text.clone();
        let word = |text: &str, at: Range<usize>| Word { text: text.to_owned(), source, at };
        let table = DeTable::parse(&text).map_err(|e| {
            let words: Vec<_> = e.message().split_whitespace().collect();
            self.fault(&word("", e.span().unwrap_or_default()), words.join(" "))
        })?;
        let mut inherits = None;
        for (key, value) in table.get_ref() {
            match key.get_ref().as_ref() {
                "inherits" => inherits = Some(self.text("inherits", value)?),
                "background" => {
                    let colour = self.text("background", value)?;
                    self.background.get_or_insert(colour);
                }
                "palette" => {
                    for (name, value) in self.table("palette", value)? {
                        let colour = self.text(name.get_ref(), value)?;
                        self.palette.entry(name.get_ref().to_string()).or_insert(colour);
                    }
                }
                "roles" => {
                    for (name, value) in self.table("roles", value)? {
                        let known = ROLES.iter().map(|it| it.0);
                        if !known.clone().any(|it| it == name.get_ref()) {
                            let at = word("", name.span());
                            return Err(self.unknown(&at, "role", name.get_ref(), known));
                        }
                        let words = self.text(name.get_ref(), value)?;
                        self.roles.entry(name.get_ref().to_string()).or_insert(words);
                    }
                }
                other => return Err(self.unknown(&word("", key.span()), "key", other, KEYS)),
            }
        }
        Ok(inherits)
    }

    fn text(&self, key: &str, value: &Spanned<DeValue>) -> Result<Word, Fault> {
        let source = self.sources.len() - 1;
        let at = Word { text: String::new(), source, at: value.span() };
        let text = value.get_ref().as_str().ok_or_else(|| self.fault(&at, format!("{key}: expected a string")))?;
        Ok(Word { text: text.to_owned(), ..at })
    }

    fn table<'t, 'i>(&self, key: &str, value: &'t Spanned<DeValue<'i>>) -> Result<&'t DeTable<'i>, Fault> {
        let at = Word { text: String::new(), source: self.sources.len() - 1, at: value.span() };
        value.get_ref().as_table().ok_or_else(|| self.fault(&at, format!("{key}: expected a table, as in [{key}]")))
    }

    fn parsed(&self) -> Result<Parsed, Fault> {
        let mut parsed = Parsed::default();
        if let Some(word) = &self.background {
            parsed.background = Some(self.colour(word, &word.text)?);
        }
        for (name, role) in ROLES {
            let mut stand_ins = std::iter::successors(Some(role), |it| super::stand_in(*it));
            let named = |role: Role| ROLES.iter().find(|it| it.1 == role).and_then(|it| self.roles.get(it.0));
            let Some(words) = stand_ins.find_map(named) else {
                let file = self.sources.first().map(|it| it.file.clone()).unwrap_or_default();
                let what = format!("role {name:?} has no style; inherits = \"dusk\" takes what is missing from there");
                return Err(Fault { file, line: None, what });
            };
            parsed.styles.insert(role, self.style(words)?);
        }
        Ok(parsed)
    }

    /// Parses a style: `blue bold`, `ink on shade`.
    fn style(&self, words: &Word) -> Result<Style, Fault> {
        let mut style = Style::new();
        let mut background = false;
        for word in words.text.split_whitespace() {
            match word {
                "on" => background = true,
                "bold" => style = style.add_modifier(Modifier::BOLD),
                "dim" => style = style.add_modifier(Modifier::DIM),
                "reverse" => style = style.add_modifier(Modifier::REVERSED),
                "underline" => style = style.add_modifier(Modifier::UNDERLINED),
                name => {
                    let colour = match self.palette.get(name) {
                        Some(value) => self.colour(value, &value.text)?,
                        None => self.colour(words, name)?,
                    };
                    style = if background { style.bg(colour) } else { style.fg(colour) };
                    background = false;
                }
            }
        }
        Ok(style)
    }

    fn colour(&self, at: &Word, name: &str) -> Result<Color, Fault> {
        Color::from_str(name).map_err(|_unknown| {
            if name.starts_with('#') {
                return self.fault(at, format!("\"{}\" is not a colour; write #rrggbb", quoted(name)));
            }
            let palette = self.palette.keys().map(String::as_str);
            self.unknown(at, "colour", name, palette.chain(COLOURS).chain(WORDS))
        })
    }

    fn unknown<'n>(&self, at: &Word, what: &str, text: &str, names: impl IntoIterator<Item = &'n str>) -> Fault {
        let near = nearest(text, names).map_or_else(String::new, |it| format!("; the nearest is \"{}\"", quoted(it)));
        self.fault(at, format!("there is no {what} \"{}\"{near}", quoted(text)))
    }

    fn fault(&self, at: &Word, what: String) -> Fault {
        let Some(source) = self.sources.get(at.source) else {
            return Fault { file: Foreign::default(), line: None, what };
        };
        let line = 1 + source.text.bytes().take(at.at.start).filter(|it| *it == b'\n').count();
        Fault { file: source.file.clone(), line: Some(line), what: Foreign::new(what).to_string() }
    }
}

fn quoted(text: &str) -> Foreign {
    Foreign::new(text.chars().take(QUOTED).collect::<String>())
}

/// Most bytes of a file: far more than users write.
const BYTES_MAX: u64 = 1 << 16;

/// Most user themes listed.
const LISTED: usize = 12;

/// Finds a theme by name, the user's own first, or by path: with a `/` in it or `.toml` at its end.
///
/// # Errors
/// Fails if there is none, or if its file has an error.
pub fn find(name: &str) -> Result<Theme, Fault> {
    if let Some(builtin) = Theme::builtin(name).filter(|_| own(name).is_none_or(|it| !it.is_file())) {
        return Ok(builtin);
    }
    let found = source(name).map_err(|what| Fault { file: Foreign::new(name), line: None, what })?;
    let title = Path::new(name).file_stem().map_or_else(|| name.into(), |it| it.to_string_lossy().into_owned());
    let asking = RefCell::new(title.clone());
    let parent = |parent: &str| {
        // A user theme with a built-in one's name inherits from that one.
        let is_same = asking.replace(parent.to_owned()) == parent;
        if is_same { builtin(parent) } else { source(parent) }
    };
    Ok(Theme::made(&title, read(found, parent)?))
}

/// Returns the names of all themes.
pub fn all() -> Vec<String> {
    let entries = directory().and_then(|it| fs::read_dir(it).ok()).into_iter().flatten().flatten();
    let mut own: Vec<String> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .filter_map(|it| Some(it.file_stem()?.to_string_lossy().into_owned()))
        .filter(|it| names().all(|name| name != it))
        .take(LISTED)
        .collect();
    own.sort();
    names().map(str::to_owned).chain(own).collect()
}

fn directory() -> Option<PathBuf> {
    Some(choose_base_strategy().ok()?.config_dir().join("gpuwatch").join("themes"))
}

fn is_path(name: &str) -> bool {
    name.contains('/') || Path::new(name).extension().is_some_and(|it| it == "toml")
}

fn own(name: &str) -> Option<PathBuf> {
    if is_path(name) { Some(PathBuf::from(name)) } else { Some(directory()?.join(format!("{name}.toml"))) }
}

pub(super) fn builtin(name: &str) -> Result<Source, String> {
    let (_, text) = crate::screen::theme::BUILTIN.iter().find(|it| it.0 == name).ok_or_else(|| unknown(name))?;
    Ok(Source { file: format!("themes/{name}.toml").as_str().into(), text: (*text).to_owned() })
}

/// Returns the text of a theme from its file or from the program.
fn source(name: &str) -> Result<Source, String> {
    let Some(path) = own(name).filter(|it| is_path(name) || it.is_file()) else { return builtin(name) };
    let text = input::small_text(&path, BYTES_MAX).map_err(|e| input::fault(&e))?;
    Ok(Source { file: Foreign::new(path.to_string_lossy()), text })
}

fn unknown(name: &str) -> String {
    let all = all();
    let near = nearest(name, &all).map_or_else(String::new, |it| format!("; the nearest is {it}"));
    format!("there is no theme of that name; there are {}{near}", Foreign::new(all.join(", ")))
}

/// The name that lets the terminal's background choose.
pub const AUTO: &str = "auto";

/// The background of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Background {
    /// Light text is readable on it.
    Dark,
    /// Dark text is readable on it.
    Light,
}

/// The theme that a screen starts with.
#[derive(Clone, Debug)]
pub enum Choice {
    /// This one, whatever the background.
    Fixed(Theme),
    /// One for each background.
    ByBackground {
        /// For a dark one.
        dark: Theme,
        /// For a light one.
        light: Theme,
        /// For one that the terminal does not report.
        unknown: Theme,
    },
}

impl From<Theme> for Choice {
    fn from(theme: Theme) -> Self {
        Self::Fixed(theme)
    }
}

impl Choice {
    /// Finds the theme of a name or path, or those among which the background chooses.
    ///
    /// # Errors
    /// Fails if there is no such theme, or if its file has an error.
    pub fn find(name: &str) -> Result<Self, Fault> {
        if name != AUTO {
            return Ok(Self::Fixed(find(name)?));
        }
        let unknown = find("neutral")?.for_any_background();
        Ok(Self::ByBackground { dark: find("dusk")?, light: find("paper")?, unknown })
    }

    /// Returns the theme for a background; `None` for an unknown one.
    pub fn on(&self, background: Option<Background>) -> &Theme {
        match (self, background) {
            (Self::Fixed(theme), _) => theme,
            (Self::ByBackground { dark, .. }, Some(Background::Dark)) => dark,
            (Self::ByBackground { light, .. }, Some(Background::Light)) => light,
            (Self::ByBackground { unknown, .. }, None) => unknown,
        }
    }

    /// Returns the choice among the same themes, each changed.
    #[must_use]
    pub fn map(self, change: impl Fn(Theme) -> Theme) -> Self {
        match self {
            Self::Fixed(theme) => Self::Fixed(change(theme)),
            Self::ByBackground { dark, light, unknown } => {
                Self::ByBackground { dark: change(dark), light: change(light), unknown: change(unknown) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::screen::theme::ColorDepth;

    #[test]
    fn the_background_chooses_only_if_the_name_leaves_it_open() {
        let open = Choice::find(AUTO).unwrap();
        let fixed = Choice::find("contrast").unwrap();
        for (background, name) in
            [(Some(Background::Dark), "dusk"), (Some(Background::Light), "paper"), (None, "neutral")]
        {
            assert_eq!(open.on(background).name(), name);
            assert_eq!(fixed.on(background).name(), "contrast");
        }
    }

    #[test]
    fn on_an_unknown_background_plain_text_is_the_terminals_own_in_every_theme() {
        let own = Choice::find(AUTO).unwrap().map(|it| it.at(ColorDepth::Ansi256)).on(None).clone();
        let mut theme = own.clone();
        for _ in super::super::names() {
            assert_eq!(theme.style(Role::Text).fg, Some(Color::Reset), "{}", theme.name());
            let selected = theme.style(Role::Selected);
            assert!(selected.bg.is_none() && selected.add_modifier.contains(Modifier::REVERSED), "{}", theme.name());
            theme = theme.next(&own);
        }
        assert_eq!(theme, own);
    }
}
