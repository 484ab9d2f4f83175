//! Whether a process can be attached to, and how: decided from facts alone, before anything of it is touched. Pure.

use crate::facts::text::Foreign;
use std::fmt;

/// The oldest minor version of Python 3, and the first that takes scripts by itself (PEP 768).
const PYTHON_MIN: u32 = 9;
const PYTHON_REMOTE: u32 = 14;

/// The oldest minor version of glibc 2 that the probe's library loads with.
const GLIBC_MIN: u32 = 28;

/// The name that PyTorch gives its data workers.
const WORKER: &str = "pt_data_worker";

/// A Python in a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Python {
    /// 3.11 is (3, 11); `None` if the process does not show it.
    pub version: Option<(u32, u32)>,
    /// Whether it has no global lock.
    pub is_free_threaded: bool,
    /// The executable or shared library that contains the interpreter.
    pub file: String,
    /// Whether the functions that a call is queued with are found, in the file and in memory alike.
    pub has_symbols: bool,
    /// Whether the file is the one that was loaded.
    pub is_current: bool,
    /// Whether it has started and not begun to shut down; `None` where that cannot be read.
    pub runs: Option<bool>,
    /// Whether it takes scripts (PEP 768); `None` where that cannot be read.
    pub takes_scripts: Option<bool>,
}

/// The facts about a process before gpuwatch changes anything in it.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its number here.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// Its state, as `/proc` has it; `None` where there is no such process.
    pub state: Option<char>,
    /// The name of its main thread.
    pub name: String,
    /// Its user's number and name.
    pub user: (u32, String),
    /// The number of gpuwatch's user.
    pub own_user: u32,
    /// The process that traces it; 0 without one.
    pub tracer: u32,
    /// `Seccomp` of `/proc/PID/status`: 1 is the strict mode.
    pub seccomp: u32,
    /// Whether its returns are checked by a shadow stack.
    pub has_shadow_stack: bool,
    /// `kernel.yama.ptrace_scope`; `None` where the kernel has none.
    pub scope: Option<u32>,
    /// Whether gpuwatch has `CAP_SYS_PTRACE`.
    pub is_capable: bool,
    /// Whether the kernel lets gpuwatch open the process's memory.
    pub is_allowed: bool,
    /// Why its files cannot be read, if they cannot.
    pub trouble: Option<String>,
    /// Whether its program is of this machine's architecture.
    pub is_native: bool,
    /// Its Python.
    pub python: Option<Python>,
    /// Whether PyTorch's library for Python is loaded.
    pub has_torch: bool,
    /// Whether the driver's library is loaded.
    pub has_device: bool,
    /// The release of glibc: 36 of 2.36; `None` for another C library.
    pub glibc: Option<u32>,
    /// Whether it has a probe.
    pub is_probed: bool,
    /// Whether it sees other files than gpuwatch, or is another user's: then the probe's files go to where it sees
    /// them.
    pub is_apart: bool,
    /// Its children that have PyTorch and the driver's library.
    pub children: Vec<u32>,
}

/// How a process is made to start its probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Its main thread is stopped for a moment and queues a call in Python.
    PendingCall,
    /// Python's own protocol for debuggers (PEP 768).
    RemoteScript,
}

/// What will be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The process.
    pub pid: u32,
    /// How it is made to start the probe.
    pub transport: Transport,
    /// Whether the probe's files go to where the process sees them.
    pub is_apart: bool,
    python: (u32, u32),
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.python;
        writeln!(f, "process {} can be attached to: Python {major}.{minor} with PyTorch", self.pid)?;
        let files = if self.is_apart {
            "put the probe's files into a directory of the job's /tmp, which the job removes"
        } else {
            "use the probe's files in your cache"
        };
        writeln!(f, "  1. {files}")?;
        match self.transport {
            Transport::PendingCall => {
                writeln!(
                    f,
                    "  2. stop its main thread for less than a millisecond, and queue a call in Python (ptrace)"
                )?;
            }
            Transport::RemoteScript => {
                writeln!(f, "  2. name a script in its memory, which Python runs by itself (PEP 768)")?;
            }
        }
        write!(f, "  3. wait until the probe has started on a thread of its own")
    }
}

/// Why a process is not attached to, and what to do: one sentence.
pub type Refusal = String;

/// Decides what to do.
///
/// # Errors
/// The first reason against it.
pub fn plan(facts: &Facts) -> Result<Plan, Refusal> {
    alive(facts)?;
    permitted(facts)?;
    let pid = facts.pid;
    let python = python(facts)?;
    suitable(facts)?;
    if facts.is_probed {
        return Err(has_probe(pid));
    }
    Ok(Plan { pid, is_apart: facts.is_apart, ..python })
}

/// The same for a process whose probe is to end.
///
/// # Errors
/// The first reason against it.
pub fn plan_end(facts: &Facts) -> Result<Plan, Refusal> {
    alive(facts)?;
    permitted(facts)?;
    let python = python(facts)?;
    if !facts.is_probed {
        return Err(has_none(facts.pid));
    }
    Ok(Plan { pid: facts.pid, is_apart: facts.is_apart, ..python })
}

pub(super) fn has_probe(pid: u32) -> Refusal {
    format!("process {pid} has a probe already: gpuwatch shows it")
}

pub(super) fn has_none(pid: u32) -> Refusal {
    format!("process {pid} has no probe")
}

fn alive(facts: &Facts) -> Result<(), Refusal> {
    let pid = facts.pid;
    match facts.state {
        None => return Err(format!("there is no process {pid} here")),
        Some('Z') => return Err(format!("process {pid} has ended: it is listed until its parent waits for it")),
        Some('X' | 'x') => return Err(format!("process {pid} is ending")),
        _ => {}
    }
    if facts.tracer != 0 {
        let tracer = facts.tracer;
        return Err(format!("process {pid} is traced by process {tracer}, as by a debugger: end that first"));
    }
    if matches!(facts.state, Some('T' | 't')) {
        return Err(format!("process {pid} is stopped: resume it with `kill -CONT {pid}` first"));
    }
    if facts.name == WORKER {
        let parent = facts.parent;
        return Err(format!("process {pid} is a data worker of process {parent}: `gpuwatch attach {parent}`"));
    }
    Ok(())
}

fn permitted(facts: &Facts) -> Result<(), Refusal> {
    let pid = facts.pid;
    if facts.is_allowed {
        return match &facts.trouble {
            None => Ok(()),
            Some(why) => Err(format!(
                "process {pid} was left as it is: its files cannot be read: {}",
                Foreign::new(why.as_str())
            )),
        };
    }
    let (user, name) = &facts.user;
    if *user != facts.own_user && facts.own_user != 0 {
        let name = Foreign::new(name.as_str());
        return Err(format!("process {pid} belongs to {name}: only {name} and root may attach to it"));
    }
    Err(match facts.scope {
        Some(3) => format!(
            "kernel.yama.ptrace_scope is 3, so no user may attach to process {pid} until this machine is started again: \
             start the next job with `gpuwatch run`"
        ),
        Some(scope @ 1..) if !facts.is_capable => format!(
            "kernel.yama.ptrace_scope is {scope}, so only root may attach to process {pid}: `sudo gpuwatch attach {pid}`"
        ),
        _ if !facts.is_capable && facts.own_user == 0 => format!(
            "this container lacks the capability SYS_PTRACE that attaching to process {pid} needs: attach from the host, or \
             give it to the container"
        ),
        _ if facts.own_user == 0 => {
            format!("the kernel does not let even root attach to process {pid}")
        }
        _ => format!("the kernel does not let you attach to process {pid}: `sudo gpuwatch attach {pid}`"),
    })
}

/// Returns what a user may attach to, in words, before any process is named.
///
/// # Errors
/// Nothing: why, and what to do.
pub(super) fn permission(
    scope: Option<u32>,
    is_root: bool,
    is_capable: bool,
) -> Result<&'static str, (String, &'static str)> {
    match scope {
        Some(3) => Err((
            "kernel.yama.ptrace_scope is 3: no running job may be attached to".to_owned(),
            "start jobs with `gpuwatch run`; the setting lasts until the machine is started again",
        )),
        Some(scope @ 1..) if !is_capable && !is_root => Err((
            format!("kernel.yama.ptrace_scope is {scope}: only root may attach to a running job"),
            "`sudo gpuwatch attach PID`, or start jobs with `gpuwatch run`",
        )),
        _ if is_root && !is_capable => Err((
            "this container lacks the capability SYS_PTRACE: no running job may be attached to".to_owned(),
            "attach from the host, or give the capability to the container; or start jobs with `gpuwatch run`",
        )),
        _ if is_capable => Ok("`gpuwatch attach PID` may attach to every user's jobs"),
        _ => Ok("`gpuwatch attach PID` may attach to your own jobs"),
    }
}

fn python(facts: &Facts) -> Result<Plan, Refusal> {
    let pid = facts.pid;
    if !facts.is_native {
        return Err(format!("process {pid} is built for another architecture: use the gpuwatch of that architecture"));
    }
    let Some(python) = &facts.python else {
        return Err(format!(
            "process {pid} does not run CPython: gpuwatch shows what the driver counts for it, and a program can carry \
             the probe itself"
        ));
    };
    let Some(version @ (major, minor)) = python.version else {
        return Err(format!(
            "the version of Python in process {pid} is unknown: start the next job with `gpuwatch run`"
        ));
    };
    if major != 3 || minor < PYTHON_MIN {
        return Err(format!(
            "process {pid} runs Python {major}.{minor}, and the probe needs Python 3.{PYTHON_MIN} or newer"
        ));
    }
    if python.is_free_threaded {
        return Err(format!(
            "process {pid} runs a Python without the global lock, which attaching needs: start the next job with \
             `gpuwatch run`"
        ));
    }
    let file = Foreign::new(python.file.as_str());
    if python.runs == Some(false) {
        return Err(format!("process {pid} is ending: its Python shuts down, or has shut down"));
    }
    if minor >= PYTHON_REMOTE {
        return match python.takes_scripts {
            Some(true) => Ok(Plan { pid, transport: Transport::RemoteScript, is_apart: false, python: version }),
            Some(false) => Err(format!(
                "process {pid} was started with remote debugging switched off (PYTHON_DISABLE_REMOTE_DEBUG or \
                 -X disable-remote-debug): start the next job without that, or with `gpuwatch run`"
            )),
            None => Err(format!(
                "process {pid} is ending, or its Python ({file}) does not say where it takes scripts: start the next \
                 job with `gpuwatch run`"
            )),
        };
    }
    queueable(facts, python, minor)?;
    Ok(Plan { pid, transport: Transport::PendingCall, is_apart: false, python: version })
}

/// Whether a call can be queued in a Python, which takes no scripts.
fn queueable(facts: &Facts, python: &Python, minor: u32) -> Result<(), Refusal> {
    let pid = facts.pid;
    let file = Foreign::new(python.file.as_str());
    if cfg!(not(target_arch = "x86_64")) {
        return Err(format!(
            "on this architecture attaching needs Python 3.{PYTHON_REMOTE} or newer, and process {pid} runs 3.{minor}: start \
             the next job with `gpuwatch run`"
        ));
    }
    if !python.is_current {
        return Err(format!(
            "{file} was replaced since process {pid} loaded it: start the next job with `gpuwatch run`"
        ));
    }
    if !python.has_symbols {
        return Err(format!(
            "the Python of process {pid} ({file}) does not export the functions that attaching calls: start the next job \
             with `gpuwatch run`"
        ));
    }
    if python.runs.is_none() {
        return Err(format!(
            "the Python of process {pid} ({file}) does not show whether it runs: start the next job with `gpuwatch run`"
        ));
    }
    if facts.seccomp == 1 || facts.has_shadow_stack {
        let what = if facts.seccomp == 1 { "the strict mode of seccomp" } else { "a shadow stack" };
        return Err(format!(
            "process {pid} runs with {what}, which attaching would break: start it with `gpuwatch run`"
        ));
    }
    Ok(())
}

fn suitable(facts: &Facts) -> Result<(), Refusal> {
    let pid = facts.pid;
    if !facts.has_torch {
        return Err(format!(
            "process {pid} has not loaded PyTorch, whose allocator the probe reads: other jobs can call a probe of their own"
        ));
    }
    if !facts.has_device {
        let children: Vec<String> = facts.children.iter().map(u32::to_string).collect();
        return Err(if children.is_empty() {
            format!("process {pid} has not initialised a GPU: attach once it uses one")
        } else {
            let children = children.join(" ");
            format!("process {pid} does not use a GPU itself, but its children do: `gpuwatch attach {children}`")
        });
    }
    match facts.glibc {
        Some(minor) if minor >= GLIBC_MIN => Ok(()),
        Some(minor) => Err(format!(
            "process {pid} runs with glibc 2.{minor}, and the probe needs 2.{GLIBC_MIN} or newer: use a newer image"
        )),
        None => Err(format!("process {pid} runs without glibc, which the probe needs: use an image with glibc")),
    }
}

#[cfg(test)]
mod tests {
    //! Every reason against attaching, one by one.

    use super::*;

    fn python(minor: u32) -> Python {
        Python {
            version: Some((3, minor)),
            file: "/usr/lib/libpython3.so".to_owned(),
            has_symbols: true,
            is_current: true,
            runs: Some(true),
            takes_scripts: Some(true),
            ..Python::default()
        }
    }

    /// A job of this user's that can be attached to.
    fn job() -> Facts {
        Facts {
            pid: 42,
            parent: 7,
            state: Some('R'),
            user: (1000, "ada".to_owned()),
            own_user: 1000,
            is_allowed: true,
            is_native: true,
            python: Some(python(11)),
            has_torch: true,
            has_device: true,
            glibc: Some(36),
            ..Facts::default()
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn python_3_9_to_3_13_queue_a_call_and_newer_ones_take_a_script() {
        for minor in 9..=15 {
            let facts = Facts { python: Some(python(minor)), ..job() };
            let transport = if minor < 14 { Transport::PendingCall } else { Transport::RemoteScript };
            assert_eq!(plan(&facts).unwrap().transport, transport, "3.{minor}");
        }
        let printed = plan(&Facts { is_apart: true, ..job() }).unwrap().to_string();
        assert!(printed.contains("/tmp") && printed.contains("ptrace"), "{printed}");
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn each_reason_against_it_is_one_sentence_with_a_next_step() {
        let with = |python: Python| Facts { python: Some(python), ..job() };
        let denied = Facts { is_allowed: false, ..job() };
        let cases: Vec<(Facts, &str)> = vec![
            (Facts { state: None, ..job() }, "there is no process 42"),
            (Facts { state: Some('Z'), ..job() }, "process 42 has ended: it is listed until its parent waits for it"),
            (Facts { state: Some('X'), ..job() }, "is ending"),
            (Facts { state: Some('T'), ..job() }, "kill -CONT 42"),
            (Facts { state: Some('t'), tracer: 9, ..job() }, "traced by process 9"),
            (Facts { name: "pt_data_worker".to_owned(), ..job() }, "gpuwatch attach 7"),
            (Facts { own_user: 1001, ..denied.clone() }, "only ada and root"),
            (Facts { scope: Some(1), ..denied.clone() }, "sudo gpuwatch attach 42"),
            (Facts { scope: Some(3), ..denied.clone() }, "gpuwatch run"),
            (Facts { own_user: 0, ..denied.clone() }, "SYS_PTRACE"),
            (denied, "sudo gpuwatch attach 42"),
            (Facts { is_native: false, ..job() }, "another architecture"),
            (Facts { python: None, ..job() }, "does not run CPython"),
            (with(python(8)), "needs Python 3.9"),
            (with(Python { version: None, ..python(11) }), "unknown"),
            (with(Python { is_free_threaded: true, ..python(13) }), "global lock"),
            (with(Python { has_symbols: false, ..python(11) }), "does not export"),
            (with(Python { is_current: false, ..python(11) }), "was replaced"),
            (with(Python { runs: Some(false), ..python(9) }), "process 42 is ending: its Python shuts down"),
            (with(Python { runs: Some(false), takes_scripts: None, ..python(14) }), "is ending: its Python shuts down"),
            (with(Python { runs: None, ..python(11) }), "does not show whether it runs"),
            (with(Python { takes_scripts: Some(false), ..python(14) }), "PYTHON_DISABLE_REMOTE_DEBUG"),
            (with(Python { takes_scripts: None, ..python(14) }), "does not say"),
            (Facts { seccomp: 1, ..job() }, "seccomp"),
            (Facts { has_shadow_stack: true, ..job() }, "shadow stack"),
            (Facts { has_torch: false, ..job() }, "has not loaded PyTorch"),
            (Facts { has_device: false, ..job() }, "has not initialised a GPU"),
            (Facts { has_device: false, children: vec![43, 44], ..job() }, "gpuwatch attach 43 44"),
            (Facts { glibc: Some(17), ..job() }, "glibc 2.17"),
            (Facts { glibc: None, ..job() }, "without glibc"),
            (Facts { is_probed: true, ..job() }, "has a probe already"),
        ];
        for (facts, part) in cases {
            let printed = plan(&facts).unwrap_err();
            assert!(printed.contains(part), "{part}: {printed}");
            assert!(!printed.contains('\n') && !printed.ends_with('.'), "{printed}");
        }
    }

    #[test]
    fn a_scope_of_1_is_not_a_reason_if_the_kernel_allows_it() {
        let facts = Facts { scope: Some(1), is_capable: true, ..job() };
        assert!(permitted(&facts).is_ok());
    }

    /// The machines of the suite have no Yama, so the decision is tested without a kernel.
    #[test]
    fn the_permission_to_attach_depends_on_scope_and_capability() {
        let refused = |scope, is_root, is_capable| permission(scope, is_root, is_capable).unwrap_err().0;
        assert!(permission(None, false, false).unwrap().contains("your own jobs"));
        assert!(permission(Some(0), false, false).unwrap().contains("your own jobs"));
        assert!(refused(Some(1), false, false).contains("only root"));
        assert!(permission(Some(1), false, true).unwrap().contains("every user"));
        assert!(refused(Some(2), false, false).contains("ptrace_scope is 2"));
        assert!(refused(Some(3), true, true).contains("no running job"));
        assert!(refused(None, true, false).contains("SYS_PTRACE"));
        assert!(permission(Some(1), true, true).is_ok());
    }

    #[test]
    fn only_a_probe_that_is_there_can_be_ended() {
        assert!(plan_end(&job()).unwrap_err().contains("has no probe") || cfg!(not(target_arch = "x86_64")));
    }
}
