//! Steps that stop, and ranks that are slower than the others: on screens, in `check`, and from recordings.

mod jobs;

use crate::{
    analysis::step_time::recorded,
    commands::check,
    helpers::story::{GIB, Story, counters, device, picture, text},
};
use gpuwatch::{
    facts::{
        event::{
            Fact, Line, ProcessUse,
            wire::{Bye, Edge, Hello, Live, PROTOCOL, Sample},
        },
        figures::Figure,
        metrics::{Changes, Metric},
        units::Bytes,
    },
    model::{
        analysis::{cause::Cause, severity::Severity},
        findings::{Finding, Kind, findings},
    },
    screen::{
        theme::Theme,
        ui::{Scope, Screen, Ui, preset::Preset},
    },
};

const MS: u64 = 1000;

/// A run of so many ranks, each on a device of its own.
struct Run {
    story: Story,
    ranks: u32,
    step: u64,
}

impl Run {
    fn new(ranks: u32) -> Self {
        let mut story = Story::default();
        story.wait(1_000_000_000);
        for rank in 0..ranks {
            let pid = 4242 + rank;
            story.device(rank, 40 * GIB, &[(pid, 33 * GIB)]);
            story.add(Fact::ProbeFound {
                probe: gpuwatch::facts::event::ProbeId(rank),
                pid: Some(pid),
                socket: "/tmp/x.sock".into(),
            });
            let own = gpuwatch::facts::event::wire::Device {
                ordinal: 0,
                uuid: Some(device(rank).0),
                ..gpuwatch::facts::event::wire::Device::default()
            };
            let hello = Hello {
                protocol: PROTOCOL,
                pid,
                argv: ["python", "train.py"].map(str::to_owned).to_vec(),
                run: Some("1f".to_owned()),
                rank: Some(u64::from(rank)),
                world_size: Some(u64::from(ranks)),
                devices: vec![own],
                ..Hello::default()
            };
            story.line(rank, Line::Hello(hello)).line(rank, Line::Live(Live::default()));
        }
        Self { story, ranks, step: 0 }
    }

    /// All ranks make steps of half a second each, `late` µs later in rank 1.
    fn trains(&mut self, steps: u64, late: u64) -> &mut Self {
        for _ in 0..steps {
            self.step += 1;
            self.story.wait(500 * MS - late);
            let others = (0..self.ranks).filter(|rank| *rank != 1);
            for rank in others.chain((1..2).filter(|_| self.ranks > 1)) {
                if rank == 1 {
                    self.story.wait(late);
                }
                self.story.sample(rank, self.step, counters((30 + self.step % 2) * GIB, 2 * GIB));
            }
            if self.step.is_multiple_of(20) {
                (0..self.ranks).for_each(|rank| self.loads(rank, 90 + self.step / 20 % 8));
            }
        }
        self
    }

    fn loads(&mut self, rank: u32, percent: u64) {
        let changes: Changes = [(Metric::GpuPercent, percent)].into_iter().collect();
        self.story.add(Fact::Metrics { device: device(rank), changes });
    }

    /// No rank makes a step for some seconds, with these loads of their devices; the allocators stand still.
    fn stops(&mut self, seconds: u64, percents: &[u64]) -> &mut Self {
        for second in 0..seconds {
            self.story.wait(1_000_000);
            for (rank, percent) in (0..self.ranks).zip(percents.iter().cycle()) {
                if second % 30 == 0 {
                    self.loads(rank, *percent);
                }
                let counters = counters((30 + self.step % 2) * GIB, 2 * GIB);
                let (at_us, step) = (self.story.now, Some(self.step));
                let sample = Sample { at_us, edge: Edge::Tick, step, counters, ..Sample::default() };
                self.story.line(rank, Line::Sample(sample));
            }
        }
        self
    }

    fn found(&self, kind: Kind) -> Vec<Finding> {
        findings(&self.story.session()).all.into_iter().filter(|it| it.kind == kind).collect()
    }
}

#[test]
fn a_stalled_job_is_a_finding_until_a_step_arrives() {
    for (percent, cause, seconds) in [(100, Cause::StalledBusy, 310), (0, Cause::StalledIdle, 610)] {
        let mut run = Run::new(1);
        run.trains(200, 0).stops(seconds - 20, &[percent]);
        assert!(run.found(Kind::Stall).is_empty(), "{cause:?} is slow to raise");
        run.stops(20, &[percent]);
        let all = run.found(Kind::Stall);
        let [it] = all.as_slice() else { panic!("{cause:?}: {all:?}") };
        assert_eq!((it.cause, it.severity, it.is_active()), (cause, Severity::Warning, true));
        assert_eq!((it.first_alert_step, it.pid), (200, Some(4242)));
        assert!(it.brief().starts_with("no step for ") && it.brief().contains("after step 200"), "{}", it.brief());
        let ui = Ui { screen: Screen::Alerts, ..Ui::default() };
        let shown = text(&picture(&run.story.session(), &ui, &Theme::builtin("dusk").unwrap(), 120, 40));
        for words in [cause.id(), "no step for", "py-spy dump --pid PID", "usually 500 ms a step"] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
        run.stops(900, &[percent]);
        assert_eq!(run.found(Kind::Stall).len(), 1, "it is raised once");
        run.trains(2, 0);
        let all = run.found(Kind::Stall);
        let states: Vec<_> = all.iter().map(|it| (it.resolved_step, it.severity)).collect();
        assert_eq!(states, [(Some(201), Severity::Info)], "{cause:?}");
    }
}

#[test]
fn a_job_that_chose_to_pause_has_not_stalled() {
    let mut run = Run::new(1);
    run.trains(200, 0);
    let shows = |run: &mut Run, seconds: u64| {
        let changes = [(Figure::Asleep, seconds)].into_iter().collect();
        run.story.add(Fact::Figures { pid: 4242, device: None, changes });
    };
    for minute in 0..60 {
        shows(&mut run, minute * 60);
        run.stops(60, &[0]);
    }
    assert!(run.found(Kind::Stall).is_empty(), "{:#?}", run.found(Kind::Stall));
    shows(&mut run, 0);
    run.stops(500, &[0]);
    assert!(run.found(Kind::Stall).is_empty(), "it has time to begin again");
    run.stops(110, &[0]);
    assert_eq!(run.found(Kind::Stall).iter().map(|it| it.cause).collect::<Vec<_>>(), [Cause::StalledIdle]);
}

#[test]
fn one_finding_names_the_rank_that_the_others_wait_for() {
    let mut run = Run::new(4);
    run.trains(100, 0);
    // Rank 2 misses the last step, and rests while the others spin.
    for rank in [0, 1, 3] {
        run.story.sample(rank, 101, counters(30 * GIB, 2 * GIB));
    }
    run.step = 100;
    run.stops(700, &[100, 100, 0, 100]);
    let all = run.found(Kind::Stall);
    let [it] = all.as_slice() else { panic!("{all:#?}") };
    let account = it.account.join("; ");
    for words in
        ["4 ranks of the run have stopped at step 101; behind: rank 2 after step 100", "device of rank 2 is idle"]
    {
        assert!(account.contains(words), "{words}: {account}");
    }
}

#[test]
fn ranks_that_wait_for_the_one_that_evaluates_have_not_stalled() {
    let mut run = Run::new(2);
    run.trains(100, 0);
    for second in 0..2400 {
        run.stops(1, &[40 + second % 50, 100]);
        run.loads(0, 40 + second % 50);
    }
    assert!(run.found(Kind::Stall).is_empty(), "{:#?}", run.found(Kind::Stall));
    run.trains(100, 0);
    assert!(run.found(Kind::Stall).is_empty());
}

#[test]
fn a_neighbours_work_hides_no_stall_and_shows_none() {
    let mut run = Run::new(1);
    let list = [(4242, 33 * GIB), (977, GIB)].map(|(pid, used)| ProcessUse { pid, used: Some(Bytes(used)) });
    run.story.add(Fact::Processes { device: device(0), reading: Ok(list.to_vec()) });
    run.trains(100, 0).stops(1000, &[100]);
    assert!(run.found(Kind::Stall).is_empty(), "whose work it is is unknown");
    let idle = [(Figure::SmPercent, 0)].into_iter().collect();
    run.story.add(Fact::Figures { pid: 4242, device: Some(device(0)), changes: idle });
    run.stops(700, &[100]);
    assert_eq!(run.found(Kind::Stall).iter().map(|it| it.cause).collect::<Vec<_>>(), [Cause::StalledIdle]);
}

#[test]
fn a_job_that_ends_properly_was_not_stuck_and_one_that_is_killed_was() {
    let end = |line: Option<Line>| {
        let mut run = Run::new(1);
        run.trains(100, 0).stops(700, &[0]);
        match line {
            Some(line) => run.story.line(0, line),
            None => run.story.add(Fact::ProbeGone { probe: gpuwatch::facts::event::ProbeId(0), why: "killed".into() }),
        };
        run.found(Kind::Stall)[0].is_active()
    };
    assert!(!end(Some(Line::Bye(Bye { reason: "exit".to_owned(), ..Bye::default() }))));
    assert!(end(None));
}

#[test]
fn a_recording_of_a_stall_fails_its_check() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("stall.jsonl.zst");
    let mut run = Run::new(2);
    run.trains(100, 0);
    recorded(&run.story, &file);
    assert_eq!(check::judged(&file, &["--fail-on", "stall"]).0, 0);
    run.stops(400, &[100]);
    recorded(&run.story, &file);
    for (fail_on, code) in [("warning", 1), ("stall", 1), ("slow-rank,hardware", 0), ("critical", 0)] {
        assert_eq!(check::judged(&file, &["--fail-on", fail_on]).0, code, "{fail_on}");
    }
    let found = check::judged(&file, &[]).1["findings"][0].clone();
    assert_eq!((&found["kind"], &found["cause"]), (&"stall".into(), &"stalled-busy".into()), "{found:#}");
    let live = run.found(Kind::Stall);
    assert_eq!(found["first_alert_us"], live[0].first_alert_at.0, "the recording gives what the live view gave");
}

#[test]
fn a_row_along_the_steps_shows_which_rank_the_others_wait_for() {
    let mut run = Run::new(4);
    run.trains(400, 0).trains(400, 100 * MS);
    let mut ui = Ui { scope: Scope::All, ..Ui::default() };
    ui.show_preset(Preset::Training);
    let session = run.story.session();
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let shown = text(&picture(&session, &ui, &Theme::builtin("dusk").unwrap(), width, height));
        let line = shown.lines().find(|it| it.contains("last to step")).unwrap_or_default();
        let digits: Vec<char> = line.chars().skip(14).take(usize::from(width) - 14 - 17).collect();
        let (before, after) = digits.split_at(digits.len() / 2);
        let count = |part: &[char]| part.iter().filter(|it| **it == '1').count();
        assert!(count(before) <= 1 && count(after) * 10 > after.len() * 8, "{line}\n{shown}");
        assert!(digits.iter().all(|it| [' ', '1'].contains(it)), "no other rank is late: {line}");
        assert!(line.contains("rank 1, 100 ms"), "{line}");
        // The smallest screen has no room for the steps of every rank.
        assert!(shown.contains(" rank 0 ") && (height == 24 || shown.contains(" rank 3 ")), "{shown}");
    }
    let alone =
        text(&picture(&Run::new(1).trains(400, 0).story.session(), &ui, &Theme::builtin("dusk").unwrap(), 120, 40));
    assert!(!alone.contains("last to step"), "{alone}");
}

/// Each rank takes its own time for a step; rank 1 takes 1.7 times as long.
#[test]
fn a_rank_with_longer_steps_is_a_finding_with_its_memory_beside_it() {
    let mut run = Run::new(3);
    let mut due: Vec<(u64, u32, u64)> = (0..3).map(|rank| (run.story.now, rank, 0)).collect();
    while due.iter().all(|it| it.2 < 400) {
        due.sort_unstable();
        let (at, rank, step) = due[0];
        run.story.now = at;
        let held = if rank == 1 { 60 } else { 30 };
        run.story.sample(rank, step + 1, counters(held * GIB, 2 * GIB));
        due[0] = (at + if rank == 1 { 850 * MS } else { 500 * MS }, rank, step + 1);
    }
    let all = run.found(Kind::SlowRank);
    let [it] = all.as_slice() else { panic!("{all:#?}") };
    assert_eq!((it.rank, it.severity, it.cause), (Some(1), Severity::Warning, Cause::SlowRank));
    let words = it.evidence.words().join("; ");
    for part in ["a step takes 1.7 × the ranks' median", "usually 500 ms a step", "wants 2.0 × the other ranks' median"]
    {
        assert!(words.contains(part), "{part}: {words}");
    }
    assert!(run.found(Kind::Stall).is_empty());
    // One line has the figures.
    assert_eq!(it.brief(), "slow-rank: steps take 850 ms, the others' 500 ms");
    let shown = text(&picture(&run.story.session(), &Ui::default(), &Theme::builtin("dusk").unwrap(), 120, 40));
    assert!(shown.contains("rank 1 on GPU 1: slow-rank, steps take 850 ms, the others' 500 ms\n"), "{shown}");
}

#[test]
fn a_rank_that_arrives_last_with_a_device_that_rests_is_a_finding() {
    for (percent, raised) in [(60, 1), (95, 0)] {
        let mut run = Run::new(4);
        run.trains(20, 100 * MS);
        for _ in 0..30 {
            run.trains(19, 100 * MS);
            (0..4).for_each(|rank| run.loads(rank, if rank == 1 { percent } else { 97 }));
            run.trains(1, 100 * MS);
            (0..4).for_each(|rank| run.loads(rank, if rank == 1 { percent } else { 97 }));
        }
        let found = run.found(Kind::SlowRank);
        let late = "slow-rank: reaches a step 100 ms after the others";
        assert!(found.iter().all(|it| it.brief() == late), "{found:#?}");
        let ranks: Vec<_> = found.iter().map(|it| it.rank).collect();
        assert_eq!(ranks, vec![Some(1); raised], "{percent}: {found:#?}");
    }
}
