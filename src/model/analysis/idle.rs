//! Processes that hold device memory and do nothing: forgotten notebooks and scripts, ranks that outlived their
//! launcher, and processes that have ended while the driver still lists their memory.
//!
//! A process *works* when its kernels run, its memory on the devices changes, its probe sends something, or its host
//! uses the CPU. It *rests* only where the driver shows that: no kernel runs on its devices, or the driver attributes
//! the work there to other processes. Everything else is unknown, and unknown time counts neither way.
//!
//! NVIDIA's driver lists a process in its samples of utilisation only while its kernels run; a process that rests has
//! no sample. A missing sample therefore shows rest only beside samples of other processes: a driver that sends none
//! leaves it unknown.

use super::{cause::Cause, stall};
use crate::facts::{
    event::DeviceId,
    units::{Bytes, Stamp},
};
use serde::{Deserialize, Serialize};

/// Less memory than this is not worth a finding, in bytes: a CUDA context alone takes about half of it.
const LEAST: u64 = 1 << 30;

/// The wait in longest rests of the process so far.
const RESTS: u64 = 3;

/// Seconds of rest before a finding is raised.
const ENDED_S: u64 = 60;
const ORPHAN_S: u64 = 5 * 60;
const NOTEBOOK_S: u64 = 60 * 60;
const SCRIPT_S: u64 = 4 * 60 * 60;

/// Names of programs that wait for requests; a word of the command line that begins with one shows a server.
const SERVERS: [&str; 14] = [
    "serve",
    "vllm",
    "sglang",
    "triton",
    "tgi",
    "lmdeploy",
    "uvicorn",
    "gunicorn",
    "hypercorn",
    "ray",
    "flask",
    "fastapi",
    "gradio",
    "streamlit",
];

/// Words of a command line among which a server's name counts.
const WORDS: usize = 6;

/// Whether a process works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It does.
    Works,
    /// The driver shows that it does not.
    Rests,
    /// Nothing shows either.
    Unknown,
}

/// What a process is, as far as it decides how long it may rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Nature {
    /// It has ended.
    Ended,
    /// The launcher that started it as a rank has ended.
    Orphan,
    /// It waits for a user between two cells.
    Notebook,
    /// A Python program that is neither a notebook nor a server.
    Script,
    /// It may wait as long as it wants, or is unknown.
    Other,
}

impl Nature {
    /// Returns what a living process is, by its command line.
    pub fn of(argv: &[String], is_orphan: bool) -> Self {
        let is_python = argv.first().is_some_and(|it| it.contains("python"));
        if is_orphan {
            Self::Orphan
        } else if stall::is_interactive(argv) {
            Self::Notebook
        } else if is_python && !is_server(argv) {
            Self::Script
        } else {
            Self::Other
        }
    }

    /// Returns the cause of its finding, and the seconds of rest before it is raised.
    fn limit(self) -> Option<(Cause, u64)> {
        match self {
            Self::Ended => Some((Cause::EndedProcess, ENDED_S)),
            Self::Orphan => Some((Cause::OrphanedRank, ORPHAN_S)),
            Self::Notebook => Some((Cause::IdleNotebook, NOTEBOOK_S)),
            Self::Script => Some((Cause::IdleProcess, SCRIPT_S)),
            Self::Other => None,
        }
    }
}

fn is_server(argv: &[String]) -> bool {
    let names = argv.iter().take(WORDS).map(|it| it.rsplit('/').next().unwrap_or_default().to_ascii_lowercase());
    names
        .into_iter()
        .any(|name| SERVERS.iter().any(|it| name.split(['-', '_', '.', ':', '=']).any(|word| word.starts_with(it))))
}

/// What is known of a process at a second.
#[derive(Clone, Debug)]
pub struct HolderReading<'a> {
    /// What it is.
    pub nature: Nature,
    /// Whether it works.
    pub work: Work,
    /// The device on which it holds most.
    pub device: &'a DeviceId,
    /// What it holds on all devices; `None` if the driver does not report it.
    pub used: Option<Bytes>,
}

/// A time in which a process held memory and did nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IdlePeriod {
    /// The process.
    pub pid: u32,
    /// What the process is.
    nature: Nature,
    /// The device on which it held most.
    pub device: DeviceId,
    /// What it held on all devices.
    pub used: Option<Bytes>,
    /// Whether it ever worked since gpuwatch has seen it.
    pub has_worked: bool,
    /// Seconds between the first sight of the process and the beginning of its rest.
    pub since_s: u64,
    /// The same for the alert.
    pub raised_s: u64,
    /// When it was raised.
    pub first_alert_at: Stamp,
    /// The second, and the time, at which it was over; `None` while it lasts.
    pub resolved: Option<(u64, Stamp)>,
    /// Seconds of rest so far.
    pub rested_s: u64,
}

impl IdlePeriod {
    /// Returns why the process holds the memory.
    pub fn cause(&self) -> Cause {
        self.nature.limit().map_or(Cause::IdleProcess, |(cause, _)| cause)
    }
}

/// One process that holds device memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Idle {
    first: Stamp,
    rested_s: u64,
    longest_s: u64,
    has_worked: bool,
    used: Option<Bytes>,
    spell: Option<IdlePeriod>,
}

impl Idle {
    /// Begins to watch a process.
    pub fn new(at: Stamp) -> Self {
        Self { first: at, rested_s: 0, longest_s: 0, has_worked: false, used: None, spell: None }
    }

    /// Takes what is known at a second. Returns the spell that ends with it.
    pub fn second(&mut self, pid: u32, seen: &HolderReading, at: Stamp) -> Option<IdlePeriod> {
        let before = std::mem::replace(&mut self.used, seen.used);
        let has_moved = before.is_some() && before != seen.used;
        let work = match seen.nature {
            // What has ended works no more, whatever runs beside it.
            Nature::Ended => Work::Rests,
            _ if has_moved => Work::Works,
            _ => seen.work,
        };
        match work {
            Work::Unknown => return None,
            Work::Works => {
                self.has_worked = true;
                self.longest_s = self.longest_s.max(std::mem::take(&mut self.rested_s));
                return self.end(at);
            }
            Work::Rests => self.rested_s = self.rested_s.saturating_add(1),
        }
        let is_another = self.spell.as_ref().is_some_and(|it| it.nature != seen.nature);
        let ended = if is_another { self.end(at) } else { None };
        if let Some(spell) = &mut self.spell {
            (spell.rested_s, spell.used) = (self.rested_s, seen.used);
        } else if seen.nature.limit().is_some_and(|(_, least)| self.is_due(seen, least)) {
            self.spell = Some(self.raise(pid, seen, at));
        }
        ended
    }

    /// Ends its spell, because the process works again or holds no memory any more.
    pub fn end(&mut self, at: Stamp) -> Option<IdlePeriod> {
        let spell = self.spell.take()?;
        let second = self.seconds(at);
        Some(IdlePeriod { resolved: Some((second, at)), ..spell })
    }

    /// Returns the spell that lasts.
    pub fn spell(&self) -> Option<&IdlePeriod> {
        self.spell.as_ref()
    }

    /// Returns for how long it has rested, in seconds; 0 while it works.
    pub fn rested_s(&self) -> u64 {
        self.rested_s
    }

    fn is_due(&self, seen: &HolderReading, least: u64) -> bool {
        let is_ended = seen.nature == Nature::Ended;
        let wait = if is_ended { least } else { least.max(self.longest_s.saturating_mul(RESTS)) };
        let matters = seen.used.map_or(is_ended, |it| it.0 >= if is_ended { 1 } else { LEAST });
        matters && self.rested_s >= wait
    }

    fn raise(&self, pid: u32, seen: &HolderReading, at: Stamp) -> IdlePeriod {
        let raised_s = self.seconds(at);
        IdlePeriod {
            pid,
            nature: seen.nature,
            device: seen.device.clone(),
            used: seen.used,
            has_worked: self.has_worked,
            since_s: raised_s.saturating_sub(self.rested_s),
            raised_s,
            first_alert_at: at,
            resolved: None,
            rested_s: self.rested_s,
        }
    }

    fn seconds(&self, at: Stamp) -> u64 {
        at.since(self.first) / 1_000_000
    }
}

#[cfg(test)]
mod tests;
