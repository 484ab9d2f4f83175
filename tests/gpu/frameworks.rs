//! Frameworks as their users use them: every step is counted, and healthy jobs raise nothing.

use crate::{
    bench::{Bench, text, together},
    results::Row,
};
use serde_json::Value;

/// A function of a script of `tests/it/python/frameworks`, what it imports, and its steps, at least and at most.
const JOBS: [(&str, &str, &str, [u64; 2]); 9] = [
    ("trainer.py", "healthy_trainer", "transformers", [120, 120]),
    ("trainer.py", "eight_trainers", "transformers", [320, 320]),
    ("trainer.py", "healthy_metrics", "transformers", [120, 120]),
    ("trainer.py", "healthy_seq2seq", "transformers", [60, 60]),
    ("trainer.py", "healthy_lora", "peft", [120, 120]),
    ("trainer.py", "healthy_accelerate", "accelerate", [64, 64]),
    // In float16, a step whose gradients overflow is left out.
    ("modules.py", "healthy_lightning", "lightning", [95, 96]),
    ("modules.py", "healthy_gan", "lightning", [192, 192]),
    ("modules.py", "healthy_timm", "timm", [60, 60]),
];

pub(crate) fn healthy(bench: &Bench) -> Result<Vec<Row>, String> {
    bench.needs_torch()?;
    let here = JOBS.into_iter().filter(|it| bench.has_or_skips(it.2, it.1));
    let rows =
        together(here.map(|(script, function, _, steps)| {
            (function.to_owned(), move || trained(bench, script, function, steps))
        }));
    if rows.is_empty() { Err("no framework is there".into()) } else { Ok(rows) }
}

fn trained(bench: &Bench, script: &str, function: &str, steps: [u64; 2]) -> Vec<Row> {
    let folder = bench.path(function);
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("recording");
    let script = std::fs::canonicalize(format!("tests/it/python/frameworks/{script}")).unwrap();
    let mut run = bench.recorded_to(&file, &[script.to_str().unwrap(), function]);
    // Checkpoints go to the folder of the job, and nothing to the network.
    run.current_dir(&folder)
        .env("HF_HUB_OFFLINE", "1")
        .env("TOKENIZERS_PARALLELISM", "false")
        .env("UNTIL", "/dev/null");
    text(&run.output().unwrap());
    let verdict = bench.checked_file(&file);
    vec![
        Row::within(format!("{function}: steps"), verdict["steps"].as_u64().unwrap_or_default(), steps),
        Row::same(format!("{function}: findings"), &verdict["findings"], &Value::Array(Vec::new())),
    ]
}
