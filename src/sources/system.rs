//! Reads this host's /proc to describe the processes on devices, and counts seconds.

use super::{
    EventSender, environment,
    proc::{Stat, beginning, boot_id, in_container, owner, pid_namespace},
    python, users,
};
use crate::{
    facts::event::WritingProcess,
    facts::{
        event::{ANCESTORS_MAX, Ancestor, Fact, ProcessInfo, command_line},
        text::Foreign,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    iter,
    time::{Duration, SystemTime},
};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval_at, timeout_at},
};

/// Processes whose file stays open; the others are opened for each check, to save descriptors.
const OPEN_MAX: usize = 64;

/// Most bytes read of a command line.
const CMDLINE_MAX: u64 = 64 << 10;

/// Most bytes read of an environment.
const ENVIRON_MAX: u64 = 256 << 10;

/// Programs that adopt processes whose parents have ended.
const ADOPTERS: [&str; 6] = ["systemd", "init", "tini", "dumb-init", "docker-init", "catatonit"];

/// A process that is checked each second.
struct Seen {
    /// Its open file: opening costs more than reading, and the file stays this process's.
    stat: Option<File>,
    start_ticks: u64,
    standing: Standing,
    /// Whether a description was sent. Probed processes describe themselves, so for those only a change is sent.
    sent: bool,
    /// Its owner, if that was sent without a name.
    unnamed: Option<u32>,
}

impl Seen {
    /// Returns whether its owner's name has become known since the description.
    fn has_name_now(&self) -> bool {
        self.unnamed.is_some_and(|it| users::name(it).is_some())
    }
}

/// What of a process's state changes while it runs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Standing {
    suspended: bool,
    ended: bool,
    parent: u32,
}

impl From<Stat> for Standing {
    fn from(stat: Stat) -> Self {
        // A zombie with other threads is a process whose first thread has ended.
        Self { suspended: stat.is_stopped(), ended: stat.has_ended() && stat.threads <= 1, parent: stat.parent }
    }
}

/// Sends a tick each second, descriptions of the processes that the driver lists, and which processes are suspended.
pub(super) async fn run(
    begun: Instant,
    pids: watch::Receiver<Vec<u32>>,
    probed: watch::Receiver<Vec<u32>>,
    sender: EventSender,
) {
    let mut known: BTreeMap<u32, Seen> = BTreeMap::new();
    let mut strangers_reported = false;
    let mut second = interval_at(begun, Duration::from_secs(1));
    second.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut pids_gone, mut others, mut lookups) = (pids.clone(), probed.clone(), users::changes());
    loop {
        tokio::select! {
            _ = second.tick() => {
                if !sender.send(Fact::Second).await {
                    return;
                }
            }
            Ok(()) = pids_gone.changed() => {}
            Ok(()) = others.changed() => {}
            Ok(()) = lookups.changed() => {}
        }
        // A name that is there at once is sent with the description.
        let patience = Instant::now() + users::PATIENCE;
        let (named, probed) = (pids.borrow().clone(), probed.borrow().clone());
        // Check each process once: that is most of the cost of a quiet second.
        let all: BTreeSet<u32> = known.keys().chain(&named).chain(&probed).copied().collect();
        for pid in all {
            let found = known.get(&pid).and_then(|it| it.stat.as_ref()).map_or_else(|| stat_of(pid), Stat::read);
            let is_named = named.contains(&pid);
            let is_gone = |it: &Seen| found.is_none_or(|stat| stat.start_ticks != it.start_ticks);
            if let Some(it) = known.get_mut(&pid).filter(|it| is_gone(it)) {
                // The driver may list what a process held after its end.
                if it.sent && is_named && found.is_none() && !in_container() {
                    end(pid, it, &sender).await;
                } else if known.remove(&pid).is_some_and(|it| it.sent) {
                    sender.send(Fact::ProcessGone { pid }).await;
                }
            }
            match found {
                Some(found) if is_named || probed.contains(&pid) => {
                    read(pid, found, is_named, patience, &mut known, &sender).await;
                }
                None if is_named && !strangers_reported && in_container() => {
                    strangers_reported = true;
                    sender.send(Fact::Notice(STRANGERS.into())).await;
                }
                _ => {}
            }
        }
    }
}

/// Sends once that a process has ended, as long as the driver lists it.
async fn end(pid: u32, it: &mut Seen, sender: &EventSender) {
    if !std::mem::replace(&mut it.standing.ended, true) {
        let start_ticks = it.start_ticks;
        sender.send(Fact::Process(ProcessInfo { pid, start_ticks, ended: true, ..ProcessInfo::default() })).await;
    }
}

/// Sends what changed about a process. Waits until `patience` for the name of its owner.
async fn read(
    pid: u32,
    found: Stat,
    by_name: bool,
    patience: Instant,
    known: &mut BTreeMap<u32, Seen>,
    sender: &EventSender,
) {
    let standing = Standing::from(found);
    let is_room = known.len() < OPEN_MAX;
    let seen = known.entry(pid).or_insert_with(|| {
        let stat = if is_room { Stat::open(pid) } else { None };
        let running = Standing { suspended: false, ended: false, ..standing };
        Seen { stat, start_ticks: found.start_ticks, standing: running, sent: false, unnamed: None }
    });
    if seen.standing == standing && (seen.sent || !by_name) && !seen.has_name_now() {
        return;
    }
    let Some(owner) = owner(pid) else { return };
    if users::name(owner).is_none() {
        let _ = timeout_at(patience, users::end_of_lookup(owner)).await;
    }
    if let Some(info) = process(pid) {
        let was_sent = seen.sent;
        seen.unnamed = users::name(owner).is_none().then_some(owner);
        (seen.start_ticks, seen.standing, seen.sent) = (info.start_ticks, standing, true);
        let argv: Vec<&str> = info.argv.iter().map(Foreign::raw).collect();
        let kept_out = python::without_probe(&argv).filter(|_| by_name && !was_sent);
        sender.send(Fact::Process(info)).await;
        if let Some(option) = kept_out {
            sender.send(Fact::Notice(Foreign::new(format!("process {pid}: {}", python::words(&option))))).await;
        }
    }
}

const STRANGERS: &str = "this is a container: the driver numbers processes as the host does, so memory of processes \
    outside, and of those here that the host numbers otherwise, cannot be attributed; gpuwatch on the host can";

/// Returns a process's description; `None` if this host has no process with this pid. Its owner has a number for a name
/// until [`users`] knows that.
pub fn process(pid: u32) -> Option<ProcessInfo> {
    let stat = stat_of(pid)?;
    let Standing { suspended, ended, parent } = stat.into();
    let uid = owner(pid)?;
    // A command line may be megabytes long, so read only a part.
    let cmdline = beginning(pid, "cmdline", CMDLINE_MAX);
    // The list ends with a zero byte, which would add an empty argument.
    let words = cmdline.strip_suffix(b"\0").unwrap_or(&cmdline).split(|it| *it == 0);
    let mut argv = command_line(words.map(|it| String::from_utf8_lossy(it).into_owned()));
    argv.pop_if(|it| it.is_empty());
    if argv.is_empty() {
        argv.push(Foreign::new(format!("[{}]", text(pid, "comm").trim_end())));
    }
    let contained = match (pid_namespace(pid.to_string().as_str()), pid_namespace("self")) {
        (Ok(theirs), Ok(ours)) => theirs != ours,
        // Other users' namespaces are unreadable, so nothing is claimed.
        _ => false,
    };
    let environ = text(pid, "environ");
    let rank = environment::is_rank(&environ);
    let place = environment::place(&environ, &text(pid, "cgroup")).map(Foreign::new);
    Some(ProcessInfo {
        pid,
        start_ticks: stat.start_ticks,
        argv,
        user: users::name(uid).unwrap_or_else(|| Foreign::new(uid.to_string())),
        contained,
        suspended,
        ended: ended && !in_container(),
        rank,
        orphaned: rank && is_adopter(parent),
        parent: Some(parent).filter(|it| *it > 0),
        ancestors: ancestors(pid),
        started_us: since_epoch_us(stat.start_ticks),
        place,
        environment: command_line(environment::settings(&environ)),
    })
}

/// Returns the beginning of a process's file as text: a process may write megabytes into its environment.
fn text(pid: u32, name: &str) -> String {
    String::from_utf8_lossy(&beginning(pid, name, ENVIRON_MAX)).into_owned()
}

/// Whether a process adopts those whose parents have ended.
fn is_adopter(pid: u32) -> bool {
    ADOPTERS.contains(&text(pid, "comm").trim_end())
}

fn parent(pid: u32) -> Option<u32> {
    Some(stat_of(pid)?.parent).filter(|it| *it > 0)
}

/// Returns the ancestors of a process, the parent first, without the host's first process.
fn ancestors(pid: u32) -> Vec<Ancestor> {
    let pids = iter::successors(parent(pid), |it| parent(*it)).take_while(|it| *it > 1).take(ANCESTORS_MAX);
    pids.map(|pid| Ancestor { pid, name: Foreign::new(text(pid, "comm").trim_end()) }).collect()
}

/// Returns when a process started, in clock ticks since boot. Pid and start together identify it.
pub fn start_ticks(pid: u32) -> Option<u64> {
    Some(stat_of(pid)?.start_ticks)
}

/// Returns when a process started; `None` for an ended one, also as a zombie.
pub fn runs_since(pid: u32) -> Option<u64> {
    stat_of(pid).filter(|it| !it.has_ended()).map(|it| it.start_ticks)
}

/// Returns the same in µs of Unix time, to the second.
pub(super) fn runs_since_us(pid: u32) -> Option<u64> {
    since_epoch_us(runs_since(pid)?)
}

fn since_epoch_us(ticks: u64) -> Option<u64> {
    let since_boot = ticks.checked_mul(1_000_000)?.checked_div(rustix::param::clock_ticks_per_second())?;
    boot_s()?.checked_mul(1_000_000)?.checked_add(since_boot)
}

fn boot_s() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|it| it.strip_prefix("btime "))?.trim().parse().ok()
}

/// Returns the identity of this process, for later readers.
pub fn writer() -> Option<WritingProcess> {
    let pid = std::process::id();
    let (boot_id, pid_namespace) = (boot_id()?, pid_namespace("self").ok()?.1);
    Some(WritingProcess { boot_id, pid_namespace, pid, start_ticks: start_ticks(pid)? })
}

/// Returns whether a process of this host still runs; `None` if that cannot be seen from here.
pub fn runs(writer: &WritingProcess) -> Option<bool> {
    let is_here = boot_id()? == writer.boot_id && pid_namespace("self").ok()?.1 == writer.pid_namespace;
    is_here.then(|| runs_since(writer.pid) == Some(writer.start_ticks))
}

/// Returns when the process that has this pid now started.
pub fn started(pid: u32) -> Option<SystemTime> {
    Some(SystemTime::UNIX_EPOCH + Duration::from_micros(since_epoch_us(start_ticks(pid)?)?))
}

/// Returns when this host booted, to the second.
pub fn booted() -> Option<SystemTime> {
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(boot_s()?))
}

fn stat_of(pid: u32) -> Option<Stat> {
    Stat::read(&Stat::open(pid)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_process_is_known() {
        let own = process(std::process::id()).unwrap();
        assert!(own.start_ticks > 0);
        assert!(own.argv[0].raw().contains("gpuwatch"), "{:?}", own.argv);
        assert!(!own.contained);
        assert_eq!(process(u32::MAX), None);
    }

    #[test]
    fn a_zombie_runs_no_more() {
        let mut child = std::process::Command::new("true").stdout(std::process::Stdio::piped()).spawn().unwrap();
        // Its end of the pipe closes when it ends.
        std::io::Read::read_to_end(child.stdout.as_mut().unwrap(), &mut Vec::new()).unwrap();
        while runs_since(child.id()).is_some() {
            std::thread::yield_now();
        }
        assert!(start_ticks(child.id()).is_some(), "nobody asked how it ended");
        child.wait().unwrap();
        assert_eq!(start_ticks(child.id()), None);
    }
}
