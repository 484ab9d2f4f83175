//! Replays under other allocator settings against real runs under those settings.

use crate::{
    bench::{Bench, json},
    results::Row,
};
use serde_json::Value;
use std::thread;

const SETTINGS: [&str; 5] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:64",
    "roundup_power2_divisions:4",
    "garbage_collection_threshold:0.6",
];

/// Programs that allocate, with their arguments: on two streams, and a model whose batches have lengths of their own.
const PROGRAMS: [(&str, &[&str]); 2] =
    [("tests/it/whatif/program.py", &["60", "2560", "at once"]), ("tests/gpu/lengths.py", &["40"])];

/// Real runs under each setting: on several streams, the moments at which blocks come free differ from run to run.
const RUNS: usize = 3;

/// The most that a replay may be off the peaks of the real runs, as a part; gpuwatch gives no advice above that.
const OFF: f64 = 0.02;

pub(crate) fn replayed(bench: &Bench) -> Result<Vec<Row>, String> {
    bench.needs_torch()?;
    // One program at a time: with each setting, it may take half of a device.
    Ok(PROGRAMS.iter().enumerate().flat_map(|(number, it)| compared(bench, number, *it)).collect())
}

fn compared(bench: &Bench, number: usize, (program, arguments): (&str, &[&str])) -> Vec<Row> {
    let trace = bench.path(&format!("{number}.pickle"));
    // Each with all settings at once.
    let real: Vec<[Value; 5]> = (0..RUNS)
        .map(|number| {
            thread::scope(|scope| {
                let begun = SETTINGS.map(|settings| {
                    let mut command = bench.command(Bench::python());
                    command.arg(program).args(arguments).env("PYTORCH_CUDA_ALLOC_CONF", settings);
                    if settings.is_empty() && number == 0 {
                        command.env("SNAPSHOT", &trace);
                    }
                    scope.spawn(move || json(&command.output().unwrap()))
                });
                begun.map(|it| it.join().unwrap())
            })
        })
        .collect();
    let mut whatif = bench.gpuwatch(&["whatif", "--json", "--torch"]);
    whatif.arg(Bench::python()).args(SETTINGS.iter().flat_map(|it| ["--set", it])).arg(&trace);
    let answer = json(&whatif.output().unwrap());
    let device = &answer["devices"][0];
    assert!(device["candidates"].is_array(), "no answer: {answer}");
    let name = program.rsplit('/').next().unwrap();
    let mut rows = vec![
        Row::same(format!("{name}: complete"), &device["complete"], &true.into()),
        Row::known(format!("{name}: refused"), device["refused"].to_string(), ""),
    ];
    let off = &device["as_recorded"]["error"];
    rows.push(Row::at_most(format!("{name}: replay of the run, off by"), off.as_f64().unwrap_or(f64::NAN), OFF));
    for (at, settings) in SETTINGS.iter().enumerate() {
        let replayed = &device["candidates"][at];
        let figure = |of: &Value, name: &str| of[name].as_u64().unwrap_or_default();
        let theirs: Vec<u64> = real.iter().map(|it| figure(&it[at], "peak_reserved")).collect();
        let (low, high) = (*theirs.iter().min().unwrap(), *theirs.iter().max().unwrap());
        let ours = figure(replayed, "peak_reserved");
        let mallocs = |it: &Value| figure(it, "cuda_mallocs");
        rows.push(Row {
            claim: format!("{name}, `{settings}`: peak reserved"),
            gpuwatch: format!("{ours} ({} mallocs)", mallocs(replayed)),
            other: format!("{low} to {high} ({} mallocs)", mallocs(&real[0][at])),
            holds: ours as f64 >= low as f64 * (1.0 - OFF) && ours as f64 <= high as f64 * (1.0 + OFF),
        });
    }
    rows
}
