//! How long steps take, as bars in one row: of the process screen and under the timeline.

use crate::model::analysis::pace::Stretch;

/// The scale spans at least this part of its lowest value, so that noise does not look large.
const FLATTEST: u64 = 2;

/// Returns a bar for each column: the mean duration of its steps, from the shortest column on. A column that no stretch
/// ends in has the bar of the next one, which covers it; `column` places a stretch, `None` outside.
pub(super) fn bars(
    stretches: impl IntoIterator<Item = Stretch>,
    columns: usize,
    symbols: &[char; 8],
    column: impl Fn(&Stretch) -> Option<usize>,
) -> String {
    let mut sums = vec![(0_u64, 0_u64); columns];
    for it in stretches {
        if let Some((us, steps)) = column(&it).and_then(|at| sums.get_mut(at)) {
            (*us, *steps) = (us.saturating_add(it.total_us), steps.saturating_add(it.steps));
        }
    }
    let means: Vec<Option<u64>> = sums.iter().map(|(us, steps)| us.checked_div(*steps)).collect();
    let known = || means.iter().flatten().copied();
    let (Some(low), Some(high)) = (known().min(), known().max()) else { return String::new() };
    let high = high.max(low.saturating_add(low / FLATTEST));
    let top = symbols.len() as u64 - 1;
    let bar = |us: u64| {
        let level = u128::from(us - low) * u128::from(top) / u128::from((high - low).max(1));
        usize::try_from(level).ok().and_then(|it| symbols.get(it)).copied().unwrap_or(' ')
    };
    let mut next = None;
    let mut row: Vec<char> = means
        .iter()
        .rev()
        .map(|mean| {
            next = mean.or(next);
            next.map_or(' ', bar)
        })
        .collect();
    row.reverse();
    row.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::units::Stamp;

    #[test]
    fn slow_steps_are_high_and_noise_is_low() {
        let stretch =
            |step: u64, us: u64| Stretch { step, at: Stamp(0), steps: 1, total_us: us, low_us: us, high_us: us };
        let symbols = ['0', '1', '2', '3', '4', '5', '6', '7'];
        let run: Vec<_> = (0..10).map(|it| stretch(it, if it == 6 { 300 } else { 100 })).collect();
        let row = |run: &[Stretch]| bars(run.iter().copied(), 10, &symbols, |it| usize::try_from(it.step).ok());
        assert_eq!(row(&run), "0000007000");
        let noise: Vec<_> = (0..10).map(|it| stretch(it, 100 + it % 2)).collect();
        assert!(row(&noise).chars().all(|it| it == '0'), "{}", row(&noise));
        let sparse: Vec<_> = run.iter().copied().filter(|it| it.step % 3 == 0).collect();
        assert_eq!(row(&sparse), "0000777000");
        assert_eq!(row(&[]), "");
    }
}
