//! Words of a shell's command line.

use super::Span;

/// Splits a text into words as a shell does, without the quotes around them; `;`, `|`, `&&` and ends of lines are
/// words.
pub(super) fn words(text: &str) -> Vec<Span> {
    let (mut found, mut at) = (Vec::new(), 0);
    let (mut is_open_single, mut is_open_double) = (true, true);
    while let Some(c) = text.get(at..).and_then(|it| it.chars().next()) {
        let rest = text.get(at..).unwrap_or_default();
        let is_open = if c == '"' { &mut is_open_double } else { &mut is_open_single };
        if "\"'".contains(c) && *is_open {
            if let Some(length) = rest.get(1..).and_then(|it| it.find(c)) {
                found.push((at + 1, at + 1 + length));
                at += length + 2;
                continue;
            }
            *is_open = false;
        }
        if c == '\n' || ";|&".contains(c) {
            let length = rest.find(|it| it != c).unwrap_or(rest.len());
            found.push((at, at + length));
            at += length;
        } else if c.is_whitespace() {
            at += c.len_utf8();
        } else {
            let length = rest.char_indices().find(|(it, c)| {
                c.is_whitespace()
                    || ";|".contains(*c)
                    || (*c == '&' && rest.get(*it..).is_some_and(|after| after.starts_with("&&")))
                    || ("\"'".contains(*c) && rest.get(..*it).is_some_and(|before| before.ends_with(['=', '('])))
                    // As in `-p'a b'`.
                    || ("\"'".contains(*c) && *it == 2 && rest.starts_with('-'))
            });
            let length = length.map_or(rest.len(), |it| it.0).max(c.len_utf8());
            let attached = rest.get(length..).and_then(|after| {
                let is_quote = |c: &char| length == 2 && rest.starts_with('-') && "\"'".contains(*c);
                let quote = after.chars().next().filter(is_quote)?;
                after.get(1..)?.find(quote).map(|end| end + 2)
            });
            let length = length + attached.unwrap_or(0);
            found.push((at, at + length));
            at += length;
        }
    }
    found
}

/// Whether a word separates two commands.
pub(super) fn is_separator(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|it| "\n;|&".contains(it))
}
