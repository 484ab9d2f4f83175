//! The ranks of a run together: the worst and the median of every figure, and which rank holds more than the others.

use super::{
    super::{RenderContext, cells, messages, table::Row},
    Field,
};
use crate::{
    facts::{
        figures::Figure,
        units::{self, Bytes},
    },
    model::{
        findings,
        session::process::{OnDevice, Process},
    },
    screen::{
        theme::Role,
        ui::{Scope, order::By, rows::Row as Listed},
    },
};

/// Fewest ranks for a median.
const LEAST: usize = 3;

/// From this ratio to the median on, a rank is named.
const UNEVEN: f64 = 1.05;

type Own<'a> = (&'a Process, &'a OnDevice);

/// Returns the number of rows above the ranks.
pub(super) fn height(listed: &[Listed], context: &RenderContext) -> usize {
    if living(listed, context).len() < LEAST { 0 } else { 2 }
}

/// Returns the rows above the ranks: none unless several ranks of all devices are listed.
pub(super) fn summary(listed: &[Listed], fields: impl Iterator<Item = Field>, context: &RenderContext) -> Vec<Row> {
    let own = living(listed, context);
    if own.len() < LEAST {
        return Vec::new();
    }
    let fields: Vec<Field> = fields.collect();
    let style = context.style(Role::Title);
    let row = |worst: bool, name: String| {
        let figure = |field: &Field| match field {
            Field::Device => String::new(),
            Field::Of(by) => summed(&own, *by, worst, context),
        };
        Row { figures: fields.iter().map(|it| (figure(it), style)).collect(), text: (name, style), style: None }
    };
    vec![row(true, format!("worst of {}", own.len())), row(false, "median".to_owned())]
}

/// Returns the worst value of a column, or its median.
fn summed(own: &[Own], by: By, worst: bool, context: &RenderContext) -> String {
    let found = |it: Own| context.found_for(it.0, it.1);
    let whole = |figure: &dyn Fn(Own) -> Option<u64>| {
        of(own, |rank| figure(rank).map(|value| value as f64), worst).map(units::whole)
    };
    let bytes = |figure: &dyn Fn(Own) -> Option<u64>| cells::bytes(whole(figure).map(Bytes));
    match by {
        // For steps and for the use of the device, the lowest is the worst: that rank lags.
        By::Step => {
            let behind = of(own, |(_, on)| on.step.map(|step| -(step as f64)), worst).map(|it| units::whole(-it));
            cells::known(behind, "")
        }
        By::Figure(Figure::SmPercent) => {
            let used = |it: Own| Some(-(figure(it, Figure::SmPercent, context)? as f64));
            cells::known(of(own, used, worst).map(|it| units::whole(-it)), " %")
        }
        By::StepTime => cells::known(whole(&|it| Some(it.1.pace.typical()?.us)).map(units::brief), ""),
        By::Allocated => bytes(&|it| it.1.counters.allocated),
        By::Reserved => bytes(&|it| it.1.counters.reserved),
        By::Unused => cells::share(of(own, |it| found(it)?.fragmentation.share(), worst)),
        By::PerStep => {
            let rate = of(own, |it| rate(it, context), worst);
            cells::known(rate.map(|it| if it > 0.0 { cells::rate(it) } else { "flat".to_owned() }), "")
        }
        By::Driver => bytes(&|it| found(it)?.driver_used.map(|bytes| bytes.0)),
        By::Figure(name) => {
            cells::known(whole(&|it| figure(it, name, context)).map(|it| name.row().unit.format(it)), "")
        }
        By::Rank | By::Pid | By::Command | By::User | By::Idle => String::new(),
    }
}

fn figure((process, on): Own, figure: Figure, context: &RenderContext) -> Option<u64> {
    Listed::Probed(process, on).figure(figure, context.session)
}

/// Returns `rank 5 wants 1.4 × the median`, or that they are even: the ratio of the finding about it.
pub(super) fn imbalance(listed: &[Listed], context: &RenderContext) -> Option<String> {
    let own = living(listed, context);
    let is_several = own.len() >= LEAST;
    let several = own.into_iter().filter(|_| is_several);
    let ratios =
        several.filter_map(|(process, on)| Some((findings::against_others(context.session, process, on)?, process)));
    let (ratio, most) = ratios.max_by(|one, other| one.0.total_cmp(&other.0))?;
    let times = units::times(ratio);
    if ratio < UNEVEN {
        return Some(format!("even: at most {times} the median"));
    }
    Some(format!("{} wants {times} the median", messages::short(most)))
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
