//! What viewers cost with a real driver, and what they cost the job beside them.

use crate::{
    bench::{Bench, Job},
    meter::{Cost, Meter, SIZE},
    results::{self, Row},
};
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use serde_json::Value;
use std::{
    env, fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// Screens of gpuwatch: the flags and the keys that lead to them.
const SCREENS: [(&str, &[&str], &str); 5] = [
    ("memory", &[], ""),
    ("training", &["--preset", "training"], ""),
    ("hardware", &["--preset", "hardware"], ""),
    ("a device", &[], "\r"),
    ("a process", &[], "\t\r"),
];

/// The time before a measurement: starting a program costs more than watching.
const SETTLING: Duration = Duration::from_secs(2);

/// The time of a measurement.
const TIME: Duration = Duration::from_secs(4);

/// The most memory that gpuwatch may take.
const MOST_MIB: f64 = 12.0;

/// A job beside a viewer makes at least this part of its steps.
const SLOWER: f64 = 0.99;

/// A healthy job that keeps the device busy, without viewers and beside each.
pub(crate) fn beside(bench: &Bench) -> Result<Vec<Row>, String> {
    bench.needs_torch()?;
    let file = bench.path("busy");
    let mut job = Job::start(bench.recorded_to(&file, &["tests/gpu/busy.py"]));
    job.json();
    let alone_once = |job: &mut Job| {
        thread::sleep(SETTLING);
        trained(job, || thread::sleep(TIME)).0
    };
    let (mut rows, mut alone) = (Vec::new(), vec![alone_once(&mut job)]);
    let (mut beside, mut pictures) = (Vec::new(), Vec::new());
    for every_ms in [1000, 100] {
        let nvtop = Path::new("nvtop");
        let its = meter(bench, nvtop, &["-d", &(every_ms / 100).to_string()], "").map(|it| measured(&mut job, &it));
        if its.is_none() {
            test_tiers::record("gpu: viewers beside nvtop", "nvtop is not there");
        }
        for (screen, flags, keys) in SCREENS {
            let interval = format!("{every_ms}ms");
            let arguments = [&["--interval", &interval], flags].concat();
            let begun = Instant::now();
            let own = meter(bench, &Bench::program(), &arguments, keys).expect("gpuwatch is there");
            let (rate, cost) = measured(&mut job, &own);
            pictures.extend(own.first().map(|it| it.1 - begun));
            drop(own);
            beside.push(rate);
            alone.push(alone_once(&mut job));
            let misses = its.as_ref().map(|it| cost.misses(&it.1)).unwrap_or_default();
            rows.push(Row {
                claim: format!("{screen}, a reading each {every_ms} ms (the other: nvtop)"),
                gpuwatch: cost.to_string(),
                other: its.as_ref().map_or_else(|| "nvtop is not there".to_owned(), |it| it.1.to_string()),
                holds: misses.is_empty() && cost.peak_mib <= MOST_MIB,
            });
        }
    }
    job.end();
    let slowest = pictures.into_iter().max().expect("each has a picture");
    rows.push(Row::known("the first picture, at the latest", format!("{slowest:?}"), ""));
    let [beside, alone] = [beside, alone].map(|mut it| {
        it.sort_by(f64::total_cmp);
        f64::midpoint(it[(it.len() - 1) / 2], it[it.len() / 2])
    });
    rows.push(Row {
        claim: "steps a second beside a viewer (the other: recorded alone)".into(),
        gpuwatch: format!("{beside:.3}"),
        other: format!("{alone:.3}"),
        holds: beside >= alone * SLOWER,
    });
    // It names the machine, the user and the device.
    if let Some(folder) = env::var_os("GPUWATCH_GPU_RESULTS") {
        fs::copy(&file, Path::new(&folder).join(format!("{}-busy.jsonl.zst", results::named(bench)))).unwrap();
    }
    rows.push(Row::same(
        "findings about the healthy job",
        &bench.checked_file(&file)["findings"],
        &Value::Array(vec![]),
    ));
    Ok(rows)
}

/// The steps a second that the job makes meanwhile.
fn trained<T>(job: &mut Job, meanwhile: impl FnOnce() -> T) -> (f64, T) {
    job.send("train");
    let result = meanwhile();
    let reported = job.ask("rest");
    (reported["steps"].as_f64().unwrap() / reported["seconds"].as_f64().unwrap(), result)
}

fn measured(job: &mut Job, meter: &Meter) -> (f64, Cost) {
    thread::sleep(SETTLING);
    trained(job, || meter.measure(|| thread::sleep(TIME)))
}

/// A program in a terminal; `None` if it is missing.
fn meter(bench: &Bench, program: &Path, arguments: &[&str], keys: &str) -> Option<Meter> {
    let (rows, cols) = SIZE;
    let pair = native_pty_system().openpty(PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }).unwrap();
    let mut command = CommandBuilder::new(program);
    command.args(arguments);
    command.env("TERM", "xterm-256color");
    command.env("LANG", "C.UTF-8");
    for (name, value) in bench.command(program).get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let child = pair.slave.spawn_command(command).ok()?;
    let mut meter = Meter::of((tempfile::tempdir().unwrap(), pair.master, child));
    for key in keys.bytes() {
        meter.press(key, |is_shown| {
            (0..10_000).any(|_| is_shown() || (thread::sleep(Duration::from_millis(10)), false).1)
        });
    }
    Some(meter)
}
