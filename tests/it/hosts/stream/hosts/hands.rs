//! Keys on the screens of an opened machine: what they do there, through the pipes of its stream.

use super::{
    Machines,
    live::{OWNED, has},
};
use crate::{
    driver::nvml::Bench,
    helpers::terminal::{PATIENCE, PROGRAM, Terminal, until},
    hosts::stream::{Rank, requests::Captured},
};
use std::os::unix::process::ExitStatusExt;

/// Opens the machine, and focuses its only process.
fn open(machines: &Machines, host: &str, arguments: &[&str]) -> Terminal {
    let mut terminal = machines.watch(host, arguments);
    terminal.shows("1 up");
    terminal.press("\r");
    terminal.shows(&format!("gpuwatch  {host}"));
    terminal.shows("1 probe");
    terminal.press("\t");
    terminal
}

/// The signal that ended a rank, whose input stays open.
fn ended_by(rank: &mut Rank) -> Option<i32> {
    assert!(until(PATIENCE, || rank.child.try_wait().unwrap().is_some()));
    rank.child.wait().unwrap().signal()
}

fn quits(mut terminal: Terminal) {
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
}

#[test]
fn a_process_of_an_opened_machine_is_signalled_there_after_a_question_that_names_both() {
    let machines = Machines::new();
    let mut rank = machines.rank("node1", &[]);
    let pid = rank.child.id();
    let mut terminal = open(&machines, "node1", &[]);
    terminal.press("w");
    terminal.shows("this probe does not know which lines allocate");
    terminal.press("K");
    terminal.shows(&format!("signal to pid {pid} on node1"));
    terminal.shows("demo-job");
    terminal.press("\r");
    terminal.shows(&format!("send TERM to pid {pid} on node1?"));
    assert!(rank.child.try_wait().unwrap().is_none(), "it still runs");
    terminal.press("y");
    terminal.shows(&format!("sent TERM to pid {pid}"));
    assert_eq!(ended_by(&mut rank), Some(15));
    quits(terminal);
}

#[test]
fn a_probe_is_started_on_the_opened_machine_and_its_answer_is_shown() {
    let machines = Machines::new();
    let bench = Bench::new();
    let words = bench.environment().into_iter().map(|(name, value)| format!("'{name}={}'", value.display()));
    let environment: Vec<String> = words.collect();
    machines.faulty("node1", &format!("exec env {} {PROGRAM} stream", environment.join(" ")));
    let mut terminal = machines.watch("node1", &[]);
    terminal.shows("1 up");
    terminal.press("\r");
    let pid = bench.tenant.id();
    terminal.shows(&format!("gpuwatch attach {pid}"));
    terminal.press("\tP");
    terminal.shows(&format!("Start the probe in pid {pid} on node1?"));
    terminal.press("y");
    terminal.shows("does not run CPython");
    quits(terminal);
}

#[test]
fn a_capture_goes_to_the_job_on_the_opened_machine() {
    let machines = Machines::new();
    let probe = Captured::new(&machines.path("node1/sockets"));
    let mut terminal = machines.watch("node1", &[]);
    let mut probe = probe.greet();
    terminal.shows("1 up");
    terminal.press("\r");
    terminal.shows("1 probe");
    terminal.press("\tw");
    terminal.shows("asked: ");
    assert!(probe.request().starts_with("sites steps="));
    quits(terminal);
}

#[test]
fn a_machine_or_a_view_that_only_watches_refuses_with_the_reason() {
    let machines = Machines::new();
    let _rank = machines.rank("node1", &[]);
    let sockets = machines.path("node1/sockets");
    let stream = format!("GPUWATCH_SOCKET_DIR={} GPUWATCH_NO_NVML=1 {PROGRAM} stream", sockets.display());
    machines.faulty("older", &format!("{stream} | sed -u 's/,\"requests\":\\[[^]]*\\]//'"));
    // One that takes no requests, and answers them with a title for the terminal's window.
    let hostile = r#"s/"requests":\[\]/"requests":["hold"]/; s/gpuwatch there is/\\u001b]0;owned\\u0007/"#;
    machines.faulty("hostile", &format!("{stream} --readonly | sed -u '{hostile}'"));
    machines.faulty("closed", &format!("{stream} --readonly"));
    for (host, flags, refusal) in [
        ("older", &[][..], format!("gpuwatch {} on older takes no requests: use a newer", env!("CARGO_PKG_VERSION"))),
        ("closed", &[], "gpuwatch on closed is --readonly: it takes no requests".to_owned()),
        ("hostile", &[], "\\u{1b}]0;owned\\u{7} --readonly: it takes no requests".to_owned()),
        ("node1", &["--readonly"], "no signals are sent from here".to_owned()),
    ] {
        let mut terminal = open(&machines, host, flags);
        terminal.press("K");
        terminal.shows(&refusal);
        assert!(!has(&terminal.bytes(), OWNED));
        quits(terminal);
    }
}
