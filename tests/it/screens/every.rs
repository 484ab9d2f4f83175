//! Every screen at every size: fixed pictures in text and styles, no panic, no cut number, nothing over anything else.

use super::{presets::working, theme};
use crate::analysis::culprit::sites;
use crate::helpers::story::{
    GIB, MIB, Story, blamed, counters, fleet, hostile, many_devices, nvml_alone, picture, picture_of, styles, text,
    usual,
};
use gpuwatch::{
    facts::event::Fact,
    model::{findings::findings, session::Session},
    screen::{
        theme::Theme,
        ui::{
            Chart, Command, Focus, Motion, Scope, Screen, Ui,
            mouse::Target,
            preset::{Preset, PresetRow},
            tree::Listing,
        },
        view,
    },
};
use ratatui::{buffer::Buffer, layout::Rect};

const SIZES: [(u16, u16); 4] = [(40, 12), (80, 24), (120, 40), (200, 60)];

/// Every screen, its name, and how it is come to.
fn screens() -> [(&'static str, Ui); 7] {
    let of = |screen| Ui { screen, ..Ui::default() };
    [
        ("overview", Ui::default()),
        ("ranks", Ui { scope: Scope::All, focus: Focus::Processes, ..Ui::default() }),
        ("device", of(Screen::Device)),
        ("process", of(Screen::Process)),
        ("timeline", of(Screen::Timeline)),
        ("alerts", of(Screen::Alerts)),
        ("help", Ui { help: true, ..Ui::default() }),
    ]
}

/// The same, and the overview in the other presets.
fn with_presets() -> impl Iterator<Item = (&'static str, Ui)> {
    let preset = |row: &PresetRow| {
        let listing = if row.preset == Preset::Compact { Listing::Tree } else { Listing::Rows };
        let mut ui = Ui { listing, ..Ui::default() };
        ui.show_preset(row.preset);
        (row.name, ui)
    };
    screens().into_iter().chain(Preset::TABLE.iter().skip(1).map(preset))
}

#[test]
fn every_screen_looks_like_this_at_every_size() {
    let session = usual().session();
    for (name, mut ui) in screens() {
        if name == "timeline" {
            for _ in 0..3 {
                ui.update(Command::Move(Motion::PageUp), &session);
            }
        }
        for (width, height) in SIZES {
            let pictures = ["dusk", "paper"].map(|it| (it, picture(&session, &ui, &theme(it), width, height)));
            insta::assert_snapshot!(format!("{name}-{width}x{height}-text"), text(&pictures[0].1));
            for (theme, picture) in pictures {
                insta::assert_snapshot!(format!("{name}-{width}x{height}-{theme}-style"), styles(&picture));
            }
        }
    }
}

#[test]
fn no_size_is_too_small_or_too_large_for_any_screen() {
    let heights: Vec<u16> = (0..7).chain([8, 11, 12, 13, 19, 20, 24, 28, 34, 40, 100]).collect();
    let widths: Vec<u16> = (0..4).chain([9, 20, 36, 40, 72, 80, 112, 132, 160, 300]).collect();
    let all = widths.iter().flat_map(|width| heights.iter().map(move |height| (*width, *height)));
    // Every width and every height is among them: their numbers have no divisor in common with the step.
    let sizes: Vec<_> = all.step_by(test_tiers::stride!(5, "other pairs of width and height")).collect();
    let theme = theme("dusk").in_ascii();
    let sessions = [
        Session::default(),
        usual().session(),
        blamed(sites).session(),
        hostile().session(),
        nvml_alone().session(),
        working().session(),
    ];
    for session in sessions {
        let found = findings(&session);
        for (_, ui) in with_presets() {
            let mut scrolled = Ui { scroll: 3, row: 99, ..ui.clone() };
            for command in [
                Command::Chart(Chart::Axis),
                Command::Chart(Chart::Scale),
                Command::Chart(Chart::Plus),
                Command::Move(Motion::PageUp),
            ] {
                scrolled.update(command, &session);
            }
            for &(width, height) in &sizes {
                for ui in [&ui, &scrolled] {
                    let drawn = picture_of(&session, &found, ui, &theme, width, height);
                    assert_eq!((drawn.area.width, drawn.area.height), (width, height));
                }
            }
        }
    }
}

/// A size is its number and its unit, on one line.
#[test]
fn no_number_is_cut_on_any_screen() {
    let session = blamed(sites).session();
    // The help lies over the others.
    for (name, ui) in with_presets().filter(|it| it.0 != "help") {
        for width in (20..140).chain([160, 200]) {
            for height in [12, 24, 40] {
                let shown = text(&picture(&session, &ui, &theme("dusk"), width, height));
                for line in shown.lines() {
                    let words: Vec<_> = line.split_whitespace().collect();
                    for (at, word) in words.iter().enumerate() {
                        let size = word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || "+.".contains(c));
                        let unit = words.get(at + 1).copied().unwrap_or_default();
                        // `between 3.98 and 4.02 MiB/step` has its unit once.
                        let begins = at > 0 && words[at - 1] == "between";
                        let whole = begins || ["GiB", "MiB", "KiB", "×", "s"].iter().any(|it| unit.starts_with(it));
                        assert!(!size || whole || word.starts_with("570"), "{name} {width}x{height}: {line}");
                    }
                }
            }
        }
    }
}

/// Clickable regions lie inside of the frame, and no two of a kind overlap.
#[test]
fn nothing_overlaps() {
    for session in [usual().session(), many_devices().session(), fleet(20).session(), working().session()] {
        let found = findings(&session);
        for (name, ui) in with_presets().filter(|it| it.0 != "help") {
            for (width, height) in [(20, 6), (40, 12), (57, 19), (80, 24), (100, 30), (120, 40), (170, 45), (200, 60)] {
                let whole = Rect::new(0, 0, width, height);
                let regions = view::draw(&mut Buffer::empty(whole), &session, &found, &ui, &theme("dusk")).regions;
                let mut owner: Vec<Option<Target>> = vec![None; usize::from(width) * usize::from(height)];
                for position in whole.positions() {
                    let leaves = |it: &&(Rect, &Target)| !matches!(it.1, Target::Box(_));
                    let here: Vec<_> = regions.at(position).filter(|it| leaves(&it)).collect();
                    assert!(here.len() <= 1, "{name} {width}x{height} at {position}: {here:?}");
                    assert!(
                        here.iter().all(|it| whole.intersection(it.0) == it.0),
                        "{name} {width}x{height}: {here:?}"
                    );
                    let place = usize::from(position.y) * usize::from(width) + usize::from(position.x);
                    owner[place] = here.first().map(|it| it.1.clone());
                }
                assert!(height < 8 || owner.iter().any(Option::is_some), "{name} {width}x{height}");
            }
        }
    }
}

/// The same session again is the same picture, and a second without news moves nothing but ages.
#[test]
fn nothing_moves_when_nothing_happens() {
    let mut story = usual();
    let before = story.session();
    story.wait(50_000).add(Fact::Second);
    let after = story.session();
    for (name, ui) in with_presets() {
        let of = |session: &Session| text(&picture(session, &ui, &theme("dusk"), 120, 40));
        assert_eq!(of(&before), of(&before), "{name}");
        let moved = of(&before).lines().zip(of(&after).lines()).filter(|(one, other)| one != other).count();
        assert!(moved == 0, "{name}: {moved} lines");
    }
}

/// At 80x24 a new user sees how full the device is, whose memory it is, what could be released, whether it grows and
/// when the device is full.
#[test]
fn one_screen_answers_the_first_five_questions() {
    let mut story = Story::default();
    story.device(0, 100 * GIB, &[(4242, 90 * GIB), (977, 9 * GIB)]).probe(0, 4242, 0, None);
    for step in 1..=300 {
        story.wait(1_000_000).sample(0, step, counters(60 * GIB + step * 40 * MIB, 12 * GIB));
    }
    story.device(0, 100 * GIB, &[(4242, 90 * GIB), (977, 9 * GIB)]).who(977, &["python", "other.py"]);
    let shown = text(&picture(&story.session(), &Ui::default(), &theme("dusk"), 80, 24));
    for phrase in [
        "71 %",
        "100.00 GiB used of 140.00 GiB",
        "others",
        "9.00 GiB",
        "releasable",
        "stuck ",
        "+40.0 MiB",
        "full in",
        "other.py",
        "train.py",
    ] {
        assert!(shown.contains(phrase), "no {phrase:?}\n{shown}");
    }
}

/// Without colours, shapes and words remain: the same text, except for the signs of gaps that colours distinguish.
#[test]
fn no_meaning_is_in_colour_alone() {
    let session = usual().session();
    let plain: Theme = theme("plain").at(gpuwatch::screen::theme::ColorDepth::None);
    for (name, ui) in with_presets() {
        let shown = text(&picture(&session, &ui, &plain, 80, 24));
        let ascii = text(&picture(&session, &ui, &plain.clone().in_ascii(), 80, 24));
        assert!(ascii.is_ascii(), "{name}\n{ascii}");
        // A glyph that has no plain one would be a question mark.
        assert_eq!(shown.matches('?').count(), ascii.matches('?').count(), "{name}\n{ascii}");
    }
}
