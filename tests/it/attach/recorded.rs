//! A job is recorded from the attachment on, by a process that needs no terminal.

use super::{Job, expect};
use crate::helpers::{
    terminal::{PATIENCE, PROGRAM, until},
    torch::stdout,
};
use serde_json::Value;
use std::{fs, path::PathBuf, process::Command};

/// Attaches, and gives the recording and its recorder's pid.
fn recorded(job: &Job) -> (PathBuf, u32) {
    let output = job.gpuwatch(&["attach", "--wait", "5m"]);
    expect(&output, 0, "the probe runs");
    let printed = String::from_utf8(output.stderr).unwrap();
    let path = printed
        .trim()
        .strip_prefix("gpuwatch: recording to ")
        .and_then(|it| it.strip_suffix(" until the job or its probe ends"));
    let path = PathBuf::from(path.unwrap_or_else(|| panic!("{printed}")));
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    let fields: Vec<&str> = name.split('_').collect();
    (path, fields[fields.len() - 2].parse().unwrap())
}

fn ends(recorder: u32) {
    // It is nobody's child here; an init that reaps nothing leaves a zombie.
    let is_over = || matches!(super::state(recorder), None | Some('Z'));
    assert!(until(PATIENCE, is_over), "the recorder ends: {:?}", super::state(recorder));
}

fn checked(job: &Job, path: &PathBuf) -> Value {
    let mut command = Command::new(PROGRAM);
    let output = command.args(["check", "--json"]).arg(path).envs(job.home.variables()).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn an_attached_job_is_recorded_until_its_probe_or_the_job_ends() {
    let mut job = Job::start();
    let (path, recorder) = recorded(&job);
    let stat = fs::read_to_string(format!("/proc/{recorder}/stat")).unwrap();
    let session: u32 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap().parse().unwrap();
    assert_eq!(session, recorder, "no terminal's end is its own");
    let found = job.inspect();
    job.send("go on");
    // The step is recorded before its probe ends.
    job.detach();
    ends(recorder);
    let verdict = checked(&job, &path);
    assert_eq!(verdict["end_recorded"], true, "{verdict}");
    assert!(verdict["steps"].as_u64() >= found["steps"].as_u64(), "{verdict}");
    let first = verdict["attached_step"].as_u64().unwrap();
    assert!(first > 1 && Some(first) <= found["steps"].as_u64(), "{verdict}");
    let mut text = Command::new(PROGRAM);
    let text = text.arg("check").arg(&path).envs(job.home.variables()).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains(&format!("attached at step {first}")), "{text}");

    let (again, recorder) = recorded(&job);
    assert_ne!(again, path);
    job.inspect();
    job.send("go on");
    let home = job.home.0.path().to_owned();
    let pid = job.pid;
    let kept = job.end_keeping_home();
    ends(recorder);
    let mut rows = Command::new(PROGRAM);
    rows.args(["export", "--format", "csv"]).arg(&again).env("XDG_STATE_HOME", home.join("state"));
    assert!(stdout(&rows.output().unwrap()).lines().count() > 1, "process {pid} has rows");
    drop(kept);
}

#[test]
fn recording_can_be_left_out() {
    test_tiers::change!("starts PyTorch again");
    let job = Job::start();
    job.attach();
    assert!(!job.home.0.path().join("state/gpuwatch/recordings").exists());
    job.detach();
    job.end();
}
