//! Jobs without PyTorch: the counters of their libraries, to the byte.

use crate::{
    bench::{Bench, Job},
    results::Row,
};

/// XLA's allocator.
pub(crate) fn jax(bench: &Bench) -> Result<Vec<Row>, String> {
    counted(bench, "jax", "tests/gpu/jax_job.py")
}

/// The memory pool of `CuPy`.
pub(crate) fn cupy(bench: &Bench) -> Result<Vec<Row>, String> {
    counted(bench, "cupy", "tests/gpu/cupy_job.py")
}

fn counted(bench: &Bench, module: &str, script: &str) -> Result<Vec<Row>, String> {
    if !bench.has_module(module) {
        return Err(format!("{} has no {module}", Bench::python().display()));
    }
    let mut command = bench.command(Bench::python());
    command.arg(script).env("PYTHONPATH", "probes/python");
    let mut job = Job::start(command);
    let theirs = job.json();
    let counters = theirs["counters"].as_object().unwrap();
    assert!(!counters.is_empty(), "{module} reports no counters");
    let rows = Job::compared(bench, job.pid(), |on, once| {
        let ladder = &once["devices"][0]["ladder"];
        let counted = counters.iter().map(|(name, value)| Row::same(name.as_str(), &on["counters"][name], value));
        let others =
            [("steps", &on["step"], &theirs["steps"]), ("sum of the ladder", &ladder["sum"], &ladder["total"])];
        counted.chain(others.map(|(claim, ours, its)| Row::same(claim, ours, its))).collect()
    });
    job.go_on();
    job.end();
    Ok(rows)
}
