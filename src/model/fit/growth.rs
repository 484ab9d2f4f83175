//! Whether a job's peak rises by as much in each step: what it keeps then fills any device.

/// Steps whose peaks show growth.
const STEPS: usize = 6;

/// The last rises that are compared; the first steps rise in every job, as gradients and optimizer state appear.
const RISES: usize = 4;

/// Growth that fills a device only after more steps than this is of no interest.
const MOST_STEPS: u64 = 1_000_000;

/// Returns the bytes that each step adds, from the highest allocated bytes so far after each step: these go up by about
/// the same amount in each of the last steps. Batches of varying sizes raise a peak by different amounts, and not in
/// each step.
pub fn growth(peaks: &[u64]) -> Option<u64> {
    let latest = peaks.get(peaks.len().checked_sub(RISES + 1)?..).filter(|_| peaks.len() >= STEPS)?;
    let mut rises: Vec<u64> = latest.windows(2).map(|it| it[1].saturating_sub(it[0])).collect();
    rises.sort_unstable();
    let (least, most) = (*rises.first()?, *rises.last()?);
    (least > 0 && most <= least.saturating_add(least / 2)).then(|| rises.get(RISES / 2).copied())?
}

/// Returns the step in which such growth has used up `free` more bytes, after `steps` that ran; `None` if that is too
/// far away.
pub fn full_after(steps: u64, free: u64, growth: u64) -> Option<u64> {
    let after = free.checked_div(growth)?.saturating_add(steps);
    (after <= MOST_STEPS).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_peak_that_rises_steadily_grows() {
        assert_eq!(growth(&[50, 80, 90, 100, 110, 120, 130]), Some(10));
        assert_eq!(growth(&[50, 80, 90, 101, 110, 122, 130]), Some(11));
        assert_eq!(growth(&[50, 80, 90, 100, 110]), None);
        assert_eq!(growth(&[50, 80, 90, 100, 110, 110, 120]), None);
        assert_eq!(growth(&[50, 80, 90, 95, 120, 121, 160]), None);
        assert_eq!(growth(&[]), None);
    }

    #[test]
    fn growth_fills_a_device_after_some_steps() {
        assert_eq!(full_after(12, 1000, 10), Some(112));
        assert_eq!(full_after(12, 1 << 40, 512), None);
        assert_eq!(full_after(12, 5, 0), None);
    }
}
