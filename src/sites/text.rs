//! The answer in words.

use crate::{
    event::wire::{Site, Sites},
    text::Foreign,
    units,
};
use std::fmt::Write as _;

/// The answer, a line each.
pub(super) fn answer(it: &Sites) -> String {
    let mut out = String::new();
    for site in &it.sites {
        // Writing into a String cannot fail.
        let _ = writeln!(out, "{}", of(site, it.steps));
    }
    if it.sites.is_empty() {
        let _ = writeln!(out, "nothing grew in {} steps", it.steps);
    }
    if let Some(trouble) = &it.trouble {
        let _ = writeln!(out, "{}", Foreign::new(trouble.as_str()));
    }
    out
}

fn of(it: &Site, steps: u64) -> String {
    let steps = steps.max(1) as f64;
    let rate = units::per_step(it.bytes as f64 / steps);
    format!("{}:{} {} {rate}", Foreign::new(it.file.as_str()), it.line, Foreign::new(it.function.as_str()))
}
