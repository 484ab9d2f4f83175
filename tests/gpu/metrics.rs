//! Each metric and figure is the one that NVIDIA's own binding for Python reads, and what reading it takes.

use crate::{
    bench::{Bench, Job},
    binding::{self, METRICS},
    results::Row,
};
use gpuwatch::facts::metrics::{Every, Metric};
use serde_json::Value;

/// How often a metric is compared that moves meanwhile.
const TRIES: usize = 8;

/// What the driver counts for each call over the last moments: it may be a tenth off.
const MOVES: [&str; 3] = ["pcie_sent", "pcie_received", "power_mw"];

fn binding(bench: &Bench) -> Result<Job, String> {
    if !bench.has_module("pynvml") {
        return Err(format!("{} has no nvidia-ml-py", Bench::python().display()));
    }
    let mut command = bench.command(Bench::python());
    command.arg("tests/it/python/binding.py").args(binding::arguments());
    let mut job = Job::start(command);
    job.json();
    Ok(job)
}

/// All metrics, and what a reading of each takes.
pub(crate) fn idle(bench: &Bench) -> Result<Vec<Row>, String> {
    let mut binding = binding(bench)?;
    let mut rows = compared(bench, &mut binding, None);
    let took = binding.ask("time");
    let mut each_second = 0.0;
    for row in Metric::TABLE.iter().filter(|it| took[it.name].is_f64()) {
        let us = took[row.name].as_f64().unwrap_or_default();
        let is_watched = row.every == Every::Watched;
        each_second += if is_watched { 0.0 } else { us / row.every.seconds() as f64 };
        let every =
            if is_watched { "where the screen shows it".into() } else { format!("each {} s", row.every.seconds()) };
        rows.push(Row::known(format!("a call for {}", row.name), every, format!("{us:.0} µs")));
    }
    rows.push(Row::known("calls that every screen makes", format!("{each_second:.0} µs a second"), ""));
    Ok(rows)
}

/// The same while a job trains, with the figures of its process.
pub(crate) fn busy(bench: &Bench) -> Result<Vec<Row>, String> {
    bench.needs_torch()?;
    let mut binding = binding(bench)?;
    let mut command = bench.command(Bench::python());
    command.arg("tests/gpu/busy.py");
    let mut job = Job::start(command);
    job.json();
    job.send("train");
    // The driver samples a process several times a second, and gpuwatch takes the time between two readings.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let rows = compared(bench, &mut binding, Some(job.pid()));
    job.ask("rest");
    job.end();
    Ok(rows)
}

/// A metric or figure lies within what the binding read before and after; one that moves faster is tried again.
fn compared(bench: &Bench, binding: &mut Job, pid: Option<u32>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for _ in 0..TRIES {
        let before = binding.ask("");
        let ours = bench.once();
        let after = binding.ask("");
        let device = &ours["devices"][0];
        let read = METRICS.iter().filter(|it| it.1 != "None").map(|it| it.0.row().name);
        let mut found: Vec<Row> = read
            .map(|name| between(name, &device["metrics"][name], [&before, &after].map(|it| &it["metrics"][name])))
            .collect();
        found.extend(pid.into_iter().flat_map(|pid| figures(device, pid, [&before, &after])));
        if rows.is_empty() {
            rows = found;
        } else {
            rows.iter_mut().zip(found).filter(|it| !it.0.holds).for_each(|(row, found)| *row = found);
        }
    }
    rows
}

fn figures(device: &Value, pid: u32, read: [&Value; 2]) -> Vec<Row> {
    let process = device["processes"].as_array().unwrap().iter().find(|it| it["pid"] == pid);
    let figures = &process.expect("the job is on the device")["figures"];
    let samples = read.map(|it| it["figures"][&pid.to_string()].as_array().cloned().unwrap_or_default()).concat();
    let row = |name: &str| {
        let of = samples.iter().map(|it| &it[name]);
        let row = between(&format!("{name} of the process"), &figures[name], of);
        Row { holds: row.holds && figures[name].is_u64(), ..row }
    };
    binding::FIGURES.iter().map(|it| row(it.0)).collect()
}

fn between<'a>(claim: &str, ours: &Value, read: impl IntoIterator<Item = &'a Value>) -> Row {
    let read: Vec<u64> = read.into_iter().filter_map(Value::as_u64).collect();
    match (ours.as_u64(), read.iter().min(), read.iter().max()) {
        (Some(ours), Some(low), Some(high)) if MOVES.contains(&claim) => {
            Row::within(claim, ours, [low - low / 10, high + high / 10])
        }
        (Some(ours), Some(low), Some(high)) => Row::within(claim, ours, [*low, *high]),
        (ours, low, _) => Row {
            claim: claim.to_owned(),
            gpuwatch: ours.map_or("–".into(), |it| it.to_string()),
            other: low.map_or("–".into(), u64::to_string),
            holds: ours.is_none() && low.is_none(),
        },
    }
}
