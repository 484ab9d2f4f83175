//! Jobs of several processes: ranks of a launcher, and workers that use no GPU.

use super::{Job, expect};
use crate::{
    helpers::{
        terminal::{PATIENCE, PROGRAM, until},
        torch,
    },
    probe::{
        containers::needs_unshare,
        launch::Home,
        pytorch::{script, sockets},
    },
};
use serde_json::Value;
use std::{collections::BTreeSet, fs, process::Command};

#[test]
fn all_ranks_of_torchrun_get_a_probe_and_share_a_recording() {
    needs_unshare!(["-rpfm", "--mount-proc"]);
    let (gpu, home) = (torch::machine(), Home::new());
    let mut command = gpu.command("unshare");
    // Other jobs of this machine are not in the namespace, so `--all` is of this one.
    command.args(["-rpfm", "--mount-proc"]).arg(torch::python()).arg(script("attached_ranks.py"));
    command.arg(PROGRAM).arg(script("rank.py")).envs(home.variables());
    let printed: Value = serde_json::from_str(&torch::stdout(&command.output().unwrap())).unwrap();
    assert_eq!((&printed["attach"]["code"], &printed["torchrun"]), (&0.into(), &0.into()), "{printed}");
    let all = printed["attach"]["printed"].as_str().unwrap();
    assert_eq!((all.matches("the probe runs").count(), all.matches("recording to").count()), (4, 1), "{printed}");
    assert_eq!(printed["sockets"], 4, "{printed}");
    let verdict = &printed["check"];
    let ranks: BTreeSet<_> = verdict["processes"].as_array().unwrap().iter().map(|it| it["rank"].as_u64()).collect();
    assert_eq!(ranks, (0..4).map(Some).collect(), "{verdict}");
    assert_eq!(verdict["end_recorded"], true, "{verdict}");
}

#[test]
fn workers_that_use_no_gpu_are_left_alone() {
    test_tiers::change!("several processes with PyTorch");
    let gpu = torch::machine();
    let mut command = gpu.command(torch::python());
    command.arg(script("attached.py")).arg("workers");
    let mut job = Job::start_as(gpu, command);
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", job.pid)).unwrap();
    let workers: Vec<u32> = children.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    assert_eq!(workers.len(), 2, "{children}");
    let mut command = Command::new(PROGRAM);
    let output = command.args(["attach", &workers[0].to_string()]).envs(job.home.variables()).output().unwrap();
    expect(&output, 2, &format!("`gpuwatch attach {}`", job.pid));
    job.attach();
    let before = job.inspect()["steps"].as_u64();
    job.send("go on");
    assert!(job.inspect()["steps"].as_u64() > before);
    job.send("go on");
    assert_eq!(sockets(&job.home.0.path().join("sockets")).len(), 1);
    job.detach();
    assert!(until(PATIENCE, || job.sockets() == 0));
    job.end();
}
