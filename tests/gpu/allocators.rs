//! Kinds of allocators and of training: counters are PyTorch's to the byte, and the ladder is the whole device.

use crate::{
    bench::{Bench, Job, together},
    results::Row,
};

/// A kind of `tests/it/python/backends.py`, and the allocator's settings.
const KINDS: [(&str, &str); 8] = [
    ("plain", ""),
    ("plain", "expandable_segments:True"),
    ("plain", "backend:cudaMallocAsync"),
    ("graphs", ""),
    ("graphs", "expandable_segments:True"),
    ("private_pool", ""),
    ("several_optimizers", ""),
    ("inference", ""),
];

pub(crate) fn kinds(bench: &Bench) -> Result<Vec<Row>, String> {
    bench.needs_torch()?;
    Ok(together(KINDS.map(|(kind, settings)| {
        let name = if settings.is_empty() { kind.to_owned() } else { format!("{kind}, `{settings}`") };
        (name.clone(), move || compared(bench, &name, kind, settings))
    })))
}

fn compared(bench: &Bench, name: &str, kind: &str, settings: &str) -> Vec<Row> {
    let mut command = bench.run_python("tests/it/python/backends.py", &[kind]);
    command.env("PYTORCH_CUDA_ALLOC_CONF", settings);
    let mut job = Job::start(command);
    let reported = job.json();
    let pid = u32::try_from(reported["pid"].as_u64().unwrap()).unwrap();
    let theirs = reported["devices"][0].as_object().unwrap();
    let rows = Job::compared(bench, pid, |on, once| {
        let ours = &on["counters"];
        let both: Vec<_> = theirs.iter().filter(|it| ours[it.0].is_u64()).collect();
        let differ = both.iter().filter(|it| ours[it.0] != *it.1);
        let differ: Vec<String> = differ.map(|(name, value)| format!("{name} {} not {value}", ours[name])).collect();
        let ladder = &once["devices"][0]["ladder"];
        vec![
            Row {
                claim: format!("{name}: counters that are PyTorch's"),
                gpuwatch: both.len().to_string(),
                other: differ.join(", "),
                holds: differ.is_empty() && both.len() >= 3,
            },
            Row::same(format!("{name}: sum of the ladder"), &ladder["sum"], &ladder["total"]),
        ]
    });
    job.go_on();
    job.end();
    rows
}
