//! Jobs that are ending are attached to at each point of their way out: they end as they would have.

use super::expect;
use crate::{
    helpers::terminal::PROGRAM,
    probe::{holders::pythons, launch::Home, pytorch::script},
};
use std::{
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, ChildStdout, Command, Output, Stdio},
};

/// A job that stays at a point of its way out.
struct Ending {
    child: Child,
    out: BufReader<ChildStdout>,
    home: Home,
}

impl Ending {
    fn start(python: &Path, at: &str) -> Self {
        let home = Home::new();
        let mut command = Command::new(python);
        command.arg(script("ending.py")).arg(at).envs(home.variables());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{} {at}", python.display());
        Self { child, out, home }
    }

    fn gpuwatch(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).arg(self.child.id().to_string()).envs(self.home.variables()).output().unwrap()
    }

    /// Lets it go on; it ends with its own status, and prints nothing more.
    fn ends_as_it_would(mut self, case: &str) {
        self.child.stdin.take().unwrap().write_all(b"\n").unwrap();
        let mut printed = String::new();
        self.out.read_to_string(&mut printed).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
        let status = self.child.wait().unwrap();
        assert_eq!((status.code(), printed.as_str()), (Some(7), ""), "{case}: {status}");
    }
}

#[test]
fn a_job_whose_python_shuts_down_is_left_alone() {
    for python in pythons() {
        for at in ["atexit", "teardown", "exit"] {
            let job = Ending::start(&python, at);
            let case = format!("{} at {at}", python.display());
            eprintln!("{case}");
            expect(&job.gpuwatch(&["attach", "--no-record", "--wait", "5m"]), 2, "is ending");
            job.ends_as_it_would(&case);
        }
    }
}

/// The main thread waits in C, so the call is queued, and made between the end of the last thread and the shutdown.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_call_that_waits_until_python_shuts_down_does_nothing() {
    for python in pythons() {
        let job = Ending::start(&python, "thread");
        let case = format!("{} at the end of its threads", python.display());
        eprintln!("{case}");
        let output = job.gpuwatch(&["attach", "--no-record", "--wait", "100ms"]);
        // From 3.14 on, Python shows that its main program has ended.
        let printed = String::from_utf8_lossy(&output.stderr);
        assert!(printed.contains("has not returned to Python yet") || printed.contains("is ending"), "{output:?}");
        let sockets = job.home.0.path().join("sockets");
        job.ends_as_it_would(&case);
        assert!(!sockets.exists(), "no probe started");
    }
}

/// Its thread is none of `threading`, so Python does not wait for it: it stops where it next needs the lock.
#[test]
fn a_job_that_ends_while_its_probe_loads_keeps_its_output_and_status() {
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/probes/python");
    for python in pythons() {
        for module in ["1", "4", "8", "12", "16"] {
            let place = tempfile::tempdir().unwrap();
            let mut job = Command::new(&python);
            job.args([&script("ends_loading.py"), package]).arg(place.path()).arg(module);
            let Output { status, stdout, stderr } = job.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
            let printed = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
            let case = format!("{} at module {module}: {status}", python.display());
            assert_eq!((status.code(), printed.as_str()), (Some(7), "own\n"), "{case}");
        }
    }
}
