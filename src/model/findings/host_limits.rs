//! Findings about the host's memory: a limit that is going to be reached, workers that copy what they share, a full
//! `/dev/shm`, and what the kernel has killed.

use super::finding::{Finding, Kind};
use crate::{
    facts::{
        host_memory::HostMemory,
        text::Foreign,
        units::{self, Bytes, Stamp},
    },
    model::{
        analysis::{
            cause::Cause,
            episode::Axis,
            evidence::{Evidence, Unit},
            host::{self, LimitOf, filling::FillPeriod, workers::CopyPeriod},
            latch::LatchPeriod,
            severity::Severity,
        },
        session::{
            JobEnd, Session,
            host_state::Kill,
            process::{ProbeState, Process},
        },
    },
};

/// A limit that is reached this soon is critical, in µs.
const SOON_US: u64 = 600 * 1_000_000;

/// Workers that have copied less than this in all are worth knowing, and no warning.
const COPIED: u64 = 256 << 20;

/// A process that ended so long before or after a reading may be what the kernel killed, in µs.
const AROUND_US: u64 = 20_000_000;

/// Signals: the kernel's own when memory is out, and that of a write to a file system that is full.
const SIGKILL: i32 = 9;
const SIGBUS: i32 = 7;

/// What a shell reports of a command that a signal has ended, beyond the signal's number.
const SHELL: i32 = 128;

/// Returns them, those that are over too.
pub(super) fn all(session: &Session) -> Vec<Finding> {
    let Some(memory) = session.host.memory.as_ref().map(|it| &it.value) else { return Vec::new() };
    let place = HostPlace { session, memory };
    let mut out: Vec<Finding> = session.host.kills.iter().filter_map(|it| place.kill(it)).collect();
    out.extend(place.full());
    out.extend(session.host.shm.spells().iter().map(|it| place.shm(it)));
    for (pid, workers) in session.host.workers() {
        out.extend(workers.periods().iter().map(|it| place.copies(pid, it)));
    }
    out
}

/// A session with its host's memory.
struct HostPlace<'a> {
    session: &'a Session,
    memory: &'a HostMemory,
}

impl HostPlace<'_> {
    /// Returns the second of a time since the first reading.
    fn second(&self, at: Stamp) -> u64 {
        at.since(self.session.host.begun.unwrap_or(at)) / 1_000_000
    }

    fn finding(&self, (kind, cause): (Kind, Cause), evidence: Evidence, since: Stamp, first: Stamp) -> Finding {
        Finding {
            axis: Axis::Seconds,
            since_step: self.second(since),
            ..Finding::new(kind, cause, evidence, (self.second(first), first))
        }
    }

    fn resolved(&self, it: Finding, at: Option<Stamp>) -> Finding {
        let severity = if at.is_some() { Severity::Info } else { it.severity };
        Finding { severity, resolved_step: at.map(|it| self.second(it)), resolved_at: at, ..it }
    }

    /// Returns the limits that are going to be reached; of groups within each other, the one that is first.
    fn full(&self) -> Vec<Finding> {
        let periods =
            self.session.host.fillings().flat_map(|(of, it)| it.periods().iter().map(move |period| (of, period)));
        let mut periods: Vec<(&LimitOf, &FillPeriod)> = periods.collect();
        periods.sort_by_key(|it| (it.1.resolved.is_some(), it.1.full_at));
        let is_kill = |of: &LimitOf| matches!(of, LimitOf::Machine | LimitOf::Group(_));
        let mut kept: Vec<(&LimitOf, &FillPeriod)> = Vec::new();
        for it in periods {
            let is_same = |other: &&(&LimitOf, &FillPeriod)| {
                is_kill(it.0) && is_kill(other.0) && it.1.resolved.is_none() == other.1.resolved.is_none()
            };
            if !kept.iter().any(|other| is_same(&other)) {
                kept.push(it);
            }
        }
        kept.into_iter().map(|(of, it)| self.filling(of, it)).collect()
    }

    fn filling(&self, of: &LimitOf, it: &FillPeriod) -> Finding {
        let mut evidence = Evidence::default();
        evidence.add("host_used", it.used as f64, Unit::Bytes);
        evidence.add("host_room", it.room as f64, Unit::Bytes);
        evidence.add("host_rate", it.rate, Unit::BytesPerSecond);
        let (kind, cause) = match of {
            LimitOf::Shm => (Kind::ShmFull, Cause::ShmFull),
            LimitOf::Slowed(_) => (Kind::HostFull, Cause::HostSlowed),
            LimitOf::AddressSpace(_) => (Kind::HostFull, Cause::AddressSpaceFull),
            LimitOf::Machine | LimitOf::Group(_) => (Kind::HostFull, Cause::HostFull),
        };
        let lasts = it.resolved.is_none();
        let left = it.full_at.since(self.session.now);
        let ends = matches!(of, LimitOf::Machine | LimitOf::Group(_));
        let limit = host::words(of, self.memory);
        let (used, room) = (Bytes(it.used), Bytes(it.room));
        let rate = Bytes(units::whole(it.rate * 60.0));
        let what = match of {
            LimitOf::Machine | LimitOf::Group(_) => "then the kernel kills a process",
            LimitOf::Slowed(_) => "then the kernel slows its processes down",
            LimitOf::Shm => "then a worker that writes there dies by a bus error",
            LimitOf::AddressSpace(_) => "then it gets no more memory",
        };
        let found = self.finding((kind, cause), evidence, it.since, it.first_alert_at);
        let found = Finding {
            severity: if ends && left <= SOON_US { Severity::Critical } else { Severity::Warning },
            pid: self.pid_under(of),
            bytes_per_step: Some(it.rate),
            full_in_us: lasts.then_some(left),
            ends_us: if lasts { left } else { u64::MAX },
            sentence: Some(format!(
                "{limit} fills up: {used} of {room} cannot be given back, and {rate} a minute come; {what}"
            )),
            account: self.largest(of),
            limit: Some(limit),
            ..found
        };
        self.resolved(found, it.resolved)
    }

    /// Returns the only watched process under a limit.
    fn pid_under(&self, of: &LimitOf) -> Option<u32> {
        let is_under = |pid: u32| match of {
            LimitOf::Machine => true,
            LimitOf::Group(path) | LimitOf::Slowed(path) => host::is_in(self.memory, pid, path),
            LimitOf::Shm => false,
            LimitOf::AddressSpace(own) => pid == *own,
        };
        let mut own = self.memory.processes.iter().map(|it| it.pid).filter(|it| is_under(*it));
        own.next().filter(|_| own.next().is_none())
    }

    /// Returns the rungs that hold most: `process 40.10 GiB, workers 12.00 GiB, page cache 3.00 GiB`.
    fn largest(&self, of: &LimitOf) -> Vec<String> {
        let ladders = host::ladders(self.memory, &self.session.own_memory());
        let Some(ladder) = ladders.into_iter().find(|it| it.limit.of == *of) else { return Vec::new() };
        let mut parts: Vec<_> = ladder.parts.iter().filter_map(|it| Some((it.rung.row().name, it.bytes?))).collect();
        parts.retain(|it| it.1.0 > 0 && it.0 != "free");
        parts.sort_by_key(|it| std::cmp::Reverse(it.1));
        let words: Vec<String> = parts.iter().take(4).map(|(name, bytes)| format!("{name} {bytes}")).collect();
        vec![format!("most of it: {}", words.join(", "))]
    }

    fn shm(&self, it: &LatchPeriod) -> Finding {
        let shm = self.memory.shm.unwrap_or_default();
        let mut evidence = Evidence::default();
        evidence.add("shm_size", shm.size.0 as f64, Unit::Bytes);
        evidence.add("shm_at_most", it.worst, Unit::Share);
        let sentence = format!(
            "/dev/shm has been {:.0} % full ({}): a worker of a DataLoader that finds no room there dies by a bus error",
            it.worst * 100.0,
            shm.size
        );
        let since = Stamp(self.session.host.begun.unwrap_or_default().0 + it.since_step * 1_000_000);
        let found = self.finding((Kind::ShmFull, Cause::ShmFull), evidence, since, it.first_alert_at);
        let bus_error = self.session.job.is_some_and(|job| has_ended_by(&job, SIGBUS));
        let severity = if bus_error { Severity::Critical } else { Severity::Warning };
        let limit = Some(host::words(&LimitOf::Shm, self.memory));
        // What died of it stays reported.
        let over = it.resolved.map(|it| it.1).filter(|_| !bus_error);
        self.resolved(Finding { severity, sentence: Some(sentence), limit, ..found }, over)
    }

    fn copies(&self, pid: u32, it: &CopyPeriod) -> Finding {
        let mut evidence = Evidence::default();
        evidence.add("workers_copied", it.copied as f64, Unit::Bytes);
        evidence.add("workers_compared", it.workers as f64, Unit::Count);
        let sentence = format!(
            "{} copied {} of the memory that they share with pid {pid}: they look at Python objects, whose reference counts \
             are written",
            if it.workers == 1 { "a worker has".to_owned() } else { format!("{} workers have", it.workers) },
            Bytes(it.copied),
        );
        let cause = (Kind::WorkerGrowth, Cause::WorkersCopy);
        let found = self.finding(cause, evidence, it.since, it.first_alert_at);
        let process = self.session.processes.iter().find(|process| process.pid == Some(pid));
        let severity = if it.copied >= COPIED { Severity::Warning } else { Severity::Info };
        let (rank, pid, sentence) = (process.and_then(Process::rank), Some(pid), Some(sentence));
        self.resolved(Finding { severity, pid, rank, sentence, ..found }, it.resolved)
    }

    /// Returns what the kernel has killed. If only the machine's counter shows it, another group's process may have
    /// been killed, so it takes a process of ours that ended without a word.
    fn kill(&self, it: &Kill) -> Option<Finding> {
        let ended = |process: &&Process| {
            let gone = if let ProbeState::Gone { at, .. } = process.life { Some(at) } else { None };
            let is_there = match &it.of {
                LimitOf::Group(path) => process.pid.is_none_or(|pid| {
                    let is_known = self.memory.processes.iter().any(|job| job.pid == pid);
                    !is_known || host::is_in(self.memory, pid, path)
                }),
                _ => true,
            };
            is_there && gone.is_some_and(|at| is_around(it, at))
        };
        let victim = self.session.processes.iter().find(ended);
        let job = self.session.job.filter(|job| has_ended_by(job, SIGKILL) && is_around(it, job.at));
        if victim.is_none() && job.is_none() && it.of == LimitOf::Machine {
            return None;
        }
        let mut evidence = Evidence::default();
        evidence.add("killed", it.count as f64, Unit::Count);
        let reason = match it.size {
            Some(size) => format!("{} was full ({})", it.place, Bytes(size)),
            None => format!("{} was out", it.place),
        };
        let who = match (victim, job) {
            (Some(it), _) => {
                let script = it.script().map_or_else(String::new, |it| format!(" ({})", Foreign::new(it)));
                format!("killed pid {}{script}", it.any_pid().unwrap_or_default())
            }
            (None, Some(_)) => "killed the job".to_owned(),
            (None, None) if it.count == 1 => "killed a process".to_owned(),
            (None, None) => format!("killed {} processes", it.count),
        };
        let found = self.finding((Kind::OomKilled, Cause::OomKilled), evidence, it.at, it.at);
        Some(Finding {
            severity: Severity::Critical,
            pid: victim.and_then(Process::any_pid),
            rank: victim.and_then(Process::rank),
            sentence: Some(format!("The kernel {who}: {reason}")),
            ends_us: 0,
            limit: Some(it.place.clone()),
            ..found
        })
    }
}

/// Whether something happened when a reading shows a kill.
fn is_around(it: &Kill, at: Stamp) -> bool {
    at.0.saturating_add(AROUND_US) >= it.before.0 && at.0 <= it.at.0.saturating_add(AROUND_US)
}

/// Whether a command was ended by a signal, or reports that its own command was.
fn has_ended_by(job: &JobEnd, signal: i32) -> bool {
    job.signal == Some(signal) || job.code == Some(SHELL + signal)
}
