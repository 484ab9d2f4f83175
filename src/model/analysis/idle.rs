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
mod tests {
    //! Made-up processes, second by second: healthy ones of many kinds, and ones that are forgotten. Each has a seed.

    use super::*;
    use crate::model::statistics::Random;
    use Nature::{Ended, Notebook, Orphan, Other, Script};
    use Work::{Rests, Unknown, Works};

    /// Seeds of each kind.
    const SEEDS: u64 = 20;

    const HOUR: u64 = 3600;
    const GIB: u64 = 1 << 30;

    /// Plays a process second by second.
    struct Player {
        idle: Idle,
        over: Vec<IdlePeriod>,
        chance: Random,
        now_s: u64,
        nature: Nature,
        used: Option<u64>,
        device: DeviceId,
    }

    impl Player {
        fn new(nature: Nature, seed: u64) -> Self {
            let (idle, device) = (Idle::new(Stamp(1_000_000)), DeviceId("GPU-0".to_owned()));
            Self { idle, over: Vec::new(), chance: Random::new(seed), now_s: 1, nature, used: Some(20 * GIB), device }
        }

        fn play(&mut self, seconds: u64, work: Work) {
            for _ in 0..seconds {
                self.now_s += 1;
                let seen =
                    HolderReading { nature: self.nature, work, device: &self.device, used: self.used.map(Bytes) };
                self.over.extend(self.idle.second(7, &seen, Stamp(self.now_s * 1_000_000)));
            }
        }

        /// Works and rests in turn for so many hours.
        fn alternates(&mut self, hours: u64, works: (u64, u64), rests: (u64, u64)) {
            let end = self.now_s + hours * HOUR;
            while self.now_s < end {
                let (work, rest) = (self.between(works), self.between(rests));
                self.play(work, Works);
                self.play(rest, Rests);
            }
        }

        fn between(&mut self, (low, high): (u64, u64)) -> u64 {
            low + self.chance.next() % (high - low + 1)
        }

        fn raised(&self) -> Option<Cause> {
            self.idle.spell().or(self.over.last()).map(IdlePeriod::cause)
        }
    }

    type Kind = (&'static str, Nature, fn(&mut Player));

    const HEALTHY: [Kind; 14] = [
        ("training", Script, |it| it.alternates(6, (30, 900), (0, 5))),
        ("evaluations on the host", Script, |it| it.alternates(12, (60, 900), (60, 2400))),
        ("slow data loading", Script, |it| it.alternates(12, (1, 3), (5, 120))),
        ("checkpoints on slow storage", Script, |it| it.alternates(12, (300, 900), (300, 1800))),
        ("a rank that waits for the one that evaluates", Script, |it| it.alternates(24, (600, 3600), (600, 7200))),
        ("ranks without a launcher that train", Orphan, |it| it.alternates(6, (10, 900), (0, 200))),
        ("a notebook that computes every few minutes", Notebook, |it| it.alternates(12, (1, 60), (30, 900))),
        ("a notebook whose user thinks for long", Notebook, |it| it.alternates(48, (1, 600), (600, 3400))),
        ("a notebook with a small model, overnight", Notebook, |it| {
            it.used = Some(GIB / 2);
            it.play(14 * HOUR, Rests);
        }),
        ("a server that waits for requests", Other, |it| it.alternates(72, (1, 60), (60, 12 * HOUR))),
        ("a server written as a script, with requests now and then", Script, |it| {
            it.alternates(96, (1, 60), (60, 14_000));
        }),
        ("a script on a driver that shows no utilisation", Script, |it| it.play(24 * HOUR, Unknown)),
        ("a notebook on a driver that shows no memory of processes", Notebook, |it| {
            it.used = None;
            it.play(24 * HOUR, Rests);
        }),
        ("a process that ends, and the driver needs half a minute for its memory", Script, |it| {
            it.play(600, Works);
            it.nature = Ended;
            it.play(45, Unknown);
        }),
    ];

    #[test]
    fn hours_of_healthy_processes_raise_nothing() {
        let (mut alarms, mut hours) = (Vec::new(), 0);
        for (name, nature, kind) in HEALTHY {
            for seed in 0..SEEDS {
                let mut player = Player::new(nature, seed);
                kind(&mut player);
                hours += player.now_s / HOUR;
                alarms.extend(player.raised().map(|cause| format!("{name}, seed {seed}: {cause:?}")));
            }
        }
        println!("{} false alarms in {hours} hours of healthy processes", alarms.len());
        assert!(alarms.is_empty(), "{} in {hours} hours: {alarms:#?}", alarms.len());
    }

    #[test]
    fn each_forgotten_process_is_found_once_after_its_wait() {
        for (nature, cause, wait) in [
            (Notebook, Cause::IdleNotebook, HOUR),
            (Script, Cause::IdleProcess, 4 * HOUR),
            (Orphan, Cause::OrphanedRank, 300),
            (Ended, Cause::EndedProcess, 60),
        ] {
            let mut player = Player::new(if nature == Ended { Script } else { nature }, 1);
            player.play(100, Works);
            player.nature = nature;
            player.play(wait - 1, Rests);
            assert_eq!(player.raised(), None, "{cause:?} is slow to raise");
            player.play(10, Rests);
            let spell = player.idle.spell().unwrap();
            assert_eq!((spell.cause(), spell.has_worked, spell.resolved), (cause, true, None));
            assert_eq!((spell.since_s, spell.raised_s), (100, 100 + wait), "{cause:?}");
            player.play(10 * HOUR, Rests);
            assert!(player.over.is_empty() && player.raised() == Some(cause), "{cause:?} is raised once");
            player.nature = nature;
            assert!(player.idle.end(Stamp(9)).is_some_and(|it| it.resolved.is_some()), "{cause:?}");
        }
    }

    #[test]
    fn work_or_memory_that_moves_ends_it_and_unknown_time_counts_neither_way() {
        let forgotten = || {
            let mut player = Player::new(Notebook, 2);
            player.play(HOUR + 10, Rests);
            assert_eq!(player.raised(), Some(Cause::IdleNotebook));
            player
        };
        let mut player = forgotten();
        player.play(100, Unknown);
        assert!(player.over.is_empty());
        player.play(1, Works);
        assert!(player.over.len() == 1 && player.idle.spell().is_none());
        let mut player = forgotten();
        player.used = Some(21 * GIB);
        player.play(1, Rests);
        assert!(player.over.len() == 1 && player.idle.spell().is_none(), "a cell has taken memory");
        let mut player = Player::new(Notebook, 2);
        for _ in 0..HOUR {
            player.play(1, Rests);
            player.play(2, Unknown);
        }
        assert_eq!(player.idle.spell().map(|it| it.rested_s), Some(HOUR));
    }

    #[test]
    fn a_rest_that_the_process_has_shown_before_has_to_last_three_times_as_long() {
        let mut player = Player::new(Notebook, 3);
        player.play(HOUR - 100, Rests);
        player.play(10, Works);
        player.play(3 * (HOUR - 100) - 1, Rests);
        assert_eq!(player.raised(), None);
        player.play(1, Rests);
        assert_eq!(player.raised(), Some(Cause::IdleNotebook));
    }

    #[test]
    fn a_rank_that_ends_without_its_launcher_changes_its_finding() {
        let mut player = Player::new(Orphan, 4);
        player.play(400, Rests);
        player.nature = Ended;
        player.play(1, Rests);
        assert_eq!((player.over.len(), player.raised()), (1, Some(Cause::EndedProcess)));
    }

    #[test]
    fn command_lines_show_what_a_process_is() {
        let of = |words: &str| Nature::of(&words.split(' ').map(str::to_owned).collect::<Vec<_>>(), false);
        for words in ["/opt/bin/python3 -m ipykernel_launcher -f /tmp/kernel-1.json", "python", "/usr/bin/ipython"] {
            assert_eq!(of(words), Notebook, "{words}");
        }
        for words in ["python train.py", "/usr/bin/python3.12 -u -m package.train --lr 1", "python preserve.py"] {
            assert_eq!(of(words), Script, "{words}");
        }
        for words in [
            "python -m vllm.entrypoints.openai.api_server --model m",
            "/opt/bin/python /opt/bin/vllm serve m",
            "python serve.py",
            "python /srv/bin/uvicorn app:app",
            "python -m sglang.launch_server",
            "VLLM::EngineCore",
            "tritonserver --model-repository=/m",
            "/usr/bin/Xorg",
            "ray::Worker",
        ] {
            assert_eq!(of(words), Other, "{words}");
        }
        assert_eq!(Nature::of(&["python".to_owned()], true), Orphan);
        assert_eq!(Nature::of(&[], false), Other);
    }
}
