//! The presets of the overview, the course of a device's metrics, and the tree of processes.

use super::theme;
use crate::helpers::story::{GIB, Story, counters, device, picture, text};
use gpuwatch::{
    facts::{
        event::{Ancestor, Fact, ProcessInfo},
        figures::Figure,
        metrics::Metric,
    },
    model::{
        findings::findings,
        session::{
            Session,
            course::{Pick, TABLE},
        },
    },
    screen::{
        ui::{
            Chart, Command, Focus, HostCommand, Motion, Screen, Ui,
            preset::{Part, Preset},
            rows::ProcessRow,
            tree::Listing,
        },
        view,
    },
    sources,
};
use ratatui::{buffer::Buffer, layout::Rect};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

/// The step from which on the clock of device 0 is lower, and its steps take longer.
const SLOW_FROM: u64 = 400;

/// Two ranks on two devices, with figures, metrics and a launcher. Half-way, the power cap slows rank 0 down.
pub(crate) fn working() -> Story {
    let mut story = Story::default();
    story.device(0, 50 * GIB, &[(4242, 41 * GIB), (977, 9 * GIB)]).device(1, 40 * GIB, &[(4243, 40 * GIB)]);
    story.probe(0, 4242, 0, None).probe(1, 4243, 1, None);
    for (pid, parent, name) in [(4242, 4000, "torchrun"), (4243, 4000, "torchrun"), (977, 900, "jupyter-lab")] {
        let ancestors = [(parent, name), (800, "bash")];
        let ancestors = ancestors.map(|(pid, name)| Ancestor { pid, name: name.into() }).to_vec();
        let argv = if pid == 977 { "notebook" } else { "train.py" };
        let argv = vec!["python".into(), argv.into()];
        story.add(Fact::Process(ProcessInfo { pid, argv, user: "ada".into(), ancestors, ..ProcessInfo::default() }));
    }
    let begun = story.now;
    for step in 1..=600 {
        let is_slow = step > SLOW_FROM;
        let before = story.now;
        story.wait(if is_slow { 150_000 } else { 100_000 });
        story.sample(0, step, counters(20 * GIB, GIB)).sample(1, step, counters(30 * GIB, GIB));
        if (story.now - begun) / 1_000_000 > (before - begun) / 1_000_000 {
            second(&mut story, is_slow);
        }
    }
    story
}

fn second(story: &mut Story, is_slow: bool) {
    let metrics = [
        (Metric::SmMhz, if is_slow { 1410 } else { 1980 }),
        (Metric::PowerMw, if is_slow { 699_000 } else { 640_000 }),
        (Metric::ThrottleReasons, if is_slow { 4 } else { 0 }),
    ];
    story.add(Fact::Metrics { device: device(0), changes: metrics.into_iter().collect() });
    let quiet = [(Metric::SmMhz, 1980), (Metric::ThrottleReasons, 0)];
    story.add(Fact::Metrics { device: device(1), changes: quiet.into_iter().collect() });
    for (pid, index, busy) in [(4242, 0, 91), (4243, 1, 78)] {
        let of_device = [(Figure::SmPercent, busy)].into_iter().collect();
        story.add(Fact::Figures { pid, device: Some(device(index)), changes: of_device });
        let of_host = [(Figure::CpuPercent, 104), (Figure::Rss, 6 * GIB), (Figure::IoWaitPercent, 3)];
        story.add(Fact::Figures { pid, device: None, changes: of_host.into_iter().collect() });
    }
}

fn with(preset: Preset) -> Ui {
    let mut ui = Ui::default();
    ui.show_preset(preset);
    ui
}

fn shown(session: &Session, ui: &Ui, (width, height): (u16, u16)) -> String {
    text(&picture(session, ui, &theme("dusk"), width, height))
}

#[test]
fn every_preset_looks_like_this() {
    let session = working().session();
    for row in Preset::TABLE {
        for (width, height) in SIZES {
            let name = format!("preset-{}-{width}x{height}", row.name);
            insta::assert_snapshot!(name, shown(&session, &with(row.preset), (width, height)));
        }
    }
}

/// 80x24 has what each preset is for.
#[test]
fn each_preset_answers_its_questions_on_a_small_screen() {
    let session = working().session();
    let cases: [(Preset, &[&str]); 4] = [
        (Preset::Memory, &["releasable", "stuck", "flat over", "train.py"]),
        (
            Preset::Training,
            &["150 ms", "rank 0", "SM clock", "slowed by", "power cap -", "91 %", "104 %", "step time", "power cap"],
        ),
        (
            Preset::Hardware,
            &["1410/1980", "699/700 W", "61/87 °C", "power cap", "course of GPU 0", "PCIe lanes", "rows pending"],
        ),
        (Preset::Compact, &["4242", "4243", "977", "6.00 GiB", "78 %", "ada"]),
    ];
    for (preset, phrases) in cases {
        let shown = shown(&session, &with(preset), (80, 24));
        for phrase in phrases {
            assert!(shown.contains(phrase), "{preset:?} lacks {phrase}\n{shown}");
        }
    }
}

#[test]
fn a_key_shows_the_next_preset_and_names_it() {
    let session = working().session();
    let mut ui = Ui::default();
    for row in Preset::TABLE.iter().cycle().skip(1).take(Preset::TABLE.len()) {
        ui.update(Command::Host(HostCommand::Preset), &session);
        assert_eq!((ui.preset, ui.scope), (row.preset, row.scope));
        assert!(ui.status.as_ref().is_some_and(|it| it.starts_with(row.name)), "{:?}", ui.status);
    }
    assert_eq!(shown(&session, &Ui { status: None, ..ui }, (80, 24)), shown(&session, &Ui::default(), (80, 24)));
}

/// The boxes of the table are the boxes of the screen.
#[test]
fn a_large_screen_has_every_box_of_its_preset() {
    let mut story = working();
    // Late enough that it does not belong to a search for a size that fits.
    let oom = gpuwatch::facts::event::wire::Oom { step: Some(600), ..Default::default() };
    story.line(0, gpuwatch::facts::event::Line::Oom(oom));
    let session = story.session();
    for row in Preset::TABLE {
        let shown = shown(&session, &with(row.preset), (150, 90));
        for part in row.boxes {
            let title = match part {
                Part::Devices => "#       used",
                Part::Ladder => "─ memory of GPU 0",
                Part::Growth => "─ allocated · rank 0",
                Part::Run => "─ timeline · rank 0",
                Part::Pace => "─ step time",
                Part::Course => "─ course of GPU 0",
                Part::Metrics => "─ metrics of GPU 0",
                Part::Processes => "─ processes on",
                Part::Alerts => "─ alerts",
            };
            let title = if row.preset == Preset::Hardware && *part == Part::Devices { "#  full  util" } else { title };
            assert!(shown.contains(title), "{} lacks {title}\n{shown}", row.name);
        }
    }
}

/// What no box shows is not read.
#[test]
fn a_preset_asks_only_for_what_it_shows() {
    use sources::focus::Focus::{Device, None, Processes};
    let session = working().session();
    let asked = |ui: &Ui| {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 80, 24));
        view::paint(&mut buffer, &session, &findings(&session), ui, &theme("dusk"), Option::None).focus
    };
    let expected = [None, Processes(Option::None), Device(device(0)), Processes(Option::None)];
    for (row, expected) in Preset::TABLE.iter().zip(expected) {
        assert_eq!(asked(&with(row.preset)), expected, "{}", row.name);
        let alerts = Ui { screen: Screen::Alerts, ..with(row.preset) };
        assert_eq!(asked(&alerts), None, "{}", row.name);
    }
}

/// Slower since step 400, and the clock dropped: one cursor shows both.
#[test]
fn step_time_and_clock_stand_at_one_cursor() {
    let session = working().session();
    let (mut ui, size) = (Ui { screen: Screen::Timeline, ..Ui::default() }, (80, 24));
    let whole = shown(&session, &ui, size);
    let row = |label: &str| -> Vec<char> {
        let line = whole.lines().find(|it| it.trim_start().starts_with(label));
        line.unwrap_or_else(|| panic!("{label}\n{whole}")).chars().skip(12).collect()
    };
    let (pace, clock, slowed) = (row("step time"), row("SM clock"), row("slowed by"));
    let changes = |row: &[char]| row.windows(2).rposition(|it| it[0] != it[1]);
    let at = changes(&clock).unwrap();
    assert!(changes(&pace).is_some_and(|it| it.abs_diff(at) <= 1), "{whole}");
    let begin = slowed.windows(5).position(|it| it.iter().collect::<String>() == "power");
    assert!(begin.is_some_and(|it| it.abs_diff(at) <= 2), "{whole}");
    let mut heading = |step: u64| {
        ui.timeline.cursor = Some(step);
        let shown = shown(&session, &ui, size);
        shown.lines().find(|it| it.contains(&format!("step {step} · "))).map(str::to_owned).unwrap_or(shown)
    };
    let (before, after) = (heading(SLOW_FROM - 50), heading(SLOW_FROM + 50));
    assert!(before.contains("100 ms a step") && before.contains("SM 1980 MHz"), "{before}");
    assert!(after.contains("150 ms a step") && after.contains("power cap · SM 1410 MHz"), "{after}");
    // In time, and nearer, it is the same.
    ui.update(Command::Chart(Chart::Axis), &session);
    ui.update(Command::Chart(Chart::Plus), &session);
    let near = shown(&session, &ui, (200, 60));
    for phrase in ["SM 1410 MHz", "699 W · 61 °C", "temperature"] {
        assert!(near.contains(phrase), "{phrase}\n{near}");
    }
}

#[test]
fn the_device_screen_has_the_course_of_its_metrics() {
    let session = working().session();
    for size in [(80, 70), (200, 60)] {
        let shown = shown(&session, &Ui { screen: Screen::Device, ..Ui::default() }, size);
        for phrase in ["the last ", "SM clock", "slowed by", "1410/1980 MHz", "699/700 W", "power cap"] {
            assert!(shown.contains(phrase), "{phrase}\n{shown}");
        }
    }
    let mut story = Story::default();
    story.device(0, GIB, &[]);
    let without = shown(&story.session(), &with(Preset::Hardware), (80, 24));
    assert!(without.contains("no reading yet"), "{without}");
}

#[test]
fn each_second_is_one_of_the_course_and_a_device_that_is_gone_has_none() {
    let mut story = working();
    let clock = |story: &Story| story.session().device(&device(0)).unwrap().course.stretches().count();
    let before = clock(&story);
    assert!((60..=71).contains(&before), "{before}");
    let last = story.session().devices[0].course.at(gpuwatch::facts::units::Stamp(story.now)).unwrap();
    assert_eq!(last.get(&TABLE[0], Pick::Lowest), Some(1410));
    let later = || Fact::Notice("later".into());
    story.wait(1_000_000).add(later());
    assert_eq!(clock(&story), before + 1, "a metric that did not change is not sent again");
    story.add(Fact::DeviceGone { device: device(0) }).wait(1_000_000).add(later());
    assert_eq!(clock(&story), before + 1);
    let mut stale = working();
    stale.wait(140_000_000).add(later());
    let fresh = clock(&stale);
    stale.wait(200_000_000).add(later());
    assert!(clock(&stale) <= fresh + 11, "old metrics are not a reading");
}

#[test]
fn processes_stand_below_their_ancestors_in_the_tree() {
    let session = working().session();
    let mut ui = with(Preset::Compact);
    ui.focus = Focus::Processes;
    let pids = |ui: &Ui| ui.rows(&session).iter().filter_map(ProcessRow::pid).collect::<Vec<_>>();
    assert_eq!(pids(&ui), [4242, 4243, 977]);
    ui.update(Command::Order, &session);
    ui.update(Command::Order, &session);
    ui.order.by = gpuwatch::screen::ui::order::By::Pid;
    assert_eq!(pids(&ui), [977, 4242, 4243]);
    ui.update(Command::Host(HostCommand::Tree), &session);
    assert_eq!((pids(&ui), ui.listing), (vec![977, 4242, 4243], Listing::Tree), "the order holds within a family");
    let shown = shown(&session, &ui, (120, 40));
    let place =
        |words: &str| shown.lines().position(|it| it.contains(words)).unwrap_or_else(|| panic!("{words}\n{shown}"));
    let order =
        ["bash (pid 800)", "jupyter-lab (pid 900)", "python notebook", "torchrun (pid 4000)", "├─ python train.py"];
    let places = order.map(place);
    assert!(places.is_sorted() && shown.contains("└─ python train.py"), "{shown}");
    // The arrows go from row to row, and skip ancestors.
    ui.update(Command::Move(Motion::First), &session);
    ui.update(Command::Move(Motion::Down), &session);
    assert_eq!(ui.chosen(&session).and_then(|it| it.pid()), Some(4242));
    ui.update(Command::Host(HostCommand::Tree), &session);
    assert_eq!(ui.listing, Listing::Rows);
}
