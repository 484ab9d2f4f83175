//! The mouse on the pictures: what is clicked is what was drawn there.

use crate::helpers::story::{hostile, many_devices, usual};
use gpuwatch::{
    model::{findings::findings, session::Session},
    screen::{
        theme::Theme,
        ui::{
            Command, Focus, HostCommand, Motion, Scope, Screen, Ui,
            mouse::{Mouse, Target},
            order::By,
            process_actions::Dialog,
        },
        view::{self, Drawn},
    },
};
use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
};

/// A frame and its regions.
fn drawn(session: &Session, ui: &Ui, width: u16, height: u16) -> (Buffer, Drawn) {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    let drawn = view::draw(&mut buffer, session, &findings(session), ui, &Theme::builtin("dusk").unwrap());
    (buffer, drawn)
}

/// Where words stand.
fn find(buffer: &Buffer, phrase: &str) -> Position {
    let width = usize::from(buffer.area.width);
    for (y, row) in (0..).zip(buffer.content.chunks(width)) {
        for x in 0..width {
            let rest: String = row.iter().skip(x).map(ratatui::buffer::Cell::symbol).collect();
            if rest.starts_with(phrase) {
                return Position { x: u16::try_from(x).unwrap(), y };
            }
        }
    }
    panic!("no {phrase:?} in {}", crate::helpers::story::text(buffer));
}

fn click(ui: &mut Ui, session: &Session, size: (u16, u16), phrase: &str, mouse: impl Fn(Position) -> Mouse) {
    let (buffer, drawn) = drawn(session, ui, size.0, size.1);
    ui.mouse(mouse(find(&buffer, phrase)), &drawn.regions, session);
}

const SIZE: (u16, u16) = (120, 40);

#[test]
fn a_click_selects_and_two_open() {
    let session = usual().session();
    let mut ui = Ui::default();
    click(&mut ui, &session, SIZE, "   1 ", Mouse::Press);
    assert_eq!(ui.selected(&session), 1);
    ui.update(Command::Host(HostCommand::All), &session);
    for pid in [4242, 977, 4243] {
        click(&mut ui, &session, SIZE, &format!("{pid} "), Mouse::Press);
        assert_eq!(ui.chosen(&session).and_then(|it| it.pid()), Some(pid));
        assert_eq!(ui.focus, Focus::Processes);
    }
    click(&mut ui, &session, SIZE, "4242 ", Mouse::Double);
    assert_eq!(ui.screen, Screen::Process);
    click(&mut ui, &session, SIZE, "Esc back", Mouse::Press);
    assert_eq!(ui.screen, Screen::Overview);
    click(&mut ui, &session, SIZE, "? help", Mouse::Press);
    assert!(ui.help);
    click(&mut ui, &session, SIZE, "this help", Mouse::Press);
    assert!(!ui.help);
    click(&mut ui, &session, SIZE, "q quit", Mouse::Press);
    assert!(ui.quit);
}

#[test]
fn in_the_grid_the_cell_that_is_clicked_is_the_device() {
    let session = many_devices().session();
    for (place, device) in session.devices.iter().enumerate() {
        let mut ui = Ui { device: Some(session.devices[(place + 1) % 8].id.clone()), ..Ui::default() };
        let (_, drawn) = drawn(&session, &ui, 80, 24);
        let all = (0..80).flat_map(|x| (0..24).map(move |y| Position { x, y }));
        let is_its =
            |at: &Position| drawn.regions.at(*at).next().is_some_and(|it| *it.1 == Target::Device(device.id.clone()));
        let at = all.filter(is_its).collect::<Vec<_>>();
        assert!(at.len() >= 20, "device {place} has {} cells", at.len());
        ui.mouse(Mouse::Press(at[0]), &drawn.regions, &session);
        assert_eq!(ui.device.as_ref(), Some(&device.id));
    }
}

#[test]
fn the_wheel_moves_in_the_box_it_is_over() {
    let session = usual().session();
    let mut ui = Ui { scope: Scope::All, ..Ui::default() };
    click(&mut ui, &session, SIZE, "4242 ", |at| Mouse::Wheel(at, false));
    assert_eq!((ui.focus, ui.chosen(&session).and_then(|it| it.pid())), (Focus::Processes, Some(4243)));
    click(&mut ui, &session, SIZE, "H200", |at| Mouse::Wheel(at, true));
    assert_eq!((ui.focus, ui.selected(&session)), (Focus::Devices, 0));
    let mut open = Ui { screen: Screen::Device, ..Ui::default() };
    click(&mut open, &session, SIZE, "GPU 0 ·", |at| Mouse::Wheel(at, false));
    assert_eq!(open.scroll, 1);
}

/// Where all of a run is seen, the cursor follows; where a part is, the run does.
#[test]
fn a_drag_moves_the_cursor_of_a_timeline_or_the_run_under_it() {
    let session = usual().session();
    let mut ui = Ui { screen: Screen::Timeline, ..Ui::default() };
    let run = |ui: &Ui| {
        let drawn = drawn(&session, ui, 120, 40).1;
        let all = (0..40).flat_map(|y| (0..120).map(move |x| Position { x, y }));
        let mut found = all.filter_map(|at| {
            let (area, target) = drawn.regions.at(at).next()?;
            if let Target::Run(from, to) = target { Some((area, *from, *to)) } else { None }
        });
        (found.next().unwrap(), drawn.regions.clone())
    };
    let ((area, from, to), regions) = run(&ui);
    let at = |part: u16| Position { x: area.x + (area.width - 1) * part / 4, y: area.y + 2 };
    ui.mouse(Mouse::Press(at(1)), &regions, &session);
    let quarter = ui.timeline.cursor.unwrap();
    assert!((from + (to - from) / 5..from + (to - from) / 3).contains(&quarter), "{quarter} of {from} to {to}");
    ui.mouse(Mouse::Drag(at(3)), &regions, &session);
    assert!(ui.timeline.cursor > Some(from + (to - from) * 2 / 3), "{:?}", ui.timeline);
    ui.mouse(Mouse::Drag(at(2)), &regions, &session);
    ui.mouse(Mouse::Wheel(at(2), true), &regions, &session);
    ui.mouse(Mouse::Wheel(at(2), true), &regions, &session);
    assert_eq!(ui.timeline.zoom, 2);
    let ((_, near, nearer), regions) = run(&ui);
    assert!(nearer - near < (to - from) / 3);
    ui.mouse(Mouse::Press(at(2)), &regions, &session);
    let before = ui.timeline.cursor.unwrap();
    ui.mouse(Mouse::Drag(at(3)), &regions, &session);
    let after = ui.timeline.cursor.unwrap();
    assert!(after < before && before - after < (nearer - near) / 2, "the run goes with the hand: {before} {after}");
}

/// Nothing under the menu can be clicked; a key answers the question.
#[test]
fn a_click_chooses_a_signal_and_sends_none() {
    let session = usual().session();
    let dialog = Dialog { pid: 4242, command: "train".to_owned(), user: "ada".into(), place: 0, asked: false };
    let mut ui = Ui { dialog: Some(dialog), ..Ui::default() };
    click(&mut ui, &session, SIZE, "KILL", Mouse::Press);
    assert_eq!(ui.dialog.as_ref().map(|it| (it.place, it.asked)), Some((2, false)));
    click(&mut ui, &session, SIZE, "STOP", Mouse::Double);
    assert_eq!(ui.dialog.as_ref().map(|it| (it.place, it.asked)), Some((3, true)));
    let before = ui.clone();
    for phrase in ["   1 ", "q quit", "y sends"] {
        click(&mut ui, &session, SIZE, phrase, Mouse::Press);
        assert_eq!((ui.request.as_ref(), ui.quit, &ui.device), (None, false, &before.device), "{phrase}");
    }
}

#[test]
fn the_help_is_read_to_its_end_on_a_small_screen() {
    let session = usual().session();
    let mut ui = Ui { help: true, ..Ui::default() };
    let mut seen = String::new();
    for _ in 0..80 {
        let (buffer, drawn) = drawn(&session, &ui, 40, 12);
        ui.help_scroll = ui.help_scroll.min(drawn.help_most);
        seen += &crate::helpers::story::text(&buffer);
        ui.update(Command::Move(Motion::Down), &session);
    }
    for phrase in ["this help", "signal the process", "next theme", "that device"] {
        assert!(seen.contains(phrase), "{phrase}");
    }
}

/// A click anywhere, at any size, on any screen: nothing falls over, and nothing is selected that is not there.
#[test]
fn clicks_anywhere_are_survived() {
    for session in [Session::default(), usual().session(), hostile().session()] {
        for screen in [Screen::Overview, Screen::Device, Screen::Process, Screen::Timeline, Screen::Alerts] {
            for (width, height) in [(0, 0), (1, 1), (40, 12), (120, 40)] {
                let mut ui = Ui { screen, ..Ui::default() };
                for x in (0..=width).step_by(37) {
                    for y in (0..=height).step_by(7) {
                        let (_, drawn) = drawn(&session, &ui, width, height);
                        let at = Position { x, y };
                        for mouse in [Mouse::Press(at), Mouse::Drag(at), Mouse::Wheel(at, true), Mouse::Double(at)] {
                            ui.mouse(mouse, &drawn.regions, &session);
                        }
                        let is_there = |it: &gpuwatch::facts::event::DeviceId| session.device(it).is_some();
                        assert!(ui.device.as_ref().is_none_or(is_there));
                    }
                }
            }
        }
    }
}

#[test]
fn a_click_on_the_title_of_a_column_sorts_by_it_and_a_second_one_turns_it_round() {
    let session = usual().session();
    let mut ui = Ui { scope: Scope::All, ..Ui::default() };
    let columns = |ui: &Ui| {
        let (buffer, drawn) = drawn(&session, ui, 160, 40);
        let all: Vec<Position> = buffer.area.positions().collect();
        let mut found: Vec<(By, Position)> = Vec::new();
        for at in all {
            if let Some((_, Target::Column(by))) = drawn.regions.at(at).next()
                && found.iter().all(|it| it.0 != *by)
            {
                found.push((*by, at));
            }
        }
        (found, buffer, drawn.regions)
    };
    let (found, buffer, regions) = columns(&ui);
    let always = By::ALL.iter().filter(|it| !it.is_extra()).count();
    assert_eq!(found.len(), always, "each has a title: {found:?}");
    for (by, at) in found {
        let row: String = (at.x..160).map(|x| buffer.cell((x, at.y)).unwrap().symbol()).collect();
        assert!(row.trim_start().starts_with(by.name()), "{by:?}: {row}");
        let before = ui.order;
        ui.mouse(Mouse::Press(at), &regions, &session);
        assert_eq!((ui.order.by, ui.order.inverted), (by, before.by == by), "{by:?}");
        assert!(ui.status.as_ref().is_some_and(|it| it.contains(by.name())));
        ui.mouse(Mouse::Press(at), &regions, &session);
        assert_eq!((ui.order.by, ui.order.inverted), (by, before.by != by));
    }
}

#[test]
fn a_process_that_is_listed_on_the_screen_of_its_device_is_opened_by_two_clicks() {
    let session = usual().session();
    for (width, height) in [(100, 60), (160, 40)] {
        let mut ui = Ui { screen: Screen::Device, ..Ui::default() };
        click(&mut ui, &session, (width, height), "4242 ", Mouse::Press);
        assert_eq!((ui.screen, ui.chosen(&session).and_then(|it| it.pid())), (Screen::Device, Some(4242)));
        click(&mut ui, &session, (width, height), "977 ", Mouse::Double);
        assert_eq!(ui.screen, Screen::Device, "there is nothing inside of one without a probe");
        assert!(ui.status.as_ref().is_some_and(|it| it.contains("no probe")), "{:?}", ui.status);
        click(&mut ui, &session, (width, height), "4242 ", Mouse::Double);
        assert_eq!((ui.screen, ui.process(&session).and_then(|it| it.0.pid)), (Screen::Process, Some(4242)));
    }
}
