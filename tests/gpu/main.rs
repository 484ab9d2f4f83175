//! Confirms on a machine with an NVIDIA GPU what the suite claims on a simulated one, layer by layer.
//!
//! ```text
//! cargo test --test gpu
//! cargo test --test gpu -- leak      # the layers with that in their names
//! ```
//!
//! It needs a driver, and as much as there is of: `nvidia-smi`, a C compiler, nvtop, and a Python (`python3`, or
//! `GPUWATCH_GPU_PYTHON`) with PyTorch, nvidia-ml-py, the frameworks of `tests/it/python/frameworks`, JAX and
//! `CuPy`. It prints a table, and writes it to `tests/gpu/results` (or `GPUWATCH_GPU_RESULTS`). What cannot be
//! confirmed here is reported as skipped, with the reason; what does not hold fails. Trainings and replays take up to
//! 70 GB of device memory.

#![expect(clippy::print_stdout, reason = "the table is its answer")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test reports a failure by a panic")]

mod advice;
mod allocators;
mod bench;
#[path = "../it/driver/peers/binding.rs"]
mod binding;
mod driver;
mod fit;
mod frameworks;
#[path = "../it/benchmarks/other_viewers/meter.rs"]
mod meter;
mod metrics;
mod native;
mod others;
mod parts;
mod results;
mod settings;
mod torch;
mod viewers;

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
const LAYERS: [(&str, Layer); 20] = [
    ("NVML against nvidia-smi", driver::memory),
    ("metrics of an idle device", metrics::idle),
    ("metrics of a busy device", metrics::busy),
    ("C probe against cuMemGetInfo", native::c),
    ("cudarc probe against NVML", native::cudarc),
    ("PyTorch's counters and the ladder", torch::counters),
    ("cost of the hook", torch::hook),
    ("a planted leak", torch::leak),
    ("out of memory", torch::oom),
    ("attached while it runs", torch::attached),
    ("kinds of allocators", allocators::kinds),
    ("what memory consists of", parts::parts),
    ("frameworks", frameworks::healthy),
    ("JAX", others::jax),
    ("CuPy", others::cupy),
    ("what if", settings::replayed),
    ("fit", fit::peaks),
    ("advice", advice::measured),
    ("outside of the allocator", fit::calibrated),
    ("viewers beside a job", viewers::beside),
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
    let file = results::file(&bench);
    let wanted: Vec<String> = env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|it| name.contains(it));
    assert!(LAYERS.iter().any(|it| is_wanted(it.0)), "no layer has any of {wanted:?} in its name");
    for (name, layer) in LAYERS.into_iter().filter(|it| is_wanted(it.0)) {
        match catch_unwind(AssertUnwindSafe(|| layer(&bench))) {
            Ok(Ok(confirmed)) => rows.extend(confirmed.into_iter().map(|row| (name, row))),
            Ok(Err(why)) => test_tiers::record(&format!("gpu: {name}"), &why),
            Err(why) => rows.push((name, Row::failed("this layer", &*why))),
        }
        // Where a later one never ends, these are kept.
        results::write(&bench, &rows, &file);
    }
    let failed = rows.iter().any(|(_, row)| !row.holds);
    print!("{}", results::write(&bench, &rows, &file));
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
