//! How long steps take: what is typical, the whole run in one line, outliers and trend.

use crate::{
    facts::units,
    model::{
        analysis::pace::{Pace, Stretch},
        session::process::OnDevice,
    },
    screen::{
        theme::Role,
        view::{RenderContext, cells, pace},
    },
};
use ratatui::text::{Line, Span};

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
    pace::bars(&pace::means(all, columns, column), symbols)
}
