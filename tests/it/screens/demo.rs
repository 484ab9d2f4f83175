//! The demo goes through the real probe and its real sockets, and cleans up after itself.

use crate::helpers::terminal::{PATIENCE, PROGRAM, Terminal, until};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Stdio},
};

#[test]
fn without_a_terminal_the_demo_is_text_with_ladders_that_sum_to_the_total() {
    let output = Command::new(PROGRAM).args(["demo", "--seed", "3"]).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for rank in 0..4 {
        assert!(text.contains(&format!("rank {rank}, pid ")), "{text}");
    }
    assert_eq!(text.matches("\n    total         140.4 GiB").count(), 4, "{text}");
    // 4 MiB a step, to half a percent.
    let is_leak = |it: &str| {
        ["4.00", "4.01", "4.02", "3.99", "3.98"].iter().any(|pace| it.contains(&format!("warning: +{pace} MiB/step")))
    };
    assert!(text.lines().any(is_leak), "it is full in three quarters of an hour: {text}");
    assert!(text.contains("no probe"), "the other tenant is seen by the driver alone: {text}");
}

#[test]
fn jobs_and_sockets_of_the_demo_do_not_outlive_a_viewer_that_was_killed() {
    let terminal = Terminal::start(&["demo"], &[]);
    terminal.shows("4 probes");
    let viewer = terminal.child.process_id().unwrap();
    let directory = std::env::temp_dir().join(format!("gpuwatch-demo-{viewer}"));
    let jobs = children(viewer);
    assert_eq!(jobs.len(), 4);
    assert!(directory.exists());
    kill_process(Pid::from_raw(i32::try_from(viewer).unwrap()).unwrap(), Signal::KILL).unwrap();
    let gone = || jobs.iter().all(|it| !Path::new(&format!("/proc/{it}/cwd")).exists());
    assert!(until(PATIENCE, gone), "jobs {jobs:?} still run");
    assert!(until(PATIENCE, || !directory.exists()), "{} is left", directory.display());
}

pub(crate) fn children(of: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for task in fs::read_dir(format!("/proc/{of}/task")).unwrap().flatten() {
        let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
        found.extend(list.split_whitespace().filter_map(|it| it.parse::<u32>().ok()));
    }
    found
}
