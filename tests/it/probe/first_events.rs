//! Events before any reader has found the probe: errors right after CUDA starts, and jobs of less than a second.

use crate::{
    helpers::{terminal::PROGRAM, torch},
    probe::{launch::Home, pytorch::script},
    recordings::writer::read,
};
use gpuwatch::{model::session::Session, storage::recording::Entry};
use serde_json::Value;
use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

fn judged(home: &Home) -> (Option<i32>, Value) {
    let done = Command::new(PROGRAM).args(["check", "--json"]).arg(recording(home)).envs(home.variables()).output();
    let done = done.unwrap();
    (done.status.code(), serde_json::from_slice(&done.stdout).unwrap())
}

fn recording(home: &Home) -> PathBuf {
    let store = home.0.path().join("state/gpuwatch/recordings");
    let mut files = fs::read_dir(store).unwrap().map(|it| it.unwrap().path());
    files.find(|it| it.to_string_lossy().ends_with(".zst")).unwrap()
}

fn run(gpu: &torch::Gpu, home: &Home, job: &[&str]) -> Output {
    let mut command = gpu.command(PROGRAM);
    command.args(["run", "--"]).args(job).envs(home.variables()).output().unwrap()
}

/// The out-of-memory errors found, by process.
fn errors(verdict: &Value) -> Vec<(u64, &Value)> {
    let findings = verdict["findings"].as_array().unwrap().iter();
    findings.filter(|it| it["kind"] == "oom").map(|it| (it["pid"].as_u64().unwrap(), it)).collect()
}

#[test]
fn an_error_is_reported_however_early_it_comes_and_however_the_process_ends() {
    let (gpu, home) = (torch::Gpu::new("NVIDIA A10:4GiB:256MiB"), Home::new());
    let printed = torch::stdout(&run(&gpu, &home, &[torch::python().to_str().unwrap(), &script("early.py")]));
    let children: Value = serde_json::from_str(&printed).unwrap();
    let (code, verdict) = judged(&home);
    assert_eq!(code, Some(1), "{verdict:#}");
    let errors = errors(&verdict);
    for (way, child) in children.as_object().unwrap() {
        let own: Vec<_> = errors.iter().filter(|it| Some(it.0) == child.as_u64()).map(|it| it.1).collect();
        if way == "healthy" {
            assert!(own.is_empty(), "{own:#?}");
            continue;
        }
        let [error] = &own[..] else { panic!("{way}: one error was expected: {own:#?}") };
        assert_eq!(error["severity"], "critical", "{way}: {error:#}");
        let account = error["account"].to_string();
        assert!(
            account.contains("64.00 GiB was asked for, 3.25 GiB of the device's 3.75 GiB was free"),
            "{way}: {account}"
        );
    }
}

#[test]
fn a_job_that_ends_at_once_is_in_its_recording_with_its_figures() {
    let (gpu, home) = (torch::Gpu::new("NVIDIA A10:4GiB:256MiB"), Home::new());
    let printed = torch::stdout(&run(&gpu, &home, &[torch::python().to_str().unwrap(), &script("brief.py")]));
    let children: Vec<u64> = serde_json::from_str(&printed).unwrap();
    let (entries, fault) = read(&recording(&home));
    assert!(fault.is_none(), "{fault:?}");
    let mut session = Session::default();
    for it in entries {
        if let Entry::Event(event) = it {
            session.apply(&event);
        }
    }
    assert_eq!(children.len(), 20);
    for pid in children {
        let mut own =
            session.processes.iter().filter(|it| it.hello.as_ref().is_some_and(|hello| u64::from(hello.pid) == pid));
        let process = own.next().unwrap_or_else(|| panic!("{pid} is missing: {:?}", session.processes));
        let allocated = process.devices.iter().filter_map(|on| on.counters.allocated).max();
        assert!(allocated.is_some(), "{pid}: {:?}", process.devices);
    }
}
