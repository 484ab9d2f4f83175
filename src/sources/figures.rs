//! What processes use of this host, from /proc: read for those that a screen, a report or a recording needs.

mod sent;
mod sleep;
mod stat;
mod tree;

pub(super) use sent::Sent;

use super::{EventSender, focus::Focus, now};
use crate::facts::{
    event::Fact,
    figures::{Figure, Figures, RATE_OVER_US, Spent},
};
use sleep::Sleep;
use stat::Stat;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
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
                let pss = spawn_blocking(move || tree::pss(pid)).await.ok().flatten();
                read.has_tree = true;
                read.now.set(Figure::TreePss, pss);
            } else if every.is_none() {
                read.has_tree = false;
                read.now.set(Figure::TreePss, None);
            }
        }
        let now = known.iter().map(|(pid, read)| (*pid, read.now.clone())).collect();
        for (pid, changes) in sent.news(now, second % WHOLE_EVERY == 0) {
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
        let text = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
        let Some(stat) = Stat::parse(&text, now()) else { return false };
        if stat.start_ticks != self.start_ticks {
            *self = Self { start_ticks: stat.start_ticks, ..Self::default() };
        }
        self.now.set(Figure::Threads, Some(stat.threads));
        self.now.set(Figure::Rss, stat.pages.checked_mul(rustix::param::page_size() as u64));
        // Of other users' processes it is unknown, also while they run.
        let awake = self.now.get(Figure::Asleep).map(|_| 0);
        let (sleep, asleep) = if stat.waits { Sleep::follow(self.sleep, pid, stat.spent.at) } else { (None, awake) };
        self.sleep = sleep;
        self.now.set(Figure::Asleep, asleep);
        let rates = self.spent.map(|it| stat.spent.since(&it, rustix::param::clock_ticks_per_second()));
        if rates.as_ref().is_some_and(|_| self.spent.is_some_and(|it| stat.spent.at.since(it.at) < RATE_OVER_US)) {
            // Too early: the rates so far stay, and the next reading counts from the same moment.
            return true;
        }
        self.spent = Some(stat.spent);
        let Some(rates) = rates else { return true };
        self.has_rates = true;
        for figure in [Figure::CpuPercent, Figure::IoWaitPercent] {
            self.now.set(figure, rates.get(figure));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

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
}
