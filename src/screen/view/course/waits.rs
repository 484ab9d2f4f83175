//! Which rank the others wait for, along the steps: the one that reaches them last, by more than a little.

use crate::{
    facts::units,
    model::session::process::{OnDevice, Process},
    screen::view::messages,
};
use std::ops::Range;

/// The row's label.
pub(super) const LABEL: &str = "last to step";

/// Shows no rank, or one without a number.
const NONE: char = ' ';
const UNNUMBERED: char = '?';

/// Returns whether the ranks have been compared.
pub(super) fn is_known(ranks: &[(&Process, &OnDevice)]) -> bool {
    ranks.len() > 1 && ranks.iter().any(|(_, on)| !on.skew.late().buckets().is_empty())
}

/// Returns the last digit of the rank that the others wait for in each column, and the latest such rank in words.
/// `columns` returns the columns of a range of steps.
pub(super) fn row(
    ranks: &[(&Process, &OnDevice)],
    room: usize,
    columns: impl Fn(u64, u64) -> Range<u16>,
) -> (String, String) {
    let mut shown: Vec<(u64, char)> = vec![(0, NONE); room];
    for (process, on) in ranks {
        let least = on.skew.latest().map_or(u64::MAX, |it| it.least_delay_us());
        let digit = process.rank().and_then(|it| char::from_digit(u32::try_from(it % 10).ok()?, 10));
        let mut from = on.skew.late().buckets().oldest().map_or(0, |it| it.x);
        for it in on.skew.late().buckets() {
            let cells = columns(from, it.x);
            from = it.x.saturating_add(1);
            let cells = shown.get_mut(usize::from(cells.start)..usize::from(cells.end)).unwrap_or_default();
            for cell in cells.iter_mut().filter(|cell| it.high >= least && it.high > cell.0) {
                *cell = (it.high, digit.unwrap_or(UNNUMBERED));
            }
        }
    }
    (shown.into_iter().map(|(_, digit)| digit).collect(), latest(ranks).unwrap_or_else(|| "all together".to_owned()))
}

/// Returns `rank 1, 85 ms`.
fn latest(ranks: &[(&Process, &OnDevice)]) -> Option<String> {
    let late = ranks.iter().filter_map(|(process, on)| {
        let compared = on.skew.latest()?;
        let us = units::whole(compared.later_us?.max(0.0));
        (us >= compared.least_delay_us()).then_some((us, *process))
    });
    let (us, process) = late.max_by_key(|(us, process)| (*us, std::cmp::Reverse(process.probe)))?;
    Some(format!("{}, {}", messages::short(process), units::brief(us)))
}
