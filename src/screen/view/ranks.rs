//! The ranks of a run together: the worst and the median of every figure, and which rank holds more than the others.

use super::{RenderContext, cells, messages, table::Row};
use crate::{
    facts::units::{self, Bytes},
    model::session::process::{OnDevice, Process},
    screen::{
        theme::Role,
        ui::{Scope, rows::Row as Listed},
    },
};

/// Fewest ranks for a median.
const LEAST: usize = 3;

/// From this ratio to the median on, a rank is named.
const UNEVEN: f64 = 1.05;

type Own<'a> = (&'a Process, &'a OnDevice);

/// Returns the rows above the ranks: none unless several ranks of all devices are listed.
pub(super) fn summary(listed: &[Listed], context: &RenderContext) -> Vec<Row> {
    let own = living(listed, context);
    if own.len() < LEAST {
        return Vec::new();
    }
    let bytes = |worst: bool, figure: &dyn Fn(Own) -> Option<u64>| {
        cells::bytes(of(&own, |rank| figure(rank).map(|value| value as f64), worst).map(|it| Bytes(units::whole(it))))
    };
    let found = |it: Own| context.found_for(it.0, it.1);
    let row = |worst: bool, name: String, role: Role| {
        let style = context.style(role);
        // For steps, the lowest is the worst: that rank lags.
        let behind = of(&own, |(_, on)| on.step.map(|step| -(step as f64)), worst).map(|it| units::whole(-it));
        let unused = of(&own, |it| found(it)?.fragmentation.share(), worst);
        let rate = of(&own, |it| rate(it, context), worst);
        let rate =
            rate.map_or_else(|| cells::UNKNOWN.to_owned(), |it| if it > 0.0 { cells::rate(it) } else { "flat".into() });
        let driver = |it: Own| found(it)?.driver_used.map(|bytes| bytes.0);
        let figures = [
            String::new(),
            String::new(),
            String::new(),
            cells::known(behind, ""),
            bytes(worst, &|it| it.1.counters.allocated),
            bytes(worst, &|it| it.1.counters.reserved),
            cells::share(unused),
            rate,
            bytes(worst, &driver),
        ];
        Row { figures: figures.map(|it| (it, style)).to_vec(), text: (name, style), style: None }
    };
    vec![row(true, format!("worst of {}", own.len()), Role::Title), row(false, "median".to_owned(), Role::Title)]
}

/// Returns `rank 5 holds 1.31 × the median`, or that they are even.
pub(super) fn imbalance(listed: &[Listed], context: &RenderContext) -> Option<String> {
    let own = living(listed, context);
    let allocated = |it: &Own| it.1.counters.allocated;
    let median = of(&own, |rank| allocated(&rank).map(|bytes| bytes as f64), false)
        .filter(|it| *it > 0.0 && own.len() >= LEAST)?;
    let most = own.iter().filter(|it| allocated(it).is_some()).max_by_key(|it| allocated(it))?;
    let ratio = allocated(most)? as f64 / median;
    if ratio < UNEVEN {
        return Some(format!("even: at most {ratio:.2} × the median"));
    }
    Some(format!("{} holds {ratio:.2} × the median", messages::short(most.0)))
}

fn living<'a>(listed: &[Listed<'a>], context: &RenderContext) -> Vec<Own<'a>> {
    let probed = listed.iter().filter(|_| context.ui.scope == Scope::All).filter_map(Listed::probed);
    probed.filter(|(process, on)| process.is_alive() && on.first.is_some()).collect()
}

/// Returns the highest value of a figure, or its median; `None` if no rank reports it.
fn of(own: &[Own], figure: impl Fn(Own) -> Option<f64>, worst: bool) -> Option<f64> {
    let mut values: Vec<f64> = own.iter().filter_map(|it| figure(*it)).filter(|it| it.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    if worst { values.last().copied() } else { values.get(values.len() / 2).copied() }
}

/// Returns bytes per step, 0 without growth; `None` without enough data.
fn rate((process, on): Own, context: &RenderContext) -> Option<f64> {
    let growing = context.findings.growing(process.probe, on.ordinal).and_then(|it| it.bytes_per_step);
    growing.or((on.growth.watched() >= on.growth.enough()).then_some(0.0))
}
