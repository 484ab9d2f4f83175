//! Predicts the next rise of memory that rises once in many steps: at the end of an epoch, or with each evaluation.

use super::{
    Trail,
    row::{Kept, Row},
};
use crate::{facts::event::Rises, model::analysis::episode::Episode};

/// Rises needed for a period.
const ENOUGH: usize = 3;

/// Rises closer together than this share of the longest distance count as one.
const APART: u64 = 4;

/// If a rise comes earlier or later than this share of the period, there is no period.
const REGULAR: u64 = 3;

/// A rise: after the first of these steps, at the latest at the second.
type Span = (u64, u64);

impl Trail {
    /// Returns how regularly live memory rose over an episode; `None` if it did not, or not often enough.
    pub fn cadence(&self, episode: &Episode) -> Option<Rises> {
        let rows = self.rows(episode.since_step, episode.last_step);
        let from = self.recent.oldest();
        let latest = || rows.iter().filter(|it| from.is_some_and(|first| it.step >= first.step));
        // The latest rows cover every step. Older rows are further apart and show rarer rises.
        let of_latest = rises(&latest().copied().collect::<Vec<_>>());
        let of_all = rises(&rows);
        let is_sparse = of_all.len() * 2 < rows.len();
        cadence(&of_latest).or_else(|| cadence(&of_all).filter(|_| is_sparse))
    }
}

/// Lasting rises of the count of live blocks, or of live bytes if the count does not rise.
fn rises(rows: &[Row]) -> Vec<Span> {
    let of_blocks = lasting(rows, |it| it.get(Kept::Blocks));
    if of_blocks.is_empty() { lasting(rows, |it| it.get(Kept::Allocated)) } else { of_blocks }
}

/// Rises of a series' floor, which is the lowest of all later values.
fn lasting(rows: &[Row], value: impl Fn(&Row) -> Option<u64>) -> Vec<Span> {
    let (mut floor, mut out) = (u64::MAX, Vec::new());
    for pair in rows.windows(2).rev() {
        let [old, new] = pair else { continue };
        let (Some(before), Some(after)) = (value(old), value(new)) else { continue };
        let high = floor.min(after);
        floor = high.min(before);
        if floor < high {
            out.push((old.step, new.step));
        }
    }
    out.reverse();
    out
}

fn cadence(rises: &[Span]) -> Option<Rises> {
    let longest = rises.windows(2).filter_map(|it| it.last()?.1.checked_sub(it.first()?.1)).max()?;
    let mut apart: Vec<Span> = Vec::new();
    for rise in rises {
        match apart.last_mut() {
            Some(last) if (rise.1 - last.1) * APART < longest => last.1 = rise.1,
            _ => apart.push(*rise),
        }
    }
    let (first, last) = (*apart.first()?, *apart.last()?);
    if apart.len() < ENOUGH {
        return None;
    }
    let count = apart.len() as u64 - 1;
    let every = (last.1 - first.1 + count / 2) / count;
    let off = |(place, it): (usize, &Span)| {
        let due = last.1.saturating_sub(every * (count - place as u64));
        // The rise happened at any of these steps but the first.
        due.abs_diff(it.1).max(due.abs_diff(it.0 + 1))
    };
    let slack = apart.iter().enumerate().map(off).max()?;
    (slack * REGULAR < every).then_some(Rises { every, last: last.1, slack })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(steps: impl IntoIterator<Item = u64>, width: u64) -> Vec<Span> {
        steps.into_iter().map(|it| (it - width, it)).collect()
    }

    #[test]
    fn rises_at_regular_distances_have_a_period() {
        let every_25 = spans((1..=5).map(|it| 25 * it), 1);
        assert_eq!(cadence(&every_25), Some(Rises { every: 25, last: 125, slack: 0 }));
        // Some steps early or late.
        let shaken = spans([25, 51, 74, 101, 125], 1);
        assert_eq!(cadence(&shaken), Some(Rises { every: 25, last: 125, slack: 1 }));
        // Several rises of one evaluation.
        let twice = spans([24, 25, 49, 50, 74, 75], 1);
        assert_eq!(cadence(&twice), Some(Rises { every: 25, last: 75, slack: 1 }));
        // Rows that are far apart.
        assert_eq!(cadence(&spans([5008, 10_000, 15_008], 16)), Some(Rises { every: 5000, last: 15_008, slack: 23 }));
    }

    #[test]
    fn irregular_or_too_rare_rises_have_no_cadence() {
        assert_eq!(cadence(&[]), None);
        assert_eq!(cadence(&spans([25, 50], 1)), None);
        assert_eq!(cadence(&spans([10, 40, 50, 110], 1)), None);
        assert_eq!(cadence(&spans(1..=9, 1)), Some(Rises { every: 1, last: 9, slack: 0 }));
    }
}
