//! `gpuwatch run` and `gpuwatch env`: a job with its probe.
//!
//! The job belongs to the user: its output, exit code, signals and terminal are as they would be without gpuwatch, and
//! no fault of gpuwatch may stop it.

use self::{
    assets::Assets,
    job::{Ended, Job},
};
use crate::{
    facts::text::{Foreign, Shell},
    sources,
    storage::output,
};
use gpuwatch_probe::socket::{Reason, check, directories};
use rustix::{
    fs::{Access, access},
    io::Errno,
};
use std::{
    env,
    ffi::{OsStr, OsString},
    fmt,
    fs::File,
    io::{self, Read, Write},
    panic,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        OnceLock,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

pub mod assets;
pub mod job;
pub mod sys;

/// A shell's exit code for a command that was not found.
const NOT_FOUND: u8 = 127;

/// A shell's exit code for a command that cannot be executed.
const NOT_EXECUTABLE: u8 = 126;

/// How long the companion may take to finish once the job is over. A loaded machine needs long.
const GRACE: Duration = Duration::from_secs(20);

/// How much longer it may take if the job is traced: it may wait for a replay.
const REPLAY: Duration = Duration::from_secs(70);

/// The first panic of this process.
static PANIC: OnceLock<Foreign> = OnceLock::new();

/// The variable that asks a probe to trace its process's allocations.
const TRACE: &str = "GPUWATCH_TRACE";

/// Launchers that start the job on other machines, where the environment set here does not apply.
const REMOTE: [&str; 6] = ["srun", "mpirun", "mpiexec", "mpiexec.hydra", "ssh", "pdsh"];

/// A started job, as its companion sees it.
#[derive(Debug)]
pub struct Started {
    /// The run's id, 32 hexadecimal digits, which every probe of this job reports.
    pub run: String,
    /// The job's process.
    pub pid: u32,
    /// Receives how the job ended, and disconnects when it is over.
    pub over: Receiver<Ended>,
}

/// How a job is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The run's id.
    pub run: String,
    /// The probe reports only the program of its command line.
    pub no_arguments: bool,
    /// Where its allocations are traced, if they are.
    pub trace: Option<Trace>,
    /// Nothing is printed beside what the job prints, unless the job cannot be started.
    pub is_quiet: bool,
}

/// Where processes write their traces.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The folder, which the first process makes.
    pub folder: PathBuf,
    /// The most bytes for each process.
    pub bytes: u64,
}

/// Runs `command` with its probe, and `beside` on another thread until the job is over; returns the exit code.
///
/// If a signal ends the job, this process ends itself by the same signal, so that a caller sees no difference.
pub fn run(command: &[OsString], options: &Options, beside: impl FnOnce(Started) + Send + 'static) -> u8 {
    let Some((program, arguments)) = command.split_first() else {
        complain(format_args!("run needs a command, as in `gpuwatch run -- python train.py`"));
        return 2;
    };
    let complain = |what: fmt::Arguments| {
        if !options.is_quiet {
            complain(what);
        }
    };
    let mut spawned = Command::new(program);
    spawned.args(arguments);
    // A traced job's own `gpuwatch run` has a recording of its own.
    spawned.env_remove(TRACE);
    // The assets may exist only in this process's memory, so they must outlive the job.
    let assets = match Assets::unpack() {
        Ok(assets) => Some(assets),
        Err(trouble) => {
            complain(format_args!("the job runs without its probe: {}", Foreign::new(trouble.to_string())));
            None
        }
    };
    if let Some(assets) = &assets {
        spawned.envs(environment(assets, &options.run));
        spawned.envs(options.trace.as_ref().map(|it| (TRACE, it.variable())));
    }
    if assets.is_some()
        && let Some(trouble) = trouble()
    {
        complain(format_args!(
            "neither viewers nor the recording will find the job, as its probe has no place for a socket ({}); \
             set GPUWATCH_SOCKET_DIR to a directory of mode 0700",
            Foreign::new(trouble)
        ));
    }
    if options.no_arguments {
        let before = std::env::var("GPUWATCH").ok().filter(|it| !it.is_empty());
        spawned.env("GPUWATCH", before.map_or_else(|| "noargs".to_owned(), |it| format!("{it},noargs")));
    }
    if let Some(launcher) = remote_launcher(program) {
        complain(format_args!(
            "{launcher} starts processes elsewhere, where no probe comes along; put gpuwatch behind it: \
             {launcher} … gpuwatch run -- python …"
        ));
    }
    if let Some(option) = python_without_probe(command) {
        complain(format_args!("{}", sources::python::words(&option)));
    }
    let job = match Job::spawn(&mut spawned) {
        Ok(job) => job,
        Err(error) => return explain(program, &error),
    };
    note_panics();
    let (over, companion) = accompany(options.run.clone(), job.pid(), beside);
    let companion = companion.unwrap_or_else(|error| {
        complain(format_args!("the job runs unrecorded: {error}"));
        channel().1
    });
    let ended = job.wait();
    // The companion may have failed and gone.
    let _ = over.send(ended);
    drop(over);
    let grace = GRACE + options.trace.as_ref().map_or(Duration::ZERO, |_| REPLAY);
    if wait_for(&companion, grace).is_err() {
        complain(format_args!("gave up on the recording after {} s; its end may be missing", grace.as_secs()));
    }
    if let Some(panic) = PANIC.get() {
        complain(format_args!("gpuwatch failed while the job ran; the recording may be incomplete: {panic}"));
    }
    match ended {
        Ended::Code(code) => code,
        Ended::Signal(signal) => job::die_by(signal),
    }
}

/// Returns the environment that enables the probe: names and values to set.
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

/// Prints the exports that enable the probe for all commands started from this shell; returns the exit code.
///
/// # Errors
/// Fails if standard output cannot be written.
pub fn env(shell: Shell) -> io::Result<u8> {
    let assets = match Assets::unpack_to_stay() {
        Ok(assets) => assets,
        Err(trouble) => {
            complain(format_args!("{}", Foreign::new(trouble.to_string())));
            return Ok(1);
        }
    };
    let lines: Vec<u8> =
        environment(&assets, &run_id()).iter().flat_map(|(name, value)| shell.export(name, value)).collect();
    output::write(|out| out.write_all(&lines))?;
    Ok(0)
}

impl Trace {
    /// Returns the variable's value.
    fn variable(&self) -> OsString {
        let mut it = OsString::from(format!("{}:", self.bytes));
        it.push(&self.folder);
        it
    }
}

/// Returns the inherited run id, so that `srun gpuwatch run` is one run on all nodes, or a new one.
pub fn run_id() -> String {
    let inherited = std::env::var("GPUWATCH_RUN").unwrap_or_default();
    if inherited.len() == 32 && inherited.bytes().all(|it| it.is_ascii_hexdigit()) {
        return inherited;
    }
    new_run_id()
}

/// Returns a new run id.
pub fn new_run_id() -> String {
    let mut bytes = [0; 16];
    // Early in a boot the kernel may refuse; the id then only identifies this process.
    if !matches!(rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()), Ok(16)) {
        bytes[..4].copy_from_slice(&std::process::id().to_be_bytes());
    }
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// Starts the companion; the second channel disconnects when it has finished.
fn accompany(
    run: String,
    pid: u32,
    beside: impl FnOnce(Started) + Send + 'static,
) -> (Sender<Ended>, io::Result<Receiver<()>>) {
    let (over, receiver) = channel();
    let (finished, companion) = channel::<()>();
    let started = Started { run, pid, over: receiver };
    let spawned = thread::Builder::new().name("beside".to_owned()).spawn(move || {
        let _finished = finished;
        beside(started);
    });
    (over, spawned.map(|_| companion))
}

/// Keeps the first panic of any thread until the job is over; printed earlier, it would disturb the job's terminal.
fn note_panics() {
    panic::set_hook(Box::new(|panic| {
        let _ = PANIC.set(Foreign::new(panic.to_string()));
    }));
}

/// Waits for the companion; fails if it does not finish in time.
fn wait_for(companion: &Receiver<()>, grace: Duration) -> Result<(), RecvTimeoutError> {
    match companion.recv_timeout(grace) {
        // Nothing is ever sent: the wait ends when the sender is dropped.
        Ok(()) | Err(RecvTimeoutError::Disconnected) => Ok(()),
        Err(late) => Err(late),
    }
}

fn remote_launcher(program: &OsStr) -> Option<&'static str> {
    let name = Path::new(program).file_name()?;
    REMOTE.into_iter().find(|it| name == *it)
}

/// Returns the Python and its option by which a command, or the script that it is, disables the probe.
fn python_without_probe(command: &[OsString]) -> Option<String> {
    let argv: Vec<_> = command.iter().map(|it| it.to_string_lossy()).collect();
    sources::python::without_probe(&argv).or_else(|| {
        let program = command.first().map(Path::new)?;
        let is_named = program.components().count() > 1;
        let path = env::var_os("PATH").filter(|_| !is_named).unwrap_or_default();
        let found = env::split_paths(&path).map(|it| it.join(program)).find(|it| it.is_file());
        let mut first = [0; 256];
        let read = File::open(found.as_deref().unwrap_or(program)).and_then(|mut it| it.read(&mut first)).ok()?;
        let line = String::from_utf8_lossy(first.get(..read)?.strip_prefix(b"#!")?).into_owned();
        sources::python::without_probe(&line.lines().next()?.split_whitespace().collect::<Vec<_>>())
    })
}

fn explain(program: &OsStr, error: &io::Error) -> u8 {
    let name = Foreign::new(program.to_string_lossy());
    // A shell's user is used to `./train.py`, and to leaving `python` out.
    let script = Path::new(program);
    let is_script = script.extension().is_some_and(|it| it == "py") && script.is_file();
    let next =
        if is_script { format!("; a script needs its Python: `gpuwatch run -- python {name}`") } else { String::new() };
    if error.kind() == io::ErrorKind::NotFound {
        complain(format_args!("{name}: command not found{next}"));
        return NOT_FOUND;
    }
    complain(format_args!("{name}: cannot be executed: {error}{next}"));
    NOT_EXECUTABLE
}

fn complain(what: fmt::Arguments) {
    // Without stderr there is no way to report it.
    let _ = writeln!(io::stderr(), "gpuwatch: {what}");
}

/// Returns why none of the socket directories is usable; `None` if one is.
pub fn trouble() -> Option<String> {
    let all = directories();
    let reasons: Vec<String> = all.iter().map_while(|it| unusable(it).err()).collect();
    (reasons.len() == all.len()).then(|| reasons.join("; "))
}

/// Returns why a directory can neither be used nor created.
pub fn unusable(directory: &Path) -> Result<(), String> {
    let reason = |at: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", at.display());
    match check(directory) {
        Ok(()) => writable(directory),
        // A missing directory can be created in an existing one.
        Err(Reason::Missing) => directory.ancestors().find(|it| it.exists()).map_or(Err(Errno::NOENT), writable),
        Err(why) => return Err(reason(directory, &why)),
    }
    .map_err(|why| reason(directory, &why))
}

fn writable(directory: &Path) -> Result<(), Errno> {
    access(directory, Access::WRITE_OK | Access::EXEC_OK)?;
    if directory.is_dir() { Ok(()) } else { Err(Errno::NOTDIR) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn a_panic_beside_the_job_is_kept_for_the_end() {
        note_panics();
        let (over, companion) = accompany(String::new(), 1, |_| panic!("out of \u{1b} ink"));
        wait_for(&companion.unwrap(), GRACE).unwrap();
        // The hook is shared by all tests of this process.
        let _ = panic::take_hook();
        drop(over);
        let kept = PANIC.get().unwrap().to_string();
        assert!(kept.contains("out of \\u{1b} ink") && kept.contains("launch.rs"), "{kept}");
    }

    #[test]
    fn a_directory_can_be_used_where_it_is_ours_or_can_be_made() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        assert_eq!(unusable(&path("a/b/c")), Ok(()));
        fs::create_dir(path("own")).unwrap();
        fs::set_permissions(path("own"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(unusable(&path("own")), Ok(()));
        fs::write(path("file"), "").unwrap();
        for (name, why) in [("file", "directory"), ("file/x", "directory")] {
            let why_not = unusable(&path(name)).unwrap_err();
            assert!(why_not.contains(name) && why_not.contains(why), "{why_not}");
        }
        assert!(unusable(Path::new("/proc/version/x")).unwrap_err().starts_with("/proc/version/x: "));
    }
}
