//! `gpuwatch run` as a job and its shell see it: as if it were not there.

mod ending;
mod signals;

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{ffi::OsStrExt, fs::PermissionsExt, process::ExitStatusExt},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use rustix::process::Signal;
use tempfile::TempDir;

/// A home of its own, so that no test sees another's files.
pub(crate) struct Home(pub(crate) TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn variables(&self) -> [(&'static str, std::path::PathBuf); 5] {
        let path = self.0.path();
        [
            ("XDG_CACHE_HOME", path.join("cache")),
            ("XDG_CONFIG_HOME", path.join("config")),
            ("XDG_STATE_HOME", path.join("state")),
            ("GPUWATCH_SOCKET_DIR", path.join("sockets")),
            ("GPUWATCH_NVML_PATH", path.join("no-nvml")),
        ]
    }

    fn gpuwatch(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuwatch"));
        command.args(arguments).envs(self.variables());
        command
    }

    fn run(&self, job: &[&str]) -> Command {
        let mut command = self.gpuwatch(&["run", "--"]);
        command.args(job);
        command
    }
}

fn done(mut command: Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Starts it and waits for its first line.
fn started(mut command: Command) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, out)
}

fn send(child: &Child, signal: Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn the_exit_code_is_the_jobs() {
    let home = Home::new();
    for code in [0, 1, 3, 127, 255] {
        let output = done(home.run(&["sh", "-c", &format!("exit {code}")]));
        assert_eq!(output.status.code(), Some(code));
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn a_command_that_cannot_start_is_reported_with_a_shells_exit_code() {
    let home = Home::new();
    let output = done(home.run(&["no-such-\u{1b}[31mcommand", "--flag"]));
    assert_eq!(output.status.code(), Some(127));
    assert_eq!(text(&output.stderr), "gpuwatch: no-such-\\u{1b}[31mcommand: command not found\n");
    let plain = home.0.path().join("plain");
    fs::write(&plain, "echo run by a shell $1").unwrap();
    let output = done(home.run(&[plain.to_str().unwrap()]));
    assert_eq!(output.status.code(), Some(126));
    assert_eq!(text(&output.stderr).lines().count(), 1);
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o700)).unwrap();
    let output = done(home.run(&[plain.to_str().unwrap(), "too"]));
    assert_eq!(text(&output.stdout), "run by a shell too\n");
}

#[test]
fn a_script_that_is_named_as_the_command_is_answered_with_the_command_that_runs_it() {
    let home = Home::new();
    let script = home.0.path().join("train.py");
    fs::write(&script, "pass").unwrap();
    for name in ["train.py", script.to_str().unwrap()] {
        let mut command = home.run(&[name]);
        command.current_dir(home.0.path());
        let output = done(command);
        let next = format!("; a script needs its Python: `gpuwatch run -- python {name}`\n");
        assert!(text(&output.stderr).ends_with(&next), "{output:?}");
    }
}

#[test]
fn a_python_that_leaves_the_probe_out_is_named() {
    let home = Home::new();
    for option in ["-I", "-E", "-S"] {
        let output = done(home.run(&["python3", option, "-c", "pass"]));
        let printed = format!("gpuwatch: `python3 {option}` keeps the probe out: start Python without {option}\n");
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), printed));
    }
    let script = home.0.path().join("train");
    fs::write(&script, "#!/usr/bin/env -S python3 -I\nprint('trained')").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    let output = done(home.run(&[script.to_str().unwrap()]));
    assert_eq!(text(&output.stdout), "trained\n");
    assert!(text(&output.stderr).contains("keeps the probe out"), "{output:?}");
    let output = done(home.run(&["python3", "-c", "import sys; print(sys.argv)", "-I"]));
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[test]
fn arguments_of_every_kind_reach_the_job() {
    let home = Home::new();
    let mut command = home.run(&["printf", "%s\\n", "--help", "-V", "", "a b", "--"]);
    command.arg(OsStr::from_bytes(b"\xff\xfe"));
    assert_eq!(done(command).stdout, b"--help\n-V\n\na b\n--\n\xff\xfe\n");
    assert_eq!(done(home.gpuwatch(&["run"])).status.code(), Some(2));
}

#[test]
fn a_job_that_dies_by_a_signal_takes_run_with_it() {
    let home = Home::new();
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("ABRT", 6), ("INT", 2), ("USR1", 10)] {
        let mut command = home.run(&["sh", "-c", &format!("kill -{name} $$")]);
        command.current_dir(home.0.path());
        assert_eq!(done(command).status.signal(), Some(number), "{name}");
    }
    let left: Vec<_> = fs::read_dir(home.0.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert!(!left.iter().any(|it| it.to_string_lossy().contains("core")), "{left:?}");
}

#[test]
fn input_and_output_pass_through() {
    let home = Home::new();
    let mut command = home.run(&["sh", "-c", "cat; echo aside >&2"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(100_000).collect();
    let mut input = child.stdin.take().unwrap();
    let sent = bytes.clone();
    let writer = thread::spawn(move || input.write_all(&sent).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.stdout == bytes);
    assert_eq!(text(&output.stderr), "aside\n");
}

/// Whether this process, and so what it starts, ignores a signal.
fn is_ignored(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|it| it.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn signals_to_us_alone_reach_the_job_once() {
    let home = Home::new();
    let job = "import signal, sys, time\n\
               came = []\n\
               for it in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):\n    \
                   signal.signal(it, lambda number, frame: came.append(number))\n\
               print('ready', flush=True)\n\
               while not came: time.sleep(0.01)\n\
               print('came', flush=True)\n\
               while len(came) < 2: time.sleep(0.01)\n\
               print(came, flush=True)\n\
               sys.exit(7)\n";
    // Ignored signals stay ignored, and the suite may itself run under nohup.
    let signals = [Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2].into_iter().filter(|it| !is_ignored(*it));
    for signal in signals {
        let (mut child, mut out) = started(home.run(&["python3", "-c", job]));
        send(&child, signal);
        let mut printed = String::new();
        out.read_line(&mut printed).unwrap();
        // Had the first come twice, it would be the second too.
        let next = if signal == Signal::USR2 { Signal::USR1 } else { Signal::USR2 };
        send(&child, next);
        out.read_to_string(&mut printed).unwrap();
        assert_eq!(printed, format!("came\n[{}, {}]\n", signal.as_raw(), next.as_raw()));
        assert_eq!(child.wait().unwrap().code(), Some(7));
    }
}

#[test]
fn a_job_may_block_a_signal() {
    let home = Home::new();
    let job = "import signal, time\n\
               signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n\
               print('ready', flush=True)\n\
               while signal.SIGUSR1 not in signal.sigpending(): time.sleep(0.01)\n\
               print('pending', signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1, flush=True)\n";
    let (mut child, mut out) = started(home.run(&["python3", "-c", job]));
    send(&child, Signal::USR1);
    let mut printed = String::new();
    out.read_to_string(&mut printed).unwrap();
    assert_eq!((printed.as_str(), child.wait().unwrap().code()), ("pending True\n", Some(0)));
}

#[test]
fn ignored_signals_stay_ignored() {
    let home = Home::new();
    let job = "import signal, time\n\
               print('ready', flush=True)\n\
               print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, flush=True)\n\
               input()\n";
    let program = env!("CARGO_BIN_EXE_gpuwatch");
    let mut command = Command::new("sh");
    command.envs(home.variables());
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh", program, "run", "--", "python3", "-c", job]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut printed = String::new();
    out.read_line(&mut printed).unwrap();
    out.read_line(&mut printed).unwrap();
    assert_eq!(printed, "ready\nTrue\n");
    send(&child, Signal::HUP);
    child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn launchers_to_other_machines_are_warned_about() {
    let home = Home::new();
    let srun = home.0.path().join("srun");
    fs::write(&srun, "#!/bin/sh\necho \"$@\"\n").unwrap();
    fs::set_permissions(&srun, fs::Permissions::from_mode(0o700)).unwrap();
    let output = done(home.run(&[srun.to_str().unwrap(), "-n2", "python"]));
    assert_eq!(text(&output.stdout), "-n2 python\n");
    assert!(text(&output.stderr).contains("srun … gpuwatch run -- python"), "{output:?}");
}

#[test]
fn a_cache_that_cannot_be_used_does_not_stop_the_job() {
    let home = Home::new();
    let mut command = home.run(&["sh", "-c", "echo $PYTHONPATH; test -f \"$GPUWATCH_PROBE_SO\""]);
    command.env("XDG_CACHE_HOME", "/proc/version").env("PYTHONPATH", "/kept");
    let output = done(command);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).ends_with(":/kept\n"), "{output:?}");
}

#[test]
fn env_prints_what_probes_a_job_started_otherwise() {
    let home = Home::new();
    let program = env!("CARGO_BIN_EXE_gpuwatch");
    let mut command = Command::new("sh");
    command.envs(home.variables()).env("PYTHONPATH", "/it's here");
    let script = format!(
        "eval \"$('{program}' env)\" && python3 -c 'import gpuwatch_probe, sys; print(sys.path[2]); print(gpuwatch_probe.mark(1))'; \
         printf '%s %s' \"$GPUWATCH_RUN\" \"$GPUWATCH_SOCKET_DIR\""
    );
    let output = done({
        command.args(["-c", &script]);
        command
    });
    let printed = text(&output.stdout);
    let [path, marked, last] = printed.lines().collect::<Vec<_>>()[..] else { panic!("{output:?}") };
    assert_eq!((path, marked), ("/it's here", "None"));
    assert!(last.len() > 33 && last.bytes().take(32).all(|it| it.is_ascii_hexdigit()), "{last}");
}

/// A terminal with an interactive shell in it, and what has been written there.
pub(crate) struct Terminal {
    writer: Box<dyn Write + Send>,
    received: mpsc::Receiver<Vec<u8>>,
    seen: String,
    shell: Box<dyn portable_pty::Child + Send + Sync>,
}

impl Terminal {
    pub(crate) fn open(home: &Home) -> Self {
        let pair =
            native_pty_system().openpty(PtySize { rows: 24, cols: 120, pixel_width: 0, pixel_height: 0 }).unwrap();
        let mut command = CommandBuilder::new("bash");
        command.args(["--norc", "--noprofile", "-i"]);
        for (name, value) in home.variables() {
            command.env(name, value);
        }
        command.env("PS1", "prompt> ");
        command.env("GPUWATCH_PROGRAM", env!("CARGO_BIN_EXE_gpuwatch"));
        let shell = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().unwrap();
        let writer = pair.master.take_writer().unwrap();
        let (sender, received) = mpsc::channel();
        thread::spawn(move || {
            let _master = pair.master;
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        let mut terminal = Self { writer, received, seen: String::new(), shell };
        terminal.until("prompt> ");
        terminal
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).unwrap();
        self.writer.flush().unwrap();
    }

    /// Everything up to `text`, which must come.
    pub(crate) fn until(&mut self, text: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let Ok(bytes) = self.received.recv_timeout(deadline.saturating_duration_since(Instant::now())) else {
                panic!("{text:?} did not come, but {:?}", self.seen);
            };
            self.seen.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// Waits for words, outlives one interrupt, and ends with the second.
pub(crate) const PATIENT: &str = r"
import select, sys, time
interrupts, said = 0, 'ready'
while interrupts < 2:
    try:
        print(said + '!', flush=True)
        # A signal just before a read that blocks would wait for the next line.
        while not select.select([sys.stdin], [], [], 0.1)[0]:
            pass
        said = 'heard ' + sys.stdin.readline().strip()
    except KeyboardInterrupt:
        interrupts += 1
        time.sleep(0.3)
        said = 'interrupted %d' % interrupts
print(said + '!')
sys.exit(5)
";

/// Interrupts, stops, continues and answers the patient job, whose file is `job.py`, until it ends.
pub(crate) fn talk_to_the_patient(terminal: &mut Terminal, command: &str) {
    terminal.send(&format!("{command}\n"));
    terminal.until("ready!");
    terminal.send("\u{3}");
    terminal.until("interrupted 1!");
    terminal.send("\u{1a}");
    assert!(terminal.until("prompt> ").contains("Stopped"), "{command}");
    terminal.send("fg\n");
    terminal.until("job.py");
    terminal.send("hello\n");
    terminal.until("heard hello!");
    terminal.send("\u{3}");
    terminal.until("interrupted 2!");
    terminal.until("prompt> ");
    terminal.send("echo code $?.\n");
    terminal.until("code 5.");
    terminal.until("prompt> ");
}

#[test]
fn a_terminal_interrupts_stops_and_continues_the_job_as_without_us() {
    let home = Home::new();
    let job = home.0.path().join("job.py");
    fs::write(&job, PATIENT).unwrap();
    let mut terminal = Terminal::open(&home);
    for prefix in ["", "$GPUWATCH_PROGRAM run -- "] {
        talk_to_the_patient(&mut terminal, &format!("{prefix}python3 {}", job.display()));
    }
}

#[test]
fn ctrl_c_ends_a_job_that_does_not_handle_it() {
    let home = Home::new();
    let mut terminal = Terminal::open(&home);
    terminal.send("$GPUWATCH_PROGRAM run -- sh -c 'echo ready!; exec sleep 60'\n");
    terminal.until("ready!");
    terminal.until("ready!");
    terminal.send("\u{3}");
    terminal.until("prompt> ");
    terminal.send("echo code $?.\n");
    terminal.until("code 130.");
}
