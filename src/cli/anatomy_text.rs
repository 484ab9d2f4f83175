//! What memory consists of at a moment, as rows of text.

use crate::facts::{
    event::anatomy::{Anatomy, AnatomyPart, StepPhase},
    units::Bytes,
};

/// Returns a row for each part that has bytes.
pub(crate) fn parts(it: &Anatomy) -> String {
    AnatomyPart::WORDS.iter().filter_map(|(part, words)| Some(row(*it.parts.get(part)?, it.allocated, words))).collect()
}

/// Returns a row for each phase in which some of it was allocated.
pub(crate) fn phases(it: &Anatomy) -> String {
    StepPhase::WORDS.iter().filter_map(|(of, words)| Some(row(*it.phases.get(of)?, it.allocated, words))).collect()
}

/// Returns `  11.32 GiB  61 %  words`, with its newline.
pub(crate) fn row(bytes: u64, of: u64, words: &str) -> String {
    format!("  {:>10}  {:>4}  {words}\n", Bytes(bytes).to_string(), share(bytes, of))
}

fn share(bytes: u64, of: u64) -> String {
    format!("{:.0} %", 100.0 * bytes as f64 / of.max(1) as f64)
}
