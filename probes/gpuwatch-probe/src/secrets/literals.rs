//! Where values end: literals with their quotes, unquoted words, the items of lists and mappings.

use super::{HIDDEN, Span};

/// More of an unquoted value, or of a list, is not read before it is known to be a secret.
pub(super) const READ_MAX: usize = 1024;

/// A literal in quotes.
pub(super) struct Quoted {
    /// The bytes before the inside.
    pub opening: usize,
    /// The bytes of the inside.
    pub inside: usize,
    /// The bytes of all.
    pub whole: usize,
}

/// An item of a list or of a mapping.
pub(super) struct Item {
    /// The inside of its value.
    pub span: Span,
    pub is_quoted: bool,
    /// The bytes of its name, if it has one.
    pub name: Option<usize>,
}

fn part(text: &str, from: usize, to: usize) -> &str {
    text.get(from..to).unwrap_or_default()
}

/// Returns the bytes of leading blanks.
pub(super) fn blanks(text: &str) -> usize {
    text.len() - text.trim_start_matches([' ', '\t']).len()
}

/// Returns the literal that a text begins with: `"x"`, `b'x'`, `\"x\"`, also if unterminated.
pub(super) fn quoted(text: &str) -> Option<Quoted> {
    let prefix = text.find(|it: char| !"rbfuRBFU".contains(it)).filter(|it| *it <= 2)?;
    let rest = part(text, prefix, text.len());
    let escapes = rest.len() - rest.trim_start_matches('\\').len();
    let quote = part(rest, escapes, rest.len()).chars().next().filter(|it| "\"'`".contains(*it))?;
    let after = part(rest, escapes, rest.len());
    let triple = after.bytes().take(3).take_while(|it| char::from(*it) == quote).count() == 3 && escapes == 0;
    let opening = prefix + escapes + if triple { 3 } else { 1 };
    let inside = part(text, opening, text.len());
    let mut before = 0;
    for (at, c) in inside.char_indices() {
        // As many backslashes as before the opening quote are before the closing one.
        let closes = c == quote
            && (if escapes == 0 { before % 2 == 0 } else { before == escapes })
            && (!triple
                || part(inside, at, inside.len()).bytes().take(3).filter(|it| char::from(*it) == quote).count() == 3);
        if closes {
            let whole = opening + at + if triple { 3 } else { 1 };
            return Some(Quoted { opening, inside: at - escapes.min(at), whole });
        }
        before = if c == '\\' { before + 1 } else { 0 };
    }
    Some(Quoted { opening, inside: inside.len(), whole: text.len() })
}

/// Returns the literal that follows another one, `"a" "b"` or `"a" + "b"`, and the bytes before it.
pub(super) fn adjoining(text: &str) -> Option<(usize, Quoted)> {
    let first = blanks(text);
    let rest = part(text, first, text.len());
    let plus = rest.strip_prefix('+').map_or(0, |it| 1 + blanks(it));
    let at = first + plus;
    let it = quoted(part(text, at, text.len()))?;
    (it.whole < text.len() - at || part(text, at, text.len()).len() == it.whole).then_some((at, it))
}

/// Returns the bytes of an unquoted value; `is_query` is whether it is in the query of a URL.
///
/// A value without an end is as long as what is read of it.
pub(super) fn bare(text: &str, is_query: bool) -> usize {
    let mut depth = 0_usize;
    let mut before = ' ';
    for (at, c) in text.char_indices().take(READ_MAX) {
        let rest = part(text, at, text.len());
        let is_escaped = std::mem::replace(&mut before, c) == '\\';
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth > 0 => depth -= 1,
            '<' if rest.starts_with(HIDDEN) => {}
            '\\' if rest.starts_with("\\ ") => {}
            ' ' if is_escaped => {}
            ')' | ']' | '}' | '"' | '\'' | '`' | '\\' | '<' => return at,
            ',' | ';' if ends_before(part(text, at + 1, text.len()), c) => return at,
            '&' if is_query || rest.starts_with("&&") => return at,
            _ if c.is_whitespace() => return at,
            _ => {}
        }
    }
    text.char_indices().nth(READ_MAX).map_or(text.len(), |it| it.0)
}

/// Returns where a value ends whose first bytes are a secret.
pub(super) fn end_of_bare(text: &str, from: usize) -> usize {
    let ends = |it: char| it.is_whitespace() || "\"'`\\<;,&)]}".contains(it);
    from + part(text, from, text.len()).find(ends).unwrap_or(text.len() - from.min(text.len()))
}

/// Whether a comma or a semicolon before this text ends a value: another name, a blank or nothing follows.
fn ends_before(after: &str, separator: char) -> bool {
    let is_of_name = |it: char| it.is_ascii_alphanumeric() || "_-.+".contains(it) || (it == ' ' && separator == ';');
    let name = after.chars().take(48).take_while(|it| is_of_name(*it)).count();
    after.is_empty()
        || after.starts_with(|it: char| it.is_whitespace() || "\"'{[(".contains(it))
        || (name > 0 && part(after, name, after.len()).starts_with(['=', ':']))
}

/// Returns the items of the list, tuple or mapping that a text begins with.
pub(super) fn items(text: &str) -> Vec<Item> {
    let (mut found, mut at, mut depth) = (Vec::new(), 0, 0_usize);
    let mut name = None;
    while at < text.len().min(READ_MAX / 2) && found.len() < 32 {
        let rest = part(text, at, text.len());
        let Some(c) = rest.chars().next() else { break };
        match c {
            '[' | '(' | '{' => depth += 1,
            ']' | ')' | '}' => {
                depth -= 1;
                if depth == 0 {
                    break;
                }
            }
            ',' => name = None,
            _ if c.is_whitespace() => {}
            _ => {
                let literal = quoted(rest);
                let (span, whole) = if let Some(it) = &literal {
                    ((at + it.opening, at + it.opening + it.inside), it.whole)
                } else {
                    let ends = |it: char| it.is_whitespace() || ",:=()[]{}\"'".contains(it);
                    let length = rest.find(ends).unwrap_or(rest.len());
                    ((at, at + length), length.max(c.len_utf8()))
                };
                let is_quoted = literal.is_some();
                at += whole;
                let rest = part(text, at, text.len());
                let after = rest.trim_start();
                if after.starts_with([':', '=']) {
                    name = Some(span.1 - span.0);
                    at += rest.len() - after.len() + 1;
                } else if span.1 > span.0 && !after.starts_with(['(', '[', '.']) {
                    found.push(Item { span, is_quoted, name });
                }
                continue;
            }
        }
        at += c.len_utf8();
    }
    found
}
