//! Figures of processes: the simulated driver's values and this host's /proc, absent where those lack them, read only
//! for what shows or records them.

use super::{Bench, events, live, shows};
use crate::helpers::terminal::{PATIENCE, until};
use ::simgpu::Fault;
use gpuwatch::facts::{event::Fact, figures::Figure};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Stdio},
};

const CALL: &str = "nvmlDeviceGetProcessUtilization";

fn fault(words: impl std::fmt::Display) -> Fault {
    Fault::Line(words.to_string())
}

/// The bench's process as `once --json` reports it.
fn process(bench: &Bench, faults: &[Fault]) -> Value {
    bench.once(faults)["devices"][0]["processes"][0].clone()
}

fn percents(figures: &Value) -> [&Value; 4] {
    ["sm_percent", "memory_percent", "encoder_percent", "decoder_percent"].map(|it| &figures[it])
}

#[test]
fn a_process_has_the_drivers_percents_and_those_of_its_host() {
    let bench = Bench::new();
    let pid = bench.tenant.id();
    let mut set: Vec<Fault> = [("sm", 61), ("memory", 23), ("encoder", 4), ("decoder", 5)]
        .map(|(name, percent)| fault(format_args!("answer={percent} {CALL}:{name}:{pid}")))
        .into();
    // Another process of the device has its own.
    let mut other = Command::new("sh").args(["-c", "read end"]).stdin(Stdio::piped()).spawn().unwrap();
    bench.machine.occupy(0, other.id(), 1 << 30).unwrap();
    set.push(fault(format_args!("answer=300 {CALL}:sm:{}", other.id())));
    set.push(fault(format_args!("answer=7 {CALL}:memory")));
    let mut reported = Value::Null;
    // On a busy machine, a single report may end before the second reading that rates need.
    let is_measured = until(PATIENCE, || {
        reported = bench.once(&set)["devices"][0]["processes"].clone();
        let listed = reported.as_array().unwrap();
        listed.iter().all(|it| it["figures"]["cpu_percent"].is_u64() && it["figures"]["memory_percent"].is_u64())
    });
    let of = |wanted: u32| reported.as_array().unwrap().iter().find(|it| it["pid"] == wanted).unwrap();
    let figures = &of(pid)["figures"];
    let second = &of(other.id())["figures"];
    let _ = (other.kill(), other.wait());
    assert!(is_measured, "{reported:#}");
    assert_eq!(percents(figures), [&json!(61), &json!(23), &json!(4), &json!(5)]);
    assert_eq!(percents(second), [&Value::Null, &json!(7), &json!(0), &json!(0)], "300 is no percent");
    // It waits for its input.
    assert_eq!((&figures["cpu_percent"], &figures["threads"]), (&json!(0), &json!(1)));
    // Nor sleeps, where the kernel shows that.
    let is_shown = std::fs::read_to_string(format!("/proc/{pid}/wchan")).is_ok_and(|it| it != "0");
    assert_eq!(figures["asleep"].as_u64(), is_shown.then_some(0), "{figures}");
    assert!(figures["rss"].as_u64().is_some_and(|it| it > 100 << 10), "{figures}");
    let known: BTreeSet<&str> = Figure::TABLE.iter().map(|it| it.name).collect();
    assert!(figures.as_object().unwrap().keys().all(|it| known.contains(it.as_str())), "{figures}");
}

#[test]
fn figures_that_a_driver_lacks_are_absent_and_quiet() {
    let bench = Bench::new();
    let idle = format!("idle {CALL}:{}", bench.tenant.id());
    let lacks = ["no-function", "not-supported", "no-permission", "unknown"].map(|it| format!("{it} {CALL}"));
    for words in lacks.into_iter().chain([idle]) {
        let reported = bench.once(&[fault(&words)]);
        let process = &reported["devices"][0]["processes"][0];
        assert_eq!(percents(&process["figures"]), [&Value::Null; 4], "{words}");
        assert_eq!((&reported["notices"], &reported["driver"]["state"]), (&json!([]), &json!("up")), "{words}");
        assert_eq!(process["used"], 5_u64 << 30, "{words}");
    }
}

#[test]
fn a_process_is_described_by_its_parent_start_and_the_settings_in_its_environment() {
    let mut bench = Bench::new();
    let secret = "hf_abcdefghijklmnopqrstuvwxyz012345";
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "read end"]).stdin(Stdio::piped()).env_clear();
    shell.envs([("PATH", "/bin"), ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"), ("HOME", "/home/ada")]);
    shell.envs([("NCCL_AUTH_TOKEN", secret), ("CUDA_VISIBLE_DEVICES", "0"), ("SLURM_JOB_ID", "4242")]);
    let mut job = shell.spawn().unwrap();
    bench.machine.occupy(0, job.id(), 1 << 30).unwrap();
    bench.tenant.kill().unwrap();
    bench.tenant.wait().unwrap();
    let mut reported = Value::Null;
    let is_described = until(PATIENCE, || {
        reported = process(&bench, &[]);
        reported["pid"] == job.id() && reported["environment"].is_array()
    });
    let _ = (job.kill(), job.wait());
    assert!(is_described, "{reported:#}");
    let expected =
        ["CUDA_VISIBLE_DEVICES=0", "NCCL_AUTH_TOKEN=<redacted>", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"];
    assert_eq!(reported["environment"], json!(expected));
    assert_eq!(reported["parent"], std::process::id());
    assert!(reported["place"].as_str().unwrap().starts_with("slurm 4242"), "{reported:#}");
    assert!(reported["started_us"].as_u64().is_some_and(|it| it > 1_500_000_000_000_000), "{reported:#}");
}

#[test]
fn nothing_is_read_for_a_screen_without_them_and_a_recording_has_them() {
    let bench = Bench::new();
    bench.machine.set_faults(&[fault("log"), fault(format_args!("answer=34 {CALL}:sm"))]).unwrap();
    let calls = |of: &str| bench.machine.calls().iter().filter(|it| it.contains(of)).count();
    let terminal = live(&bench);
    terminal.shows("NVIDIA H200");
    assert!(until(PATIENCE, || calls("UtilizationRates 0") >= 4), "{}", terminal.text());
    assert!(shows(&terminal, "processes on GPU 0"));
    assert_eq!(calls(CALL), 0, "the memory view does not show them");
    drop(terminal);

    let file = bench.home.path().join("figures.jsonl.zst");
    let before = calls("UtilizationRates 0");
    let mut recorder = bench.command(&["record", "-o", file.to_str().unwrap()]).spawn().unwrap();
    let is_read = until(PATIENCE, || calls("UtilizationRates 0") >= before + 5);
    let asked = calls(&format!("{CALL} 0"));
    // The file grows while it is read; what is there must come.
    let has_both = until(PATIENCE, || {
        let all = figures_in(&file, bench.tenant.id());
        ["sm_percent", "cpu_percent"].iter().all(|name| all.iter().any(|it| it.contains(name)))
    });
    let all = figures_in(&file, bench.tenant.id());
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    assert!(is_read && asked <= 2, "{asked} calls in five seconds");
    let having = |words: &str| all.iter().filter(|it| it.contains(words)).count();
    assert!(having("device {\"sm_percent\":34") >= 1 && having("cpu_percent") >= 1 && has_both, "{all:#?}");
    assert_eq!(having("tree_pss"), 0, "costly for the job, so not for a recording");
}

/// The figures of the only process in a recording, as text.
fn figures_in(file: &Path, only: u32) -> Vec<String> {
    let described = |fact: Fact| {
        let Fact::Figures { pid, device, changes } = fact else { return None };
        assert_eq!(pid, only);
        let place = if device.is_some() { "device" } else { "host" };
        Some(format!("{place} {}", serde_json::to_string(&changes).unwrap()))
    };
    events(file).into_iter().filter_map(|it| described(it.fact)).collect()
}
