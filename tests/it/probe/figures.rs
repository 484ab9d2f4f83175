//! `gpuwatch_probe.figures()`: what a job's experiment tracker gets.

use crate::{
    helpers::{
        story::{GIB, MIB, Story, counters},
        terminal::{PATIENCE, PROGRAM, until},
        torch,
    },
    probe::{
        launch::Home,
        pytorch::{Job, script, sockets},
    },
};
use gpuwatch::{
    facts::event::wire::Counters,
    model::{analysis::ladder::Gap, findings, tracker},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::Stdio,
};

/// The names that the Python module gives without a recorder.
fn recorded() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("probes/python/gpuwatch_probe/_figures.py");
    let text = fs::read_to_string(path).unwrap();
    let list = text.split("RECORDED = (").nth(1).and_then(|it| it.split(')').next()).unwrap();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn a_recorder_and_the_probe_have_the_same_names() {
    let mut story = Story::default();
    story.device(0, 90 * GIB, &[(4240, 80 * GIB)]).probe(0, 4240, 0, None);
    for step in 1..400 {
        story.wait(100_000).sample(0, step, counters(20 * GIB + step * 16 * MIB, GIB));
    }
    let session = story.session();
    let found = findings::findings(&session);
    let all = tracker::figures(&session, &found, &session.processes[0]);
    let of = all["devices"]["0"].as_object().unwrap();
    assert_eq!(of.keys().cloned().collect::<BTreeSet<_>>(), recorded());
    let rate = of["growth_bytes_per_step"].as_f64().unwrap();
    assert!((rate / (16 * MIB) as f64 - 1.0).abs() < 0.02, "{rate}");
    assert!(of["full_seconds"].as_f64().unwrap() > 0.0);
    assert!(of["open_critical"].as_u64().unwrap() + of["open_warning"].as_u64().unwrap() >= 1, "{of:?}");
    assert!(of["finding"].as_str().unwrap().contains("16.00 MiB/step"), "{of:?}");
    // The rungs of the only process fill its device.
    let rungs = Gap::ALL.iter().filter_map(|it| of[&format!("ladder_{}", it.row().id)].as_u64());
    assert_eq!(Some(rungs.sum::<u64>()), all_memory(&session));
}

fn all_memory(session: &gpuwatch::model::session::Session) -> Option<u64> {
    session.devices[0].memory.as_ref()?.value.as_ref().ok().map(|it| it.total.0)
}

/// The document, whose function the job defines.
fn page() -> String {
    format!("{}/docs/trackers.md", env!("CARGO_MANIFEST_DIR"))
}

/// The names of all figures.
fn names(figures: &Value) -> BTreeSet<String> {
    figures.as_object().unwrap().keys().cloned().collect()
}

fn expected() -> BTreeSet<String> {
    let own = ["device", "step"].into_iter().chain(Counters::NAMES.iter().copied()).map(str::to_owned);
    own.chain(recorded()).collect()
}

fn assert_own(report: &Value, step: u64) {
    let of = &report["figures"];
    assert_eq!(names(of), expected());
    let own = ["device", "step", "allocated", "reserved", "allocated_peak"].map(|it| of[it].clone());
    assert_eq!(
        own,
        [json!(0), json!(step), report["allocated"].clone(), report["reserved"].clone(), report["peak"].clone()]
    );
    assert_eq!(report["other"], json!({}), "the process has no such device");
    // What the document's function logs are numbers, all that are known.
    let logged = report["logged"].as_object().unwrap();
    assert!(logged.values().all(Value::is_number) && logged["gpuwatch/allocated"] == of["allocated"], "{logged:?}");
}

#[test]
fn a_job_gets_its_counters_its_ladder_and_its_findings() {
    let driver = torch::libraries().join("libnvidia-ml.so.1");
    let mut job = Job::start_with(torch::machine(), &[&script("tracked.py"), &page()], |it| {
        it.env("GPUWATCH_NVML_PATH", driver);
    });
    let first = job.next();
    assert_eq!((&first["before"], &first["other"]), (&json!({}), &json!({})));
    let mut report = Value::Null;
    let mut steps = 0;
    assert!(
        until(PATIENCE, || {
            job.send("20");
            steps += 20;
            report = job.next();
            assert_own(&report, steps);
            report["figures"]["finding"].is_string()
        }),
        "{report}"
    );
    job.send("0");
    let of = &job.next()["figures"];
    assert_eq!(of["growth_bytes_per_step"].as_f64().map(f64::round), Some((4 * MIB) as f64), "{of}");
    assert!(of["finding"].as_str().unwrap().contains("4.00 MiB/step"), "{of}");
    // Nothing is allocated any more, so the recorder and `once` read the same within two seconds.
    let (mut once, mut figures) = (Value::Null, Value::Null);
    let is_same = until(PATIENCE, || {
        once = job.gpuwatch(&["once", "--json"])["devices"][0]["ladder"]["rungs"].take();
        job.send("0");
        figures = job.next()["figures"].take();
        once.as_array()
            .unwrap()
            .iter()
            .all(|it| figures[format!("ladder_{}", it["gap"].as_str().unwrap())] == it["bytes"])
    });
    assert!(is_same && figures["ladder_free"].is_u64(), "{once} {figures}");
    let socket = sockets(&job.sockets).remove(0);
    assert!(socket.with_extension("figures").exists());
    let rest = job.finish();
    assert!(rest.contains("\"after\": {}"), "{rest}");
    assert!(!socket.with_extension("figures").exists());
}

#[test]
fn without_a_recorder_a_job_gets_its_counters() {
    let home = Home::new();
    let gpu = torch::machine();
    let mut command = gpu.command("/bin/sh");
    command
        .args(["-c", "eval \"$(\"$0\" env)\"; exec \"$@\"", PROGRAM])
        .arg(torch::python())
        .arg(script("tracked.py"))
        .arg(page());
    command.envs(home.variables()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut input = child.stdin.take().unwrap();
    let mut next = || {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    next();
    for round in 1..=2 {
        input.write_all(b"20\n").unwrap();
        let report = next();
        assert_own(&report, 20 * round);
        let of = &report["figures"];
        assert!(recorded().iter().all(|it| of[it].is_null()), "{of}");
        assert!(of["rss"].as_u64().is_some_and(|it| it > 0) && of["device_total"].is_u64(), "{of}");
    }
    drop(input);
    assert!(child.wait().unwrap().success());
}
