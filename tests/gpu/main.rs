//! Confirms on a machine with an NVIDIA GPU what the suite claims on a simulated one, layer by layer.
//!
//! ```text
//! cargo test --test gpu
//! cargo test --test gpu -- leak      # the layers with that in their names
//! ```
//!
//! It needs a driver, and as much as there is of: `nvidia-smi`, a C compiler, a Python with PyTorch (`python3`, or
//! `GPUWATCH_GPU_PYTHON`). It prints a table, and writes it to `tests/gpu/results` (or `GPUWATCH_GPU_RESULTS`). What
//! cannot be confirmed here is reported as skipped, with the reason; what does not hold fails.

#![expect(clippy::print_stdout, reason = "the table is its answer")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failure by a panic")]

mod bench;
mod driver;
mod native;
mod results;
mod torch;

use bench::Bench;
use results::Row;
use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
};

/// Confirms one claim after the other; fails with the reason if a claim cannot be tried here.
type Layer = fn(&Bench) -> Result<Vec<Row>, String>;

/// From what is nearest to the driver to what rests on all of it.
const LAYERS: [(&str, Layer); 7] = [
    ("NVML against nvidia-smi", driver::memory),
    ("C probe against cuMemGetInfo", native::c),
    ("cudarc probe against NVML", native::cudarc),
    ("PyTorch's counters and the ladder", torch::counters),
    ("cost of the hook", torch::hook),
    ("a planted leak", torch::leak),
    ("out of memory", torch::oom),
];

fn main() -> ExitCode {
    let bench = match Bench::new() {
        Ok(it) => it,
        Err(why) => {
            test_tiers::record("gpu", &why);
            return ExitCode::SUCCESS;
        }
    };
    let mut rows = Vec::new();
    let wanted: Vec<String> = env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    for (name, layer) in LAYERS {
        if !wanted.is_empty() && !wanted.iter().any(|it| name.contains(it)) {
            continue;
        }
        match catch_unwind(AssertUnwindSafe(|| layer(&bench))) {
            Ok(Ok(confirmed)) => rows.extend(confirmed.into_iter().map(|row| (name, row))),
            Ok(Err(why)) => test_tiers::record(&format!("gpu: {name}"), &why),
            Err(why) => {
                let why = why.downcast_ref::<String>().map_or("see above", |it| it.lines().next().unwrap_or_default());
                let row =
                    Row { claim: "it can be tried".into(), gpuwatch: why.into(), other: String::new(), holds: false };
                rows.push((name, row));
            }
        }
    }
    let failed = rows.iter().any(|(_, row)| !row.holds);
    results::report(&bench, &rows);
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
