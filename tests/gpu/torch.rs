//! Jobs with PyTorch: counters, ladder, cost, culprit and the account of an error.

use crate::{
    bench::{Bench, Job},
    results::Row,
};
use gpuwatch::facts::event::Line;
use gpuwatch_probe::wire::{Counter, Counters, Edge, Sample, Torch};
use serde_json::Value;
use std::collections::BTreeMap;

/// Steps whose counters are compared.
const STEPS: usize = 40;

/// The most that the hook may cost, in bare reads of the counters in its place.
const HOOK: f64 = 1.15;

/// How the job steps: with an optimizer's work, and in a tight loop.
const LOOPS: [&str; 2] = ["busy", "idle"];

/// Every counter of every step to the byte, and a ladder whose rungs are the whole device.
pub(crate) fn counters(bench: &Bench) -> Result<Vec<Row>, String> {
    bench.needs_torch()?;
    let mut job = Job::start(bench.run_python("tests/it/python/truth.py", &[&STEPS.to_string(), &asked(), "wait"]));
    let mut lines = Vec::new();
    let mut ladder = None;
    loop {
        let reported = job.json();
        if reported["pending"] == true {
            ladder = Some(sum(&bench.once()));
            job.go_on();
        }
        let is_over = reported["end"] == true;
        lines.push(reported);
        if is_over {
            break;
        }
    }
    job.go_on();
    job.end();
    let rows: Vec<Sample> = bench.recorded().into_iter().filter_map(step).collect();
    let reported: Vec<&Value> = lines.iter().filter(|it| it["step"].is_u64()).collect();
    let compared: Vec<(u64, u64)> =
        rows.iter().zip(&reported).flat_map(|(row, reported)| both(row, reported)).collect();
    let same = compared.iter().filter(|(ours, theirs)| ours == theirs).count();
    let mut confirmed = vec![
        Row::same("steps", &rows.len(), &reported.len()),
        Row::same("counters that are PyTorch's to the byte", &same, &compared.len()),
    ];
    assert!(compared.len() > 10 * STEPS, "hardly a counter is there: {compared:?}");
    let (sum, total) = ladder.expect("it was looked at");
    confirmed.push(Row::same("sum of the ladder", &sum, &total));
    Ok(confirmed)
}

/// The rungs' sum on the job's device, and its total.
fn sum(once: &Value) -> (u64, u64) {
    let probed = &once["probes"][0]["devices"][0]["device"];
    let device = once["devices"].as_array().unwrap().iter().find(|it| it["id"] == *probed).expect("its device");
    (device["ladder"]["sum"].as_u64().unwrap(), device["memory"]["total"].as_u64().unwrap())
}

fn step(line: Line) -> Option<Sample> {
    if let Line::Sample(it) = line { Some(it).filter(|it| it.edge == Edge::Step) } else { None }
}

/// The counters that PyTorch's script is to print: its names by ours, as JSON.
fn asked() -> String {
    let named = |it: &Counter| if let Torch::Stats(key) = it.torch { Some((it.name, key)) } else { None };
    serde_json::to_string(&Counters::TABLE.iter().filter_map(named).collect::<BTreeMap<_, _>>()).unwrap()
}

/// Returns the counters that both have for a step.
fn both<'a>(row: &'a Sample, reported: &'a Value) -> impl Iterator<Item = (u64, u64)> + 'a {
    let values = row.counters.values();
    Counters::NAMES.iter().zip(values).filter_map(|(name, value)| Some((value?, reported[*name].as_u64()?)))
}

/// The cost of a step's hook.
pub(crate) fn hook(bench: &Bench) -> Result<Vec<Row>, String> {
    bench.needs_torch()?;
    let measured = LOOPS.map(|how| {
        let mut job = Job::start(bench.run_python("tests/it/python/cost.py", &["60", "250", how]));
        job.json();
        job.go_on();
        let measured = job.json();
        job.end();
        let us = |name: &str| format!("{} µs", measured[name]["median"]);
        [
            Row::at_most(format!("hook over a bare read ({how})"), measured["ratio"].as_f64().unwrap(), HOOK),
            Row::known(format!("a step's hook, a bare read ({how})"), us("hook_us"), us("bare_us")),
        ]
    });
    Ok(measured.into_iter().flatten().collect())
}

/// A leak is found, and its line named.
pub(crate) fn leak(bench: &Bench) -> Result<Vec<Row>, String> {
    bench.needs_torch()?;
    let mut job = Job::start(bench.run_python("tests/gpu/leak.py", &["600"]));
    let planted = job.json();
    job.end();
    let verdict = bench.checked();
    let growth = finding(&verdict, "growth").ok_or(()).unwrap_or_else(|()| panic!("no growth in {verdict:#}"));
    let line = planted["line"].to_string();
    let sentence = growth["culprit"]["sentence"].as_str().unwrap_or("no line").to_owned();
    Ok(vec![
        Row::same(
            "bytes a step",
            &growth["bytes_per_step"].as_f64().unwrap_or(0.0),
            &planted["bytes_per_step"].as_f64().unwrap(),
        ),
        Row {
            claim: "line".into(),
            holds: sentence.contains(&format!("leak.py:{line} ")),
            gpuwatch: sentence,
            other: format!("leak.py:{line}"),
        },
    ])
}

/// An error is found, with the request that failed.
pub(crate) fn oom(bench: &Bench) -> Result<Vec<Row>, String> {
    bench.needs_torch()?;
    let mut job = Job::start(bench.run_python("tests/gpu/oom.py", &[]));
    let lines = job.json();
    job.end();
    let tried = bench.recorded().into_iter().find_map(|it| if let Line::Oom(it) = it { it.tried } else { None });
    let verdict = bench.checked();
    Ok(vec![
        Row::same("bytes tried", &tried.unwrap_or(0), &lines["tried"].as_u64().unwrap()),
        Row::same("found by check", &finding(&verdict, "oom").is_some(), &true),
    ])
}

/// A job that was started without gpuwatch has its counters, to the byte.
pub(crate) fn attached(bench: &Bench) -> Result<Vec<Row>, String> {
    bench.needs_torch()?;
    let mut command = bench.command(Bench::python());
    command.arg("tests/it/python/attached.py");
    let mut job = Job::start(command);
    job.json();
    let attach = bench.gpuwatch(&["attach", "--no-record", "--wait", "2m", &job.pid().to_string()]).output().unwrap();
    assert!(attach.status.success(), "{attach:?}");
    let reported = job.ask("look");
    let counters = ["allocated", "reserved", "allocated_peak"];
    let theirs = reported["stats"].clone();
    let mut rows = Job::compared(bench, job.pid(), |on, _| {
        let ours: Value = counters.iter().map(|name| on["counters"][name].clone()).collect::<Vec<_>>().into();
        vec![Row::same(counters.join(", "), &ours, &theirs)]
    });
    job.go_on();
    let ended = job.ask("end");
    job.end();
    rows.push(Row::same("modules that the job has besides", &ended["modules"], &serde_json::json!([])));
    Ok(rows)
}

fn finding<'a>(verdict: &'a Value, kind: &str) -> Option<&'a Value> {
    verdict["findings"].as_array().unwrap().iter().find(|it| it["kind"] == kind)
}
