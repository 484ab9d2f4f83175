//! Screens as they are seen: fixed pictures in text and style, every size, hostile names.

pub(crate) mod actions;
pub(crate) mod alert_rows;
pub(crate) mod background;
mod cluster;
mod contact;
pub(crate) mod crash;
mod culprit;
pub(crate) mod demo;
mod every;
mod figures;
pub(crate) mod growth;
pub(crate) mod keyboard;
mod layout;
pub(crate) mod mouse;
pub(crate) mod presets;
mod ranks;
pub(crate) mod screenshot;
mod snapshot;
pub(crate) mod themes;
mod timeline;

use crate::helpers::story::{
    GIB, Story, alerted, counters, device, fleet, hostile, many_devices, nvml_alone, picture, styles, text, usual,
};
use gpuwatch::{
    facts::{
        event::{
            DriverState, Fact, Line, ProbeId, ReadError,
            wire::{self, Hello, Oom},
        },
        metrics::{Metric, Metrics},
    },
    model::{findings::findings, session::Session},
    screen::{
        theme::{self, ColorDepth, Role, Theme},
        ui::{Command, Focus, HostCommand, Motion, Scope, Screen, Ui},
    },
};
use ratatui::style::Modifier;

const SIZES: [(u16, u16); 3] = [(40, 12), (80, 24), (120, 40)];

#[test]
fn other_choices_and_other_sessions_look_like_this() {
    let session = usual().session();
    let second = Ui { device: Some(device(1)), ..Ui::default() };
    let all = Ui { scope: Scope::All, focus: Focus::Processes, row: 1, ..second.clone() };
    for (name, ui) in [("all", all), ("second", second)] {
        insta::assert_snapshot!(name, text(&picture(&session, &ui, &theme("dusk"), 80, 24)));
    }
    let grid = many_devices().session();
    insta::assert_snapshot!("grid", text(&picture(&grid, &Ui::default(), &theme("dusk"), 80, 24)));
    insta::assert_snapshot!("wide", text(&picture(&session, &Ui::default(), &theme("dusk"), 170, 40)));
    let plain = theme("plain").at(ColorDepth::None).in_ascii();
    let ascii = text(&picture(&session, &Ui::default(), &plain, 80, 24));
    assert!(ascii.is_ascii());
    insta::assert_snapshot!("ascii", ascii);
}

/// One that is open and does not ring, one that ended the run, one that ended by itself.
#[test]
fn every_alert_is_listed_with_its_figures_and_kept_when_it_ended() {
    let session = alerted().session();
    let ui = Ui { screen: Screen::Alerts, ..Ui::default() };
    for (width, height) in SIZES {
        let picture = picture(&session, &ui, &theme("dusk"), width, height);
        insta::assert_snapshot!(format!("alerts-{width}x{height}-text"), text(&picture));
        insta::assert_snapshot!(format!("alerts-{width}x{height}-style"), styles(&picture));
    }
    for width in [40, 80, 120] {
        let all = read_through(&session, &ui, width);
        for found in findings(&session).all {
            let since = format!("at step {}", found.first_alert_step);
            for phrase in [found.severity.name(), found.cause.id(), &since, &found.slope().unwrap_or_default()] {
                let is_resolved = phrase == found.severity.name() && !found.is_active();
                assert!(is_resolved || all.contains(phrase), "{width}: no {phrase:?} in {all}");
            }
            assert!(!found.is_active() || all.contains(found.advice) || width == 40, "{width}: {all}");
        }
        assert!(all.contains("resolved") && all.contains("2 open, 1 ended"), "{all}");
    }
}

#[test]
fn an_empty_list_of_alerts_shows_why_it_is_empty() {
    let mut young = Story::default();
    young.device(0, GIB, &[]).probe(0, 4242, 0, None).wait(10).sample(0, 1, counters(GIB, GIB));
    let mut healthy = Story::default();
    healthy.device(0, GIB, &[]).probe(0, 4242, 0, None);
    for step in 1..100 {
        healthy.wait(100_000).sample(0, step, counters(GIB, GIB));
    }
    for (session, phrase) in [
        (Session::default(), "gpuwatch run -- python train.py starts a job with one"),
        (young.session(), "growth is not judged yet ("),
        (healthy.session(), "nothing was found that grows"),
    ] {
        let ui = Ui { screen: Screen::Alerts, ..Ui::default() };
        for (width, height) in SIZES {
            let shown = text(&picture(&session, &ui, &theme("dusk"), width, height));
            let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(shown.contains("0 open, 0 ended") && shown.contains(phrase), "{width}: {shown}");
        }
        assert!(!text(&picture(&session, &Ui::default(), &theme("dusk"), 80, 24)).contains("critical"));
    }
}

fn bye() -> Line {
    Line::Bye(wire::Bye { reason: wire::EXIT.to_owned(), ..wire::Bye::default() })
}

/// Without colours, the words are what is left of the badge.
#[test]
fn the_badge_counts_what_is_open_worst_first() {
    let plain = theme("plain").at(ColorDepth::None).in_ascii();
    let first = |story: &Story| {
        let shown = text(&picture(&story.session(), &Ui::default(), &plain, 80, 24));
        shown.lines().next().unwrap_or_default().to_owned()
    };
    let mut story = alerted();
    assert!(first(&story).starts_with("gpuwatch  1 critical  1 info  2 devices"), "{}", first(&story));
    // If one process has ended and another one runs, only the ended one's out-of-memory error stays.
    story.line(0, bye());
    assert!(first(&story).starts_with("gpuwatch  1 critical  2 devices"), "{}", first(&story));
    // When none runs, their final findings stay.
    story.line(1, bye());
    assert!(first(&story).starts_with("gpuwatch  1 critical  1 info  2 devices"), "{}", first(&story));
}

#[test]
fn without_any_probe_it_is_a_monitor_of_its_own() {
    let session = nvml_alone().session();
    let picture = picture(&session, &Ui::default(), &theme("dusk"), 80, 24);
    insta::assert_snapshot!("nvml-alone", text(&picture));
    assert!(text(&picture).contains("no probe yet: P, or gpuwatch attach 31337"));
}

#[test]
fn every_trouble_is_a_state_of_its_own() {
    let stalled = DriverState::Stalled { since: gpuwatch::facts::units::Stamp(1_000_000) };
    let absent = DriverState::Absent { why: "no NVIDIA driver here: libnvidia-ml.so.1 was not found".into() };
    let cases = [
        (Fact::Driver(stalled), "has not answered for 69 s"),
        (Fact::Driver(absent), "libnvidia-ml.so.1 was not found"),
        (Fact::Memory { device: device(0), reading: Err(ReadError::NoPermission) }, "no permission"),
        (Fact::Memory { device: device(0), reading: Err(ReadError::Lost) }, "fell off the bus"),
        (Fact::Processes { device: device(0), reading: Err(ReadError::NotSupported) }, "does not have it"),
        (Fact::DeviceGone { device: device(0) }, "gone from the driver's list"),
        (Fact::Notice("the socket directory is not ours".into()), "the socket directory is not ours"),
        (oom(), "OUT OF MEMORY  rank 0 on GPU 0, step 99: other processes hold 9.00 GiB (6 %) of"),
        (oom(), "the device. Without them, 2.00 GiB would have fitted. Largest unused block:"),
        (oom(), "20.00 MiB. Live blocks: 40 x 1.00 GiB, 96 x 20.00 MiB, 7 x 2.00 MiB"),
        (Fact::JobEnded { code: Some(3), signal: None }, "exit code 3"),
    ];
    for (fact, phrase) in cases.into_iter().chain(lives()) {
        let mut story = usual();
        story.add(fact.clone());
        let shown = text(&picture(&story.session(), &Ui::default(), &theme("dusk"), 80, 24));
        assert!(shown.contains(phrase), "{fact:?}\n{shown}");
    }
    let nothing = text(&picture(&Session::default(), &Ui::default(), &theme("dusk"), 80, 24));
    assert!(nothing.contains("waiting  for the driver and for probes"), "{nothing}");
}

/// Enter opens the device, where all of them have room, from the list of devices alone.
#[test]
fn messages_without_room_are_counted_with_a_key_only_where_it_shows_them() {
    let mut story = usual();
    story.add(Fact::DeviceGone { device: device(0) });
    for it in [oom(), Fact::JobEnded { code: Some(3), signal: None }, Fact::Notice("a directory is squatted".into())] {
        story.add(it);
    }
    let session = story.session();
    let shown = |ui: &Ui| text(&picture(&session, ui, &theme("dusk"), 80, 24));
    let overview = shown(&Ui::default());
    assert!(overview.contains(": Enter)"), "{overview}");
    let mut opened = Ui::default();
    opened.update(Command::Open, &session);
    let device = text(&picture(&session, &opened, &theme("dusk"), 80, 60));
    assert!(device.contains("a directory is squatted") && device.contains("exit code 3"), "{device}");
    for ui in [
        Ui { focus: Focus::Processes, ..Ui::default() },
        Ui { screen: Screen::Alerts, ..Ui::default() },
        Ui { screen: Screen::Timeline, ..Ui::default() },
        Ui { help: true, ..Ui::default() },
    ] {
        let all = shown(&ui);
        assert!(!all.contains(": Enter)") && (ui.help || all.contains(" more)")), "{ui:?}\n{all}");
    }
}

/// Complaints about the alert program belong to the viewer: the session is the same as a replay's.
#[test]
fn messages_of_the_viewer_are_shown_with_those_of_the_session() {
    let ui = Ui { complaint: Some("--on-alert: notify.sh has failed".into()), ..Ui::default() };
    let shown = text(&picture(&usual().session(), &ui, &theme("dusk"), 80, 24));
    assert!(shown.contains("--on-alert: notify.sh has failed"), "{shown}");
}

/// The probe lives on, but no line is understood: no table has a row that could show why.
#[test]
fn another_wire_version_is_shown_for_as_long_as_it_lasts() {
    let [(other, phrase), _] = lives();
    let mut story = usual();
    story.add(other).wait(7_200_000_000).add(Fact::Second);
    let shown = |story: &Story| text(&picture(&story.session(), &Ui::default(), &theme("dusk"), 80, 24));
    assert!(shown(&story).contains(phrase), "{}", shown(&story));
    story.add(Fact::ProbeGone { probe: ProbeId(5), why: "it has ended".into() });
    assert!(shown(&story).contains("pid 7: it has ended"), "{}", shown(&story));
    story.wait(61_000_000).add(Fact::Second);
    assert!(!shown(&story).contains("pid 7"), "{}", shown(&story));
}

#[test]
fn absent_is_not_zero() {
    let mut story = Story::default();
    story.device(0, 0, &[]);
    story.add(Fact::Memory { device: device(0), reading: Err(ReadError::NotSupported) });
    let known: Metrics = Metric::TABLE.iter().map(|it| (it.metric, 1)).collect();
    story.add(Fact::Metrics { device: device(0), changes: Metrics::default().since(&known) });
    let shown = text(&picture(&story.session(), &Ui::default(), &theme("dusk"), 80, 24));
    assert!(shown.lines().any(|it| it.contains("▸ 0") && it.matches('–').count() >= 6), "{shown}");
}

/// The end of the device screen, as a user sees it after scrolling down.
#[test]
fn metrics_of_a_device_are_at_the_end_of_its_screen() {
    let ui = Ui { screen: Screen::Device, scroll: usize::MAX / 2, ..Ui::default() };
    insta::assert_snapshot!("metrics-80x24", text(&picture(&usual().session(), &ui, &theme("dusk"), 80, 24)));
}

#[test]
fn hostile_names_cannot_send_escapes_or_forge_lines() {
    let session = hostile().session();
    for screen in [Screen::Overview, Screen::Device, Screen::Process, Screen::Timeline, Screen::Alerts] {
        let ui = Ui { screen, ..Ui::default() };
        for place in 0..5 {
            let mut ui = ui.clone();
            ui.update(Command::Device(place), &session);
            for (width, height) in [(80, 24), (170, 45)] {
                let drawn = picture(&session, &ui, &theme("dusk"), width, height);
                for cell in &drawn.content {
                    let bad = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
                    assert!(!cell.symbol().chars().any(bad), "{:?}", cell.symbol());
                }
            }
        }
    }
}

#[test]
fn keys_move_through_everything_without_leaving_it() {
    let session = usual().session();
    let mut ui = Ui::default();
    for command in [Command::Move(Motion::Right), Command::Move(Motion::Right), Command::Move(Motion::Down)] {
        ui.update(command, &session);
    }
    assert_eq!(ui.device, Some(device(1)));
    ui.update(Command::Device(0), &session);
    ui.update(Command::NextBox, &session);
    ui.update(Command::Move(Motion::Last), &session);
    assert_eq!((ui.focus, ui.row), (Focus::Processes, 1));
    // Among the rows of all devices, the device follows the row, and the row the device.
    ui.update(Command::Host(HostCommand::All), &session);
    assert_eq!((ui.scope, ui.row), (Scope::All, 0));
    ui.update(Command::Move(Motion::Down), &session);
    assert_eq!((&ui.device, ui.row), (&Some(device(1)), 1));
    ui.update(Command::Device(0), &session);
    assert_eq!(ui.row, 0);
    ui.update(Command::Host(HostCommand::All), &session);
    ui.update(Command::Open, &session);
    ui.update(Command::Help, &session);
    ui.update(Command::Back, &session);
    assert_eq!((ui.help, ui.screen), (false, Screen::Process));
    for (command, screen) in [
        (Command::Back, Screen::Overview),
        (Command::Host(HostCommand::Alerts), Screen::Alerts),
        (Command::Host(HostCommand::Alerts), Screen::Overview),
        (Command::Host(HostCommand::Alerts), Screen::Alerts),
        (Command::Back, Screen::Overview),
    ] {
        ui.update(command, &session);
        assert_eq!((ui.screen, ui.scroll), (screen, 0));
    }
    ui.update(Command::Freeze, &session);
    ui.update(Command::Quit, &session);
    assert_eq!((ui.screen, ui.frozen, ui.quit), (Screen::Overview, true, true));
    let mut lost = Ui { row: 7, ..Ui::default() };
    for command in [
        Command::Move(Motion::Down),
        Command::Move(Motion::Last),
        Command::Device(8),
        Command::Move(Motion::PageDown),
        Command::NextBox,
    ] {
        lost.update(command, &Session::default());
    }
    assert_eq!((lost.device, lost.row), (None, 7));
}

/// The leak is on GPU 0: it is seen on every screen that lists devices, whichever is selected.
#[test]
fn growth_is_shown_whichever_device_is_selected() {
    for story in [usual(), many_devices()] {
        let session = story.session();
        for (width, height) in [(70, 24), (80, 24), (120, 40), (200, 50)] {
            let shown = text(&picture(
                &session,
                &Ui { device: Some(device(1)), ..Ui::default() },
                &theme("dusk"),
                width,
                height,
            ));
            assert!(shown.lines().take(9).any(|it| it.contains(" 0 ") && it.contains("+4.00 MiB")), "{width}: {shown}");
        }
    }
    let small = text(&picture(&usual().session(), &Ui::default(), &theme("dusk"), 40, 12));
    assert!(small.lines().any(|it| it.starts_with("GPU 0") && it.contains("full in 37 min")), "{small}");
    assert!(small.contains("+4.00 MiB/step ─"), "{small}");
}

/// Without a selection, the screen shows the device with a probed process, not eight idle ones before it.
#[test]
fn the_first_watched_device_is_selected_until_one_is_chosen() {
    let mut story = Story::default();
    for index in 0..4 {
        story.device(index, 1 << 30, &[]);
    }
    assert_eq!(Ui::default().selected(&story.session()), 0);
    story.probe(1, 4242, 2, None).sample(1, 1, counters(1 << 30, 0));
    let session = story.session();
    assert_eq!(Ui::default().selected(&session), 2);
    assert_eq!(Ui { device: Some(device(1)), ..Ui::default() }.selected(&session), 1);
    let mut ui = Ui::default();
    ui.update(Command::Move(Motion::Left), &session);
    assert_eq!(ui.device, Some(device(1)));
}

/// A leak on the second device: it is what is shown first, until the user selects or opens something.
#[test]
fn the_view_begins_with_what_needs_attention_until_something_is_selected() {
    let leaking = |rank: u32, step: u64| u64::from(rank == 1) * step * 4 * (1 << 20);
    let mut story = Story::default();
    for rank in 0..2 {
        story.device(rank, 60 * GIB, &[]).probe(rank, 4242 + rank, rank, None);
    }
    for step in 1..=300 {
        story.wait(100_000);
        for rank in 0..2 {
            story.sample(rank, step, counters(20 * GIB + leaking(rank, step), GIB));
        }
    }
    let session = story.session();
    let found = findings(&session);
    let begun = || {
        let mut ui = Ui::default();
        ui.attend(&session, &found);
        ui
    };
    for (width, height) in [(40, 12), (80, 24), (120, 40), (200, 60)] {
        let shown = text(&picture(&session, &begun(), &theme("dusk"), width, height));
        assert!(shown.contains("GPU 1") && shown.contains("+4.00 MiB/step"), "{shown}");
        assert!(shown.contains("allocated · rank 1"), "{shown}");
    }
    // An opened device stays selected, whatever becomes worse afterwards.
    for command in [Command::Open, Command::Host(HostCommand::Timeline), Command::Move(Motion::Down)] {
        let mut ui = begun();
        ui.update(command, &session);
        assert_eq!((ui.device.clone(), ui.selected(&session)), (Some(device(1)), 1), "{command:?}");
        ui.attend(&session, &findings(&usual().session()));
        assert_eq!(ui.attention, None);
        let mut quiet = ui.clone();
        quiet.attend(&session, &gpuwatch::model::findings::Findings::default());
        assert_eq!(quiet.selected(&session), 1);
    }
    let mut chosen = begun();
    chosen.update(Command::Device(0), &session);
    chosen.attend(&session, &found);
    assert_eq!(chosen.selected(&session), 0);
    // Help and freezing select nothing.
    let mut aside = begun();
    aside.update(Command::Help, &session);
    assert_eq!((aside.device.clone(), aside.selected(&session)), (None, 1));
}

/// `driver` is its version, and nothing else on any screen: not the reserve, a process's total, or what grows.
#[test]
fn every_screen_uses_the_same_term_for_the_same_thing() {
    let session = usual().session();
    for screen in [Screen::Overview, Screen::Device, Screen::Process, Screen::Timeline, Screen::Alerts] {
        for (width, height) in [(40, 12), (80, 24), (120, 40), (200, 60)] {
            let shown = text(&picture(&session, &Ui { screen, ..Ui::default() }, &theme("dusk"), width, height));
            let own = |it: &str| {
                it.replace("driver 570", "")
                    .replace("the driver keeps it for itself", "")
                    .replace("no driver", "")
                    .contains("driver")
            };
            assert!(!shown.lines().any(own), "{screen:?} {width}x{height}\n{shown}");
            for old in ["taken", "probed", "driver says", " of  full"] {
                assert!(!shown.contains(old), "{old}: {screen:?} {width}x{height}\n{shown}");
            }
        }
    }
    let of = |screen| text(&picture(&session, &Ui { screen, ..Ui::default() }, &theme("dusk"), 200, 60));
    let (device, process) = (of(Screen::Device), of(Screen::Process));
    assert!(device.contains("╵72.30 GiB = 71.80 GiB used + 512.0 MiB reserve"), "{device}");
    assert!(device.contains("62.80 GiB this process") && device.contains(" reserve "), "{device}");
    assert!(process.contains(" non-torch    3.00 GiB ") && process.contains(" others       9.00 GiB "), "{process}");
    assert!(process.contains(" total          62.80 GiB"), "{process}");
    // Where there is less room, the sum is named alone.
    let small = text(&picture(&session, &Ui { screen: Screen::Device, ..Ui::default() }, &theme("dusk"), 80, 24));
    assert!(
        small.contains("72.30 GiB used + reserve") || small.contains("71.80 GiB used + 512.0 MiB reserve"),
        "{small}"
    );
}

/// An opened screen names its subject in one line, each figure with its name, and the bar next to the memory.
#[test]
fn the_line_of_a_device_labels_each_figure() {
    let session = usual().session();
    let line = |width| {
        let ui = Ui { screen: Screen::Process, ..Ui::default() };
        let shown = text(&picture(&session, &ui, &theme("dusk"), width, 24));
        shown.lines().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(
        line(120),
        "GPU 0  71.8/140.0 GiB █████····· 51 %  util 97 %  +4.00 MiB/step  full in 37 min  61 °C  512/700 W  device 1 of 2"
    );
    assert_eq!(line(80), "GPU 0  71.8/140.0 GiB █████····· 51 %  util 97 %  +4.00 MiB/step  full in 37 min");
    assert_eq!(line(40), "GPU 0  71.8/140.0 GiB  full in 37 min");
    for width in 0..200 {
        assert!(line(width).matches(" %").count() <= 2 && !line(width).contains("…"), "{width}: {}", line(width));
    }
}

/// A device that is soon full is as urgent as one that is nearly full, and a figure of load has its bar.
#[test]
fn bars_have_the_colour_of_what_is_urgent() {
    let drawn = picture(&usual().session(), &Ui { focus: Focus::Processes, ..Ui::default() }, &theme("dusk"), 120, 40);
    let shown = text(&drawn);
    let colour = |row: u16| {
        let line = shown.lines().nth(row.into()).unwrap_or_default();
        let column = line.chars().position(|it| it == '█').unwrap();
        drawn[(u16::try_from(column).unwrap(), row)].fg
    };
    let of = |role| theme("dusk").style(role).fg.unwrap();
    assert_eq!(colour(2), of(Role::Warning), "half full, and it leaks\n{shown}");
    assert_eq!(colour(3), of(Role::Good), "a quarter full\n{shown}");
    assert!(shown.lines().skip(2).take(2).all(|it| it.contains("▇  97 %") && it.contains("▄  61 °")), "{shown}");
}

/// Evidence reads like a sentence, and repeats nothing.
#[test]
fn evidence_is_written_as_text() {
    let session = usual().session();
    let ui = Ui { screen: Screen::Alerts, ..Ui::default() };
    for width in [80, 120] {
        let all = read_through(&session, &ui, width);
        for phrase in ["4.00 MiB/step (95 % confidence)", "2.70 GiB gained", "noticed at step"] {
            assert!(all.contains(phrase), "{width}: no {phrase:?} in {all}");
        }
        assert!(!all.contains("interval") && !all.contains("95 % +"), "{all}");
    }
}

/// The screen of a process shows first what is wrong with it and where; other counters come after.
#[test]
fn alerts_and_source_come_before_the_counters_of_a_process() {
    let session = crate::helpers::story::blamed(crate::analysis::culprit::sites).session();
    for width in [40, 80, 120, 200] {
        for height in [12, 24, 60] {
            let all = read_from_top(&session, &Ui { screen: Screen::Process, ..Ui::default() }, width, height);
            let at =
                |phrase: &str| all.find(phrase).unwrap_or_else(|| panic!("no {phrase:?}, {width}x{height}\n{all}"));
            assert!(at("─ culprit") < at("─ alerts") && at("─ alerts") < at("─ where it comes from"), "{width}\n{all}");
            assert!(at("─ where it comes from") < at("─ memory") && at("─ where") < at(" retries"), "{width}\n{all}");
        }
    }
}

/// No time is left: no count of steps stands there.
#[test]
fn a_forecast_of_zero_steps_is_not_shown() {
    let session = usual().session();
    let mut found = findings(&session).all[0].clone();
    (found.full_in_steps, found.full_in_us) = (Some(0), Some(90_000));
    assert_eq!((found.forecast(), found.left()), (None, None));
    (found.full_in_steps, found.full_in_us) = (Some(12), Some(90_000));
    assert_eq!((found.forecast().as_deref(), found.left()), (Some("full in 12 steps"), None));
    (found.full_in_steps, found.full_in_us) = (Some(1), Some(2_000_000));
    assert_eq!(found.forecast().as_deref(), Some("full in 1 step, 2 s"));
}

/// The title names the device, the number of listed processes, and the number of all.
#[test]
fn a_title_labels_its_count() {
    let session = fleet(20).session();
    let one = text(&picture(&session, &Ui::default(), &theme("dusk"), 80, 24));
    assert!(one.contains("─ processes on GPU 0: 1 of 20 ─"), "{one}");
    let all = Ui { scope: Scope::All, ..Ui::default() };
    let all = text(&picture(&session, &all, &theme("dusk"), 80, 24));
    assert!(all.contains("─ processes on all devices: 20 · ") && all.contains(" rows 1–"), "{all}");
    let small = text(&picture(&usual().session(), &Ui::default(), &theme("dusk"), 50, 30));
    assert!(small.contains("processes on GPU 0: 2 of 3"), "{small}");
}

#[test]
fn every_screen_shows_how_to_leave_it() {
    let uis = [
        (Ui::default(), "q quit"),
        (Ui { screen: Screen::Device, ..Ui::default() }, "q quit"),
        (Ui { screen: Screen::Process, ..Ui::default() }, "q quit"),
        (Ui { screen: Screen::Timeline, ..Ui::default() }, "q quit"),
        (Ui { screen: Screen::Alerts, ..Ui::default() }, "q quit"),
        (Ui { help: true, ..Ui::default() }, "quit"),
    ];
    for session in [Session::default(), usual().session()] {
        for (ui, phrase) in &uis {
            for (width, height) in [(20, 1), (20, 5), (40, 12), (80, 24), (200, 50)] {
                let shown = text(&picture(&session, ui, &theme("dusk"), width, height));
                assert!(shown.contains(phrase) || (ui.help && height < 3), "{width}x{height} {ui:?}:\n{shown}");
            }
        }
    }
}

#[test]
fn explanations_scroll_to_their_end() {
    let session = usual().session();
    for width in [60, 80, 120] {
        let all = read_through(&session, &Ui { screen: Screen::Device, ..Ui::default() }, width);
        for rung in findings(&session)
            .device(&device(0))
            .unwrap()
            .ladder
            .rungs
            .iter()
            .filter(|it| it.bytes.is_some_and(|bytes| bytes.0 > 0))
        {
            let meaning = rung.gap.row();
            assert!(all.contains(meaning.cause) && all.contains(meaning.remedy), "{width}: {} in {all}", meaning.name);
        }
    }
}

#[test]
fn without_colours_the_selected_row_is_still_seen() {
    let depths = [ColorDepth::None, ColorDepth::Ansi16];
    for (name, depth) in theme::names().flat_map(|name| depths.map(|depth| (name, depth))) {
        let theme = theme(name).at(depth);
        let drawn = picture(&usual().session(), &Ui::default(), &theme, 80, 24);
        let reversed = |y: u16| {
            let is_reversed = |x: u16| drawn.cell((x, y)).is_some_and(|it| it.modifier.contains(Modifier::REVERSED));
            (0..80).filter(|x| is_reversed(*x)).count()
        };
        assert!(reversed(2) > 70 && reversed(3) == 0, "{name}");
    }
}

/// The lines of an opened screen, scrolled line by line, each where it is seen first.
fn read_from_top(session: &Session, ui: &Ui, width: u16, height: u16) -> String {
    let mut seen: Vec<String> = Vec::new();
    for scroll in 0..80 {
        let shown = text(&picture(session, &Ui { scroll, ..ui.clone() }, &theme("dusk"), width, height));
        for line in shown.lines() {
            if !seen.iter().any(|it| it == line) {
                seen.push(line.to_owned());
            }
        }
    }
    seen.join("\n")
}

/// The words of an opened screen, scrolled from its beginning to its end.
fn read_through(session: &Session, ui: &Ui, width: u16) -> String {
    let mut seen = String::new();
    for scroll in (0..80).step_by(5) {
        let ui = Ui { scroll, ..ui.clone() };
        seen += &text(&picture(session, &ui, &theme("dusk"), width, 24));
    }
    seen.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns facts about probes in trouble, each with the text that the screens show.
fn lives() -> [(Fact, &'static str); 2] {
    let hello = Hello { protocol: 9, pid: 7, ..Hello::default() };
    let other = Fact::Probe { probe: ProbeId(5), line: Box::new(Line::Hello(hello)) };
    let gone = Fact::ProbeGone { probe: ProbeId(1), why: "the process ended without a word".into() };
    [(other, "pid 7 speaks version 9 of the wire"), (gone, "rank 1 (pid 4243): the process ended without a word")]
}

fn oom() -> Fact {
    let mut oom = Oom { step: Some(99), tried: Some(2 << 30), device_free: Some(1 << 30), ..Oom::default() };
    oom.largest_free = Some(20 << 20);
    oom.blocks = [(1 << 30, 40), (20 << 20, 96), (2 << 20, 7), (512, 9), (1024, 1)].into();
    Fact::Probe { probe: ProbeId(0), line: Box::new(Line::Oom(oom)) }
}

fn theme(name: &str) -> Theme {
    Theme::builtin(name).unwrap()
}
