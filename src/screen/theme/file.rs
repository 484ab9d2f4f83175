//! Parses a theme's file: a palette, a style for each role, and the theme that it inherits from.

use super::{ROLES, Role};
use crate::facts::text::{Foreign, nearest};
use ratatui::style::{Color, Modifier, Style};
use std::{collections::BTreeMap, ops::Range, str::FromStr};
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
    /// The file.
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
