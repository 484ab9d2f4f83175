//! The JSON of a report, schema 1: one object, which the page uses as well.
//!
//! The object of `gpuwatch check --json` as `run`, and
//! - `title`: the verdict in one line
//! - `started_unix_us`: the wall clock at `from_us`, if the recording has it
//! - `from_us`, `to_us`: the first and the last event
//! - `causes`: the title of each cause in the findings, by id
//! - `environment[]`: `rank`, `framework`, `framework_version`, `backend`, `allocator_conf`, `world_size`, `scheduler`
//!   of each process, and `driver`, the version of the driver; nothing else of the job's environment
//! - `gaps[]`: `name`, `cause`, `remedy` of each gap of the ladder, from the inside out
//! - `resources`: the displayed name of each resource, by its name in findings
//! - `timeline[]`: `device_id`, `stride` (readings per point), `columns` and `points[]`, an array each: the highest
//!   figures of an interval, and in the columns of the gaps the ladder at its instant with the most allocated memory,
//!   or at an out-of-memory error (`out_of_memory` is then 1); `driver_at_us` is when the driver reported the figures
//!   that no probe has: other processes, and memory outside the allocators
//! - `step_time[]`: `rank`, `pid`, `device_id` and `points[]`
//!   ([`Pace::points`](crate::model::analysis::pace::Pace::points)): host time, without synchronisation
//! - `growth[]`: `finding` (its index), `points[]` (position, lowest, highest), `line` (its two ends)
//! - `ooms[]`: `at_us`, `step`, `rank`, `pid`, `device_id`, `tried`, `free`, `largest_free`, `account[]` (lines of
//!   text), `blocks[]` (size, count), `other_blocks`, `other_bytes`, `tenants[]` (`pid`, `name`, `used`), `message`
//! - `peaks[]`: `rank`, `device_id`, and the object of `gpuwatch peak --json`: what memory consisted of at the highest
//!   moment of a step
//! - `moments[]`: `at_us`, `kind` (`mark`, `trouble`), `text`

use super::{Report, device_series::FigureSeries, peak_picture::PeakPicture};
use crate::{
    facts::{
        event::{DeviceId, DriverState},
        units::Bytes,
    },
    model::{
        analysis::{
            curve::Curve,
            episode::Resource,
            ladder::{Gap, GapRow, Place},
        },
        anatomy,
        findings::{Finding, Kind},
        session::{
            Session,
            oom::OutOfMemory,
            process::{OnDevice, Process},
        },
    },
    storage::replay::index::Moment,
};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// The schema version documented above.
const SCHEMA: u32 = 1;

/// The columns before those of the gaps.
const COLUMNS: [&str; 8] = ["at_us", "step", "allocated", "reserved", "stuck", "used", "driver_at_us", "out_of_memory"];

/// Returns the whole report.
pub(super) fn value(report: &Report) -> Value {
    let session = &report.verdict.run.session;
    let run: Value = serde_json::from_str(&report.verdict.json()).unwrap_or_default();
    let causes = report.verdict.findings.iter().map(|it| (it.cause.id().to_owned(), it.cause.entry().title.into()));
    let gaps =
        Gap::ALL.iter().map(|it| it.row()).map(|it| json!({"name": it.name, "cause": it.cause, "remedy": it.remedy}));
    let moment = |kind: &'static str| move |it: &Moment| json!({"at_us": it.at, "kind": kind, "text": it.text});
    let marks = report.index.marks.iter().map(moment("mark"));
    let moments = marks.chain(report.index.troubles.iter().map(moment("trouble")));
    let ooms = session.processes.iter().flat_map(|process| process.ooms.iter().map(move |it| oom(process, it)));
    json!({
        "schema": SCHEMA,
        "title": report.verdict.title(),
        "started_unix_us": report.unix_us,
        "from_us": report.index.from,
        "to_us": report.index.to,
        "run": run,
        "causes": causes.collect::<Map<_, _>>(),
        "environment": session.processes.iter().filter_map(environment).collect::<Vec<_>>(),
        "driver": session.driver_shown().and_then(|it| driver(it.1)),
        "gaps": gaps.collect::<Vec<_>>(),
        "resources": Resource::ALL.iter().map(|it| (it.id().to_owned(), it.name().into())).collect::<Map<_, _>>(),
        "timeline": report.series.devices.iter().map(|(id, it)| device(id, it)).collect::<Vec<_>>(),
        "step_time": session.processes.iter().flat_map(step_time).collect::<Vec<_>>(),
        "growth": growth_plots(&report.verdict.findings, session),
        "ooms": ooms.collect::<Vec<_>>(),
        "peaks": session.processes.iter().filter_map(peak).collect::<Vec<_>>(),
        "moments": moments.collect::<Vec<_>>(),
    })
}

/// Returns the environment that matters for memory, and nothing else of it.
fn environment(process: &Process) -> Option<Value> {
    let it = process.hello.as_ref()?;
    Some(json!({
        "rank": process.rank(),
        "world_size": it.world_size,
        "framework": it.framework,
        "framework_version": it.framework_version,
        "backend": it.backend,
        "allocator_conf": it.allocator_conf,
        "scheduler": it.job.as_ref().map(|it| &it.scheduler),
    }))
}

fn driver(state: &DriverState) -> Option<Value> {
    match state {
        DriverState::Up { version } => version.as_ref().map(|it| json!(it)),
        _ => None,
    }
}

/// Returns how long steps take, for each device of a process that counts some.
fn step_time(process: &Process) -> Vec<Value> {
    let stepped = process.devices.iter().filter(|it| !it.pace.stretches().is_empty());
    let value = |on: &OnDevice| json!({"rank": process.rank(), "pid": process.any_pid(), "device_id": on.device, "points": on.pace.points()});
    stepped.map(value).collect()
}

/// Leaves out gaps that the device never had.
fn device(id: &DeviceId, series: &FigureSeries) -> Value {
    let has = |gap: &Gap| series.points.all().iter().any(|it| it.gaps.get(*gap).is_some_and(|bytes| bytes > 0));
    let gaps: Vec<Gap> = Gap::ALL.into_iter().filter(has).collect();
    let names = gaps.iter().map(|it| it.row().name);
    // Some gaps have the names of figures.
    let columns: Vec<String> =
        COLUMNS.iter().map(|it| (*it).to_owned()).chain(names.map(|it| format!("gap {it}"))).collect();
    let points = series.points.all().iter().map(|it| {
        let ran_out = it.ran_out.then_some(1);
        let driver_at = it.driver_at.map(|driver| driver.0);
        let figures = [Some(it.at.0), it.step, it.allocated, it.reserved, it.stuck, it.used, driver_at, ran_out];
        figures.into_iter().chain(gaps.iter().map(|gap| it.gaps.get(*gap))).collect::<Vec<_>>()
    });
    json!({"device_id": id, "stride": series.points.stride(), "columns": columns, "points": points.collect::<Vec<_>>()})
}

fn peak(process: &Process) -> Option<Value> {
    let moment = process.peak.as_deref()?;
    let on = process.devices.iter().find(|on| on.ordinal == moment.device);
    let mut value = anatomy::json(process.any_pid(), moment);
    value["rank"] = json!(process.rank());
    value["device_id"] = json!(on.map(|it| &it.device));
    Some(value)
}

/// Returns what memory consisted of at the highest moments, as HTML; nothing where the run has none.
pub(super) fn peaks_html(session: &Session) -> String {
    let figures: String = session.processes.iter().filter_map(picture).map(|it| it.html()).collect();
    if figures.is_empty() {
        return figures;
    }
    format!(
        "<section aria-labelledby=\"peaks-heading\">\n<h2 id=\"peaks-heading\">At the highest moment of a step</h2>\n<p \
         class=\"faint\">What was live: above its parts, below them the lines that allocated it.</p>\n{figures}</section>\n"
    )
}

fn picture(process: &Process) -> Option<PeakPicture> {
    let moment = process.peak.as_deref()?;
    let it = &moment.anatomy;
    let step = it.step.map_or_else(|| "a part of a step".to_owned(), |step| format!("step {step}"));
    let phase = it.phase.map(|phase| format!(", in {}", phase.name())).unwrap_or_default();
    let of = process.rank().map_or_else(
        || process.any_pid().map(|pid| format!("process {pid}, ")).unwrap_or_default(),
        |rank| format!("rank {rank}, "),
    );
    let caption = format!("{of}device {}, {step}: {} allocated{phase}", moment.device, Bytes(it.allocated));
    Some(PeakPicture::of(it, caption))
}

fn oom(process: &Process, it: &OutOfMemory) -> Value {
    let on = process.devices.iter().find(|on| on.ordinal == it.reported.device);
    let tenants = it.tenants.iter().map(|it| json!({"pid": it.pid, "name": it.name, "used": it.used}));
    json!({
        "at_us": it.reported.at_us,
        "step": it.reported.step,
        "rank": process.rank(),
        "pid": process.any_pid(),
        "device_id": on.map(|it| &it.device),
        "tried": it.figures.tried,
        "free": it.figures.free,
        "largest_free": it.figures.largest_free,
        "account": it.account(process.lines_at(it), process.peak.as_deref()),
        "blocks": it.reported.blocks,
        "other_blocks": it.reported.other_blocks,
        "other_bytes": it.reported.other_bytes,
        "tenants": tenants.collect::<Vec<_>>(),
        "message": it.reported.message,
    })
}

/// Returns the colours of gaps as properties: `--gap-graph-pools`.
pub(super) fn gap_style() -> String {
    let colours = |colour: fn(&GapRow) -> &'static str| {
        Gap::ALL.iter().fold(String::new(), |mut out, it| {
            let row = it.row();
            let _ = write!(out, " --gap-{}: {};", row.name.replace(' ', "-"), colour(row));
            out
        })
    };
    let (light, dark) = (colours(|it| it.report.0), colours(|it| it.report.1));
    format!(":root {{{light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{{dark} }} }}\n")
}

/// Returns the names of gaps inside the allocator, and of the unused ones.
pub(super) fn gap_script() -> String {
    let names = |places: &[Place]| {
        let rows = Gap::ALL.iter().map(|it| it.row()).filter(|it| places.contains(&it.place));
        serde_json::json!(rows.map(|it| it.name).collect::<Vec<_>>())
    };
    let (inside, unused) = (names(&[Place::InUse, Place::Unused]), names(&[Place::Unused]));
    format!("const INSIDE = {inside}, UNUSED = {unused};\n")
}

/// Most findings that are plotted, worst first.
const MOST: usize = 24;

/// Returns the plots: `finding` (its index), `points[]` (a position on the axis, the lowest and the highest value
/// there), `line` (two points; `null` without measurements).
fn growth_plots(findings: &[Finding], session: &Session) -> Vec<Value> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gap_has_two_colours_and_its_place() {
        let (style, script) = (gap_style(), gap_script());
        for row in Gap::ALL.map(Gap::row) {
            assert_eq!(style.matches(&format!("--gap-{}: ", row.name.replace(' ', "-"))).count(), 2, "{style}");
        }
        let unused = script.rsplit("UNUSED = ").next().unwrap();
        for row in Gap::ALL.map(Gap::row) {
            let is_listed = unused.contains(&format!("\"{}\"", row.name));
            assert_eq!(is_listed, row.place == Place::Unused, "{script}");
        }
        assert!(unused.starts_with("[\"stuck\""), "{script}");
        assert!(!style.contains("</") && !script.contains("</"), "nothing ends its element early");
    }
}
