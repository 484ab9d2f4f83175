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
            let seen = HolderReading { nature: self.nature, work, device: &self.device, used: self.used.map(Bytes) };
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
    ("a server written as a script, with requests now and then", Script, |it| it.alternates(96, (1, 60), (60, 14_000))),
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
