//! Made-up jobs, second by second: healthy ones of many kinds, and ones that stall. Each has a seed.

use super::*;
use crate::{facts::units::whole, model::statistics::Random};

/// Seeds of each kind. With 200 of each, none of the healthy hours raised anything either.
const SEEDS: u64 = 10;

const HOUR: u64 = 3600;

/// What a job does for a time.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Steps of so many seconds each, until so many seconds have passed.
    Train(f64, u64),
    /// No step for so many seconds.
    Pause(u64, Shows),
}

/// What shows during a pause: the percents of utilisation it is between, whether the allocator's counters move, and
/// whether they can be read; whether the host's work is known.
#[derive(Clone, Copy, Debug)]
struct Shows {
    percent: (f64, f64),
    moves: bool,
    ticks: bool,
    works: bool,
    /// The length of each of its sleeps in seconds, if it sleeps.
    sleeps: Option<u64>,
}

const SPINS: Shows = Shows { percent: (100.0, 100.0), moves: false, ticks: true, works: false, sleeps: None };
const RESTS: Shows = Shows { percent: (0.0, 0.0), ..SPINS };
const EVALUATES: Shows = Shows { percent: (30.0, 100.0), moves: true, ..SPINS };

/// Plays a job second by second.
struct Player {
    stall: Stall,
    chance: Random,
    now_s: u64,
    step: u64,
    counters: Counters,
    edge: Edge,
    may_wait: bool,
    usual_us: Option<u64>,
    /// Since when it pauses, in seconds.
    paused_s: u64,
}

impl Player {
    fn new(seed: u64) -> Self {
        let counters = Counters { allocated: Some(20 << 30), rss: Some(4 << 30), ..Counters::default() };
        let (edge, chance) = (Edge::Step, Random::new(seed));
        let (may_wait, usual_us, paused_s) = (false, None, 0);
        Self { stall: Stall::default(), chance, now_s: 1000, step: 0, counters, edge, may_wait, usual_us, paused_s }
    }

    fn moved(&mut self) -> Counters {
        let allocated = Some((20 << 30) + self.chance.next() % (1 << 30));
        Counters { allocated, ..self.counters }
    }

    fn play(&mut self, phase: Phase) {
        match phase {
            Phase::Train(step_s, seconds) => {
                let (mut next, mut end) = (self.now_s as f64 + step_s, self.now_s + seconds);
                self.usual_us = Some(whole(step_s * 1e6));
                end = end.max(whole(next) + 1);
                while self.now_s < end {
                    let before = self.step;
                    while whole(next) <= self.now_s {
                        let at = Stamp(whole(next * 1e6));
                        self.step += 1;
                        let counters = self.moved();
                        self.sample(&counters, self.edge, at);
                        next += (step_s * (1.0 + 0.1 * self.chance.normal())).max(step_s / 5.0);
                    }
                    let shows = Shows { percent: (80.0, 100.0), moves: true, ticks: self.step == before, ..SPINS };
                    self.second(shows);
                }
            }
            Phase::Pause(seconds, shows) => {
                self.paused_s = self.now_s;
                (0..seconds).for_each(|_| self.second(shows));
            }
        }
    }

    fn second(&mut self, shows: Shows) {
        let at = Stamp(self.now_s * 1_000_000);
        if shows.ticks {
            let counters = if shows.moves { self.moved() } else { self.counters };
            self.sample(&counters, Edge::Tick, at);
        }
        let percent = whole(self.chance.between(shows.percent.0, shows.percent.1 + 0.99));
        let load = Load::of([percent]);
        let is_excused = shows.works && load == Some(Load::Idle);
        // Read each ten seconds, in whole minutes.
        let asleep_us = shows.sleeps.map_or(0, |it| (self.now_s - self.paused_s) % it / 10 * 10 / 60 * 60_000_000);
        let (may_wait, usual_us) = (self.may_wait, self.usual_us);
        let seen = StallReading { load, is_excused, may_wait, asleep_us: Some(asleep_us), others: Stamp(0), usual_us };
        self.now_s += 1;
        self.stall.second(&seen, Stamp(self.now_s * 1_000_000));
    }

    fn sample(&mut self, counters: &Counters, edge: Edge, at: Stamp) {
        let step = (self.step > 0).then_some(self.step);
        let sample = Sample { at_us: at.0, edge, step, counters: *counters, ..Sample::default() };
        self.stall.sample(&sample, &self.counters);
        self.counters = *counters;
    }

    fn begins(&mut self) {
        let (step, seconds) = (self.step_s(), 60 + self.below(600));
        self.play(Phase::Train(step, seconds.max(whole(step * 20.0))));
    }

    fn step_s(&mut self) -> f64 {
        10.0_f64.powf(self.chance.between(-1.0, 1.0))
    }

    fn below(&mut self, most: u64) -> u64 {
        self.chance.next() % most.max(1)
    }

    /// Trains for about an hour, with a pause now and then.
    fn trains_with(&mut self, pause: impl Fn(&mut Self) -> Phase) {
        let (step, every) = (self.step_s(), 30 + self.below(900));
        let end = self.now_s + HOUR;
        self.play(Phase::Train(step, whole(step * 20.0)));
        while self.now_s < end {
            let phase = pause(self);
            self.play(phase);
            self.play(Phase::Train(step, every));
        }
    }
}

type Kind = fn(&mut Player);

const HEALTHY: [(&str, Kind); 16] = [
    ("training", |job| job.trains_with(|_| Phase::Pause(0, RESTS))),
    ("checkpoints on slow storage", |job| {
        let usual = 10 + job.below(250);
        job.trains_with(move |it| Phase::Pause(usual + it.below(usual), RESTS));
    }),
    ("longer and longer checkpoints", |job| {
        job.trains_with(|it| Phase::Pause(20 + (it.now_s - 1000) / 8, RESTS));
    }),
    ("storage with hiccups", |job| {
        job.trains_with(|it| Phase::Pause(whole(20.0 * it.chance.normal().exp()).min(500), RESTS));
    }),
    ("evaluation", |job| job.trains_with(|it| Phase::Pause(60 + it.below(2400), EVALUATES))),
    ("evaluation at full load", |job| {
        let shows = Shows { percent: (100.0, 100.0), ..EVALUATES };
        job.trains_with(move |it| Phase::Pause(60 + it.below(2400), shows));
    }),
    ("evaluation whose counters cannot be read", |job| {
        let shows = Shows { percent: (60.0, 100.0), ticks: false, ..EVALUATES };
        job.trains_with(move |it| Phase::Pause(60 + it.below(2400), shows));
    }),
    ("pauses of its own choice", |job| {
        job.trains_with(|it| Phase::Pause(600 + it.below(4000), Shows { sleeps: Some(HOUR * 9), ..RESTS }));
    }),
    ("evaluation on the host", |job| {
        job.trains_with(|it| Phase::Pause(60 + it.below(2400), Shows { works: true, ..RESTS }));
    }),
    ("epochs with new workers", |job| job.trains_with(|it| Phase::Pause(5 + it.below(120), RESTS))),
    ("compilation", |job| {
        job.play(Phase::Train(1.0, 3));
        let long = job.below(2400);
        job.play(Phase::Pause(long, RESTS));
        job.trains_with(|it| Phase::Pause(if it.below(8) == 0 { it.below(240) } else { 0 }, RESTS));
    }),
    ("one bound by its input", |job| {
        job.trains_with(|it| Phase::Pause(it.below(60), Shows { percent: (0.0, 12.0), moves: false, ..EVALUATES }));
    }),
    ("few long steps whose counters stand still", |job| {
        let step = job.chance.between(30.0, 200.0);
        for _ in 0..30 {
            job.play(Phase::Train(step, 1));
            job.play(Phase::Pause(whole(step), SPINS));
        }
    }),
    ("reinforcement learning", |job| {
        job.trains_with(|it| Phase::Pause(30 + it.below(600), Shows { percent: (10.0, 95.0), ..SPINS }));
    }),
    ("a notebook", |job| {
        job.may_wait = true;
        job.trains_with(|it| Phase::Pause(it.below(7200), RESTS));
        job.play(Phase::Pause(3 * HOUR, RESTS));
    }),
    ("a server that counts requests", |job| {
        job.edge = Edge::Call;
        job.trains_with(|it| Phase::Pause(it.below(1200), RESTS));
        job.play(Phase::Pause(3 * HOUR, RESTS));
    }),
];

fn played(kind: Kind, seed: u64) -> Player {
    let mut player = Player::new(seed);
    kind(&mut player);
    player
}

#[test]
fn hours_of_healthy_jobs_raise_nothing() {
    let (mut alarms, mut hours) = (Vec::new(), 0.0);
    for (name, kind) in HEALTHY {
        for seed in 0..SEEDS {
            let player = played(kind, seed);
            hours += (player.now_s - 1000) as f64 / HOUR as f64;
            if !player.stall.spells.is_empty() {
                alarms.push(format!("{name}, seed {seed}: {:?}", player.stall.spells));
            }
        }
    }
    println!("{} false alarms in {hours:.0} hours of healthy jobs", alarms.len());
    assert!(alarms.is_empty(), "{} in {hours:.0} hours: {alarms:#?}", alarms.len());
}

#[test]
fn every_stall_is_found_once_and_over_with_the_next_step() {
    let no_ticks = |it: Shows| Shows { ticks: false, ..it };
    let cases = [
        ("a collective that hangs", SPINS, 300, 330),
        ("a collective that hangs and holds the interpreter", no_ticks(SPINS), 600, 630),
        ("input that never comes", RESTS, 600, 630),
        ("a lock that holds the interpreter", no_ticks(RESTS), 600, 630),
    ];
    for (name, shows, least, most) in cases {
        let mut delays: Vec<u64> = (0..SEEDS)
            .map(|seed| {
                let mut player = Player::new(seed);
                player.begins();
                let (begun, step) = (player.now_s, player.step);
                player.play(Phase::Pause(HOUR, shows));
                let [spell] = player.stall.spells() else { panic!("{name}, seed {seed}: {:?}", player.stall) };
                assert_eq!((spell.step, spell.resolved, spell.is_busy), (step, None, shows.percent.0 > 0.0));
                let delay = spell.first_alert_at.0 / 1_000_000 - begun;
                player.play(Phase::Train(1.0, 10));
                let [spell] = player.stall.spells() else { panic!("{name}, seed {seed}: {:?}", player.stall) };
                assert!(spell.resolved.is_some_and(|end| end.0 <= step + 1), "{spell:?}");
                delay
            })
            .collect();
        delays.sort_unstable();
        let (median, longest) = (delays[delays.len() / 2], delays[delays.len() - 1]);
        println!("{name}: found after {median} s (median), {longest} s (longest) in {SEEDS} jobs");
        assert!((least..=most).contains(&median), "{name}: {delays:?}");
    }
}

#[test]
fn a_pause_that_the_job_has_shown_before_has_to_last_three_times_as_long() {
    let mut player = Player::new(1);
    player.play(Phase::Train(1.0, 60));
    player.play(Phase::Pause(500, RESTS));
    player.play(Phase::Train(1.0, 60));
    player.play(Phase::Pause(1450, RESTS));
    assert!(player.stall.spells().is_empty(), "{:?}", player.stall);
    player.play(Phase::Pause(100, RESTS));
    assert_eq!(player.stall.spells().len(), 1, "{:?}", player.stall);
}

#[test]
fn a_mark_or_memory_that_moves_ends_it_and_a_suspended_process_waits() {
    let stalled = |excused: bool| {
        let mut player = Player::new(2);
        player.play(Phase::Train(1.0, 60));
        player.play(Phase::Pause(1000, Shows { works: excused, ..RESTS }));
        player
    };
    assert!(stalled(true).stall.spells().is_empty());
    let resolved = |act: fn(&mut Player)| {
        let mut player = stalled(false);
        act(&mut player);
        player.stall.spells()[0].resolved.is_some()
    };
    assert!(!resolved(|_| ()));
    assert!(resolved(|it| it.stall.word(Stamp(it.now_s * 1_000_000))));
    assert!(resolved(|it| it.stall.finish(Stamp(it.now_s * 1_000_000))));
    assert!(resolved(|it| {
        let moved = Counters { rss: Some(8 << 30), ..it.counters };
        it.sample(&moved, Edge::Tick, Stamp(it.now_s * 1_000_000));
    }));
}

#[test]
fn a_sleep_of_the_programs_choice_is_no_stall_and_a_loop_that_looks_again_is_one() {
    let spells = |shows: Shows, seconds: u64| {
        let mut player = Player::new(5);
        player.play(Phase::Train(1.0, 60));
        player.play(Phase::Pause(seconds, shows));
        player.play(Phase::Pause(300, RESTS));
        player.stall.spells().len()
    };
    let sleeps = |seconds: u64| Shows { sleeps: Some(seconds), ..RESTS };
    assert_eq!(spells(sleeps(4 * HOUR), 4 * HOUR - 1), 0, "and it has time to begin again");
    for short in [1, 59, 61, 100, 300] {
        assert_eq!(spells(sleeps(short), 2 * HOUR), 1, "{short} s");
    }
    assert_eq!(spells(Shows { percent: (100.0, 100.0), ..sleeps(4 * HOUR) }, HOUR), 1, "the device is busy");
    for trains_again in [false, true] {
        let mut player = Player::new(6);
        player.play(Phase::Train(1.0, 60));
        player.play(Phase::Pause(4 * HOUR, sleeps(5 * HOUR)));
        if trains_again {
            player.play(Phase::Train(1.0, 60));
        }
        player.play(Phase::Pause(700, RESTS));
        assert_eq!(player.stall.spells().len(), 1, "what it does afterwards is judged as before");
    }
}

#[test]
fn a_sleep_that_is_older_than_the_latest_step_explains_nothing() {
    let mut player = Player::new(7);
    player.play(Phase::Train(1.0, 60));
    // The main thread waits for a thread that trains.
    player.paused_s = 0;
    (0..700).for_each(|_| player.second(Shows { sleeps: Some(30 * HOUR), ..RESTS }));
    assert_eq!(player.stall.spells().len(), 1, "{:?}", player.stall);
}

#[test]
fn a_viewer_that_begins_or_goes_on_during_a_sleep_raises_nothing() {
    for (sleeps, count) in [(Some(5 * HOUR), 0), (None, 1)] {
        let mut player = Player::new(8);
        player.play(Phase::Train(1.0, 60));
        // It receives the steps of a job that sleeps since.
        (player.stall.load, player.stall.seconds) = (None, None);
        for _ in 0..2 {
            player.now_s += HOUR;
            player.play(Phase::Pause(HOUR, Shows { sleeps, ..RESTS }));
        }
        assert_eq!(player.stall.spells().len(), count, "{:?}", player.stall);
    }
}

#[test]
fn a_script_that_has_freed_its_model_has_finished_and_one_that_trains_again_has_not() {
    let frees = |job: &mut Player| {
        let freed = Counters { allocated: Some(1 << 30), ..job.counters };
        job.sample(&freed, Edge::Tick, Stamp(job.now_s * 1_000_000));
        job.play(Phase::Pause(3 * HOUR, RESTS));
    };
    for (seed, is_freed) in [(3, true), (3, false)] {
        let mut player = Player::new(seed);
        player.play(Phase::Train(1.0, 60));
        if is_freed {
            frees(&mut player);
        } else {
            player.play(Phase::Pause(3 * HOUR, RESTS));
        }
        assert_eq!(player.stall.spells().is_empty(), is_freed, "{:?}", player.stall);
    }
    let mut player = Player::new(4);
    player.play(Phase::Train(1.0, 60));
    frees(&mut player);
    player.play(Phase::Train(1.0, 60));
    player.play(Phase::Pause(12 * HOUR, RESTS));
    assert_eq!(player.stall.spells().len(), 1, "the second training hangs");
}

#[test]
fn the_load_of_several_devices_is_between_as_soon_as_one_works() {
    for (percents, load) in [
        (&[][..], None),
        (&[0], Some(Load::Idle)),
        (&[100], Some(Load::Busy)),
        (&[0, 100], Some(Load::Busy)),
        (&[0, 50], Some(Load::Between)),
        (&[100, 97], Some(Load::Between)),
    ] {
        assert_eq!(Load::of(percents.iter().copied()), load, "{percents:?}");
    }
}

#[test]
fn notebooks_and_interpreters_wait_for_their_user() {
    let is = |argv: &[&str]| is_interactive(&argv.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
    assert!(is(&["/opt/bin/python3", "-m", "ipykernel_launcher", "-f", "/tmp/kernel-1.json"]));
    assert!(is(&["python"]) && is(&["python3.12", "-i", "x.py"]) && is(&["/usr/bin/ipython"]));
    assert!(!is(&["python", "/home/ada/jupyter/train.py"]) && !is(&["./train"]) && !is(&[]));
}
