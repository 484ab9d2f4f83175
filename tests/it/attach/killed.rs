//! The tests kill gpuwatch at every system call by which it touches a job, and the job continues.

use super::{Job, expect};
use crate::{
    helpers::{
        terminal::{PATIENCE, PROGRAM, until},
        torch::stdout,
    },
    probe::pytorch::script,
};
use std::process::Command;

/// Attaches under a tracer that kills gpuwatch at one of its stops; what it wrote.
fn attach_killed_at(job: &Job, stop: u32) -> String {
    let mut command = Command::new("python3");
    command.args([&script("killed_at.py"), &stop.to_string(), PROGRAM, "attach", "--no-record", "--wait", "5m"]);
    stdout(&command.arg(job.pid.to_string()).envs(job.home.variables()).output().unwrap())
}

fn continues(job: &mut Job, stop: u32) {
    let before = job.inspect()["steps"].as_u64().unwrap();
    job.send("go on");
    let after = job.inspect()["steps"].as_u64().unwrap();
    job.send("go on");
    assert!(after > before, "stop {stop}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_job_continues_wherever_gpuwatch_is_killed() {
    test_tiers::full!("kills gpuwatch at each of its calls");
    let mut job = Job::start();
    let mut stops = 0;
    let is_paused = loop {
        let printed = attach_killed_at(&job, stops);
        continues(&mut job, stops);
        if printed.contains("the probe runs") {
            assert_eq!(printed.lines().last(), Some("ended"), "{printed}");
            break printed.contains("was paused for");
        }
        // On a busy machine the main thread may not answer in time; then gpuwatch makes fewer calls.
        if printed.lines().last() == Some("killed") {
            stops += 1;
        }
        // Killed late enough, it leaves a call behind, which the job makes.
        if job.sockets() == 1 {
            job.detach();
        }
    };
    // From 3.14 on, Python takes a script: gpuwatch writes its path and some flags, and pauses nothing.
    let least = if is_paused { 20 } else { 5 };
    assert!(stops > least, "it was killed at {stops} stops");
    assert!(until(PATIENCE, || job.sockets() == 1));
    expect(&job.gpuwatch(&["attach"]), 2, "has a probe already");
    job.detach();
    job.end();
}
