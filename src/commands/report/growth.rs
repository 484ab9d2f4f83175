//! Measured growth, and the line fitted to it.

use crate::model::{
    analysis::curve::Curve,
    findings::{Finding, Kind},
    session::{Session, process::OnDevice},
};
use serde_json::{Value, json};

/// Most findings that are plotted, worst first.
const MOST: usize = 24;

/// Returns the plots: `finding` (its index), `points[]` (a position on the axis, the lowest and the highest value
/// there), `line` (two points; `null` without measurements).
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

/// Any device of the process has the curve of host memory.
fn curve<'a>(it: &Finding, session: &'a Session) -> Option<&'a Curve> {
    let of = |on: &&OnDevice| it.ordinal.is_none_or(|ordinal| ordinal == on.ordinal);
    let mut on = it.process(session)?.devices.iter().filter(of).filter(|on| on.growth.axis() == Some(it.axis));
    on.find_map(|on| on.growth.curve(it.resource?)).filter(|it| it.buckets().len() > 1)
}

/// Returns the line with the finding's slope through the mean of its measurements.
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
