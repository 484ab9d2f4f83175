//! `gpuwatch run` and `gpuwatch env`: a job with its probe.
//!
//! The job is the user's: its output, its exit, its signals and its terminal are as they would be without us, and
//! no fault of ours may stop it.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    io::{self, Write},
    panic,
    path::Path,
    process::Command,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

pub mod assets;
pub mod job;
pub mod shell;

use self::{
    assets::Assets,
    job::{Ended, Job},
};
use crate::text::Foreign;

/// The job could not be started because it was not found; what shells say then.
const NOT_FOUND: u8 = 127;

/// The job could not be started though it was found; what shells say then.
const NOT_EXECUTABLE: u8 = 126;

/// How long what runs beside a job may take to finish once the job is over.
const GRACE: Duration = Duration::from_secs(3);

/// Launchers that start the job on other machines, where our environment does not reach.
const REMOTE: [&str; 6] = ["srun", "mpirun", "mpiexec", "mpiexec.hydra", "ssh", "pdsh"];

/// What runs beside a job is told with this.
#[derive(Debug)]
pub struct Started {
    /// The run's id, 32 hexadecimal digits, that every probe of this job will say.
    pub run: String,
    /// The job's process.
    pub pid: u32,
    /// Says how the job ended, and disconnects when it is over.
    pub over: Receiver<Ended>,
}

/// Runs `command` with its probe, and `beside` in a thread of its own until the job is over; the code to exit with.
///
/// A job that dies by a signal takes this process with it by the same signal, so that a caller sees no difference.
pub fn run(command: &[OsString], beside: impl FnOnce(Started) + Send + 'static) -> u8 {
    let Some((program, arguments)) = command.split_first() else {
        complain(format_args!("run needs a command, as in `gpuwatch run -- python train.py`"));
        return 2;
    };
    let run = run_id();
    let mut spawned = Command::new(program);
    spawned.args(arguments);
    // The assets may live in this process alone, so they must outlive the job.
    let assets = match Assets::unpack() {
        Ok(assets) => Some(assets),
        Err(trouble) => {
            complain(format_args!("the job runs without its probe: {}", Foreign::new(trouble.to_string())));
            None
        }
    };
    if let Some(assets) = &assets {
        spawned.envs(environment(assets, &run));
    }
    if let Some(launcher) = remote_launcher(program) {
        complain(format_args!(
            "{launcher} starts processes elsewhere, where no probe comes along; put gpuwatch behind it: \
             {launcher} … gpuwatch run -- python …"
        ));
    }
    let job = match Job::spawn(&mut spawned) {
        Ok(job) => job,
        Err(error) => return explain(program, &error),
    };
    let (over, companion) = accompany(run, job.pid(), beside);
    let ended = job.wait();
    // Whoever was beside the job may have failed and gone.
    let _ = over.send(ended);
    drop(over);
    wait_for(&companion);
    match ended {
        Ended::Code(code) => code,
        Ended::Signal(signal) => job::die_by(signal),
    }
}

/// The environment that probes a job: names and values to set.
pub fn environment(assets: &Assets, run: &str) -> Vec<(OsString, OsString)> {
    let mut path = assets.python().as_os_str().to_owned();
    if let Some(before) = std::env::var_os("PYTHONPATH").filter(|it| !it.is_empty()) {
        path.push(":");
        path.push(before);
    }
    let mut set = vec![
        (OsString::from("PYTHONPATH"), path),
        (OsString::from("GPUWATCH_RUN"), OsString::from(run)),
        (OsString::from("GPUWATCH_PROBE_SO"), assets.library().as_os_str().to_owned()),
    ];
    if let Some(folder) = std::env::var_os("GPUWATCH_SOCKET_DIR") {
        set.push((OsString::from("GPUWATCH_SOCKET_DIR"), folder));
    }
    set
}

/// Prints the exports that probe whatever is started from this shell afterwards; the code to exit with.
pub fn env(shell: shell::Shell) -> u8 {
    let assets = match Assets::unpack_to_stay() {
        Ok(assets) => assets,
        Err(trouble) => {
            complain(format_args!("{}", Foreign::new(trouble.to_string())));
            return 1;
        }
    };
    let mut out = io::stdout().lock();
    for (name, value) in environment(&assets, &run_id()) {
        let line = shell.export(&name, &value);
        // A reader that has gone away wants no more.
        if out.write_all(&line).is_err() {
            break;
        }
    }
    u8::from(out.flush().is_err_and(|error| error.kind() != io::ErrorKind::BrokenPipe))
}

/// The id that is inherited, so that `srun gpuwatch run` is one run on all nodes, or a new one.
fn run_id() -> String {
    let inherited = std::env::var("GPUWATCH_RUN").unwrap_or_default();
    if inherited.len() == 32 && inherited.bytes().all(|it| it.is_ascii_hexdigit()) {
        return inherited;
    }
    let mut bytes = [0; 16];
    // Early in a boot the kernel may refuse; the id then only names this process.
    if !matches!(rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()), Ok(16)) {
        bytes[..4].copy_from_slice(&std::process::id().to_be_bytes());
    }
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// Starts what runs beside the job; the second channel disconnects when it has finished.
fn accompany(run: String, pid: u32, beside: impl FnOnce(Started) + Send + 'static) -> (Sender<Ended>, Receiver<()>) {
    let (over, told) = channel();
    let (finished, companion) = channel::<()>();
    // A fault of ours must not write over the job's terminal.
    panic::set_hook(Box::new(|_| {}));
    let started = Started { run, pid, over: told };
    let spawned = thread::Builder::new().name("beside".to_owned()).spawn(move || {
        let _finished = finished;
        beside(started);
    });
    if let Err(error) = spawned {
        complain(format_args!("the job runs unrecorded: {error}"));
    }
    (over, companion)
}

fn wait_for(companion: &Receiver<()>) {
    let until = Instant::now() + GRACE;
    // Nothing is ever sent: what ends the wait is that the other side is gone, or that time is up.
    let _ = companion.recv_timeout(until.saturating_duration_since(Instant::now()));
}

fn remote_launcher(program: &OsStr) -> Option<&'static str> {
    let name = Path::new(program).file_name()?;
    REMOTE.into_iter().find(|it| name == *it)
}

fn explain(program: &OsStr, error: &io::Error) -> u8 {
    let name = Foreign::new(program.to_string_lossy());
    if error.kind() == io::ErrorKind::NotFound {
        complain(format_args!("{name}: command not found"));
        return NOT_FOUND;
    }
    complain(format_args!("{name}: cannot be executed: {error}"));
    NOT_EXECUTABLE
}

fn complain(what: fmt::Arguments) {
    // With stderr gone there is nobody left to tell.
    let _ = writeln!(io::stderr(), "gpuwatch: {what}");
}
