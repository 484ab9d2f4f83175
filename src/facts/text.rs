//! Text from outside (names, arguments, marks, messages, paths) reaches an output only as [`Foreign`].

use gpuwatch_probe::wire::limits;
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsStr,
    fmt::{self, Write},
    os::unix::ffi::OsStrExt,
};

/// Text from outside. Printing it escapes control and bidirectional characters, so that it cannot move the cursor,
/// forge a line or hide text. Deserialising cuts it to the wire's limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Foreign(#[serde(deserialize_with = "limits::text::<_, { limits::TEXT_MAX }>")] String);

/// Most bytes of a parser's error, which may quote its whole input.
const FAULT_MAX: usize = 240;

/// Returns a parser's error about text from outside, cut to its limit and escaped.
pub fn fault(words: &impl fmt::Display) -> String {
    Foreign::new(limits::shortened(&words.to_string(), FAULT_MAX)).to_string()
}

impl Foreign {
    /// Takes the text unchanged; printing escapes it.
    pub fn new(raw: impl Into<String>) -> Self {
        Self(raw.into())
    }

    /// Returns the unescaped text, for comparing and storing; never print it.
    pub fn raw(&self) -> &str {
        &self.0
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&str> for Foreign {
    fn from(raw: &str) -> Self {
        Self::new(raw)
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut clean = String::with_capacity(self.0.len());
        for c in self.0.chars() {
            if is_unsafe(c) {
                clean.extend(c.escape_unicode());
            } else {
                clean.push(c);
            }
        }
        f.pad(&clean)
    }
}

/// Ranges of characters that are invisible or change how their neighbours are drawn: soft hyphen, bidirectional marks
/// and controls, fillers, line and paragraph separators, invisible marks and operators, tags.
const HIDDEN: [(char, char); 11] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202f}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Whether a character must be escaped: C0, DEL, C1 and the hidden ones.
pub(super) fn is_unsafe(c: char) -> bool {
    c.is_control() || (!c.is_ascii() && HIDDEN.iter().any(|(first, last)| (*first..=*last).contains(&c)))
}

/// Returns the same characters as a JavaScript regular-expression class, for the flag `u`.
pub fn hidden_class() -> String {
    let controls = [('\0', '\u{1f}'), ('\u{7f}', '\u{9f}')];
    let range = |(first, last): (char, char)| format!("\\u{{{:x}}}-\\u{{{:x}}}", u32::from(first), u32::from(last));
    controls.into_iter().chain(HIDDEN).map(range).collect()
}

/// Escapes the characters that [`Foreign`] escapes as `\uXXXX` in JSON. Such characters and DEL occur only inside JSON
/// strings, so any reader restores them.
pub fn escape_json(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if (c.is_ascii() && c != '\u{7f}') || !Foreign::new(c).to_string().starts_with('\\') {
            out.push(c);
        } else {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                // Writing into a String cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

/// Most bytes of a command line that is shown in full.
pub const COMMAND_MAX: usize = 8 << 10;

/// Returns a command line, escaped and quoted where a shell needs quotes. Reads up to about `bytes_max` bytes of it.
pub fn command<'a>(words: impl Iterator<Item = &'a str>, bytes_max: usize) -> String {
    let mut line = String::new();
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        let plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%^".contains(c);
        let shown = Foreign::new(word.chars().take(bytes_max).collect::<String>()).to_string();
        if shown == word && !word.is_empty() && word.chars().all(plain) {
            line.push_str(&shown);
        } else {
            line.push_str(&String::from_utf8_lossy(&Shell::Sh.quote(shown.as_bytes())));
        }
        if line.len() > bytes_max {
            break;
        }
    }
    line
}

/// Most characters of a text that are compared with names.
const COMPARED: usize = 64;

/// How alike names are, by Jaro's measure of 0 to 1, from which one may be meant by the other; clap takes the same.
const ALIKE: f64 = 0.7;

/// Returns the name that is most like a text; the first of several, and none if none is like it.
pub fn nearest<N: AsRef<str>>(text: &str, names: impl IntoIterator<Item = N>) -> Option<N> {
    nearest_three(text, names).into_iter().next()
}

/// Returns `similar names are growth, oom; ` for the names that are like a text; nothing if none is.
pub fn similar_names<N: AsRef<str>>(text: &str, names: impl IntoIterator<Item = N>) -> String {
    let similar = nearest_three(text, names);
    let listed: Vec<&str> = similar.iter().map(AsRef::as_ref).collect();
    if listed.is_empty() { String::new() } else { format!("similar names are {}; ", listed.join(", ")) }
}

/// Returns at most three names that are like a text, the one that is most like it first.
fn nearest_three<N: AsRef<str>>(text: &str, names: impl IntoIterator<Item = N>) -> Vec<N> {
    let text = text.chars().take(COMPARED).collect::<String>().to_lowercase();
    let mut all: Vec<(usize, N)> =
        names.into_iter().filter_map(|it| Some((distance(&text, it.as_ref())?, it))).collect();
    all.sort_by_key(|it| it.0);
    all.into_iter().map(|it| it.1).take(3).collect()
}

/// Returns how many edits are between a text and a name that may be meant by it; `None` if another one is meant.
fn distance(text: &str, name: &str) -> Option<usize> {
    let name = name.to_lowercase();
    let edits = strsim::osa_distance(text, &name);
    let is_begun = text.chars().count() > 1 && (name.contains(text) || text.contains(&name));
    let is_alike = edits <= 1 || is_begun || strsim::jaro(text, &name) > ALIKE;
    (is_alike && !name.is_empty() && !text.is_empty()).then_some(edits)
}

/// The shells that quote differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Shell {
    /// sh, bash, zsh, dash, ksh.
    #[default]
    Sh,
    /// fish.
    Fish,
    /// csh, tcsh.
    Csh,
}

impl Shell {
    /// Returns the line that sets `name` to `value` for all later commands, with its newline.
    pub fn export(self, name: &OsStr, value: &OsStr) -> Vec<u8> {
        let name = name.as_bytes();
        let quoted = self.quote(value.as_bytes());
        let (before, between): (&[u8], &[u8]) = match self {
            Self::Sh => (b"export ", b"="),
            Self::Fish => (b"set -gx ", b" "),
            Self::Csh => (b"setenv ", b" "),
        };
        [before, name, between, &quoted, b"\n"].concat()
    }

    /// Puts a value in single quotes, where only the closing quote needs an escape.
    pub fn quote(self, value: &[u8]) -> Vec<u8> {
        let mut quoted = vec![b'\''];
        for byte in value {
            match (self, byte) {
                (Self::Fish, b'\'' | b'\\') | (Self::Csh, b'!' | b'\n') => quoted.extend([b'\\', *byte]),
                (Self::Sh | Self::Csh, b'\'') => quoted.extend(b"'\\''"),
                _ => quoted.push(*byte),
            }
        }
        quoted.push(b'\'');
        quoted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn nothing_that_moves_a_cursor_is_printed() {
        let nasty = Foreign::from("a\x1b]0;x\x07\u{9b}2J\r\n\u{202e}b\u{2066}c");
        let shown = nasty.to_string();
        assert!(shown.chars().all(|c| !is_unsafe(c)), "{shown:?}");
        assert!(shown.starts_with("a\\u{1b}]0;x"));
        assert_eq!(Foreign::from("träin µ 训练").to_string(), "träin µ 训练");
    }

    #[test]
    fn a_page_hides_no_character_that_a_terminal_does_not() {
        let class = hidden_class();
        let ranges: Vec<Vec<u32>> = class
            .split("}-\\u{")
            .flat_map(|it| it.split("}\\u{"))
            .map(|it| u32::from_str_radix(it.trim_start_matches("\\u{").trim_end_matches('}'), 16).unwrap())
            .collect::<Vec<_>>()
            .chunks(2)
            .map(<[u32]>::to_vec)
            .collect();
        for c in (0..=0x0010_ffff).filter_map(char::from_u32) {
            let is_there = ranges.iter().any(|it| (it[0]..=it[1]).contains(&u32::from(c)));
            assert_eq!(is_unsafe(c), is_there, "{c:?}");
        }
    }

    #[test]
    fn json_has_no_character_that_is_not_printed_as_itself() {
        let nasty: String = (0..0x300).filter_map(char::from_u32).chain("\u{202e}\u{e0001}训".chars()).collect();
        let json = escape_json(&serde_json::to_string(&nasty).unwrap());
        assert!(!json.contains(is_unsafe) && json.contains("\\u007f") && json.contains('训'), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), nasty);
    }

    #[test]
    fn the_nearest_name_is_found_from_any_text() {
        let names = ["growth", "sawtooth", "oom", "growth:host"];
        for (text, name) in [
            ("growht", Some("growth")),
            ("saw-tooth", Some("sawtooth")),
            ("omo", Some("oom")),
            ("Growth:hots", Some("growth:host")),
            ("host", Some("growth:host")),
            ("", None),
            ("nonsense", None),
            ("last", None),
        ] {
            assert_eq!(nearest(text, names), name, "{text}");
        }
        assert_eq!(nearest(&"\u{202e}".repeat(1 << 16), names), None);
        assert_eq!(nearest("growth", [""; 1]), None);
        assert_eq!(nearest_three("growth:hst", names), ["growth:host", "growth"]);
        assert_eq!(nearest_three("oom", ["growth"]), [""; 0]);
    }

    #[test]
    fn a_command_line_can_be_pasted_and_does_nothing_else() {
        let command_ = |words: &[&str]| command(words.iter().copied(), 600);
        assert_eq!(command_(&["python", "my train.py", "--x=1"]), "python 'my train.py' --x=1");
        assert_eq!(command_(&["a'b", ""]), "'a'\\''b' ''");
        assert_eq!(command_(&["x\x1b[2J;rm"]), "'x\\u{1b}[2J;rm'");
    }

    #[test]
    fn sh_reads_back_what_was_exported() {
        for value in ["plain", "it's", "a b$HOME`id`\"\\", "two\nlines", "-n", "", "ünï"] {
            let mut script = Shell::Sh.export(OsStr::new("GIVEN"), OsStr::new(value));
            script.extend(b"printf %s \"$GIVEN\"");
            let printed = Command::new("/bin/sh").arg("-c").arg(OsStr::from_bytes(&script)).output().unwrap().stdout;
            assert_eq!(String::from_utf8(printed).unwrap(), value);
        }
    }

    #[test]
    fn each_shell_has_its_own_syntax() {
        let line = |shell: Shell| String::from_utf8(shell.export(OsStr::new("A"), OsStr::new("it's!"))).unwrap();
        assert_eq!(line(Shell::Sh), "export A='it'\\''s!'\n");
        assert_eq!(line(Shell::Fish), "set -gx A 'it\\'s!'\n");
        assert_eq!(line(Shell::Csh), "setenv A 'it'\\''s\\!'\n");
    }
}
