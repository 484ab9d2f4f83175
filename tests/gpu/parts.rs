//! What allocated memory consists of: counted by the probe and by the job itself, and by line at a step's highest
//! moment.

use crate::{
    bench::{Bench, Job, json, text},
    results::Row,
};
use serde_json::{Map, Value};

const PARTS: [&str; 4] = ["weights", "gradients", "optimizer", "retained"];

/// The most that a slice of a walk may take, in microseconds.
const SLICE: f64 = 1000.0;

pub(crate) fn parts(bench: &Bench) -> Result<Vec<Row>, String> {
    bench.needs_torch()?;
    let kinds = text(&from_source(bench, "tests/it/python/parts.py"));
    let mut rows = vec![Row::same("kinds of optimizers", &kinds.trim(), &"parts are right")];
    rows.extend(of_a_job(bench));
    rows.extend(cost(&json(&from_source(bench, "tests/gpu/walk.py"))));
    Ok(rows)
}

/// The output of a script that imports the probe's modules.
fn from_source(bench: &Bench, script: &str) -> std::process::Output {
    let mut command = bench.command(Bench::python());
    command.arg(script).env("PYTHONPATH", "probes/python").env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap()
}

fn of_a_job(bench: &Bench) -> Vec<Row> {
    let mut job = Job::start(bench.run_python("tests/it/python/consists.py", &[]));
    let expected = job.json();
    let pid = expected["pid"].as_u64().unwrap();
    let rows = Job::compared(bench, u32::try_from(pid).unwrap(), |on, once| {
        let same = |part: &str| Row::same(part, &on["parts"][part], &expected["parts"][part]);
        let rungs = once["devices"][0]["ladder"]["rungs"].as_array().unwrap();
        let rung =
            |gap: &str| rungs.iter().find(|it| it["gap"] == gap).and_then(|it| it["bytes"].as_u64()).unwrap_or(0);
        let sum: u64 = PARTS.iter().chain(&["transient"]).map(|it| rung(it)).sum();
        let mut rows: Vec<Row> = PARTS[..3].iter().map(|it| same(it)).collect();
        rows.push(Row::same("sum of the parts", &sum, &on["counters"]["allocated"].as_u64().unwrap_or_default()));
        rows
    });
    let found = json(&bench.gpuwatch(&["peak", &pid.to_string(), "--json"]).output().unwrap());
    let lines = found["lines"].as_array().unwrap();
    let of_step = lines.iter().filter(|it| it["part"] == "activations" || it["part"] == "temporaries");
    let ours: Map<String, Value> =
        of_step.map(|it| (it["line"].as_str().unwrap().to_owned(), it["bytes"].clone())).collect();
    let theirs = job.ask("peak")["lines"].clone();
    job.send("end");
    job.end();
    let at_peak = Row::same("lines at the highest moment, against PyTorch's history", &Value::Object(ours), &theirs);
    rows.into_iter().chain([at_peak]).collect()
}

/// What counting takes of a training thread.
fn cost(measured: &Value) -> Vec<Row> {
    let us = |name: &str| measured[name].as_f64().unwrap();
    let walks = us("walks");
    let each = format!("{:.0} µs in {:.0} slices", us("all") / walks, us("slices") / walks);
    vec![
        Row::at_most("the longest slice, in µs", us("longest"), SLICE),
        Row::known("a walk over 1,200 parameters", each, format!("a step: {:.0} µs", us("step"))),
        Row::known("the longest turn", format!("{:.0} µs", us("longest_turn")), ""),
    ]
}
