//! `gpuwatch attach` and `gpuwatch detach`: the probe in a job that runs already.
//!
//! `inspect` reads the facts about a process, `plan` decides, `place` puts the probe's files where the job sees
//! them, and `trace` or `remote` has its Python run a line of text (`script`). That line starts a thread in the job,
//! which does everything else (`probes/python/gpuwatch_probe/_join.py`) and answers in a file.
//!
//! # How the job stays unharmed
//!
//! Python 3.14 and newer read the path of a script at a moment of their own; nothing is stopped. For older ones the
//! main thread is stopped and calls two functions of its own, `mmap` and `Py_AddPendingCall`. Their return address is
//! the C library's call of `rt_sigreturn`, and below it on the stack lies a frame with every register of the thread:
//! the kernel restores it as after a signal's handler, whether gpuwatch still lives or not. No instruction of the job
//! is changed, and no page is executable that was not. The queued call runs on the main thread between two
//! instructions of Python, and starts a thread; no exception of it reaches the job.

use std::{
    io,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    thread::sleep,
    time::{Duration, Instant},
};

mod elf;
#[cfg(target_arch = "x86_64")]
mod frame;
mod inspect;
mod job;
mod maps;
mod place;
pub mod plan;
mod remote;
mod script;
#[cfg(target_arch = "x86_64")]
mod trace;

use self::{
    inspect::{Target, inspect},
    place::{Place, State},
    plan::{Plan, Refusal, Transport},
    script::{Order, Wish},
};
use crate::{facts::text::Foreign, sources::system};

/// The time between two checks for the job's answer.
const POLL_EVERY: Duration = Duration::from_millis(5);

/// How the request is made, beside the job's number.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How long its answer is waited for.
    pub wait: Duration,
    /// The only directory that its socket may be in; by default, the job's own environment decides.
    pub directory: Option<PathBuf>,
    /// The run that it is recorded as.
    pub run: Option<String>,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The job has done it; how long its main thread was stopped, where it was.
    Done(Option<Duration>),
    /// The main thread has not returned to Python yet; the job does it then.
    Pending,
    /// Nothing was done, in one sentence why.
    Refused(Refusal),
    /// Nothing was done because the process does not use a GPU yet, in one sentence.
    Idle(Refusal),
}

/// What would be done.
///
/// # Errors
/// The reason against it.
pub fn plan_for(pid: u32) -> Result<Plan, Refusal> {
    plan::plan(&inspect(pid).facts)
}

/// Returns the processes of each job among some, in order: ranks of one launcher are one job.
pub fn jobs(pids: &[u32]) -> Vec<Vec<u32>> {
    let mut jobs: Vec<(job::Identity, Vec<u32>)> = Vec::new();
    for pid in pids {
        let identity = job::identity(*pid);
        match jobs.iter_mut().find(|(known, _)| *known == identity) {
            Some((_, members)) => members.push(*pid),
            None => jobs.push((identity, vec![*pid])),
        }
    }
    jobs.into_iter().map(|(_, members)| members).collect()
}

/// Returns what this user may attach to here, in words.
///
/// # Errors
/// Nothing: why, and what to do.
pub fn permission() -> Result<&'static str, (String, &'static str)> {
    plan::permission(inspect::scope(), rustix::process::geteuid().is_root(), inspect::is_capable())
}

/// Every process that can be attached to, as far as that is seen from outside.
pub fn candidates() -> Vec<u32> {
    inspect::candidates()
}

/// Starts the probe in a process.
pub fn attach(pid: u32, options: &Options) -> Outcome {
    let target = inspect(pid);
    let planned = plan::plan(&target.facts);
    ask(&target, planned, Wish::Start, options)
}

/// Ends the probe of a process.
pub fn detach(pid: u32, options: &Options) -> Outcome {
    let target = inspect(pid);
    let planned = plan::plan_end(&target.facts);
    ask(&target, planned, Wish::Stop, options)
}

fn ask(target: &Target, planned: Result<Plan, Refusal>, wish: Wish, options: &Options) -> Outcome {
    let plan = match planned {
        Ok(plan) => plan,
        Err(why) => return Outcome::Refused(why),
    };
    match place_and_ask(target, &plan, wish, options) {
        Ok(outcome) => outcome,
        Err(why) => {
            Outcome::Refused(format!("process {} was left as it is: {}", plan.pid, Foreign::new(why.to_string())))
        }
    }
}

fn place_and_ask(target: &Target, plan: &Plan, wish: Wish, options: &Options) -> io::Result<Outcome> {
    let place = Place::of(target)?;
    let mut held = None;
    if place.state() != State::Asked {
        let order = Order {
            directories: options.directory.iter().cloned().collect(),
            run: options.run.clone(),
            ..place.prepare(wish, target.own_pid)?
        };
        match send(target, plan, &place, &order) {
            Ok(duration) => held = duration,
            Err(why) => {
                place.clear();
                return Err(why);
            }
        }
        place.note_asked()?;
    }
    Ok(answer(target, place, held, options.wait))
}

/// Has the job run the order's text.
fn send(target: &Target, plan: &Plan, place: &Place, order: &Order) -> io::Result<Option<Duration>> {
    let missing = || io::Error::other("its functions were not found");
    let memory = target.memory.as_ref().ok_or_else(missing)?;
    match plan.transport {
        Transport::RemoteScript => {
            let path = place.write_script(&script::text(order, 0))?;
            remote::run(memory, target.at.runtime.ok_or_else(missing)?, path.as_os_str().as_bytes())?;
            Ok(None)
        }
        Transport::PendingCall => queue(target, memory, order).map(Some),
    }
}

#[cfg(target_arch = "x86_64")]
fn queue(target: &Target, memory: &std::fs::File, order: &Order) -> io::Result<Duration> {
    let missing = || io::Error::other("its functions were not found");
    if script::text(order, u64::MAX).len() as u64 >= trace::PAGE {
        return Err(io::Error::other("the paths of its files are too long"));
    }
    let at = trace::Addresses {
        map: target.at.map.ok_or_else(missing)?,
        restorer: target.at.restorer.ok_or_else(missing)?,
        add_pending: target.at.add_pending.ok_or_else(missing)?,
        run_string: target.at.run_string.ok_or_else(missing)?,
    };
    let text = |page| {
        let mut bytes = script::text(order, page).into_bytes();
        bytes.push(0);
        bytes
    };
    trace::queue(target.facts.pid, memory, at, text).map_err(io::Error::other)
}

#[cfg(not(target_arch = "x86_64"))]
fn queue(_: &Target, _: &std::fs::File, _: &Order) -> io::Result<Duration> {
    Err(io::Error::other("this architecture has no such call"))
}

/// Waits for the job's answer, and removes it.
fn answer(target: &Target, place: Place, held: Option<Duration>, wait: Duration) -> Outcome {
    let pid = target.facts.pid;
    let end = Instant::now() + wait;
    loop {
        if let State::Answered(words) = place.state() {
            place.clear();
            return match words.split_once(' ') {
                None if words == "started" || words == "ended" => Outcome::Done(held),
                Some(("idle", why)) => Outcome::Idle(format!("process {pid} {}", Foreign::new(why))),
                Some(("refused", why)) => Outcome::Refused(format!("process {pid} {}", Foreign::new(why))),
                _ => Outcome::Refused(format!("process {pid} gave an answer of another release of gpuwatch")),
            };
        }
        if system::start_ticks(pid) != Some(target.start_ticks) {
            place.clear();
            return Outcome::Refused(format!("process {pid} ended before its probe started"));
        }
        if Instant::now() >= end {
            return Outcome::Pending;
        }
        sleep(POLL_EVERY);
    }
}
