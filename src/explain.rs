//! `gpuwatch explain`: what is known of a cause, in words.

use crate::{
    analysis::cause::{Cause, Entry, entries},
    output,
};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::{fmt::Write as _, io};

/// Reads the id of a cause; what is none is told with the ids that are near to it.
pub fn cause() -> impl TypedValueParser<Value = Cause> {
    PossibleValuesParser::new(entries().iter().map(|it| it.id)).map(|id| Cause::from_id(&id).unwrap_or(Cause::Unknown))
}

/// Prints what is known of a cause; without one, a line for each.
///
/// # Errors
/// When standard output cannot be written.
pub fn print(cause: Option<Cause>) -> io::Result<()> {
    let text = cause.map_or_else(list, |it| page(it.entry()));
    output::print(&text)
}

fn page(it: &Entry) -> String {
    format!("{}: {}\n\n{}\n\nIn short: {}\n", it.id, it.title, it.text.trim_end(), it.advice)
}

fn list() -> String {
    let width = entries().iter().map(|it| it.id.len()).max().unwrap_or(0);
    let mut out = String::new();
    for it in entries() {
        // Writing into a String cannot fail.
        let _ = writeln!(out, "{:width$}  {}", it.id, it.title);
    }
    out.push_str("\n`gpuwatch explain CAUSE` tells how one is recognised, what it is not, and what to do.\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_has_a_page_and_a_line() {
        let list = list();
        for it in entries() {
            let line = list.lines().find(|line| line.starts_with(&format!("{} ", it.id))).unwrap();
            assert!(line.ends_with(it.title) && line.chars().count() <= 80, "{line}");
            let page = page(it);
            assert!(page.contains(it.text.trim_end()) && page.contains(it.advice) && page.ends_with('\n'));
        }
    }
}
