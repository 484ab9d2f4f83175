//! The C ABI from a C program: the committed header, the library built by one `rustc` call, a fork.

use crate::client::{Client, eventually, field, samples};
use gpuwatch_probe::socket;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};
use tempfile::TempDir;

pub(crate) const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Returns where the library, the job and the stand-in for a driver are built, once.
pub(crate) fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let new = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap().keep();
        let rustc = ["--edition", "2024", "--crate-type", "cdylib", "-Copt-level=1", "src/lib.rs", "-o"];
        run(Command::new("rustc").args(rustc).arg(new.join("libprobe.so")));
        let job = ["-Wall", "-Wextra", "-Werror", "-I.", "tests/it/abi/job.c", "-o"];
        run(Command::new("cc").args(job).arg(new.join("job")).arg("-L").arg(&new).args(["-lprobe", "-ldl"]));
        let cuda = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "tests/it/abi/cuda.c", "-o"];
        run(Command::new("cc").args(cuda).arg(new.join("fake.so")));
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("abi");
        let _ = fs::remove_dir_all(&place);
        fs::rename(&new, &place).unwrap();
        place
    })
}

pub(crate) fn run(command: &mut Command) {
    let output = command.current_dir(HERE).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A job with its own socket directory.
struct Job {
    child: Child,
    dir: TempDir,
}

impl Job {
    fn start(act: &str, change: impl FnOnce(&mut Command)) -> Self {
        let dir = TempDir::new().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let mut command = Command::new(built().join("job"));
        command.arg(act).env("LD_LIBRARY_PATH", built()).env("GPUWATCH_SOCKET_DIR", dir.path());
        command.env_remove("GPUWATCH").env_remove("GPUWATCH_LOG");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        change(&mut command);
        Self { child: command.spawn().unwrap(), dir }
    }

    fn socket(&self, pid: u32) -> PathBuf {
        self.dir.path().join(format!("{pid}.sock"))
    }

    fn viewer(&self, pid: u32) -> Client {
        eventually("it listens", || self.socket(pid).exists());
        Client::connect(&self.socket(pid))
    }

    fn output(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Lets the job run to its end, which must be a silent success.
    fn end(mut self) -> TempDir {
        self.child.stdin.take().unwrap().write_all(b"\n").unwrap();
        let status = self.child.wait().unwrap();
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(status.success() && errors.is_empty(), "{status}: job.c returns the line. {errors}");
        self.dir
    }
}

#[test]
fn a_job_in_c_is_read_over_the_socket() {
    let job = Job::start("stream", |_| ());
    let pid = job.child.id();
    let mut viewer = job.viewer(pid);
    let mut lines = viewer.until(|it| it.contains("\"oom_message\""));
    let signals = thread_signals(pid);
    let dir = job.end();
    lines.extend(viewer.rest());
    let text = lines.join("\n");
    for part in [
        "\"framework\":\"c\u{fffd}\"",
        "\"rank\":3",
        "{\"ordinal\":0,\"uuid\":\"GPU-0\",\"name\":\"first\",\"total\":1073741824},{\"ordinal\":1}",
        "\"edge\":\"step\",\"step\":1,\"allocated\":1048576,\"rss\":",
        "\"edge\":\"tick\",\"step\":1",
        "\"edge\":\"call\",\"step\":2",
        "\"name\":\"epoch\",\"value\":-3}",
        "\"name\":\"evaluation\"}",
        "\"step\":2,\"tried\":5,\"limit\":7,\"largest_free\":20,\"blocks\":[[512,3],[64,4]],\"other_blocks\":1,\"other_bytes\":9,",
        "\"message\":\"no \\\"memory\\\"\"}",
        "\"device\":0,\"message\":\"none \u{fffd} left\"}",
        "\"reason\":\"done\"}",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let log = fs::read_to_string(dir.path().join(format!("{pid}.log"))).unwrap();
    assert_eq!(log, "a line of the job\n");
    assert!(!dir.path().join(format!("{pid}.sock")).exists());
    // SIGHUP, SIGINT, SIGUSR1, SIGTERM, SIGCHLD: the probe's thread must not receive any.
    let all = [1, 2, 10, 15, 17].map(|it| 1_u64 << (it - 1)).into_iter().sum::<u64>();
    assert_eq!((signals[0] & all, signals[1] & all), (0, all));
}

/// Returns the signals that the first thread and the probe's block.
fn thread_signals(pid: u32) -> [u64; 2] {
    let mut blocked = [0, 0];
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let mask = status.lines().find_map(|it| it.strip_prefix("SigBlk:\t")).unwrap();
        blocked[usize::from(status.contains("Name:\tgpuwatch\n"))] = u64::from_str_radix(mask, 16).unwrap();
    }
    blocked
}

#[test]
fn a_forked_child_is_a_job_of_its_own() {
    let mut job = Job::start("forked", |_| ());
    let parent = job.child.id();
    let child: u32 = job.output().parse().unwrap();
    let mut of_parent = job.viewer(parent);
    let lines = of_parent.until(|it| field(it, "step") == Some(2));
    assert_eq!(samples(&lines).len(), 2);
    let lines = job.viewer(child).until(|it| field(it, "step") == Some(77));
    assert_eq!(samples(&lines).len(), 1);
    assert!(lines[0].contains(&format!("\"pid\":{child},")));
    let dir = job.end();
    assert!(socket::is_stale(&dir.path().join(format!("{parent}.sock"))), "nobody stopped it, so its name stays");
}

#[test]
fn a_dead_job_is_dead_though_its_children_live() {
    let mut job = Job::start("orphaned", |_| ());
    let pid = job.child.id();
    let mut viewer = job.viewer(pid);
    viewer.until(|it| it.contains("\"live\""));
    assert_eq!(job.output(), "forked");
    job.child.kill().unwrap();
    job.child.wait().unwrap();
    assert!(viewer.rest().iter().all(|it| !it.contains("\"bye\"")));
    assert!(socket::is_stale(&job.socket(pid)));
    socket::sweep(job.dir.path());
    assert!(!job.socket(pid).exists());
}

#[test]
fn a_probe_that_is_off_is_silent() {
    let mut job = Job::start("unstartable", |it| {
        it.env("GPUWATCH", "off");
    });
    assert_eq!(job.output(), "-1");
    let dir = job.end();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_probe_that_cannot_start_reports_that_only_in_its_log() {
    let log = TempDir::new().unwrap();
    let log = log.path().join("log");
    let mut job = Job::start("unstartable", |it| {
        it.env("GPUWATCH_SOCKET_DIR", "/proc/none").env("GPUWATCH_LOG", &log);
    });
    assert_eq!(job.output(), "-3");
    job.end();
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.lines().count() == 1 && text.contains("/proc/none"), "{text}");
}

#[test]
fn descriptors_that_the_job_closed_are_not_touched_again() {
    let mut job = Job::start("careless", |_| ());
    let pid = job.child.id();
    let mut viewer = job.viewer(pid);
    viewer.until(|it| it.contains("\"live\""));
    job.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    assert_eq!(viewer.rest().len(), 0);
    eventually("it reports why", || job.dir.path().join(format!("{pid}.log")).exists());
    eventually("its socket is gone", || !job.socket(pid).exists());
    job.end();
}

#[test]
fn a_driver_is_asked_only_where_the_job_has_a_context() {
    let fake = built().join("fake.so");
    let job = Job::start("driver", |it| {
        it.arg(&fake);
    });
    let mut viewer = job.viewer(job.child.id());
    let lines = viewer.until(|it| it.contains("\"device_free\":111,\"device_total\":222"));
    assert_eq!(field(&lines[lines.len() - 1], "step"), Some(4));
    let hello = lines.iter().rfind(|it| it.contains("\"hello\"")).unwrap();
    let first = "{\"ordinal\":0,\"uuid\":\"MIG-28282828-2828-2828-2828-2828282828ff\",\"name\":\"simulated MIG 1g\",\"total\":222}";
    assert!(hello.contains(first), "{hello}");
    assert!(hello.contains("\"name\":\"mine\",\"total\":222"), "its description stays: {hello}");
    job.end();
}
