//! The key that starts a probe, in a real terminal: a question first, then the answer of `gpuwatch attach`.

use super::Job;
use crate::{
    driver::nvml::Bench,
    helpers::{
        terminal::{PATIENCE, Terminal, until},
        torch,
    },
    screens::actions::quits,
};
use std::ffi::OsString;

fn start(arguments: &[&str], environment: &[(&str, OsString)]) -> Terminal {
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.to_str().unwrap())).collect();
    Terminal::start(arguments, &environment)
}

/// A view that lists the job, which has no probe yet.
fn beside(job: &Job) -> Terminal {
    let mut environment = job.gpu.environment();
    environment.extend(job.home.variables().map(|(name, path)| (name, path.into_os_string())));
    environment.push(("GPUWATCH_NVML_PATH", torch::libraries().join("libnvidia-ml.so.1").into()));
    let terminal = start(&[], &environment);
    terminal.shows(&format!("gpuwatch attach {}", job.pid));
    terminal
}

#[test]
fn a_process_without_a_probe_gets_one_by_a_key() {
    let job = Job::start();
    let mut terminal = beside(&job);
    terminal.press("\tP");
    terminal.shows(&format!("Start the probe in pid {}? The job pauses", job.pid));
    terminal.press("y");
    terminal.shows("the probe runs");
    assert!(until(PATIENCE, || job.sockets() == 1));
    // The row has a screen of its own once its probe reports.
    terminal.shows("parameters of the optimizers");
    terminal.press("\r");
    terminal.shows("attached ");
    quits(terminal);
    // The recorder ends with the probe.
    job.detach();
    job.end();
}

#[test]
fn an_open_view_has_one_row_through_detaching_and_attaching_again() {
    let job = Job::start();
    let terminal = beside(&job);
    for _ in 0..2 {
        job.attach();
        terminal.shows("parameters of the optimizers");
        terminal.hides("probe ended");
        terminal.shows("processes on GPU 0: 1");
        terminal.hides("contradict");
        job.detach();
        terminal.shows("probe ended:");
        terminal.shows("processes on GPU 0: 1");
        terminal.hides("contradict");
    }
    quits(terminal);
    job.end();
}

#[test]
fn a_refusal_is_shown_and_a_no_or_a_read_only_view_starts_nothing() {
    let bench = Bench::new();
    let pid = bench.tenant.id();
    let mut terminal = start(&[], &bench.environment());
    terminal.shows(&format!("gpuwatch attach {pid}"));
    terminal.press("\tP");
    terminal.shows(&format!("Start the probe in pid {pid}?"));
    terminal.press("x");
    terminal.shows("no probe was started");
    terminal.press("P");
    terminal.shows(&format!("Start the probe in pid {pid}?"));
    terminal.press("y");
    terminal.shows("does not run CPython");
    quits(terminal);
    let mut terminal = start(&["--readonly"], &bench.environment());
    terminal.shows(&format!("gpuwatch attach {pid}"));
    terminal.press("\tP");
    terminal.shows("this view starts no probes");
    quits(terminal);
}
