//! Alerts as rows: selected with keys and mouse on every screen that lists them, followed, copied, explained, allowed.

use crate::{
    analysis::culprit::sites,
    helpers::{
        story::{GIB, Story, alerted, blamed, counters, picture, text},
        terminal::{PATIENCE, until},
    },
    screens::actions::{Job, quits},
};
use gpuwatch::{
    model::{
        alerts::{self, Policy},
        analysis::cause::Cause,
        findings::{Finding, Kind, findings},
        session::Session,
    },
    screen::{
        theme::Theme,
        ui::{
            Command, Expecting, Focus, HostCommand, Motion, Request, Screen, Ui,
            alert_list::Allowing,
            mouse::{Mouse, Target},
            rows::RowId,
        },
        view::{self, Drawn},
    },
};
use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
};
use std::fs;

fn drawn(session: &Session, ui: &Ui, width: u16, height: u16) -> (String, Drawn) {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    let found = ui.policy.findings(session);
    let drawn = view::draw(&mut buffer, session, &found, ui, &Theme::builtin("dusk").unwrap());
    (text(&buffer), drawn)
}

/// Every screen that lists alerts, with the arrows among them.
fn screens() -> [Ui; 4] {
    let of = |screen| Ui { screen, focus: Focus::Alerts, ..Ui::default() };
    [of(Screen::Overview), of(Screen::Device), of(Screen::Process), of(Screen::Alerts)]
}

fn selected(ui: &Ui, session: &Session) -> Finding {
    let found = ui.policy.findings(session);
    let listed = ui.alerts(&found, session);
    listed[ui.alert_place(&listed)].clone()
}

#[test]
fn tab_leads_to_the_alerts_wherever_they_are_listed() {
    let session = alerted().session();
    for (screen, presses) in [(Screen::Overview, 2), (Screen::Device, 1), (Screen::Process, 1)] {
        let mut ui = Ui { screen, ..Ui::default() };
        for _ in 0..presses {
            assert!(!ui.is_among_alerts(), "{screen:?}");
            ui.update(Command::NextBox, &session);
        }
        assert!(ui.is_among_alerts(), "{screen:?}");
        let (shown, _) = drawn(&session, &ui, 80, 24);
        assert!(shown.lines().any(|it| it.starts_with('▸')), "{shown}");
        ui.update(Command::PreviousBox, &session);
        assert!(!ui.is_among_alerts(), "{screen:?}");
    }
}

/// Three ranks, each of which keeps 512 bytes a step.
fn small_leaks() -> Session {
    let mut story = Story::default();
    for rank in 0..3 {
        story.device(0, 60 * GIB, &[]).probe(rank, 4242 + rank, rank, None);
    }
    for step in 1..=400 {
        story.wait(100_000);
        for rank in 0..3 {
            story.sample(rank, step, counters(10 * GIB + step * 512, GIB));
        }
    }
    story.session()
}

#[test]
fn no_row_stays_blank_while_an_alert_is_nowhere() {
    let session = small_leaks();
    let mut lone = 0;
    for (width, height) in [80, 170].into_iter().flat_map(|width| (16..=48).map(move |height| (width, height))) {
        let (shown, _) = drawn(&session, &Ui::default(), width, height);
        let rows = shown.lines().skip_while(|it| !it.starts_with("─ processes"));
        let has_room = rows.clone().any(|it| it.trim().is_empty());
        let named = rows.filter(|it| it.starts_with(" info ")).count();
        assert!(named > 0 || !has_room, "{height}\n{shown}");
        lone += usize::from(named == 1 && !shown.contains("─ alerts"));
    }
    assert!(lone > 0, "where the list has no room, the first stands for all");
}

#[test]
fn a_selected_alert_opens_its_process_and_its_step() {
    let session = alerted().session();
    for ui in screens() {
        let it = selected(&ui, &session);
        let mut opened = ui.clone();
        opened.update(Command::Open, &session);
        // On the screen of the process, the run is what is further in.
        let further = if ui.screen == Screen::Process { Screen::Timeline } else { Screen::Process };
        assert_eq!(opened.screen, further);
        assert_eq!(opened.held, it.probe.map(|probe| RowId::Probed(probe, 0)), "{:?}", ui.screen);
        assert_eq!(opened.process(&session).map(|it| it.0.probe), it.probe);
        opened.update(Command::Back, &session);
        assert_eq!((opened.screen, opened.focus), (ui.screen, Focus::Alerts), "back among the alerts");
        let mut run = ui.clone();
        run.update(Command::Host(HostCommand::Timeline), &session);
        assert_eq!((run.screen, run.timeline.cursor), (Screen::Timeline, Some(it.first_alert_step)));
    }
}

#[test]
fn a_selected_alert_is_copied_explained_and_asked_about() {
    let session = alerted().session();
    for mut ui in screens() {
        let it = selected(&ui, &session);
        ui.update(Command::Copy, &session);
        assert_eq!(ui.request.take(), Some(Request::Copy(alerts::line(&it, &session))));
        ui.update(Command::Host(HostCommand::Explain), &session);
        assert_eq!(ui.explained, Some(it.cause));
        let (shown, page) = drawn(&session, &ui, 100, 40);
        assert!(shown.contains(it.cause.entry().title) && shown.contains(it.cause.id()), "{shown}");
        ui.update(Command::Move(Motion::Down), &session);
        assert_eq!(ui.help_scroll.min(page.help_most), 1.min(page.help_most), "the page scrolls, not what is under it");
        ui.update(Command::Back, &session);
        assert_eq!((ui.explained, ui.screen), (None, ui.screen));
        ui.update(Command::Host(HostCommand::Allow), &session);
        let Some(Request::AskAllow(asked)) = ui.request.take() else { panic!("{:?}", ui.request) };
        assert_eq!(asked.added(), it.cause.id());
        let mut only_read = Ui { no_allow: Some("not from here"), ..ui };
        only_read.update(Command::Host(HostCommand::Allow), &session);
        assert_eq!((only_read.request, only_read.status.as_deref()), (None, Some("not from here")));
    }
}

/// If it is not clear which alert is meant, the screen asks to select one.
#[test]
fn no_alert_is_meant_that_was_not_seen_to_be_selected() {
    let session = alerted().session();
    let mut ui = Ui::default();
    ui.update(Command::Host(HostCommand::Allow), &session);
    assert_eq!((ui.request.take(), ui.focus), (None, Focus::Alerts));
    ui.update(Command::Host(HostCommand::Allow), &session);
    assert!(matches!(ui.request.take(), Some(Request::AskAllow(_))));
    let mut none = Ui::default();
    none.update(Command::Host(HostCommand::Explain), &Session::default());
    assert!(none.explained.is_none() && none.status.is_some());
}

#[test]
fn every_alert_shows_the_name_that_allows_it() {
    let session = alerted().session();
    for screen in [Screen::Device, Screen::Process, Screen::Alerts] {
        let ui = Ui { screen, ..Ui::default() };
        let found = findings(&session);
        let (shown, _) = drawn(&session, &ui, 120, 60);
        for it in ui.alerts(&found, &session).into_iter().filter(|it| alerts::is_open(it, &session)) {
            let name = alerts::name(it);
            // Nobody means a job to die.
            let is_offered = shown.contains(&format!("meant to be so? A adds allow = [\"{name}\"]"));
            assert_eq!(is_offered, it.kind != Kind::Oom, "{name}: {shown}");
            let policy = Policy { allow: vec![alerts::Name::read(&name).unwrap()], ..Policy::default() };
            let allowed = policy.findings(&session).all.into_iter().find(|other| other.identity() == it.identity());
            assert!(allowed.unwrap().is_allowed(), "{name}");
        }
    }
    let unknown = Finding { cause: Cause::Unknown, ..findings(&session).all.remove(0) };
    assert!(alerts::Name::read(&alerts::name(&unknown)).is_some());
}

/// One that does not fit is read line by line before the next is selected.
#[test]
fn every_line_of_every_alert_is_reached_with_the_arrows_on_a_small_screen() {
    let session = alerted().session();
    let mut ui = Ui { screen: Screen::Alerts, ..Ui::default() };
    let (whole, _) = drawn(&session, &ui, 40, 200);
    let mut seen = String::new();
    let step = |ui: &mut Ui| {
        let (shown, drawn) = drawn(&session, ui, 40, 12);
        (ui.scroll, ui.sight) = (drawn.scrolled.scroll, drawn.scrolled.sight);
        shown
    };
    for _ in 0..60 {
        seen += &step(&mut ui);
        ui.update(Command::Move(Motion::Down), &session);
    }
    for line in whole
        .lines()
        .skip_while(|it| !it.starts_with("─ alerts"))
        .skip(1)
        .filter(|it| !it.trim().is_empty() && !it.contains("quit"))
    {
        let phrase = line.trim_start_matches('▸').trim();
        assert!(seen.contains(phrase), "{phrase}");
    }
    for _ in 0..60 {
        step(&mut ui);
        ui.update(Command::Move(Motion::Up), &session);
    }
    step(&mut ui);
    assert_eq!(ui.scroll, 0);
}

#[test]
fn a_click_selects_an_alert_and_two_open_its_process() {
    let session = alerted().session();
    for screen in [Screen::Overview, Screen::Device, Screen::Process, Screen::Alerts] {
        let mut ui = Ui { screen, ..Ui::default() };
        let regions = drawn(&session, &ui, 120, 50).1.regions;
        let all = (0..50).map(|y| Position { x: 3, y });
        let alert = |at: &Position| match regions.at(*at).next()?.1 {
            Target::Alert(it) => Some((*at, *it)),
            _ => None,
        };
        let rows: Vec<_> = all.filter_map(|it| alert(&it)).collect();
        let (at, last) = *rows.last().unwrap();
        ui.mouse(Mouse::Press(at), &regions, &session);
        assert_eq!((ui.alert, ui.is_among_alerts(), ui.screen), (Some(last), true, screen));
        let it = selected(&ui, &session);
        ui.mouse(Mouse::Double(at), &regions, &session);
        let further = if screen == Screen::Process { Screen::Timeline } else { Screen::Process };
        assert_eq!((ui.screen, ui.process(&session).map(|it| it.0.probe)), (further, it.probe));
    }
}

#[test]
fn the_question_shows_the_line_and_the_file_and_takes_only_a_yes() {
    let session = alerted().session();
    let allowing = Allowing {
        what: Expecting { name: "scalars-retained".to_owned(), ..Expecting::default() },
        lines: vec!["allow = [\"oom\", \"scalars-retained\"]".to_owned()],
        file: "/home/ada/.config/gpuwatch/config.toml".to_owned(),
        is_new: false,
    };
    let ui = Ui { allowing: Some(allowing), ..Ui::default() };
    let shown = text(&picture(&session, &ui, &Theme::builtin("dusk").unwrap(), 80, 24));
    insta::assert_snapshot!(shown);
    let mut no = ui.clone();
    no.update(Command::Move(Motion::Down), &session);
    assert_eq!((no.allowing, no.request), (None, None));
    let mut yes = ui;
    yes.update(Command::Yes, &session);
    assert_eq!((yes.allowing, yes.request), (None, Some(Request::Allow)));
}

#[test]
fn an_alert_is_allowed_in_the_users_file_and_expected_from_then_on() {
    let job = Job::start();
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("config.toml");
    fs::write(&config, "# mine\n[view]\ntheme = \"paper\" # bright\n").unwrap();
    let mut terminal = job.view(&["--config", config.to_str().unwrap()]);
    terminal.shows("1 critical");
    terminal.press("a");
    terminal.shows("meant to be so? A adds allow = [\"tensors-retained\"]");
    terminal.press("A");
    terminal.shows("expect tensors-retained in every run that reads this file?");
    terminal.shows("allow = [\"tensors-retained\"]");
    terminal.shows("config.toml");
    terminal.press("n");
    terminal.shows("nothing was written");
    assert_eq!(fs::read_to_string(&config).unwrap(), "# mine\n[view]\ntheme = \"paper\" # bright\n");
    terminal.press("A");
    terminal.shows("expect tensors-retained in every run that reads this file?");
    terminal.press("y");
    terminal.shows("tensors-retained is expected from now on: added to ");
    terminal.shows("0 open, 1 expected");
    let written = "# mine\n[view]\ntheme = \"paper\" # bright\n\n[alerts]\nallow = [\"tensors-retained\"]\n";
    assert_eq!(fs::read_to_string(&config).unwrap(), written);
    assert!(until(PATIENCE, || !terminal.text().contains("1 critical")), "{}", terminal.text());
    quits(terminal);
    let mut again = job.view(&["--config", config.to_str().unwrap()]);
    again.press("a");
    again.shows("0 open, 1 expected");
    again.shows("expected by allow = [\"tensors-retained\"]; A undoes it");
    again.press("A");
    again.shows("expect tensors-retained no longer?");
    again.press("y");
    again.shows("tensors-retained is expected no longer: removed from ");
    again.shows("1 open, 0 ended");
    assert!(fs::read_to_string(&config).unwrap().ends_with("\n[alerts]\nallow = []\n"));
    quits(again);
}

#[test]
fn an_alert_is_expected_only_of_its_script_or_its_line() {
    let job = Job::start();
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("config.toml");
    fs::write(&config, "").unwrap();
    let mut terminal = job.view(&["--config", config.to_str().unwrap()]);
    terminal.shows("1 critical");
    terminal.shows("train.py:87");
    terminal.press("aA");
    terminal.shows("expect tensors-retained in every run that reads this file?");
    terminal.press("s");
    terminal.shows("expect tensors-retained in runs of train.py?");
    terminal.press("s");
    terminal.shows("expect tensors-retained in every run that reads this file?");
    terminal.press("l");
    terminal.shows("expect tensors-retained of line train.py:87?");
    terminal.shows("allow = [\"tensors-retained@train.py:87\"]");
    terminal.press("y");
    terminal.shows("expected by allow = [\"tensors-retained@train.py:87\"]; A undoes it");
    terminal.shows("0 open, 1 expected");
    assert_eq!(fs::read_to_string(&config).unwrap(), "[alerts]\nallow = [\"tensors-retained@train.py:87\"]\n");
    quits(terminal);
}

#[test]
fn a_limited_name_is_of_one_script_or_one_line() {
    let session = blamed(sites).session();
    let found = |name: &str| {
        let policy = Policy { allow: vec![alerts::Name::read(name).unwrap()], ..Policy::default() };
        policy.findings(&session).all.iter().filter(|it| it.is_allowed()).count()
    };
    let name = alerts::name(findings(&session).all.iter().find(|it| it.culprit.is_some()).unwrap());
    assert!(found(&name) > 0);
    for (only, is_meant) in [("train.py", true), ("train.py:41", true), ("train.py:42", false), ("eval.py", false)] {
        assert_eq!(found(&alerts::limited(&name, only)) > 0, is_meant, "{only}");
    }
}

#[test]
fn nothing_is_written_where_only_reading_is_allowed_or_nothing_can_be() {
    let job = Job::start();
    let mut terminal = job.view(&["--readonly", "--config", "/dev/null"]);
    terminal.shows("1 critical");
    terminal.press("aA");
    terminal.shows("this view is --readonly: it writes no config");
    quits(terminal);
    let mut terminal = job.view(&["--config", "/dev/null"]);
    terminal.shows("1 critical");
    terminal.press("aA");
    terminal.shows("/dev/null: cannot be read: it is not a regular file");
    quits(terminal);
}
