//! Secrets inside longer texts: messages, URLs, JSON, headers, source code.

use super::{
    HIDDEN,
    names::{Class, class},
    shapes,
};
use std::borrow::Cow;

/// Returns a text of any kind without its secrets.
pub fn text(text: &str) -> Cow<'_, str> {
    scanned(text, true)
}

/// Returns a line of source code without its secrets: only literals are values there, so `key = batch["x"]` hides
/// nothing.
pub fn source(line: &str) -> Cow<'_, str> {
    scanned(line, false)
}

fn scanned(text: &str, is_prose: bool) -> Cow<'_, str> {
    let mut scan = Scan { text, at: 0, copied: 0, out: String::new(), is_prose };
    while scan.at < text.len() {
        scan.step();
    }
    if scan.copied == 0 {
        return Cow::Borrowed(text);
    }
    scan.out.push_str(part(text, scan.copied, text.len()));
    Cow::Owned(scan.out)
}

/// A text during a scan; all positions are character boundaries.
struct Scan<'a> {
    text: &'a str,
    at: usize,
    /// The text before this is in `out`.
    copied: usize,
    out: String,
    /// Whether values may be unquoted.
    is_prose: bool,
}

/// Returns a part of a text; empty if the positions are invalid.
fn part(text: &str, from: usize, to: usize) -> &str {
    text.get(from..to).unwrap_or_default()
}

impl<'a> Scan<'a> {
    fn behind(&self, place: usize) -> &'a str {
        part(self.text, place, self.text.len())
    }

    fn rest(&self) -> &'a str {
        self.behind(self.at)
    }

    /// Replaces a part, and continues after it.
    fn hide(&mut self, from: usize, to: usize) {
        self.out.push_str(part(self.text, self.copied, from));
        self.out.push_str(HIDDEN);
        (self.copied, self.at) = (to, to);
    }

    /// Handles one word, or one other character.
    fn step(&mut self) {
        if self.rest().starts_with("://") {
            return self.authority();
        }
        if self.rest().starts_with("-----BEGIN") && self.rest().contains("PRIVATE KEY-----") {
            return self.hide(self.at, self.text.len());
        }
        let Some(first) = self.rest().chars().next() else { return };
        if !is_of_name(first) {
            self.at += first.len_utf8();
            return;
        }
        let length = self.rest().find(|it| !is_of_name(it)).unwrap_or(self.rest().len());
        let (from, end) = (self.at, self.at + length);
        if let Some((from, to)) = shape(self.text, from, end) {
            return self.hide(from, to);
        }
        let name = part(self.text, from, end).trim_matches('.');
        if let Some((value_from, value_to)) = self.value(name, end) {
            return self.hide(value_from, value_to);
        }
        self.at = end;
    }

    /// Returns where the secret value of a name is, if it has one.
    fn value(&self, name: &str, end: usize) -> Option<(usize, usize)> {
        let after = self.behind(end);
        if self.is_prose && name.eq_ignore_ascii_case("bearer") {
            let from = end + blanks(after);
            let to = from + bare(self.behind(from));
            return (from > end && to - from >= 8).then_some((from, to));
        }
        let class = match class(name) {
            Class::Plain | Class::Login => return None,
            class => class,
        };
        // `"name": `, `['name'] = `, and the same with quotes that are escaped.
        let closing = after.find(|it| !"\\\"'`]".contains(it)).filter(|it| *it <= 6).unwrap_or(0);
        let before_sign = end + closing + blanks(part(after, closing, after.len()));
        let sign = self.behind(before_sign).chars().next();
        let is_option = self.is_prose && name.starts_with("--") && closing == 0 && before_sign > end;
        let from = match sign {
            Some('=' | ':') => before_sign + 1,
            Some(it) if is_option && it != '-' => before_sign,
            _ => return None,
        };
        let is_colon = sign == Some(':');
        let from = if is_colon { self.past_type(from) } else { from };
        if self.behind(from).starts_with(['=', ':']) {
            return None;
        }
        let from = from + blanks(self.behind(from));
        let value = self.behind(from);
        if let Some((opening, length)) = literal(value) {
            let (from, to) = (from + opening, from + opening + length);
            return class.is_secret(part(self.text, from, to)).then_some((from, to));
        }
        // A single word before a colon is more often part of a sentence than a field.
        let is_field = !is_colon || class == Class::Strong || name.contains(['_', '-']);
        if !self.is_prose || !is_field {
            return None;
        }
        let is_header =
            is_colon && name.to_lowercase().ends_with("authorization") || name.eq_ignore_ascii_case("cookie");
        let length = if is_header { value.find(['"', '\'', '\n', '\\']).unwrap_or(value.len()) } else { bare(value) };
        class.is_secret(part(value, 0, length)).then_some((from, from + length))
    }

    /// Returns the position after `: str =`, in source code; otherwise the same position.
    fn past_type(&self, from: usize) -> usize {
        let is_of_type = |it: char| it.is_alphanumeric() || "_.[]| ".contains(it);
        let rest = self.behind(from);
        let sign = rest.find(|it| !is_of_type(it)).filter(|it| part(rest, *it, rest.len()).starts_with('='));
        if self.is_prose { from } else { sign.map_or(from, |it| from + it + 1) }
    }

    /// `://user:secret@host`, `://secret@host`.
    fn authority(&mut self) {
        let from = self.at + 3;
        let rest = self.behind(from);
        let ends = |at: usize| {
            let behind = part(rest, at, rest.len());
            at + behind.find(|it: char| it.is_whitespace() || "/?#\"'<>`\\".contains(it)).unwrap_or(behind.len())
        };
        let mut end = ends(0);
        // A value that is already hidden is not the end.
        while part(rest, end, rest.len()).starts_with(HIDDEN) {
            end = ends(end + HIDDEN.len());
        }
        let Some(sign) = part(rest, 0, end).rfind('@') else {
            self.at = from;
            return;
        };
        match part(rest, 0, sign).split_once(':') {
            Some((user, secret)) if !secret.is_empty() && secret != HIDDEN => {
                self.hide(from + user.len() + 1, from + sign);
            }
            None if sign >= 16 => self.hide(from, from + sign),
            _ => self.at = from + sign,
        }
    }
}

/// Whether a character can be part of a name.
fn is_of_name(it: char) -> bool {
    it.is_alphanumeric() || "_-.".contains(it)
}

/// Returns a secret that begins within a name.
fn shape(text: &str, from: usize, end: usize) -> Option<(usize, usize)> {
    let starts = part(text, from, end).char_indices().map(|(at, _)| from + at);
    let mut starts = starts.filter(|at| *at == from || part(text, 0, *at).ends_with(['-', '.']));
    starts.find_map(|at| Some((at, at + shapes::length(part(text, at, text.len()))?)))
}

/// Returns the bytes of leading blanks.
fn blanks(text: &str) -> usize {
    text.len() - text.trim_start_matches([' ', '\t']).len()
}

/// Returns the bytes of an unquoted value.
fn bare(text: &str) -> usize {
    text.find(|it: char| it.is_whitespace() || ",;&)}]\"'`\\".contains(it)).unwrap_or(text.len())
}

/// Returns where the inside of a literal begins, and its length: for `"x"`, `b'x'`, `\"x\"`, also if unterminated.
fn literal(text: &str) -> Option<(usize, usize)> {
    let prefix = text.find(|it: char| !"rbfuRBFU".contains(it)).filter(|it| *it <= 2)?;
    let rest = part(text, prefix, text.len());
    let escape = usize::from(rest.starts_with('\\'));
    let quote = part(rest, escape, rest.len()).chars().next().filter(|it| "\"'`".contains(*it))?;
    let quotes = part(rest, escape, rest.len()).chars().take(3).take_while(|it| *it == quote).count();
    let opening = prefix + escape + if quotes == 3 { 3 } else { 1 };
    let inside = part(text, opening, text.len());
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        let closes = c == quote && escaped == (escape == 1);
        if closes {
            return Some((opening, at - escape));
        }
        escaped = c == '\\' && !escaped;
    }
    Some((opening, inside.len()))
}
