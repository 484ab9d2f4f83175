//! What `gpuwatch fit` predicts without a GPU against trainings on this one.

use crate::{
    bench::{Bench, Job, text, together},
    results::{self, Row},
};
use gpuwatch::model::fit::{Device, Facts, overhead::outside};
use serde_json::Value;
use std::{fs, thread};

const TRANSFORMER: &str = "tests/it/fit/measured/transformer.py";
const CNN: &str = "tests/it/fit/measured/cnn.py";

/// Trainings: what they import beside PyTorch, the script, its arguments.
const TRAININGS: [(&str, &str, &[&str]); 10] = [
    ("torch", "tests/gpu/lengths.py", &["4"]),
    ("transformers", TRANSFORMER, &["openai-community/gpt2", "AdamW", "24", "0"]),
    ("transformers", TRANSFORMER, &["facebook/opt-350m", "Adafactor", "8", "1"]),
    ("transformers", TRANSFORMER, &["t5-base", "Adam", "16", "2"]),
    ("transformers", TRANSFORMER, &["distilbert/distilgpt2", "SGD", "64", "0"]),
    ("torchvision", CNN, &["VGG16", "Adam", "128", "0"]),
    ("torchvision", CNN, &["ResNet101", "AdamW", "128", "0"]),
    ("torchvision", CNN, &["MobileNetV2", "SGD", "256", "2"]),
    ("torchvision", CNN, &["ConvNeXtTiny", "Adam", "64", "1"]),
    ("torchvision", CNN, &["MnasNet", "RMSprop", "256", "0"]),
];

/// The most that a predicted peak may be off, as a part of the measured one; docs/accuracy.md has what is usual.
const OFF: f64 = 0.06;

/// Peaks of the allocator, and of the whole process.
pub(crate) fn peaks(bench: &Bench) -> Result<Vec<Row>, String> {
    bench.needs_torch()?;
    let here: Vec<_> = TRAININGS.into_iter().filter(|it| bench.has_or_skips(it.0, it.1)).collect();
    Ok(together(here.into_iter().map(|(_, script, arguments)| {
        let name = format!("{} {}", script.rsplit('/').next().unwrap(), arguments.join(" "));
        (name.clone(), move || {
            thread::scope(|scope| {
                let predicted = scope.spawn(|| predicted(bench, script, arguments));
                let measured = measured(bench, script, arguments);
                rows(&name, &predicted.join().unwrap(), &measured)
            })
        })
    })))
}

fn rows(name: &str, predicted: &Value, measured: &Value) -> Vec<Row> {
    let (figure, peak) = (|it: &Value| it.as_u64().unwrap_or_default(), &predicted["peak"]);
    let [ours, theirs] = [&peak["reserved"], &measured["peak_reserved"]].map(figure);
    let off = ours as f64 / theirs as f64 - 1.0;
    vec![
        Row {
            claim: format!("{name}: the allocator's peak"),
            gpuwatch: format!("{ours} ({:+.2} %)", off * 100.0),
            other: theirs.to_string(),
            holds: off.abs() <= OFF,
        },
        Row {
            claim: format!("{name}: the process's peak"),
            gpuwatch: format!("{} to {}", figure(&peak["device_low"]), figure(&peak["device_high"])),
            other: figure(&measured["peak_device"]).to_string(),
            holds: (figure(&peak["device_low"])..=figure(&peak["device_high"]))
                .contains(&figure(&measured["peak_device"])),
        },
    ]
}

fn predicted(bench: &Bench, script: &str, arguments: &[&str]) -> Value {
    let folder = bench.folder();
    let mut fit = bench.gpuwatch(&["fit", "--json", "--steps", "4", "--gpu", &bench.gpu, "--output"]);
    fit.arg(folder.join("fit")).arg("--").arg(Bench::python()).arg(script).args(arguments).env("OMP_NUM_THREADS", "2");
    let done = fit.output().unwrap();
    let answer: Value = serde_json::from_slice(&done.stdout).unwrap_or_else(|why| panic!("{why}: {done:?}"));
    assert!(answer["peak"].is_object(), "no answer: {answer}");
    answer
}

/// Runs it on the GPU; what the driver charges the process with beside what it reserves was there at the peak too.
fn measured(bench: &Bench, script: &str, arguments: &[&str]) -> Value {
    let mut command = bench.command(Bench::python());
    command.args(["tests/gpu/peaks.py", script]).args(arguments);
    let mut job = Job::start(command);
    let mut peaks = job.json();
    while peaks["peaks"] != true {
        peaks = job.json();
    }
    let once = bench.once();
    let processes = once["devices"][0]["processes"].as_array().unwrap();
    let used = processes.iter().find(|it| it["pid"] == job.pid()).expect("its process")["used"].as_u64();
    let figure = |name: &str| peaks[name].as_u64().unwrap();
    peaks["peak_device"] = used.map(|it| it - figure("reserved") + figure("peak_reserved")).into();
    job.go_on();
    job.end();
    peaks
}

/// A table of this GPU, which is kept, and the context within the range that is built in.
pub(crate) fn calibrated(bench: &Bench) -> Result<Vec<Row>, String> {
    bench.needs_torch()?;
    let file = results::folder().join(format!("{}-outside.json", results::named(bench)));
    fs::create_dir_all(results::folder()).unwrap();
    let _ = fs::remove_file(&file);
    let mut fit = bench.gpuwatch(&["fit", "--calibrate"]);
    text(&fit.arg(&file).arg("--").arg(Bench::python()).output().unwrap());
    let table: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let number = |it: &Value| it.as_u64().unwrap();
    let multiprocessors = number(&table["multiprocessors"]);
    let device = Device::parse(&bench.gpu)?;
    let facts = Facts { processes: 1, ..Facts::default() }.on(&device);
    let facts = Facts { multiprocessors: (multiprocessors, multiprocessors), ..facts };
    let ranges = outside(&facts, None);
    let range = |name: &str| ranges.iter().find(|it| it.name == name).map(|it| [it.low, it.high]).expect("a range");
    let mut rows: Vec<Row> = table["context"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| {
            let [low, high] = range("CUDA context");
            let context = number(it);
            let holds = (low..=high).contains(&context);
            Row {
                claim: "CUDA context".into(),
                gpuwatch: format!("{low} to {high}"),
                other: context.to_string(),
                holds,
            }
        })
        .collect();
    let sum = |group: &str| -> u64 {
        let kernels = table["kernels"].as_array().unwrap();
        kernels.iter().filter(|it| it["group"] == group).map(|it| number(&it["bytes"])).sum()
    };
    let [_, high] = range("lazily loaded kernels");
    rows.push(Row::known("kernels of some 40 operations", format!("up to {high}"), sum("plain").to_string()));
    rows.push(Row::known("kernels of convolutions", "", sum("cudnn").to_string()));
    let once = bench.once();
    let memory = &once["devices"][0]["memory"];
    rows.push(Row::same("total of the card", &device.total, &number(&memory["total"])));
    rows.push(Row::known("kept by the driver", device.reserved.to_string(), number(&memory["reserved"]).to_string()));
    let conv = table["convolutions"].as_array().unwrap();
    let most = |name: &str| {
        let parts = conv.iter().map(|it| (number(&it[name]) as f64 / number(&it["tensors"]) as f64, &it["name"]));
        parts.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(part, it)| format!("{part:.2} of the tensors: {it}")).unwrap()
    };
    rows.push(Row::known("the largest workspace of cuDNN", "", most("workspace")));
    rows.push(Row::known("the largest of its trials", "", most("trial")));
    Ok(rows)
}
