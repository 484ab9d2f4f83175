//! Reads Rust source just far enough for the checks of `tidy`: comments, string literals and the rest.

#![allow(clippy::string_slice, reason = "every offset comes from `find`, `char_indices` or `len_utf8`")]

/// A piece of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A comment up to the end of its line, with its slashes.
    Comment(&'a str),
    /// A string literal, between its quotes, with its escapes.
    Text(&'a str),
    /// A character literal, a lifetime, or one character of code.
    Code(&'a str),
}

/// Splits source into tokens, each with the line that it starts on, from 1.
pub(crate) fn tokens(source: &str) -> Vec<(usize, Token<'_>)> {
    let (mut tokens, mut rest, mut line) = (Vec::new(), source, 1);
    while let Some((token, length)) = next(rest) {
        tokens.push((line, token));
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    tokens
}

/// Returns the first token and its length in bytes.
fn next(rest: &str) -> Option<(Token<'_>, usize)> {
    let first = rest.chars().next()?;
    if rest.starts_with("//") {
        let end = rest.find('\n').unwrap_or(rest.len());
        return Some((Token::Comment(&rest[..end]), end));
    }
    if let Some((start, end, length)) = raw(rest) {
        return Some((Token::Text(&rest[start..end]), length));
    }
    if first == '"' {
        let end = 1 + closing(&rest[1..]);
        return Some((Token::Text(&rest[1..end]), (end + 1).min(rest.len())));
    }
    let length = match first {
        '\'' => character(rest),
        'r' | 'b' | 'c' | '_' => word(rest),
        _ if first.is_alphanumeric() => word(rest),
        _ => first.len_utf8(),
    };
    Some((Token::Code(&rest[..length]), length))
}

/// The length of the word, without a prefix of a literal that follows at once, as in `b"…"`.
fn word(rest: &str) -> usize {
    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
}

/// Where a raw string's content starts and ends, and the literal's length.
fn raw(rest: &str) -> Option<(usize, usize, usize)> {
    let after = rest.strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let content = after[hashes..].strip_prefix('"')?;
    let start = rest.len() - content.len();
    let quote = format!("\"{}", "#".repeat(hashes));
    let end = start + content.find(&quote).unwrap_or(content.len());
    Some((start, end, (end + quote.len()).min(rest.len())))
}

/// Where the quote is that ends a string.
fn closing(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal, or of the quote that begins a lifetime.
fn character(rest: &str) -> usize {
    let mut after = rest[1..].chars();
    match (after.next(), after.next()) {
        (Some('\\'), Some(escaped)) => {
            let start = 2 + escaped.len_utf8();
            rest[start..].find('\'').map_or(1, |end| start + end + 1)
        }
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 1,
    }
}

#[test]
fn quotes_in_comments_characters_and_raw_strings_do_not_end_a_string() {
    let source = "let it: &'a str = \"a \\\" b\"; // not \"this\"\n('\"', '\\'', r#\"raw \" it\"#, b\"bytes\")";
    let texts: Vec<_> = tokens(source)
        .into_iter()
        .filter_map(|(line, token)| match token {
            Token::Text(text) => Some((line, text)),
            _ => None,
        })
        .collect();
    assert_eq!(texts, [(1, "a \\\" b"), (2, "raw \" it"), (2, "bytes")]);
}
