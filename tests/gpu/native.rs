//! Jobs without Python: the probe's figures of the device match the driver's.

use crate::{
    bench::{Bench, Job, text},
    driver,
    results::Row,
};
use serde_json::Value;
use std::{env, path::PathBuf, process::Command};

/// The bytes that a step allocates.
const MIB_A_STEP: u64 = 256;

/// The newest sample of the process, of its first device.
fn on_device(once: &Value, pid: u32) -> &Value {
    let probes = once["probes"].as_array().unwrap();
    let probe = probes.iter().find(|it| it["own_pid"] == pid).unwrap_or_else(|| panic!("no probe in {once:#}"));
    &probe["devices"][0]
}

/// Compares the memory of the process, as gpuwatch reads it from NVML, with `nvidia-smi`.
fn charged(bench: &Bench, once: &Value, pid: u32) -> Option<Row> {
    let used = on_device(once, pid)["driver_used"].as_u64()?;
    Some(Row::within("memory of the process", used, driver::charged(bench, pid)?))
}

/// A job in C: its device's free bytes, its own counters, what the driver charges it with.
pub(crate) fn c(bench: &Bench) -> Result<Vec<Row>, String> {
    let library = library(bench);
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("job");
    let mut compiler = Command::new("cc");
    compiler.args(["-Iprobes/gpuwatch-probe", "tests/gpu/job.c", "-ldl", "-o"]).arg(&program);
    text(&compiler.output().map_err(|why| format!("cc: {why}"))?);
    let mut command = bench.command(program);
    command.arg(library).arg(MIB_A_STEP.to_string());
    let mut job = Job::start(command);
    job.go_on();
    let reported: Vec<u64> = job.line().split_whitespace().map(|it| it.parse().unwrap()).collect();
    let [step, allocated, before, after, total] = reported[..] else { panic!("{reported:?}") };
    let once = bench.once();
    let on = on_device(&once, job.pid());
    let counter = |name: &str| on["counters"][name].as_u64().unwrap_or_else(|| panic!("{name} in {on:#}"));
    let mut rows = vec![
        Row::same("steps", &on["step"].as_u64().unwrap(), &step),
        Row::same("allocated", &counter("allocated"), &allocated),
        Row::within("free", counter("device_free"), [before.min(after), before.max(after)]),
        Row::same("total", &counter("device_total"), &total),
    ];
    rows.extend(charged(bench, &once, job.pid()));
    job.end();
    Ok(rows)
}

/// The probe's library, as `gpuwatch env` names it.
fn library(bench: &Bench) -> PathBuf {
    let env = text(&bench.gpuwatch(&["env"]).output().unwrap());
    let named = env.lines().find_map(|it| it.strip_prefix("export GPUWATCH_PROBE_SO=")).expect("its library");
    PathBuf::from(named.trim_matches('\''))
}

/// The example for `cudarc`, or the program that `GPUWATCH_GPU_CUDARC` names: what its pool holds is part of what the
/// driver charges the process with.
pub(crate) fn cudarc(bench: &Bench) -> Result<Vec<Row>, String> {
    let program = match env::var_os("GPUWATCH_GPU_CUDARC") {
        Some(it) => it.into(),
        None => built()?,
    };
    let mut job = Job::start({
        let mut command = bench.command(program);
        command.arg("20");
        command
    });
    job.line();
    let once = bench.once();
    let on = on_device(&once, job.pid());
    let counter = |name: &str| on["counters"][name].as_u64().unwrap_or_else(|| panic!("{name} in {on:#}"));
    let (allocated, reserved) = (counter("allocated"), counter("reserved"));
    // 64 Mi floats of weights, and 20 times 250,000 floats; a driver's pool may count the blocks that hold them.
    let mut rows =
        vec![Row::within("allocated", allocated, [(256 << 20) + 20 * 1_000_000, (256 << 20) + 20 * 1_000_448])];
    if let Some(used) = on["driver_used"].as_u64() {
        rows.push(Row::within("reserved, at most the process's memory", reserved, [allocated, used]));
    }
    rows.extend(charged(bench, &once, job.pid()));
    job.end();
    Ok(rows)
}

/// Builds the example.
fn built() -> Result<PathBuf, String> {
    let cargo = env::var_os("CARGO").ok_or("cargo did not start this test")?;
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--locked", "--workspace", "--features", "gpuwatch-probe/cudarc"]);
    build.args(["--example", "cudarc", "--message-format", "json"]);
    let reported = text(&build.output().unwrap());
    let messages = reported.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
    let programs = messages
        .filter(|it| it["target"]["name"] == "cudarc")
        .find_map(|it| it["executable"].as_str().map(PathBuf::from));
    Ok(programs.expect("cargo built it"))
}
