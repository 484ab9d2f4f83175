//! `gpuwatch attach` and `gpuwatch detach`: the probe in a job that runs already.
//!
//! `inspect` reads the facts about a process, `plan` decides, `place` puts the probe's files where the job sees
//! them, and `trace` or `remote` has its Python run a line of text (`script`). That line starts a thread in the job,
//! which does everything else (`probes/python/gpuwatch_probe/_attach_script.py`) and answers in a file.
//!
//! # How gpuwatch's user stays unharmed
//!
//! Files that another user's job sees are reached only by `files`, in a child that is that user (`folder` and `images`
//! have what it does). This process reads of such a job what the kernel shows of it in `/proc`, and its memory.
//!
//! # How the job stays unharmed
//!
//! Python 3.14 and newer read the path of a script at a moment of their own; nothing is stopped. For older ones the
//! main thread is stopped and calls two functions of its own, `mmap` and `Py_AddPendingCall`. Their return address is
//! the C library's call of `rt_sigreturn`, and below it on the stack lies a frame with every register of the thread:
//! the kernel restores it as after a signal's handler, whether gpuwatch still lives or not. No instruction of the job
//! is changed, and no page is executable that was not. The queued call runs on the main thread between two
//! instructions of Python, and starts a thread; no exception of it reaches the job.
//!
//! A job that is ending is left alone. Whether its Python shuts down is read from its memory (`runtime`), for a call
//! while its main thread stands still; a call that runs later than that asks Python the same, and does nothing then.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    str::FromStr,
    thread::sleep,
    time::{Duration, Instant},
};

mod elf;
mod files;
mod folder;
#[cfg(target_arch = "x86_64")]
mod frame;
mod images;
mod inspect;
mod maps;
mod place;
pub mod plan;
mod runtime;
mod script;
#[cfg(target_arch = "x86_64")]
mod trace;

use self::{
    files::{Files, Key, Subject},
    folder::State,
    inspect::{Target, inspect},
    place::Place,
    plan::{Plan, Refusal, Transport},
    script::{Order, Wish},
};
use crate::{
    facts::text::Foreign,
    sources::{proc::Status, system},
};

/// How often to try to stop the main thread, and how long it runs undisturbed in between.
#[cfg(target_arch = "x86_64")]
const ATTEMPTS: u32 = 5;
#[cfg(target_arch = "x86_64")]
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);

/// The time between two checks for the job's answer.
const POLL_EVERY: Duration = Duration::from_millis(5);

/// Why there is no answer yet.
const QUEUED: &str =
    "its main thread has not returned to Python yet; the request waits there, and a second one is not queued";
const BEGUN: &str = "the request has begun, and its probe is not ready yet; a second one is not queued";
const OTHER: &str = "another gpuwatch waits for its answer";

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

/// The process whose files a child reaches, beside its number: `TICKS-USER-GROUP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confined {
    start_ticks: u64,
    user: u32,
    group: u32,
}

impl FromStr for Confined {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "it is not TICKS-USER-GROUP";
        let mut parts = text.split('-');
        let mut next = || parts.next().and_then(|part| part.parse::<u64>().ok()).ok_or(WRONG);
        let (start_ticks, user, group) = (next()?, next()?, next()?);
        let id = |number: u64| u32::try_from(number).map_err(|_too_large| WRONG);
        Ok(Self { start_ticks, user: id(user)?, group: id(group)? })
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The job has done it; how long its main thread was stopped, where it was.
    Done(Option<Duration>),
    /// It was asked and has not answered, in one sentence why.
    Pending(&'static str),
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
    let mut jobs: Vec<(Identity, Vec<u32>)> = Vec::new();
    for pid in pids {
        let identity = identity(*pid);
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

/// Reaches the files of a process as its user, for the gpuwatch that started this one: see `files`.
///
/// # Errors
/// When an answer cannot be written.
pub fn reach_confined(pid: u32, subject: Confined) -> io::Result<()> {
    let Confined { start_ticks, user, group } = subject;
    files::serve(Subject { pid, start_ticks, user, group })
}

/// Starts the probe in a process.
pub fn attach(pid: u32, options: &Options) -> Outcome {
    let target = inspect(pid);
    let planned = plan::plan(&target.facts);
    ask(target, planned, Wish::Start, options)
}

/// Ends the probe of a process.
pub fn detach(pid: u32, options: &Options) -> Outcome {
    let target = inspect(pid);
    let planned = plan::plan_end(&target.facts);
    ask(target, planned, Wish::Stop, options)
}

fn ask(target: Target, planned: Result<Plan, Refusal>, wish: Wish, options: &Options) -> Outcome {
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

fn place_and_ask(mut target: Target, plan: &Plan, wish: Wish, options: &Options) -> io::Result<Outcome> {
    let end = Instant::now() + options.wait;
    let Some(files) = target.files.take() else { return Err(io::Error::other("its files were not reached")) };
    let Some(mut place) = take_place(files, &target, end)? else { return Ok(Outcome::Pending(OTHER)) };
    // Another gpuwatch may have been faster.
    let is_probed = inspect::is_probed(plan.pid, target.own_pid);
    if is_probed == (wish == Wish::Start) {
        place.clear();
        return Ok(Outcome::Refused(if is_probed { plan::has_probe(plan.pid) } else { plan::has_none(plan.pid) }));
    }
    let mut held = None;
    // An answer that no gpuwatch waited for is not the answer to this request.
    if !matches!(place.state()?, State::Asked | State::Begun) {
        match prepare_and_send(&target, plan, &mut place, wish, options) {
            Ok(duration) => held = duration,
            Err(why) => {
                place.clear();
                return Err(why);
            }
        }
        place.note_asked()?;
    }
    answer(&target, place, held, end)
}

/// Takes the place of a process; `None` where another gpuwatch has it until `end`.
fn take_place(mut files: Files, target: &Target, end: Instant) -> io::Result<Option<Place>> {
    let key = Key::of(target.facts.pid, target.own_pid, target.start_ticks);
    loop {
        files = match Place::take(files, &key)? {
            Ok(place) => return Ok(Some(place)),
            Err(files) => files,
        };
        if Instant::now() >= end {
            return Ok(None);
        }
        sleep(POLL_EVERY);
    }
}

fn prepare_and_send(
    target: &Target,
    plan: &Plan,
    place: &mut Place,
    wish: Wish,
    options: &Options,
) -> io::Result<Option<Duration>> {
    let order = Order {
        directories: options.directory.iter().cloned().collect(),
        run: options.run.clone(),
        ..place.prepare(wish, target.own_pid)?
    };
    send(target, plan, place, &order)
}

/// Has the job run the order's text.
fn send(target: &Target, plan: &Plan, place: &mut Place, order: &Order) -> io::Result<Option<Duration>> {
    let missing = || io::Error::other("its functions were not found");
    let memory = target.memory.as_ref().ok_or_else(missing)?;
    match plan.transport {
        Transport::RemoteScript => {
            let path = place.write_script(&script::text(order, 0))?;
            script::run(memory, target.at.runtime.ok_or_else(missing)?.address, path.as_os_str().as_bytes())?;
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
        runtime: target.at.runtime.ok_or_else(missing)?,
    };
    let text = |page| {
        let mut bytes = script::text(order, page).into_bytes();
        bytes.push(0);
        bytes
    };
    // A busy machine may not let the thread stop in time. It runs on as before then, so it can be asked again.
    let mut queued = trace::queue(target.facts.pid, memory, at, text);
    for _ in 1..ATTEMPTS {
        let Err(trace::Failure::Late) = queued else { break };
        sleep(BETWEEN_ATTEMPTS);
        // One that is still about to stop cannot be asked: it was late.
        queued = trace::queue(target.facts.pid, memory, at, text).map_err(|why| match why {
            trace::Failure::Refused(_) => trace::Failure::Late,
            other => other,
        });
    }
    queued.map_err(io::Error::other)
}

#[cfg(not(target_arch = "x86_64"))]
fn queue(_: &Target, _: &std::fs::File, _: &Order) -> io::Result<Duration> {
    Err(io::Error::other("this architecture has no such call"))
}

/// Waits for the job's answer, and removes it.
fn answer(target: &Target, mut place: Place, held: Option<Duration>, end: Instant) -> io::Result<Outcome> {
    let pid = target.facts.pid;
    loop {
        let state = place.state()?;
        if let State::Answered(words) = state {
            place.clear();
            return Ok(match words.split_once(' ') {
                None if words == "started" || words == "ended" => Outcome::Done(held),
                Some(("idle", why)) => Outcome::Idle(format!("process {pid} {}", Foreign::new(why))),
                Some(("refused", why)) => Outcome::Refused(format!("process {pid} {}", Foreign::new(why))),
                _ => Outcome::Refused(format!("process {pid} gave an answer of another release of gpuwatch")),
            });
        }
        if system::start_ticks(pid) != Some(target.start_ticks) {
            place.clear();
            return Ok(Outcome::Refused(format!("process {pid} ended before its probe started")));
        }
        if state == State::New {
            place.clear();
            return Ok(Outcome::Refused(format!(
                "process {pid} could not answer in its files: is its disk full? Free some room, and ask again"
            )));
        }
        if Instant::now() >= end {
            return Ok(Outcome::Pending(if state == State::Begun { BEGUN } else { QUEUED }));
        }
        sleep(POLL_EVERY);
    }
}

/// What the ranks of one launcher have in common in their environments.
const SHARED: [&str; 4] = ["MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_STEP_ID"];

/// The variable that every rank of a launcher has.
const RANK: &str = "RANK";

/// What identifies a job among those of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// The variables of [`SHARED`], as its launcher set them.
    Launched(BTreeMap<String, String>),
    /// The process that forked the others, or the process itself.
    Process(u32),
}

/// Returns the job of a process.
pub(super) fn identity(pid: u32) -> Identity {
    let read = |pid: u32, name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let parent = Status::read(pid).numbers("PPid").first().copied().unwrap_or(0);
    of(pid, &read(pid, "environ"), &read(pid, "cmdline"), parent, &read(parent, "cmdline"))
}

/// Decides from the environment, the command line, the parent and its command line.
fn of(pid: u32, environment: &[u8], command: &[u8], parent: u32, above: &[u8]) -> Identity {
    let text = String::from_utf8_lossy(environment);
    let variables = text.split('\0').filter_map(|it| it.split_once('='));
    let known: BTreeMap<&str, &str> = variables.collect();
    if known.contains_key(RANK) {
        let shared = SHARED.iter().filter_map(|it| Some(((*it).to_owned(), (*known.get(it)?).to_owned())));
        return Identity::Launched(shared.collect());
    }
    // A forked rank has its parent's command line; a spawned one is started by Python's `multiprocessing`.
    let is_child = !command.is_empty() && command == above;
    let is_spawned = String::from_utf8_lossy(command).contains("multiprocessing");
    Identity::Process(if is_child || is_spawned { parent } else { pid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_one_launcher_are_one_job_and_other_processes_are_not() {
        let rank = |rank: u32, port: u32| {
            let environment = format!("PATH=/bin\0RANK={rank}\0MASTER_ADDR=node7\0MASTER_PORT={port}\0");
            of(100 + rank, environment.as_bytes(), b"python\0train.py\0", 1, b"bash\0")
        };
        assert_eq!(rank(0, 29500), rank(3, 29500));
        assert_ne!(rank(0, 29500), rank(0, 29501));
        let plain = |pid: u32, command: &[u8], above: &[u8]| of(pid, b"PATH=/bin\0", command, 7, above);
        assert_eq!(plain(8, b"python\0a.py\0", b"bash\0"), Identity::Process(8));
        assert_eq!(plain(8, b"python\0a.py\0", b"python\0a.py\0"), Identity::Process(7));
        assert_eq!(plain(9, b"python\0-c\0from multiprocessing.spawn\0", b"python\0a.py\0"), Identity::Process(7));
    }
}
