//! What grew, as it was measured, and the line that was fitted to it.

use crate::model::{
    analysis::curve::Curve,
    findings::{Finding, Kind},
    session::{Session, process::OnDevice},
};
use serde_json::{Value, json};

/// Findings that are plotted, the worst first: a page with more is read by nobody.
const MOST: usize = 24;

/// Of each growth: `finding` (its place among the findings), `points[]` (a place on the axis, the lowest and the highest
/// value there), `line` (two points; `null` where nothing was measured).
pub(super) fn plots(findings: &[Finding], session: &Session) -> Vec<Value> {
    let growths = findings.iter().enumerate().filter(|(_, it)| it.kind == Kind::Growth);
    let plots = growths.filter_map(|(place, it)| {
        let curve = curve(it, session)?;
        let points: Vec<_> = curve.buckets().iter().map(|bucket| json!([bucket.x, bucket.low, bucket.high])).collect();
        let line = line(it, curve).map(|ends| ends.map(|(x, y)| json!([x, y])));
        Some(json!({"finding": place, "points": points, "line": line}))
    });
    plots.take(MOST).collect()
}

/// Of the host's memory, any device of the process can tell it.
fn curve<'a>(it: &Finding, session: &'a Session) -> Option<&'a Curve> {
    let of = |on: &&OnDevice| it.ordinal.is_none_or(|ordinal| ordinal == on.ordinal);
    let mut on = session.process(it.probe)?.devices.iter().filter(of).filter(|on| on.growth.axis() == Some(it.axis));
    on.find_map(|on| on.growth.curve(it.resource?)).filter(|it| it.buckets().len() > 1)
}

/// The line of the found slope through the mean of what was measured from its beginning to its end.
fn line(it: &Finding, curve: &Curve) -> Option<[(u64, f64); 2]> {
    let slope = it.bytes_per_step?;
    let (_, last) = curve.ends()?;
    let end = it.resolved_step.unwrap_or(last).min(last);
    let measured = curve.buckets().iter().filter(|at| (it.since_step..=end).contains(&at.x));
    let along = |x: u64| slope * x.saturating_sub(it.since_step) as f64;
    let (sum, count) = measured.fold((0.0, 0_u32), |(sum, count), at| (sum + at.last as f64 - along(at.x), count + 1));
    let height = (count > 0).then(|| sum / f64::from(count))?;
    Some([(it.since_step, height), (end, height + along(end))])
}
