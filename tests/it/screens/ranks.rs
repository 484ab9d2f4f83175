//! Ranks side by side: the worst, the median, who holds more, whose steps take longer, and which leak they share. Many
//! of them stay readable.

use super::theme;
use crate::{
    analysis::alerts::messages_under,
    helpers::story::{GIB, MIB, Story, counters, device, fleet, picture, text},
    house::schemas,
};
use gpuwatch::{
    commands::check::{self, FailOn, Limits},
    facts::event::{
        Fact, Line, ProbeId,
        wire::{Bye, Device, Hello, Live, PROTOCOL},
    },
    model::{
        alerts::Policy,
        analysis::{
            cause::Cause,
            culprit::{Culprit, Spot},
            severity::Severity,
        },
        findings::{Finding, findings, follow},
    },
    screen::ui::{Command, Focus, Motion, Scope, Screen, Ui, preset::Preset},
    storage::replay::run::Run,
};
use serde_json::{Value, json};

#[test]
fn sixty_four_ranks_fit_on_one_screen() {
    let session = fleet(64).session();
    let ui = Ui { scope: Scope::All, focus: Focus::Processes, ..Ui::default() };
    for (width, height) in [(80, 24), (200, 60)] {
        let shown = text(&picture(&session, &ui, &theme("dusk"), width, height));
        insta::assert_snapshot!(format!("fleet-{width}x{height}"), shown);
        assert!(shown.contains(" · rank 5 wants 1.5 × the median"), "{shown}");
        let of = |phrase: &str| {
            let line = shown.lines().find(|it| it.ends_with(phrase)).unwrap_or_default();
            line.split_whitespace().take(3).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of("worst of 64"), ["57", "60.00", "GiB"], "{shown}");
        assert_eq!(of("median"), ["60", "40.32", "GiB"], "{shown}");
        let rows = shown.lines().filter(|it| it.contains("  python train.")).count();
        assert!(rows >= usize::from(height) - 11, "{rows} of {height}\n{shown}");
        assert!(shown.contains(&format!("rows 1–{rows} ─")), "{shown}");
    }
}

#[test]
fn every_rank_can_be_selected_and_its_position_is_shown() {
    let session = fleet(64).session();
    let mut ui = Ui { scope: Scope::All, focus: Focus::Processes, ..Ui::default() };
    for rank in 0..64 {
        let shown = text(&picture(&session, &ui, &theme("dusk"), 80, 24));
        assert!(shown.lines().any(|it| it.contains(&format!(" {} ", 5000 + rank))), "{rank}\n{shown}");
        ui.update(Command::Move(Motion::Down), &session);
    }
    let shown = text(&picture(&session, &ui, &theme("dusk"), 80, 24));
    assert!(shown.contains("–64 ─"), "{shown}");
}

#[test]
fn two_ranks_have_no_median_and_even_ones_are_called_even() {
    let shown = |ranks| {
        let ui = Ui { scope: Scope::All, ..Ui::default() };
        text(&picture(&fleet(ranks).session(), &ui, &theme("dusk"), 80, 24))
    };
    assert!(!shown(2).contains("median"), "{}", shown(2));
    assert!(shown(4).contains("even: at most 1.0 × the median"), "{}", shown(4));
}

/// A rank of one run, with a probe and a device of its own.
fn rank(story: &mut Story, probe: u32, rank: u32) {
    let pid = 4000 + probe;
    story.device(rank, 40 * GIB, &[(pid, 33 * GIB)]);
    story.add(Fact::ProbeFound { probe: ProbeId(probe), pid: Some(pid), socket: "/tmp/x.sock".into() });
    let hello = Hello {
        protocol: PROTOCOL,
        pid,
        argv: ["python", "train.py"].map(str::to_owned).to_vec(),
        run: Some("one".to_owned()),
        rank: Some(u64::from(rank)),
        world_size: Some(2),
        devices: vec![Device { ordinal: 0, uuid: Some(device(rank).0), ..Device::default() }],
        ..Hello::default()
    };
    story.line(probe, Line::Hello(hello)).line(probe, Line::Live(Live::default()));
}

/// Makes 200 steps: those of rank 1, of the second probe, take four times as long.
fn train(story: &mut Story, (first, second): (u32, u32)) {
    for tick in 1..=800 {
        story.wait(21_000).sample(first, tick, counters(30 * GIB, 2 * GIB));
        if tick % 4 == 0 {
            story.sample(second, tick / 4, counters(30 * GIB, 2 * GIB));
        }
    }
}

fn step_times(story: &Story) -> Vec<String> {
    let mut ui = Ui::default();
    ui.show_preset(Preset::Training);
    ui.scope = Scope::All;
    let shown = text(&picture(&story.session(), &ui, &theme("dusk"), 120, 40));
    let below = shown.lines().skip_while(|it| !it.starts_with("─ step time ·")).skip(1);
    below.take_while(|it| !it.starts_with('─')).map(str::to_owned).collect()
}

#[test]
fn steps_of_all_ranks_have_one_scale() {
    let mut story = Story::default();
    rank(&mut story, 0, 0);
    rank(&mut story, 1, 1);
    train(&mut story, (0, 1));
    let rows = step_times(&story);
    assert!(rows[0].starts_with(" rank 0  ") && rows[0].contains("▁▁▁▁▁▁") && !rows[0].contains('█'), "{rows:#?}");
    assert!(rows[1].starts_with(" rank 1  ") && rows[1].contains("██████"), "{rows:#?}");
    assert!(rows[0].ends_with(" 21 ms") && rows[1].ends_with(" 84 ms"), "{rows:#?}");
}

#[test]
fn a_rank_that_was_started_again_has_one_row_among_the_living() {
    let mut story = Story::default();
    rank(&mut story, 0, 0);
    rank(&mut story, 1, 1);
    train(&mut story, (0, 1));
    for probe in 0..2 {
        story.line(probe, Line::Bye(Bye { at_us: story.now, reason: "exit".to_owned(), ..Bye::default() }));
    }
    // When both have ended, they are the latest of their ranks.
    assert!(step_times(&story).iter().all(|it| !it.contains("ended")), "{:#?}", step_times(&story));
    rank(&mut story, 2, 0);
    rank(&mut story, 3, 1);
    train(&mut story, (2, 3));
    let rows = step_times(&story);
    let of_ranks: Vec<(&str, bool)> = rows
        .iter()
        .filter(|it| it.starts_with(" rank"))
        .map(|it| (it.get(1..7).unwrap_or_default(), it.contains(" ended, ")))
        .collect();
    assert_eq!(of_ranks, [("rank 0", false), ("rank 1", false), ("rank 0", true), ("rank 1", true)], "{rows:#?}");
    for probe in 2..4 {
        story.line(probe, Line::Bye(Bye { at_us: story.now, reason: "exit".to_owned(), ..Bye::default() }));
    }
    let rows = step_times(&story);
    let ended = rows.iter().filter(|it| it.contains(" ended, ")).count();
    assert_eq!(ended, 2, "the run before is apart also after the end: {rows:#?}");
}

/// Both ranks keep the same every step.
fn leaking() -> Story {
    let mut story = Story::default();
    rank(&mut story, 0, 0);
    rank(&mut story, 1, 1);
    for step in 1..=300 {
        story.wait(100_000);
        (0..2).for_each(|probe| _ = story.sample(probe, step, counters(30 * GIB + step * 4 * MIB, 2 * GIB)));
    }
    story
}

#[test]
fn one_leak_of_two_ranks_is_one_alert_and_each_process_has_its_own() {
    let session = leaking().session();
    let shown = |ui: &Ui| text(&picture(&session, ui, &theme("dusk"), 120, 40));
    let overview = shown(&Ui::default());
    assert!(overview.starts_with("gpuwatch  1 warning  2 devices"), "{overview}");
    assert_eq!(overview.matches(" 2 ranks: allocated +4.00 MiB/step").count(), 1, "{overview}");
    assert!(!overview.contains(" rank 0 on GPU 0: ") && !overview.contains(" rank 1 on GPU 1: "), "{overview}");
    let alerts = shown(&Ui { screen: Screen::Alerts, ..Ui::default() });
    assert!(
        alerts.contains("─ 1 open, 0 ended ─") && alerts.contains(" rank 0 on GPU 0, rank 1 on GPU 1\n"),
        "{alerts}"
    );
    for place in 0..2 {
        let mut ui = Ui::default();
        ui.update(Command::Device(place), &session);
        let process = shown(&Ui { screen: Screen::Process, ..ui });
        assert!(process.contains(" warning: growth of allocated +4.00 MiB/step"), "{process}");
        assert!(process.contains(&format!("rank {place}")), "{process}");
    }
}

#[test]
fn one_leak_of_two_ranks_starts_one_program_that_names_both_however_late_the_second_is() {
    for apart in [0, 3, 8] {
        let mut story = Story::default();
        rank(&mut story, 0, 0);
        rank(&mut story, 1, 1);
        // The second lags by some steps, and is noticed up to a second later.
        for step in 1..=300 {
            story.wait(100_000);
            story.sample(0, step, counters(30 * GIB + step * 4 * MIB, 2 * GIB));
            if step > apart {
                story.sample(1, step - apart, counters(30 * GIB + (step - apart) * 4 * MIB, 2 * GIB));
            }
            if step % 10 == 0 {
                story.add(Fact::Second);
            }
        }
        let messages = messages_under(&Policy::default(), &story);
        let lines: Vec<&str> = messages.iter().map(|it| it.line.as_str()).collect();
        assert_eq!(lines.len(), 1, "{apart}: {lines:?}");
        assert!(lines[0].starts_with("warning: ranks 0, 1: allocated +4.00 MiB/step, "), "{apart}: {lines:?}");
        let object: Value = serde_json::from_str(&messages[0].object).unwrap();
        schemas::check("alert", &object);
        assert_eq!((&object["ranks"], &object["rank"]), (&json!([0, 1]), &json!(0)));
        assert!(messages[0].environment.contains(&("GPUWATCH_ALERT_RANKS", "0,1".to_owned())));
    }
}

#[test]
fn leaks_of_different_lines_or_causes_are_alerts_of_their_own() {
    let session = leaking().session();
    let found = findings(&session);
    let all: Vec<&Finding> = found.all.iter().collect();
    assert_eq!((all.len(), follow::once(&all, None, &session).len()), (2, 1), "{all:#?}");
    // The selected one stays selected.
    for it in &all {
        assert_eq!(follow::once(&all, Some(it.identity()), &session), [*it]);
        assert_eq!(follow::sharing(it, &all, &session).len(), 2);
    }
    let other = Finding { cause: Cause::GraphRetained, ..all[1].clone() };
    let apart = [all[0], &other];
    assert_eq!(follow::once(&apart, None, &session), apart);
    assert_eq!(follow::sharing(&other, &apart, &session), [&other]);
}

fn culprit(allocated: Spot) -> Box<Culprit> {
    Box::new(Culprit {
        allocated,
        library: None,
        kept: None,
        kept_or: Vec::new(),
        is_kept_by_library: false,
        bytes_per_step: 4.0 * MIB as f64,
        blocks_per_step: 1.0,
        share: 1.0,
        graph: None,
        holders: Vec::new(),
        cause: Cause::GraphRetained,
        grad: true,
        sentence: String::new(),
        advice: String::new(),
        source: Vec::new(),
        frames: Vec::new(),
    })
}

#[test]
fn a_leak_whose_line_is_known_on_one_rank_so_far_is_one_alert() {
    let session = leaking().session();
    let found = findings(&session);
    let mut all = found.all.clone();
    let line = Spot { file: "/w/train.py".into(), line: 87, ..Spot::default() };
    all[1].culprit = Some(culprit(line));
    all[1].cause = Cause::GraphRetained;
    let once = |all: &[Finding]| {
        let all: Vec<&Finding> = all.iter().collect();
        follow::grouped(&all, None, &session).iter().map(Vec::len).collect::<Vec<_>>()
    };
    assert_eq!(once(&all), [2]);
    // The one with the line stands for both.
    assert_eq!(follow::once(&[&all[0], &all[1]], None, &session), [&all[1]]);
    let mut faster = all.clone();
    faster[0].bytes_per_step = all[0].bytes_per_step.map(|it| it * 2.0);
    assert_eq!(once(&faster), [1, 1], "their rates differ");
    let mut elsewhere = all.clone();
    let other = Spot { line: 88, ..all[1].culprit.as_ref().unwrap().allocated.clone() };
    elsewhere[0].culprit = Some(culprit(other));
    assert_eq!(once(&elsewhere), [1, 1], "their lines differ");
}

#[test]
fn a_check_counts_a_leak_of_two_ranks_once_and_names_them() {
    let run = Run { session: leaking().session(), is_whole: true, ..Run::default() };
    let limits =
        Limits { fail_on: Some(vec![FailOn::Severity(Severity::Warning)]), max_growth: Some(1), ..Limits::default() };
    let verdict = check::judged(run, &limits, &Policy::default());
    let found = "growth of allocated, +4.00 MiB/step, ranks 0, 1, pids 4000, 4001";
    assert_eq!(verdict.hits, [format!("warning: {found}"), format!("{found}: more than 1 B/step")]);
    assert_eq!(verdict.title(), "1 warning: memory grows 4.00 MiB a step (ranks 0, 1)");
    let text = verdict.text();
    assert_eq!(text.matches("\nwarning: growth of ").count(), 1, "{text}");
    assert_eq!(verdict.findings.len(), 2, "its JSON has one of each rank");
}

#[test]
fn the_title_of_the_memory_follows_the_selected_process() {
    let mut story = leaking();
    story.device(0, 60 * GIB, &[(4000, 33 * GIB), (977, 9 * GIB)]);
    let session = story.session();
    let mut ui = Ui { scope: Scope::All, focus: Focus::Processes, ..Ui::default() };
    for name in ["memory of GPU 0 · rank 0 ─", "memory of GPU 1 · rank 1 ─", "memory of GPU 0 · pid 977 in others ─"]
    {
        let shown = text(&picture(&session, &ui, &theme("dusk"), 120, 40));
        assert!(shown.contains(name), "{name}: {shown}");
        ui.update(Command::Move(Motion::Down), &session);
    }
}
