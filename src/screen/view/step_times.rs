//! How long steps take, as bars: of the process screen, under the timeline, and of all ranks on one scale.

use crate::{
    facts::units,
    model::{
        analysis::pace::{Pace, Stretch},
        session::process::OnDevice,
    },
    screen::{
        theme::Role,
        view::{RenderContext, cells},
    },
};
use ratatui::text::{Line, Span};

/// The scale spans at least this part of its lowest value, so that noise does not look large.
const FLATTEST: u64 = 2;

/// The mean duration of the steps in each column, in µs; `None` where no stretch ends.
pub(super) type Means = Vec<Option<u64>>;

/// Returns the mean duration of the steps in each column; `column` places a stretch, `None` outside.
pub(super) fn means(
    stretches: impl IntoIterator<Item = Stretch>,
    columns: usize,
    column: impl Fn(&Stretch) -> Option<usize>,
) -> Means {
    let mut sums = vec![(0_u64, 0_u64); columns];
    for it in stretches {
        if let Some((us, steps)) = column(&it).and_then(|at| sums.get_mut(at)) {
            (*us, *steps) = (us.saturating_add(it.total_us), steps.saturating_add(it.steps));
        }
    }
    sums.iter().map(|(us, steps)| us.checked_div(*steps)).collect()
}

/// Durations from the lowest to the highest bar, in µs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    low: u64,
    high: u64,
}

impl Scale {
    /// Returns the scale that these durations share; `None` without any.
    pub(super) fn of<'a>(rows: impl IntoIterator<Item = &'a Means>) -> Option<Self> {
        let known = rows.into_iter().flatten().flatten().copied();
        let (low, high) = known.map(|us| (us, us)).reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))?;
        Some(Self { low, high: high.max(low.saturating_add(low / FLATTEST)) })
    }

    /// Returns a bar for each column. A column without a duration has the bar of the next one, which covers it.
    pub(super) fn bars(self, means: &Means, symbols: &[char; 8]) -> String {
        let top = symbols.len() as u64 - 1;
        let bar = |us: u64| {
            let range = (self.high - self.low).max(1);
            let level = u128::from(us.saturating_sub(self.low)) * u128::from(top) / u128::from(range);
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
}

/// Returns the bars of one row, on a scale of its own; none without durations.
pub(super) fn bars(means: &Means, symbols: &[char; 8]) -> String {
    Scale::of([means]).map_or_else(String::new, |it| it.bars(means, symbols))
}

/// Fewest and most columns of a run in one line.
const RUN: std::ops::RangeInclusive<usize> = 8..=40;

/// The title: what durations are.
pub(super) const TITLE: &str = "step time (host time from step to step, without synchronising the device)";

/// Returns `98 ms ± 2 ms a step  ▁▁▂▁▁▇▇▇`, then outliers and trend; nothing before the second step.
pub(super) fn lines(on: &OnDevice, width: usize, context: &RenderContext) -> Vec<Line<'static>> {
    let Some(latest) = on.pace.latest_us() else { return Vec::new() };
    let typical = on.pace.typical().map_or_else(|| units::brief(latest), |it| it.words());
    let mut first = vec![Span::styled(format!(" {typical} a step"), context.style(Role::Text))];
    let room = width.saturating_sub(cells::width(&typical) + 10).min(*RUN.end());
    if room >= *RUN.start() {
        let symbols = context.eighths();
        first.push(Span::styled(format!("  {}", run(&on.pace, room, &symbols)), context.style(Role::Spark)));
    }
    let notable = Some(notable(&on.pace)).filter(|it| !it.is_empty());
    let notable = notable.map(|it| Line::styled(cells::elide(&format!(" {it}"), width), context.style(Role::Dim)));
    [Line::from(first)].into_iter().chain(notable).collect()
}

/// Returns `3 outliers, the longest 4.10 s at step 500, 1.4 × as long as at the beginning`.
fn notable(pace: &Pace) -> String {
    let longest = pace.longest().map(|(step, us)| {
        let outliers = units::counted(pace.outliers(), "outlier");
        format!("{outliers}, the longest {} at step {step}", units::brief(us))
    });
    let trend = pace.trend().filter(|it| !(0.95..1.05).contains(it));
    let trend = trend.map(|it| format!("{it:.2} × as long as at the beginning"));
    longest.into_iter().chain(trend).collect::<Vec<_>>().join(", ")
}

fn run(pace: &Pace, columns: usize, symbols: &[char; 8]) -> String {
    let all = pace.stretches();
    let (Some(first), Some(last)) = (all.oldest(), all.newest()) else { return String::new() };
    let columns = columns.min(all.len());
    let (from, span) = (first.step, u128::from(last.step - first.step) + 1);
    let column = |it: &Stretch| usize::try_from(u128::from(it.step - from) * columns as u128 / span).ok();
    bars(&means(all, columns, column), symbols)
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
        let means = |run: &[Stretch]| means(run.iter().copied(), 10, |it| usize::try_from(it.step).ok());
        let row = |run: &[Stretch]| bars(&means(run), &symbols);
        assert_eq!(row(&run), "0000007000");
        let noise: Vec<_> = (0..10).map(|it| stretch(it, 100 + it % 2)).collect();
        assert!(row(&noise).chars().all(|it| it == '0'), "{}", row(&noise));
        let sparse: Vec<_> = run.iter().copied().filter(|it| it.step % 3 == 0).collect();
        assert_eq!(row(&sparse), "0000777000");
        assert_eq!(row(&[]), "");
        let slow: Vec<_> = (0..10).map(|it| stretch(it, 300)).collect();
        let both = [means(&run), means(&slow)];
        let shared = Scale::of(&both).map(|it| both.each_ref().map(|row| it.bars(row, &symbols)));
        assert_eq!(shared, Some(["0000007000".to_owned(), "7777777777".to_owned()]));
    }
}
