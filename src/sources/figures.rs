//! What processes use of this host, from /proc: read for those that a screen, a report or a recording needs.

use super::{
    EventSender,
    focus::Focus,
    now,
    proc::{Stat, Status, children},
};
use crate::facts::{
    event::Fact,
    figures::{Changes, Figure, Figures, RATE_OVER_US, Spent},
    units::Stamp,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    time::Duration,
};
use tokio::{
    sync::watch::Receiver,
    task::spawn_blocking,
    time::{Instant, MissedTickBehavior, interval_at},
};

/// The shortest time between two readings; in a single report, so short that it has rates.
const EVERY: Duration = Duration::from_secs(1);
const EVERY_IN_REPORT: Duration = Duration::from_millis(2 * RATE_OVER_US / 1000);

/// Seconds between two facts with all figures, for readers that begin later.
const WHOLE_EVERY: u64 = 60;

/// What decides which processes are read.
pub(super) struct Needs {
    /// The processes that the driver lists, and those with a probe.
    pub(super) pids: Receiver<Vec<u32>>,
    pub(super) probed: Receiver<Vec<u32>>,
    pub(super) focus: Receiver<Focus>,
    /// Whether a recording needs them all.
    pub(super) recorded: bool,
}

/// A process from one reading to the next.
#[derive(Default)]
struct Read {
    start_ticks: u64,
    spent: Option<Spent>,
    sleep: Option<Sleep>,
    /// Whether rates are known; they need two readings.
    has_rates: bool,
    has_tree: bool,
    now: Figures,
}

/// Reads and sends until the task is dropped.
pub(super) async fn run(begun: Instant, mut needs: Needs, sender: EventSender) {
    let every = if *needs.focus.borrow() == Focus::All { EVERY_IN_REPORT } else { EVERY };
    let mut clock = interval_at(begun, every);
    clock.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut known, mut sent) = (BTreeMap::<u32, Read>::new(), Sent::default());
    let mut second = 0;
    loop {
        tokio::select! {
            _ = clock.tick() => second += 1,
            Ok(()) = needs.pids.changed() => {}
            Ok(()) = needs.probed.changed() => {}
            Ok(()) = needs.focus.changed() => {}
        }
        let focus = needs.focus.borrow().clone();
        let pids: BTreeSet<u32> = needs.pids.borrow().iter().chain(&*needs.probed.borrow()).copied().collect();
        let probed = needs.probed.borrow().clone();
        // The CPU time of a job shows that it works while it makes no step.
        let every = |pid: u32| focus.host_every(pid, needs.recorded || probed.contains(&pid));
        let wanted = |pid: u32| Some((pid, every(pid)?));
        let wanted: BTreeMap<u32, u64> = pids.into_iter().filter_map(wanted).collect();
        known.retain(|pid, _| wanted.contains_key(pid));
        for (pid, every) in wanted {
            let read = known.entry(pid).or_default();
            let is_due = !read.has_rates || second % every == 0;
            if is_due && !read.host(pid) {
                known.remove(&pid);
            }
        }
        for (pid, read) in &mut known {
            let every = focus.tree_every(*pid);
            let is_due = every.is_some_and(|it| !read.has_tree || second % it == 0);
            if is_due {
                let pid = *pid;
                // It takes milliseconds for each process of a large job.
                let pss = spawn_blocking(move || tree_pss(pid)).await.ok().flatten();
                read.has_tree = true;
                read.now.set(Figure::TreePss, pss);
            } else if every.is_none() {
                read.has_tree = false;
                read.now.set(Figure::TreePss, None);
            }
        }
        let now = known.iter().map(|(pid, read)| (*pid, read.now.clone())).collect();
        for (pid, changes) in sent.changes(now, second % WHOLE_EVERY == 0) {
            if !sender.send(Fact::Figures { pid, device: None, changes }).await {
                return;
            }
        }
    }
}

impl Read {
    /// Reads the process; returns false if there is none with this pid.
    fn host(&mut self, pid: u32) -> bool {
        // The whole process's file: that of one thread lacks the time of the others.
        let Some(stat) = Stat::of(pid).filter(|it| !it.has_ended()) else { return false };
        let spent = Spent { at: now(), cpu: stat.cpu, io_wait: stat.io_wait };
        if stat.start_ticks != self.start_ticks {
            *self = Self { start_ticks: stat.start_ticks, ..Self::default() };
        }
        self.now.set(Figure::Threads, Some(stat.threads));
        self.now.set(Figure::Rss, stat.pages.checked_mul(rustix::param::page_size() as u64));
        // Of other users' processes it is unknown, also while they run.
        let awake = self.now.get(Figure::Asleep).map(|_| 0);
        let (sleep, asleep) = if stat.state == 'S' { Sleep::follow(self.sleep, pid, spent.at) } else { (None, awake) };
        self.sleep = sleep;
        self.now.set(Figure::Asleep, asleep);
        let rates = self.spent.map(|it| spent.since(&it, rustix::param::clock_ticks_per_second()));
        if rates.as_ref().is_some_and(|_| self.spent.is_some_and(|it| spent.at.since(it.at) < RATE_OVER_US)) {
            // Too early: the rates so far stay, and the next reading counts from the same moment.
            return true;
        }
        self.spent = Some(spent);
        let Some(rates) = rates else { return true };
        self.has_rates = true;
        for figure in [Figure::CpuPercent, Figure::IoWaitPercent] {
            self.now.set(figure, rates.get(figure));
        }
        true
    }
}

/// Where a thread that sleeps for a time that its program chose, as `time.sleep` does, waits in the kernel, in
/// /proc/PID/wchan; after a signal, the name has an ending.
const SLEEP_PLACE: &str = "hrtimer_nanosleep";

/// The line of /proc/PID/status that counts how often the thread has gone to sleep.
const SWITCHES: &str = "voluntary_ctxt_switches";

/// What the kernel shows of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadState {
    /// It is not in a sleep of its own choice.
    Awake,
    /// It is in the sleep before which it had gone to sleep so often.
    Asleep(u64),
}

/// The sleep that a thread is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sleep {
    switches: u64,
    since: Stamp,
}

impl Sleep {
    /// Reads where the main thread of a process waits, and returns the sleep that it is in, with its length in seconds
    /// of whole minutes: 0 if it is awake or begins to sleep; `None` if the kernel does not show where it waits.
    pub(super) fn follow(before: Option<Self>, pid: u32, at: Stamp) -> (Option<Self>, Option<u64>) {
        let place = fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        let state = state(&place, || Status::read(pid).text(SWITCHES)?.parse().ok());
        let sleep = state.and_then(|it| Self::of(before, it, at));
        (sleep, state.map(|_| sleep.map_or(0, |it| at.since(it.since) / 60_000_000 * 60)))
    }

    fn of(before: Option<Self>, state: ThreadState, at: Stamp) -> Option<Self> {
        let ThreadState::Asleep(switches) = state else { return None };
        Some(before.filter(|it| it.switches == switches).unwrap_or(Self { switches, since: at }))
    }
}

fn state(place: &str, switches: impl FnOnce() -> Option<u64>) -> Option<ThreadState> {
    match place {
        _ if place.starts_with(SLEEP_PLACE) => switches().map(ThreadState::Asleep),
        // Of a thread that runs, and of one that the user may not inspect.
        "" | "0" => None,
        _ => Some(ThreadState::Awake),
    }
}

/// Most processes of a tree.
const PROCESSES_MAX: usize = 512;

/// Returns the proportional set size of a process and its descendants, in bytes; `None` if one of them is not readable,
/// or there are too many.
fn tree_pss(pid: u32) -> Option<u64> {
    let (mut seen, mut left) = (BTreeSet::from([pid]), vec![pid]);
    let mut sum: u64 = 0;
    while let Some(one) = left.pop() {
        match fs::read_to_string(format!("/proc/{one}/smaps_rollup")) {
            Ok(text) => sum = sum.saturating_add(pss_of(&text)?),
            // A worker that ended meanwhile has none.
            Err(error) if one != pid && is_gone(&error) => {}
            Err(_) => return None,
        }
        left.extend(children(one).into_iter().filter(|it| seen.insert(*it)));
        if seen.len() > PROCESSES_MAX {
            return None;
        }
    }
    Some(sum)
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

fn pss_of(text: &str) -> Option<u64> {
    let kib = text.lines().find_map(|it| it.strip_prefix("Pss:"))?;
    kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The figures as last sent, by pid.
#[derive(Default)]
pub(in crate::sources) struct Sent(BTreeMap<u32, Figures>);

impl Sent {
    /// Returns what to send: what changed, what is known no more, and everything if `whole`.
    pub(in crate::sources) fn changes(&mut self, now: BTreeMap<u32, Figures>, whole: bool) -> Vec<(u32, Changes)> {
        let none = Figures::default();
        let gone = self.0.iter().filter(|(pid, _)| !now.contains_key(pid)).map(|(pid, it)| (*pid, none.since(it)));
        let known = now.iter().map(|(pid, figures)| {
            let before = self.0.get(pid).unwrap_or(&none);
            (*pid, if whole { figures.whole(before) } else { figures.since(before) })
        });
        let changes = gone.chain(known).filter(|(_, it)| !it.is_empty()).collect();
        self.0 = now;
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_sleep_begins_with_the_process_that_sleeps() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let mut read = Read::default();
        // It has to load first.
        let is_asleep = (0..100_000).any(|_| read.host(child.id()) && read.sleep.is_some());
        let wchan = fs::read_to_string(format!("/proc/{}/wchan", child.id())).unwrap_or_default();
        let _ = (child.kill(), child.wait());
        if ["", "0"].contains(&wchan.as_str()) {
            test_tiers::skip!("this kernel does not show where a thread waits");
        }
        assert_eq!((is_asleep, read.now.get(Figure::Asleep)), (true, Some(0)), "{wchan}");
        // Another process with the same pid sleeps on its own.
        read.start_ticks += 1;
        assert!(read.host(std::process::id()) && read.sleep.is_none());
    }

    #[test]
    fn a_process_that_is_gone_has_no_figures_and_this_one_has() {
        assert!(!Read::default().host(u32::MAX));
        let mut read = Read::default();
        assert!(read.host(std::process::id()));
        assert_eq!((read.now.get(Figure::CpuPercent), read.has_rates), (None, false), "a rate takes two readings");
        assert!(read.now.get(Figure::Rss).is_some_and(|it| it > 1 << 16), "{:?}", read.now);
        assert!(read.now.get(Figure::Threads).is_some_and(|it| it >= 1));
        let before = read.spent;
        while !read.has_rates {
            assert!(read.host(std::process::id()));
        }
        assert!(read.now.get(Figure::CpuPercent).is_some() && read.spent != before);
    }

    #[test]
    fn only_a_sleep_of_the_programs_choice_is_one() {
        for place in ["hrtimer_nanosleep", "hrtimer_nanosleep_restart"] {
            assert_eq!(state(place, || Some(41)), Some(ThreadState::Asleep(41)));
        }
        assert_eq!(state("hrtimer_nanosleep", || None), None);
        for place in ["futex_wait_queue", "do_sys_poll", "poll_schedule_timeout.constprop.0", "wait_woken"] {
            assert_eq!(state(place, || Some(41)), Some(ThreadState::Awake), "{place}");
        }
        for place in ["", "0"] {
            assert_eq!(state(place, || Some(41)), None, "{place}");
        }
    }

    #[test]
    fn many_short_sleeps_are_not_a_long_one() {
        let minute = |it: u64| Stamp(it * 60_000_000);
        let first = Sleep::of(None, ThreadState::Asleep(5), minute(0));
        let same = Sleep::of(first, ThreadState::Asleep(5), minute(30));
        assert_eq!(same, first);
        assert_eq!(Sleep::of(same, ThreadState::Asleep(6), minute(31)).map(|it| it.since), Some(minute(31)));
        assert_eq!(Sleep::of(same, ThreadState::Awake, minute(31)), None);
    }

    #[test]
    fn the_sleep_of_a_program_is_timed() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let wchan = || fs::read_to_string(format!("/proc/{}/wchan", child.id())).unwrap_or_default();
        // It has to load first.
        let is_there = (0..100_000).any(|_| wchan() == SLEEP_PLACE);
        let place = wchan();
        let (begun, _) = Sleep::follow(None, child.id(), Stamp(0));
        let (still, asleep) = Sleep::follow(begun, child.id(), Stamp(95_000_000));
        let _ = (child.kill(), child.wait());
        if !is_there && ["", "0"].contains(&place.as_str()) {
            test_tiers::skip!("this kernel does not show where a thread waits");
        }
        assert!(is_there, "it waits in {place}");
        assert_eq!((begun.is_some(), still), (true, begun));
        assert_eq!(asleep, Some(60));
    }

    #[test]
    fn a_process_that_is_gone_shows_nothing() {
        assert_eq!(Sleep::follow(None, u32::MAX, Stamp(0)), (None, None));
    }

    #[test]
    fn a_tree_has_the_memory_of_its_workers_too() {
        let mut child = Command::new("sh").args(["-c", "read end; :"]).stdin(Stdio::piped()).spawn().unwrap();
        let own = std::process::id();
        // Where the kernel lists no children, or has no such file, the figure is not what this test is about.
        if fs::metadata("/proc/self/smaps_rollup").is_ok() && !children(own).is_empty() {
            assert!(children(own).contains(&child.id()));
            assert!(tree_pss(child.id()).is_some_and(|it| it > 0));
            assert!(tree_pss(own).is_some());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(tree_pss(u32::MAX), None);
        assert_eq!(pss_of("Rss: 9 kB\nPss:          12 kB\nPss_Anon: 3 kB\n"), Some(12 << 10));
    }

    fn figures(pid: u32, percent: u64) -> BTreeMap<u32, Figures> {
        [(pid, [(Figure::SmPercent, percent)].into_iter().collect())].into()
    }

    fn text(changes: &[(u32, Changes)]) -> String {
        serde_json::to_string(changes).unwrap()
    }

    #[test]
    fn changes_are_sent_once_and_what_is_gone_is_cleared() {
        let mut sent = Sent::default();
        assert_eq!(text(&sent.changes(figures(7, 34), false)), r#"[[7,{"sm_percent":34}]]"#);
        assert_eq!(text(&sent.changes(figures(7, 34), false)), "[]");
        assert_eq!(text(&sent.changes(figures(7, 34), true)), r#"[[7,{"sm_percent":34}]]"#);
        assert_eq!(text(&sent.changes(figures(8, 0), false)), r#"[[7,{"sm_percent":null}],[8,{"sm_percent":0}]]"#);
        assert_eq!(text(&sent.changes(BTreeMap::new(), false)), r#"[[8,{"sm_percent":null}]]"#);
    }
}
