//! Several requests for one job, and requests whose asker did not wait: each report is true, and no file stays.

use super::{Job, expect};
use crate::helpers::terminal::{PATIENCE, PROGRAM, until};
use std::{
    fs,
    process::{Command, Output, Stdio},
};

/// The folders of requests in the user's cache.
fn requests(job: &Job) -> usize {
    let all = fs::read_dir(job.home.0.path().join("cache/gpuwatch")).unwrap().flatten();
    all.filter(|it| it.file_name().to_string_lossy().starts_with("attach-")).count()
}

#[test]
fn of_six_requests_at_once_one_starts_the_probe_and_the_others_see_it() {
    let job = Job::start();
    let start = || {
        let mut command = job.gpu.command(PROGRAM);
        command.args(["attach", "--no-record", "--wait", "5m"]).arg(job.pid.to_string()).envs(job.home.variables());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<_> = (0..6).map(|_| start()).collect();
    let outputs: Vec<Output> = all.into_iter().map(|it| it.wait_with_output().unwrap()).collect();
    let (done, refused): (Vec<&Output>, _) = outputs.iter().partition(|it| it.status.success());
    assert_eq!((done.len(), refused.len()), (1, 5), "{outputs:?}");
    expect(done[0], 0, "the probe runs");
    for it in refused {
        expect(it, 2, "has a probe already");
    }
    assert_eq!((job.sockets(), requests(&job)), (1, 0));
    job.detach();
    job.end();
}

#[test]
fn a_job_that_imports_meanwhile_gets_its_probe() {
    let mut job = Job::start();
    job.send("import");
    assert_eq!(job.next()["what"], "import");
    for _ in 0..3 {
        job.attach();
        job.detach();
    }
    job.send("stop");
    assert_eq!(job.next()["what"], "imported");
    job.end();
}

#[test]
fn an_answer_that_nobody_waits_for_leaves_no_file() {
    let mut job = Job::start();
    job.send("wait");
    assert_eq!(job.next()["what"], "wait");
    expect(&job.gpuwatch(&["attach", "--no-record", "--wait", "100ms"]), 3, "has not returned to Python yet");
    assert_eq!(requests(&job), 1);
    job.send("go on");
    assert!(until(PATIENCE, || job.sockets() == 1 && requests(&job) == 0), "{}", requests(&job));
    job.detach();
    job.end();
}

#[test]
fn a_request_that_could_not_start_has_a_reason_and_the_next_one_starts() {
    let job = Job::start();
    // The job may start no further thread.
    let limit = |most: &str| {
        let mut command = Command::new("prlimit");
        command.args(["--pid", &job.pid.to_string(), &format!("--as={most}")]).status().unwrap()
    };
    let pages = || -> u64 {
        let now = fs::read_to_string(format!("/proc/{}/statm", job.pid)).unwrap();
        now.split(' ').next().unwrap().parse().unwrap()
    };
    // What it maps meanwhile would leave no room for anything at all.
    let is_limited = || {
        let before = pages();
        assert!(limit(&format!("{}:unlimited", before * 4096 + (1 << 20))).success());
        pages() == before
    };
    assert!(until(PATIENCE, is_limited));
    let output = job.gpuwatch(&["attach", "--no-record", "--wait", "5m"]);
    expect(&output, 2, "could not start the probe");
    assert!(limit("unlimited:unlimited").success());
    job.attach();
    job.detach();
    assert_eq!(requests(&job), 0);
    job.end();
}

#[test]
fn files_of_an_ended_job_go_with_the_next_request() {
    let mut job = Job::start();
    job.send("wait");
    assert_eq!(job.next()["what"], "wait");
    expect(&job.gpuwatch(&["attach", "--no-record", "--wait", "100ms"]), 3, "has not returned to Python yet");
    assert_eq!(requests(&job), 1);
    job.child.kill().unwrap();
    job.child.wait().unwrap();
    let mut next = Job::start();
    std::mem::swap(&mut next.home, &mut job.home);
    next.attach();
    assert_eq!(requests(&next), 0);
    next.detach();
    next.child.kill().unwrap();
    next.child.wait().unwrap();
}
