//! What `gpuwatch fit --advise` measures without a GPU against the same edits by hand on this one.

use crate::{
    bench::{Bench, Job, together},
    results::Row,
};
use serde_json::Value;
use std::thread;

const TRAINING: &str = "tests/it/python/advise/train.py";

/// Words, length, width, heads and batch: 4 to 8 GB.
const SIZES: &str = "32000,512,1024,16,8";

/// A GPT whose attention is written out, and one with PyTorch's kernel.
const MODELS: [(&str, &[&str]); 2] = [
    ("causal", &["checkpoint", "checkpoint:2", "sdpa", "bf16", "foreach", "fused", "accumulate", "weights-bf16"]),
    (
        "gpt",
        &[
            "checkpoint",
            "bf16",
            "weights-bf16",
            "save-on-cpu",
            "sgd",
            "adafactor",
            "optimizer-in-backward",
            "optimizer-on-host",
        ],
    ),
];

/// What is reserved with it depends on when the copies to the host end, which a simulated device does not know; and
/// the most that this may be off.
const BY_CHANCE: (&str, f64) = ("save-on-cpu", 0.2);

/// The most that a peak may be off, as a part of the measured one: of what is allocated, and of what is reserved.
const OFF: [f64; 2] = [0.02, 0.06];

pub(crate) fn measured(bench: &Bench) -> Result<Vec<Row>, String> {
    bench.needs_torch()?;
    Ok(MODELS.into_iter().flat_map(|(model, techniques)| compared(bench, model, techniques)).collect())
}

fn compared(bench: &Bench, model: &str, techniques: &[&str]) -> Vec<Row> {
    thread::scope(|scope| {
        let advised = scope.spawn(|| advised(bench, model, techniques));
        let edits = ["none"].iter().chain(techniques);
        let real: Vec<_> = edits.map(|edit| (*edit, scope.spawn(|| real(bench, model, edit)))).collect();
        let advised = advised.join().unwrap();
        let peaks: Vec<_> = real.into_iter().map(|(edit, it)| (edit, it.join().unwrap())).collect();
        together(peaks.into_iter().map(|(edit, peaks)| {
            let advised = &advised;
            (edit.to_owned(), move || rows(model, edit, advised, peaks))
        }))
    })
}

/// Compares what is allocated and what is reserved at most.
fn rows(model: &str, edit: &str, advised: &Value, real: [u64; 2]) -> Vec<Row> {
    let all = advised["rows"].as_array().expect("rows");
    let own = if edit == "none" {
        &advised["baseline"]["peak"]
    } else {
        all.iter().find(|it| it["technique"] == edit).expect("its row")
    };
    let figures = ["allocated", "reserved"].into_iter().zip(real).zip(OFF);
    let row = |((name, theirs), most): ((&str, u64), f64)| {
        let ours = own[name].as_u64().unwrap_or_default();
        let off = ours as f64 / theirs as f64 - 1.0;
        Row {
            claim: format!("{model}, {edit}: {name} at most"),
            gpuwatch: format!("{ours} ({:+.2} %)", off * 100.0),
            other: theirs.to_string(),
            holds: off.abs() <= if edit == BY_CHANCE.0 { BY_CHANCE.1.max(most) } else { most },
        }
    };
    figures.map(row).collect()
}

fn advised(bench: &Bench, model: &str, techniques: &[&str]) -> Value {
    let names = format!("--advise={}", techniques.join(","));
    let mut fit = bench.gpuwatch(&["fit", "--json", &names, "--gpu", &bench.gpu, "--output"]);
    fit.arg(bench.folder().join("fit")).arg("--").arg(Bench::python()).args([TRAINING, model]);
    let done = fit.env("SIZES", SIZES).env("OMP_NUM_THREADS", "2").output().unwrap();
    let answer: Value = serde_json::from_slice(&done.stdout).unwrap_or_else(|why| panic!("{why}: {done:?}"));
    assert!(answer["rows"].is_array(), "no answer: {answer}");
    answer
}

/// The allocated and reserved peaks with an edit by hand.
fn real(bench: &Bench, model: &str, edit: &str) -> [u64; 2] {
    let mut command = bench.command(Bench::python());
    command.args(["tests/gpu/peaks.py", TRAINING, model, edit]).env("SIZES", SIZES).env("STEPS", "6");
    let mut job = Job::start(command);
    let peaks = job.json();
    job.go_on();
    job.end();
    ["peak_allocated", "peak_reserved"].map(|it| peaks[it].as_u64().unwrap())
}
