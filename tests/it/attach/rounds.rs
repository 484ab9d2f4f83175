//! Many rounds on one job: nothing of them stays, and each pause is short.

use super::Job;
use crate::helpers::terminal::{PATIENCE, until};
use std::{fs, str::FromStr};

const ROUNDS: usize = 200;

/// Rounds before the first comparison: allocators and caches fill up.
const WARM: usize = 20;

/// Memory that may be added by all further rounds. The job's own figures vary by less.
const ADDED_MAX: u64 = 6 << 20;

/// The job's anonymous memory, in bytes.
fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("RssAnon:")).unwrap();
    u64::from_str(line.trim().strip_suffix(" kB").unwrap()).unwrap() << 10
}

/// Attaches and detaches; the time for which the main thread was paused, in ms.
fn round(job: &mut Job) -> Option<f64> {
    let output = job.gpuwatch(&["attach", "--no-record", "--wait", "5m"]);
    super::expect(&output, 0, "the probe runs");
    let printed = String::from_utf8(output.stdout).unwrap();
    job.inspect();
    job.send("go on");
    job.detach();
    printed.split_once("paused for ")?.1.split_once(" ms")?.0.parse().ok()
}

/// The pauses, shortest first.
fn rounds(job: &mut Job, count: usize) -> Vec<f64> {
    let mut paused: Vec<f64> = (0..count).filter_map(|_| round(job)).collect();
    paused.sort_by(f64::total_cmp);
    paused
}

#[test]
fn two_hundred_rounds_leave_nothing_in_the_job() {
    test_tiers::full!("200 attachments");
    let mut job = Job::start();
    rounds(&mut job, WARM);
    let before = memory(job.pid);
    rounds(&mut job, ROUNDS - WARM);
    let after = memory(job.pid);
    assert!(after < before + ADDED_MAX, "{before} bytes became {after}");
    let mut found = job.inspect();
    assert!(until(PATIENCE, || {
        job.send("go on");
        found = job.inspect();
        found["threads"] == job.first["threads"]
    }));
    assert_eq!(found["descriptors"], job.first["descriptors"]);
    job.send("go on");
    job.end();
}

#[test]
fn the_main_thread_is_paused_for_less_than_a_millisecond() {
    test_tiers::benchmark!();
    let mut job = Job::start();
    let paused = rounds(&mut job, ROUNDS);
    let (median, worst) = (paused[paused.len() / 2], paused[paused.len() - 1]);
    println!("paused for {median:.1} ms in the median, {worst:.1} ms at most, of {}", paused.len());
    assert!(median < 1.0 && worst < 100.0, "{paused:?}");
    job.end();
}
