//! Reads Rust source just far enough for the checks of `tidy` and `voice`: comments, string literals and the rest.

#![allow(clippy::string_slice, reason = "every offset comes from `find`, `char_indices` or `len_utf8`")]

use std::collections::HashSet;

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

/// Returns the comments of a source file with their first lines: comments on adjacent lines are one. Code between
/// backquotes is left out, and a line without words ends a sentence.
pub(crate) fn comments(name: &str, source: &str) -> Vec<(usize, String)> {
    let lines: Vec<(usize, &str)> = match name.rsplit('.').next() {
        Some("rs") => {
            let tokens = tokens(source).into_iter();
            tokens.filter_map(|(line, it)| if let Token::Comment(it) = it { Some((line, it)) } else { None }).collect()
        }
        Some("py") => python_comments(source),
        _ => source.lines().enumerate().map(|(at, it)| (at + 1, it)).filter(|it| is_c_comment(it.1)).collect(),
    };
    let mut comments: Vec<(usize, usize, String)> = Vec::new();
    for (line, text) in lines {
        let text = text.trim_start().trim_start_matches(['/', '!', '#', '*']);
        let text = if text.trim().is_empty() { "." } else { text };
        match comments.last_mut().filter(|it| it.1 + 1 == line) {
            Some((_, last, all)) => (*last, *all) = (line, format!("{all} {text}")),
            None => comments.push((line, line, text.to_owned())),
        }
    }
    let prose = |text: &str| text.split('`').step_by(2).collect::<Vec<_>>().join(" . ");
    comments.into_iter().map(|(line, _, text)| (line, prose(&text))).collect()
}

/// Returns the names and keywords of a source file, each with its line.
pub(crate) fn names<'a>(file: &str, source: &'a str) -> Vec<(usize, &'a str)> {
    if file.rsplit('.').next() == Some("py") {
        return python_names(source);
    }
    let tokens = tokens(source).into_iter();
    tokens
        .filter_map(|(line, it)| if let Token::Code(it) = it { Some((line, it)) } else { None })
        .filter(is_name)
        .collect()
}

fn is_name((_, word): &(usize, &str)) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Returns the names on lines of Python that are neither comments nor docstrings, outside of strings on one line.
fn python_names(source: &str) -> Vec<(usize, &str)> {
    let prose: HashSet<usize> = python_comments(source).into_iter().map(|it| it.0).collect();
    let lines = source.lines().enumerate().map(|(at, it)| (at + 1, it)).filter(|it| !prose.contains(&it.0));
    let mut names = Vec::new();
    for (line, text) in lines {
        let code = text.split('"').step_by(2).flat_map(|it| it.split('\'').step_by(2));
        let words = code.flat_map(|it| it.split(|c: char| !c.is_alphanumeric() && c != '_'));
        names.extend(words.map(|word| (line, word)).filter(is_name));
    }
    names
}

fn is_c_comment(line: &str) -> bool {
    ["//", "/*", "*"].iter().any(|it| line.trim_start().starts_with(it))
}

/// Returns the lines of comments and of docstrings.
fn python_comments(source: &str) -> Vec<(usize, &str)> {
    let (mut lines, mut is_docstring) = (Vec::new(), false);
    for (at, line) in source.lines().enumerate() {
        let text = line.trim_start();
        let quotes = text.matches(QUOTES).count();
        let begins = text.trim_start_matches('r').starts_with(QUOTES);
        if is_docstring || begins || text.starts_with('#') {
            lines.push((at + 1, text));
        }
        is_docstring = if is_docstring { quotes == 0 } else { begins && quotes == 1 };
    }
    lines
}

/// The quotes of a docstring.
const QUOTES: &str = "\"\"\"";

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

#[test]
fn comments_are_joined_and_found_in_each_language() {
    let text = "//! One `code`\n//! two.\n\nlet it = \"// text\"; // Three\n";
    assert_eq!(comments("a.rs", text), [(1, " One  .   two.".to_owned()), (4, " Three".to_owned())]);
    let text = "\"\"\"One.\n\nTwo.\n\"\"\"\nit = '# text'\n    # Three\n";
    assert_eq!(comments("a.py", text).iter().map(|it| it.0).collect::<Vec<_>>(), [1, 6]);
    assert_eq!(comments("a.h", "/* One\n * two */\nint it;\n").len(), 1);
}
