//! What the pytest plugin asks for: a simulated machine, and the judgement of one test's memory.

use super::{
    Trouble,
    comparison_text::{self, details, wrapped},
    job_report::JobReport,
    json,
    peak::{self, Peak},
    verdict_text,
};
use crate::{
    facts::{
        event::anatomy::AnatomyPart,
        text::Foreign,
        units::{Bytes, counted, parse_bytes, per_step},
    },
    jobs::{launch::assets::Assets, simulated},
    model::fit::{
        Baseline, Budget, Device, Need,
        baseline::{Growth, PeakLine},
        comparison,
    },
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

/// Lines that a failure shows.
const SHOWN: usize = 6;

/// Columns of a line's source.
const SOURCE: usize = 64;

/// Steps that show growth.
const STEPS: u64 = 6;

/// What is asked for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// A machine with a GPU for a Python.
    Machine {
        /// The GPU, as `fit --gpu` takes it.
        gpu: String,
        /// The Python.
        python: String,
    },
    /// The memory of a test.
    Test(Box<TestRequest>),
}

/// A test that has run.
#[derive(Debug, Deserialize)]
pub struct TestRequest {
    /// The report that the plugin wrote.
    report: PathBuf,
    /// The device's name.
    device: String,
    /// The most bytes of the peak, as text.
    limit: Option<String>,
    /// The most bytes that each step may add, as text.
    growth: Option<String>,
    /// The answer of an earlier run.
    before: Option<Value>,
    /// How much more than that passes, as text.
    budget: Option<String>,
}

/// Answers a request with JSON.
///
/// # Errors
/// Fails if no machine can be simulated, if a number is none, or if a file cannot be read; the text is for the user.
pub fn answer(request: Request) -> Result<Value, String> {
    match request {
        Request::Machine { gpu, python } => machine(&gpu, python),
        Request::Test(it) => judged(&it),
    }
}

fn machine(gpu: &str, python: String) -> Result<Value, String> {
    let device = Device::parse(gpu)?;
    let torch = simgpu::torch_of(&[python.into()]).map_err(|e| {
        let why = e.to_string();
        Trouble::NoTorch(why.split("; use --torch").next().unwrap_or_default().to_owned()).to_string()
    })?;
    let libraries = simulated::libraries(&torch).map_err(|e| e.to_string())?;
    let Device { name, driver_name, total, reserved, count, .. } = device;
    let one = format!("{driver_name}:{total}:{reserved}");
    let devices = vec![one; count as usize].join(";");
    let boot = Assets::unpack_to_stay().map_err(|e| e.to_string())?;
    Ok(json!({ "name": name, "devices": devices, "libraries": libraries, "boot": boot.python() }))
}

fn judged(request: &TestRequest) -> Result<Value, String> {
    let report = JobReport::read(&request.report).map_err(|e| format!("{}: {e}", request.report.display()))?;
    let refused = |name: &str, text: &str, why: String| format!("{name}={text:?}: {why}");
    let number = |name, text: &Option<String>| match text {
        Some(text) => parse_bytes(text.strip_suffix("/step").unwrap_or(text))
            .map(Some)
            .map_err(|e| refused(name, text, format!("{e:#}; give a size, as in \"2 GiB\""))),
        None => Ok(None),
    };
    let (limit, growth_limit) = (number("limit", &request.limit)?, number("growth", &request.growth)?);
    let budget = |text| Budget::parse(text).map_err(|e| refused("budget", text, format!("{e:#}")));
    let budget = request.budget.as_deref().map(budget).transpose()?;
    let device = report.devices.iter().max_by_key(|it| it.peak().0);
    let (peak, growth) = match device {
        Some(device) => {
            let (allocated, reserved) = device.peak();
            let need = Need { allocated, reserved, ..Need::default() };
            let mut peak = Peak::read(&report, device, need);
            // The allocator's own figure is too small where the test freed what earlier ones had left. What it caches
            // depends on them, too.
            peak.need.allocated = allocated.max(peak.kinds.values().sum());
            peak.wanted = peak.need.allocated;
            (peak, report.growth(device).and_then(|it| peak::growth(&[(&report, device, it)])))
        }
        None => (Peak { torch: report.torch.clone(), ..Peak::default() }, None),
    };
    let answer = json!({
        "schema": 1, "fits": null, "devices": [{ "name": request.device }], "torch": peak.torch,
        "peak": json::peak(&peak), "growth": growth, "steps": report.steps,
    });
    let mut failures = Vec::new();
    if let Some(limit) = limit.filter(|it| peak.need.allocated > *it) {
        failures.push(over(&peak, limit, report.before));
    }
    if let Some(limit) = growth_limit {
        failures.extend(growing(&report, growth.as_ref(), limit));
    }
    let mut difference = None;
    if let Some(before) = &request.before {
        let before = Baseline::parse(&before.to_string()).and_then(Baseline::usable);
        let before = before.map_err(|e| format!("the baseline of this test {e}"))?;
        let now = Baseline::parse(&answer.to_string()).map_err(|e| e.to_string())?;
        let comparison = comparison::compare(&before, &now, budget.unwrap_or_default());
        difference = comparison.doubt.is_none().then(|| comparison.allocated.difference());
        if comparison.is_within() != Some(true) {
            failures.push(comparison_text::text(&comparison));
        }
    }
    let is_growth_known = report.steps >= STEPS;
    Ok(json!({ "answer": answer, "is_growth_known": is_growth_known, "difference": difference, "failures": failures }))
}

/// Says by how much a peak is over its limit, what holds it, and how much was there before.
fn over(peak: &Peak, limit: u64, before: u64) -> String {
    let (all, more) = (Bytes(peak.need.allocated), Bytes(peak.need.allocated.saturating_sub(limit)));
    let at = peak.line.as_ref().map_or_else(String::new, |it| format!(", at {}", Foreign::new(it.as_str())));
    let mut out = wrapped(&format!("peak of {all} is {more} over the limit of {}{at}", Bytes(limit)), 0);
    out.push('\n');
    for (part, words) in AnatomyPart::WORDS {
        if let Some(bytes) = peak.kinds.get(&part).filter(|it| **it > 0) {
            let _ = writeln!(out, "  {words:34}{:>12}", Bytes(*bytes).to_string());
        }
    }
    if before > 0 {
        let _ = writeln!(out, "  {:34}{:>12}", "not counted: there before the test", Bytes(before).to_string());
    }
    if !peak.lines.is_empty() {
        out.push_str("\nlines that hold the most at the peak:\n");
    }
    for line in peak.lines.iter().take(SHOWN) {
        held(&mut out, line);
    }
    out
}

fn held(out: &mut String, line: &PeakLine) {
    let parts: Vec<&str> = line.parts.keys().map(|it| AnatomyPart::words(it)).collect();
    let place = format!("{} in {}: {}", line.line, line.function, parts.join(", "));
    let place = wrapped(&Foreign::new(place).to_string(), 14);
    let _ = write!(out, "{:>12}  {}", Bytes(line.bytes()).to_string(), place.trim_start());
    if !line.text.is_empty() {
        let text: String = line.text.chars().take(SOURCE).collect();
        let _ = writeln!(out, "{:14}{}", "", Foreign::new(text));
    }
    for detail in details(line) {
        out.push_str(&wrapped(&Foreign::new(detail).to_string(), 14));
    }
}

/// Says how a test grows beyond its limit, or why that is not known.
fn growing(report: &JobReport, growth: Option<&Growth>, limit: u64) -> Option<String> {
    if report.steps < STEPS {
        let ran = counted(report.steps, "step");
        return Some(wrapped(
            &format!("growth cannot be judged: {ran} ran, and it takes {STEPS}; run more, or call gpu_memory.step()"),
            0,
        ));
    }
    let growth = growth.filter(|it| it.bytes > limit)?;
    let line = growth
        .line
        .as_ref()
        .map_or_else(String::new, |it| format!("; {} allocates what stays", Foreign::new(it.as_str())));
    let allowed =
        if limit == 0 { "no growth".to_owned() } else { per_step(limit as f64).trim_start_matches('+').to_owned() };
    let title = wrapped(&format!("grows {}, and {allowed} is allowed{line}", per_step(growth.bytes as f64)), 0);
    Some(title + &verdict_text::culprits(growth, 2))
}

impl JobReport {
    /// Reads one report.
    fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|e| e.to_string())?;
        serde_json::from_slice(&bytes).map_err(|e| e.to_string())
    }
}
