//! Peaks that were measured on real GPUs: `gpuwatch fit` of the same trainings, with the PyTorch of the measurements.
//!
//! ```text
//! GPUWATCH_MEASURED=all cargo test --test it fit::measured
//! ```
//!
//! `GPUWATCH_MEASURED_VENV` names an environment that has that PyTorch. `GPUWATCH_MEASURED_OUT` names a file for a line
//! of JSON for each training: what was measured, what fit answered. `GPUWATCH_DOCS=write` rewrites the page of them.

mod page;

use super::Asked;
use crate::helpers::venv::Venv;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    env, fs,
    path::Path,
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

static MEASURED: Venv = Venv {
    variable: "GPUWATCH_MEASURED_VENV",
    name: "venv-torch-2.6.0",
    holds: "PyTorch 2.6.0, torchvision and transformers (a download of about 800 MB)",
    packages: &[&[include_str!("measured/requirements.txt")]],
    above: None,
    python: OnceLock::new(),
};

/// Trainings at a time.
const WORKERS: usize = 2;

/// One training and the answer.
struct Row {
    measured: Value,
    answer: Value,
}

impl Row {
    fn of(measured: &Value, python: &Path) -> Self {
        let is_cnn = measured["family"] == "cnn";
        let script = if is_cnn { include_str!("measured/cnn.py") } else { include_str!("measured/transformer.py") };
        let asked = Asked::new(script);
        let text = |name: &str| measured[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| measured[name].as_u64().unwrap_or(0).to_string();
        let arguments = [text("model"), text("optimizer"), number("batch"), number("zero_grad_mode")];
        let size = number("gpu_total_bytes");
        let flags = ["--json", "--steps", "4", "--gpu", &size];
        let output = asked.fit_with(python, &flags, &arguments.each_ref().map(String::as_str));
        let answer = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
        Self { measured: measured.clone(), answer }
    }

    /// The relative error of the allocator's peak, as the peak was measured: without the context.
    fn error(&self) -> Option<f64> {
        let measured = self.measured["measured_peak_bytes"].as_f64()?;
        Some(self.answer["peak"]["reserved"].as_f64().unwrap_or(0.0) / measured - 1.0)
    }

    /// The relative error outside of the band of the measurement's race: its first sample can fall into the copy of a
    /// CNN's weights, so that up to their size is missing.
    fn outside_of_race(&self) -> Option<f64> {
        let measured = self.measured["measured_peak_bytes"].as_f64()?;
        let peak = &self.answer["peak"];
        let missing = peak["reserved"].as_f64()? - measured;
        let weights = peak["parts"]["weights"].as_f64()?;
        Some((missing - missing.clamp(0.0, weights)) / measured)
    }

    /// Whether the answer is right; `None` if fit gives none.
    fn is_right(&self) -> Option<bool> {
        match self.answer["fits"].as_str() {
            Some("yes") => Some(self.measured["oom"] == false),
            Some("no") => Some(self.measured["oom"] == true),
            _ => None,
        }
    }
}

/// Returns the smallest error that so many percent of all do not exceed.
fn quantile(errors: &[f64], percent: usize) -> f64 {
    let mut sorted: Vec<f64> = errors.iter().map(|it| it.abs()).collect();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len() * percent).div_ceil(100);
    sorted[at.clamp(1, sorted.len()) - 1]
}

fn errors(rows: &[Row], family: &str) -> Vec<f64> {
    rows.iter().filter(|it| it.measured["family"] == family).filter_map(Row::error).collect()
}

/// What fit answers for each training, in their order.
fn answered(measured: &[Value], python: &Path) -> Vec<Row> {
    let (next, rows) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(it) = measured.get(place) else { return };
            let row = Row::of(it, python);
            rows.lock().unwrap().insert(place, row);
        }
    };
    thread::scope(|scope| (0..WORKERS).for_each(|_| drop(scope.spawn(work))));
    rows.into_inner().unwrap().into_values().collect()
}

#[test]
fn peaks_are_as_measured_on_real_gpus() {
    if env::var_os("GPUWATCH_MEASURED").is_none() {
        test_tiers::skip!("79 trainings take about 15 minutes: GPUWATCH_MEASURED=all runs them");
    }
    let python = test_tiers::needs!(MEASURED.found());
    let lines: Vec<Value> =
        include_str!("measured/public.jsonl").lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let rows = answered(&lines, &python);
    if let Some(out) = env::var_os("GPUWATCH_MEASURED_OUT") {
        let line = |it: &Row| format!("{}\n", json!({ "measured": it.measured, "answer": it.answer }));
        fs::write(out, rows.iter().map(line).collect::<String>()).unwrap();
    }
    let (transformers, cnns) = (errors(&rows, "transformer"), errors(&rows, "cnn"));
    assert!(quantile(&transformers, 50) <= 0.002, "{transformers:?}");
    assert!(quantile(&transformers, 95) <= 0.03, "{transformers:?}");
    assert!(quantile(&cnns, 50) <= 0.02 && quantile(&cnns, 95) <= 0.06, "{cnns:?}");
    let outside: Vec<f64> =
        rows.iter().filter(|it| it.measured["family"] == "cnn").filter_map(Row::outside_of_race).collect();
    assert!(outside.len() == cnns.len() && quantile(&outside, 50) <= 0.01, "{outside:?}");
    let verdicts: Vec<bool> = rows.iter().filter_map(Row::is_right).collect();
    let right = verdicts.iter().filter(|it| **it).count();
    assert!(right * 100 >= verdicts.len() * 97, "{right} of {}", verdicts.len());
    check_page(&rows);
}

/// The page of the documents shows these answers.
fn check_page(rows: &[Row]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/fit-measured.md");
    let now = page::page(rows);
    if env::var_os("GPUWATCH_DOCS").is_some_and(|it| it == "write") {
        return fs::write(&path, now).unwrap();
    }
    assert!(fs::read_to_string(&path).unwrap_or_default() == now, "{} differs: GPUWATCH_DOCS=write", path.display());
}
