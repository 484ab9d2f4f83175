//! Signals around `gpuwatch run`: what the job is started with, what reaches it, and process 1 of a container.

use super::*;
use crate::probe::containers::can;

/// A user and pid namespace of its own, in which what is started is process 1.
const CONTAINER: [&str; 5] = ["--user", "--pid", "--fork", "--map-root-user", "--mount-proc"];

fn in_container(home: &Home, job: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(CONTAINER).args([env!("CARGO_BIN_EXE_gpuwatch"), "run", "--"]).args(job).envs(home.variables());
    command
}

/// Starts a program through Python, which first does `before`.
fn after(before: &str, program: &[&str], home: &Home) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", &format!("import os, signal, sys\n{before}\nos.execvp(sys.argv[1], sys.argv[1:])")]);
    command.args(program).envs(home.variables());
    command
}

fn with_run<'a>(job: &[&'a str]) -> Vec<&'a str> {
    [&[env!("CARGO_BIN_EXE_gpuwatch"), "run", "--"], job].concat()
}

#[test]
fn as_process_1_of_a_container_run_exits_with_128_and_the_jobs_signal() {
    if !can(&CONTAINER) {
        test_tiers::skip!("`unshare {}` is refused", CONTAINER.join(" "));
    }
    let home = Home::new();
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("ABRT", 6)] {
        let output = done(in_container(&home, &["sh", "-c", &format!("kill -{name} $$")]));
        assert_eq!(output.status.code(), Some(128 + number), "{name}: {output:?}");
    }
    assert_eq!(done(in_container(&home, &["sh", "-c", "exit 7"])).status.code(), Some(7));
}

#[test]
fn a_container_is_stopped_by_a_signal_to_process_1() {
    if !can(&CONTAINER) {
        test_tiers::skip!("`unshare {}` is refused", CONTAINER.join(" "));
    }
    let home = Home::new();
    let (mut unshare, _out) = started(in_container(&home, &["sh", "-c", "echo ready; exec sleep 600"]));
    let first = fs::read_to_string(format!("/proc/{0}/task/{0}/children", unshare.id())).unwrap();
    let first = rustix::process::Pid::from_raw(first.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(first, Signal::TERM).unwrap();
    assert_eq!(unshare.wait().unwrap().code(), Some(128 + 15));
}

#[test]
fn process_1_of_a_container_reaps_orphans() {
    if !can(&CONTAINER) {
        test_tiers::skip!("`unshare {}` is refused", CONTAINER.join(" "));
    }
    let home = Home::new();
    // The grandchild ends only when its parent is gone; from then on process 1 is its parent. Neither it nor the job
    // stays in the group of process 1.
    let job = "import os, sys\n\
               here, there = os.pipe()\n\
               os.setpgid(0, 0)\n\
               if os.fork() == 0:\n    \
                   if os.fork() == 0:\n        \
                       os.setsid()\n        \
                       while os.getppid() != 1: pass\n        \
                       os.write(there, str(os.getpid()).encode())\n    \
                   os._exit(0)\n\
               os.wait()\n\
               orphan = os.read(here, 99).decode()\n\
               while os.path.exists('/proc/' + orphan): pass\n\
               sys.exit(4)\n";
    assert_eq!(done(in_container(&home, &["python3", "-c", job])).status.code(), Some(4));
}

#[test]
fn a_job_starts_with_the_mask_and_the_ignored_signals_that_run_was_started_with() {
    let home = Home::new();
    let job = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"];
    for before in [
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGUSR1, signal.SIGRTMIN + 3])",
        "for it in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGHUP, signal.SIGXFSZ): signal.signal(it, signal.SIG_IGN)",
        "for it in (signal.SIGPIPE, signal.SIGCHLD, signal.SIGHUP, signal.SIGXFSZ): signal.signal(it, signal.SIG_DFL)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
    ] {
        let plain = done(after(before, &job, &home));
        let probed = done(after(before, &with_run(&job), &home));
        assert!(plain.status.success() && probed.status.success(), "{before}: {probed:?}");
        assert_eq!(text(&probed.stdout), text(&plain.stdout), "{before}");
    }
}

#[test]
fn a_job_may_leave_the_group_that_run_is_in() {
    let home = Home::new();
    let job = "import os, sys; os.setpgid(0, 0); sys.exit(6)";
    assert_eq!(done(home.run(&["python3", "-c", job])).status.code(), Some(6));
}

#[test]
fn a_job_that_ends_is_seen_where_the_signal_of_its_end_is_ignored() {
    let home = Home::new();
    let job = with_run(&["sh", "-c", "exit 9"]);
    let ignored = after("signal.signal(signal.SIGCHLD, signal.SIG_IGN)", &job, &home);
    assert_eq!(done(ignored).status.code(), Some(9));
}

#[test]
fn a_job_starts_without_the_streams_that_run_was_started_without() {
    let home = Home::new();
    let job = ["python3", "-c", "import os, sys; print(sys.stdin, sys.stdout, file=sys.stderr)"];
    for closed in ["os.close(0)", "os.close(1)", "os.close(0); os.close(1)"] {
        let plain = done(after(closed, &job, &home));
        let probed = done(after(closed, &with_run(&job), &home));
        assert!(text(&plain.stderr).contains("None"), "{plain:?}");
        assert_eq!(text(&probed.stderr), text(&plain.stderr), "{closed}");
    }
}

#[test]
fn every_signal_that_can_be_sent_reaches_the_job_and_does_not_end_run() {
    let home = Home::new();
    let job = "import signal\n\
               everything = signal.valid_signals() - {signal.SIGCHLD, signal.SIGCONT, signal.SIGTSTP}\n\
               signal.pthread_sigmask(signal.SIG_BLOCK, everything)\n\
               print('ready', flush=True)\n\
               came = 0\n\
               while came != signal.SIGTERM:\n    \
                   came = int(signal.sigwait(everything))\n    \
                   print(came, flush=True)\n";
    let (mut child, mut out) = started(home.run(&["python3", "-c", job]));
    // Not those of children, stops and continuations; the C library keeps 32 and 33 to itself.
    let signals = (1..=64).filter(|it| ![9, 15, 17, 18, 19, 20, 32, 33].contains(it)).chain([15]);
    for signal in signals {
        let sent = Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status().unwrap();
        assert!(sent.success(), "{signal}");
        let mut printed = String::new();
        out.read_line(&mut printed).unwrap();
        assert_eq!(printed, format!("{signal}\n"));
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_limit_on_file_sizes_ends_the_recording_and_not_the_job() {
    let home = Home::new();
    // The probe's files are there already, so that only the recording meets the limit.
    assert!(done(home.gpuwatch(&["env"])).status.success());
    // Python ignores the signal, and what it starts would.
    let limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n\
                 signal.signal(signal.SIGXFSZ, signal.SIG_DFL)";
    let output = done(after(limit, &with_run(&["sh", "-c", "echo done; exit 3"]), &home));
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(3), "done\n"), "{output:?}");
    let printed = text(&output.stderr);
    assert!(printed.contains("the recording stopped: File too large") && printed.lines().count() == 1, "{output:?}");
    let left = std::fs::read_dir(home.0.path().join("state/gpuwatch/recordings")).into_iter().flatten().flatten();
    assert_eq!(left.filter(|it| it.metadata().unwrap().len() > 0).count(), 0, "nothing was recorded");
}
