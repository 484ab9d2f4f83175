//! Detects and hides secrets in texts: one list and one rule for the probe, which sends its command line, and for
//! viewers, which read, record and show it.
//!
//! A secret is recognised by what its name shows together with what its value looks like (`names`, `values`), by its
//! place
//! in a command line (`commands`, `programs`), a URL (`urls`) or a longer text (`scan`), or by its shape alone
//! (`shapes`).
//! Names and values are graded: after `--password` all but a constant, a path and a reference is hidden, after
//! `--sort-key` only what looks random. What is hidden is always the whole value.

mod commands;
mod fields;
mod literals;
mod names;
mod programs;
mod scan;
mod shapes;
mod urls;
mod values;

use scan::Kind;
use std::borrow::Cow;

/// What a value looks like, from what is never a secret to what hardly is anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Grade {
    /// Nothing, a constant, a reference to a value, a path, a special token of a tokenizer.
    Nothing,
    /// A number, a quantity such as `300B`, a date.
    Number,
    /// Letters only.
    Word,
    /// Letters with digits or other characters.
    Mixed,
    /// Like drawn at random.
    Random,
    /// What no value reaches.
    Never,
}

/// Replaces a secret.
pub const HIDDEN: &str = "<redacted>";

/// A part of a text, by its first byte and the one after its last.
type Span = (usize, usize);

/// What is hidden may show what is beside it in another light, so a text is read until nothing more is found, but not
/// more often than this.
const PASSES: usize = 6;

/// How deep commands within commands are read, as in `bash -c "ssh host 'mysql -pX'"`.
const DEPTH: usize = 3;

/// Returns a command line without its secrets.
pub fn arguments<S: AsRef<str>>(argv: &[S]) -> Vec<String> {
    let mut argv: Vec<String> = argv.iter().map(|it| it.as_ref().to_owned()).collect();
    for _ in 0..PASSES {
        let spans = spans_of_arguments(&argv);
        let shown: Vec<Option<String>> = argv.iter().zip(spans).map(|(it, spans)| replaced(it, spans)).collect();
        if shown.iter().all(Option::is_none) {
            return argv;
        }
        for (it, shown) in argv.iter_mut().zip(shown) {
            *it = shown.unwrap_or_else(|| std::mem::take(it));
        }
    }
    argv.iter().map(|_| HIDDEN.to_owned()).collect()
}

/// Returns a variable, `NAME=value`, without its secrets.
pub fn variable(variable: &str) -> Cow<'_, str> {
    settled(variable, |it| spans_of_arguments(&[it.to_owned()]).pop().unwrap_or_default())
}

/// Returns a text of any kind without its secrets.
pub fn text(text: &str) -> Cow<'_, str> {
    settled(text, |it| spans_of_text(it, 0))
}

/// Returns a line of source code without its secrets: only literals are values there, so `key = batch["x"]` hides
/// nothing.
pub fn source(line: &str) -> Cow<'_, str> {
    settled(line, |line| {
        // Notebooks run such a line in a shell.
        if line.trim_start().starts_with(['!', '%']) {
            return spans_of_text(line, 0);
        }
        let mut spans = scan::spans(line, Kind::Source);
        if line.trim_start().starts_with('#') {
            spans.extend(spans_of_commands(line, 0));
        }
        spans.extend(spans_of_literals(line, true));
        spans
    })
}

/// Returns whether a list of words, with a blank between two, has this one.
fn listed(list: &str, word: &str) -> bool {
    list.split(' ').any(|it| it == word)
}

fn spans_of_arguments(argv: &[String]) -> Vec<Vec<Span>> {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    let mut spans: Vec<Vec<Span>> = words.iter().map(|it| spans_of_text(it, 0)).collect();
    for (at, span) in commands::spans(&words, true) {
        spans[at].push(span);
    }
    spans
}

fn spans_of_text(text: &str, depth: usize) -> Vec<Span> {
    let mut spans = scan::spans(text, Kind::Prose);
    spans.extend(spans_of_literals(text, false));
    spans.extend(spans_of_commands(text, depth));
    spans
}

/// Returns the secrets of lists of literals that are command lines, and with `are_texts`, of commands in a literal.
fn spans_of_literals(text: &str, are_texts: bool) -> Vec<Span> {
    let mut spans = Vec::new();
    for list in scan::literals(text) {
        let words: Vec<&str> = list.iter().map(|it| text.get(it.0..it.1).unwrap_or_default()).collect();
        if words.len() > 1 {
            let found = commands::spans(&words, true);
            spans.extend(found.into_iter().map(|(at, it)| (list[at].0 + it.0, list[at].0 + it.1)));
        }
        for (word, place) in words.iter().zip(&list).filter(|_| are_texts) {
            spans.extend(spans_of_commands(word, 0).into_iter().map(|it| (place.0 + it.0, place.0 + it.1)));
        }
    }
    spans
}

/// Returns the secrets of the commands in a text.
fn spans_of_commands(text: &str, depth: usize) -> Vec<Span> {
    let places = commands::words(text);
    if places.len() < 2 {
        return Vec::new();
    }
    let words: Vec<&str> = places.iter().map(|it| text.get(it.0..it.1).unwrap_or_default()).collect();
    let found = commands::spans(&words, false);
    let mut spans: Vec<Span> = found.into_iter().map(|(at, it)| (places[at].0 + it.0, places[at].0 + it.1)).collect();
    for (word, place) in words.iter().zip(&places) {
        if depth < DEPTH && word.contains(' ') {
            spans.extend(spans_of_commands(word, depth + 1).into_iter().map(|it| (place.0 + it.0, place.0 + it.1)));
        }
    }
    spans
}

/// Replaces secrets until none is found. Then hiding them once more changes nothing.
fn settled(text: &str, spans: impl Fn(&str) -> Vec<Span>) -> Cow<'_, str> {
    let mut shown = Cow::Borrowed(text);
    for _ in 0..PASSES {
        match replaced(&shown, spans(&shown)) {
            None => return shown,
            Some(it) => shown = Cow::Owned(it),
        }
    }
    Cow::Borrowed(HIDDEN)
}

/// Replaces parts of a text; `None` if that changes nothing. Parts that overlap or touch become one.
fn replaced(text: &str, mut spans: Vec<Span>) -> Option<String> {
    spans.retain(|it| it.0 < it.1);
    spans.sort_unstable();
    let (mut out, mut copied) = (String::new(), 0);
    let mut spans = spans.into_iter().peekable();
    while let Some((from, mut to)) = spans.next() {
        while let Some(next) = spans.next_if(|it| it.0 <= to) {
            to = to.max(next.1);
        }
        out.push_str(text.get(copied..from).unwrap_or_default());
        out.push_str(HIDDEN);
        copied = to;
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    (out != text).then_some(out)
}

#[cfg(test)]
mod tests;
