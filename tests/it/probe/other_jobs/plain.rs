//! Jobs with a probe of plain Python: JAX, CuPy, and whatever else has an allocator.

use super::{Bench, CONTEXT, Job, MIB, STEPS, check, check_off, probes};
use crate::{
    helpers::{
        terminal::{PATIENCE, until},
        torch::stdout,
    },
    probe::holders::pythons_of_all_builds,
};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Stdio},
};

/// The most lines of a probe in plain Python, without its comments.
const LINES: usize = 20;

#[test]
fn a_jax_job_is_watched_by_its_plain_probe() {
    let bench = Bench::new();
    let job = Job::start(bench.python("jax", STEPS));
    let rungs = [
        ("allocated", Some(1224 * MIB)),
        ("rounding", None),
        ("pending", None),
        ("stuck", None),
        ("cached", Some((1536 - 1224) * MIB)),
        ("non_torch", Some(CONTEXT)),
    ];
    let on = check(&bench, "jax", &rungs);
    assert_eq!((&on["step"], &on["counters"]["allocated_peak"]), (&100.into(), &(1288 * MIB).into()));
    assert_eq!(on["counters"]["reserved_peak"], 1536 * MIB);
    job.end();
    check_off(&bench, bench.python("jax", STEPS));
}

#[test]
fn an_allocator_of_jax_without_a_pool_leaves_what_is_held_unknown() {
    let bench = Bench::new();
    let mut command = bench.python("jax", "0");
    command.env("WITHOUT_POOL", "1");
    let job = Job::start(command);
    let unknown = ["rounding", "pending", "cached", "non_torch"].map(|it| (it, None));
    let on = check(&bench, "jax", &[[("allocated", Some(1024 * MIB))].as_slice(), &unknown].concat());
    assert_eq!(on["step"], Value::Null, "an inference job counts no steps");
    job.end();
}

#[test]
fn a_cupy_job_is_watched_by_its_plain_probe() {
    let bench = Bench::new();
    let job = Job::start(bench.python("cupy", STEPS));
    let rungs = [
        ("allocated", Some(1224 * MIB)),
        ("rounding", None),
        ("pending", None),
        ("stuck", None),
        ("cached", Some(64 * MIB)),
        ("non_torch", Some(CONTEXT)),
    ];
    let on = check(&bench, "cupy", &rungs);
    assert_eq!((&on["step"], &on["counters"]["allocated_peak"]), (&100.into(), &Value::Null));
    job.end();
    check_off(&bench, bench.python("cupy", STEPS));
}

#[test]
fn a_plain_probe_continues_while_viewers_stop_and_leave() {
    let bench = Bench::new();
    let mut command = bench.python("jax", "0");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let socket = bench.home.0.path().join(format!("sockets/{}.sock", child.id()));
    assert!(until(PATIENCE, || socket.exists()));
    // One viewer never reads, and one leaves at once; the third receives every second.
    let _stopped = UnixStream::connect(&socket).unwrap();
    drop(UnixStream::connect(&socket).unwrap());
    let viewer = BufReader::new(UnixStream::connect(&socket).unwrap());
    let ticks = viewer.lines().map(Result::unwrap).filter(|it| it.contains("\"tick\"")).take(3).count();
    assert_eq!(ticks, 3);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

/// A job of an unknown library: its whole probe is here.
const STRANGER: &str = r#"
import gpu
import gpuwatch_wire
device, kept = gpu.Device(0), []
probe = gpuwatch_wire.Probe("stranger", "1", lambda: [(0, {"allocated": len(kept) << 21, "reserved": len(kept) << 21})])
probe.start()
for _ in range(100):
    kept.append(device.take(2 << 20))
    probe.step()
print("100 steps are done; Enter ends the job.", flush=True)
input()
"#;

/// Two libraries of one process, each with its probe.
const BOTH: &str = r#"
import cupy, cupy_probe, jax, jax_probe
for probe, pool in (cupy_probe, cupy.get_default_memory_pool()), (jax_probe, jax.DEVICE):
    pool.take(256 << 20)
    probe.start()
    probe.step()
print("2 steps are done; Enter ends the job.", flush=True)
input()
"#;

/// A script of a few lines, beside the stand-ins.
fn script(bench: &Bench, text: &str) -> Command {
    let path = bench.home.0.path().join("script.py");
    fs::write(&path, text).unwrap();
    let stands_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/probe/other_jobs");
    let mut command = bench.command("python3");
    command.arg(path).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("PYTHONPATH", std::env::join_paths([probes("python"), stands_in]).unwrap());
    command
}

#[test]
fn an_unknown_library_is_watched_by_ten_lines_of_python() {
    assert_eq!(STRANGER.trim().lines().count(), 10);
    let bench = Bench::new();
    let job = Job::start(script(&bench, STRANGER));
    let rungs = [
        ("allocated", Some(200 * MIB)),
        ("rounding", None),
        ("pending", None),
        ("stuck", None),
        ("cached", Some(0)),
        ("non_torch", Some(CONTEXT)),
    ];
    let on = check(&bench, "stranger", &rungs);
    assert_eq!(on["step"], 100, "{on}");
    job.end();
    check_off(&bench, script(&bench, STRANGER));
}

#[test]
fn two_libraries_of_one_process_are_distinguished_and_nothing_counts_twice() {
    let bench = Bench::new();
    let job = Job::start(script(&bench, BOTH));
    let reported = bench.once();
    let probed = reported["probes"].as_array().unwrap();
    let mut frameworks: Vec<_> = probed.iter().map(|it| it["hello"]["framework"].as_str().unwrap()).collect();
    frameworks.sort_unstable();
    assert_eq!(frameworks, ["cupy", "jax"]);
    assert!(probed.iter().all(|it| it["pid"] == job.pid()), "{reported:#}");
    let ladder = &reported["devices"][0]["ladder"];
    assert_eq!(ladder["sum"], ladder["total"]);
    let of = |gap: &str| -> Vec<Option<u64>> {
        let rungs = ladder["rungs"].as_array().unwrap().iter();
        rungs.filter(|it| it["gap"] == gap).map(|it| it["bytes"].as_u64()).collect()
    };
    assert_eq!(of("allocated"), [Some(256 * MIB); 2]);
    assert_eq!(of("non_torch"), [Some(CONTEXT), None], "one context, reported once: {ladder:#}");
    assert_eq!((of("others"), of("unattributed")), (vec![Some(0)], vec![Some(0)]), "{ladder:#}");
    assert!(!ladder["rungs"].as_array().unwrap().iter().any(|it| it["inconsistent"].is_array()), "{ladder:#}");
    job.end();
}

/// Returns the lines with content: neither blank ones nor the header of the file.
fn lines(name: &str) -> usize {
    let text = fs::read_to_string(probes("python").join(name)).unwrap();
    let (_, code) = text.strip_prefix("\"\"\"").and_then(|it| it.split_once("\"\"\"")).unwrap();
    code.lines().filter(|it| !it.trim().is_empty()).count()
}

#[test]
fn a_plain_probe_declares_what_it_counts_and_leaves_the_wire_to_one_file() {
    for name in ["jax_probe.py", "cupy_probe.py"] {
        assert!(lines(name) <= LINES, "{name}: {} lines", lines(name));
    }
}

#[test]
fn the_file_that_speaks_the_wire_does_so_on_every_python() {
    test_tiers::change!("every Python of the machine");
    let pythons = pythons_of_all_builds();
    assert!(!pythons.is_empty());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/probe/other_jobs/wire.py");
    for python in pythons {
        let mut command = Command::new(python);
        command.args(["-B", "-W", "ignore::DeprecationWarning"]).arg(&script).env("PYTHONPATH", probes("python"));
        command.env_remove("GPUWATCH").env_remove("RANK").stdin(Stdio::null());
        let output = command.output().unwrap();
        assert_eq!(stdout(&output), "the wire is right\n");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
