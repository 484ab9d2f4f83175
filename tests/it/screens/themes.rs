//! Themes: readable text, distinguishable rungs, also for red-green colour blindness; user themes.

use crate::helpers::{
    story::{picture, text, usual},
    terminal::{PATIENCE, PROGRAM, Terminal},
};
use gpuwatch::screen::{
    theme::{self, ColorDepth, Graph, ROLES, Role, Theme},
    ui::{Screen, Ui},
};
use ratatui::style::Color;
use std::{fs, process::Command};
use vt100::Color as Ink;

type Matrix = [[f64; 3]; 3];

/// What protanopes and deuteranopes see, in linear RGB: Viénot, Brettel and Mollon, Color Research and Application 24
/// (1999), 243.
const PROTANOPE: Matrix = [[0.112_38, 0.887_62, 0.0], [0.112_38, 0.887_62, 0.0], [0.004_01, -0.004_01, 1.0]];
const DEUTERANOPE: Matrix = [[0.292_75, 0.707_25, 0.0], [0.292_75, 0.707_25, 0.0], [-0.022_34, 0.022_34, 1.0]];

/// Linear RGB from sRGB (IEC 61966-2-1).
fn linear(colour: Color) -> [f64; 3] {
    let Color::Rgb(r, g, b) = colour else { panic!("{colour:?} is not one of 24 bits") };
    [r, g, b].map(|it| {
        let it = f64::from(it) / 255.0;
        if it <= 0.040_45 { it / 12.92 } else { ((it + 0.055) / 1.055).powf(2.4) }
    })
}

/// The contrast of two colours, 1 to 21, as WCAG 2.2 has it.
fn contrast(one: Color, other: Color) -> f64 {
    let luminance = |it: Color| {
        let [r, g, b] = linear(it);
        0.2126 * r + 0.7152 * g + 0.0722 * b
    };
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// CIE 1976 L*a*b*, from linear RGB under D65.
fn lab(colour: [f64; 3]) -> [f64; 3] {
    const TO_XYZ: Matrix =
        [[0.412_456, 0.357_576, 0.180_437], [0.212_673, 0.715_152, 0.072_175], [0.019_334, 0.119_192, 0.950_304]];
    const WHITE: [f64; 3] = [0.950_47, 1.0, 1.088_83];
    let scaled =
        |it: f64| if it > 216.0 / 24_389.0 { it.cbrt() } else { (24_389.0 / 27.0 * it.max(0.0) + 16.0) / 116.0 };
    let seen = through(&TO_XYZ, colour);
    let [x, y, z] = [0, 1, 2].map(|it| scaled(seen[it] / WHITE[it]));
    [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
}

fn through(matrix: &Matrix, colour: [f64; 3]) -> [f64; 3] {
    matrix.map(|row| row.iter().zip(colour).map(|(weight, part)| weight * part).sum())
}

/// How far two colours are apart for some eyes: 2.3 is just seen.
fn distance(one: Color, other: Color, eyes: Option<Matrix>) -> f64 {
    let seen = |it: Color| {
        let it = linear(it);
        lab(eyes.map_or(it, |eyes| through(&eyes, it)))
    };
    seen(one).iter().zip(seen(other)).map(|(one, other)| (one - other).powi(2)).sum::<f64>().sqrt()
}

fn coloured() -> impl Iterator<Item = (Theme, Color)> {
    theme::names().filter_map(Theme::builtin).filter_map(|it| it.background.map(|on| (it.clone(), on)))
}

#[test]
fn text_can_be_read_on_the_background_that_a_theme_is_meant_for() {
    assert_eq!(coloured().count(), 5);
    for (theme, background) in coloured() {
        let bar = theme.style(Role::Selected).bg.unwrap();
        for (name, role) in ROLES {
            let Some(ink) = theme.style(role).fg else { continue };
            let on = contrast(ink, background);
            match role {
                // Borders and free memory are less visible than what they separate.
                Role::Border | Role::Gap(gpuwatch::model::analysis::ladder::Gap::Free) => {
                    assert!(on >= 1.5, "{name} {on}");
                }
                Role::Gap(_) => assert!(on >= 3.0, "{} {name}: {on:.2}", theme.name()),
                _ => {
                    assert!(on >= 4.5, "{} {name}: {on:.2}", theme.name());
                    let selected = contrast(ink, bar);
                    assert!(selected >= 4.5, "{} {name} in a selected row: {selected:.2}", theme.name());
                }
            }
        }
    }
}

/// The highest contrast that one colour can have on both black and white is 4.58.
#[test]
fn the_neutral_theme_can_be_read_on_black_and_on_white() {
    let theme = Theme::builtin("neutral").unwrap();
    assert_eq!((theme.background, theme.style(Role::Text).fg), (None, Some(Color::Reset)));
    for (name, role) in ROLES {
        let Some(ink) = theme.style(role).fg.filter(|it| *it != Color::Reset) else { continue };
        for background in [Color::Rgb(0, 0, 0), Color::Rgb(255, 255, 255)] {
            let on = contrast(ink, background);
            let least = if matches!(role, Role::Gap(_) | Role::Border) { 3.0 } else { 4.5 };
            assert!(on >= least, "{name} on {background:?}: {on:.2}");
        }
    }
}

#[test]
fn the_rungs_differ_for_red_green_blind_eyes() {
    for theme in ["colorblind", "colorblind-light"].map(|it| Theme::builtin(it).unwrap()) {
        // A gap that a theme does not name has the colour of another gap, and a sign of its own.
        let is_named = |role: &Role| match role {
            Role::Gap(gap) => gap.row().like.is_none_or(|it| theme.style(Role::Gap(it)) != theme.style(*role)),
            _ => false,
        };
        let rungs: Vec<(&str, Color)> = ROLES
            .iter()
            .filter(|(_, role)| is_named(role))
            .filter_map(|(name, role)| Some((*name, theme.style(*role).fg?)))
            .collect();
        assert!(rungs.len() >= 12, "{rungs:?}");
        let judged = [("good", Role::Good), ("warning", Role::Warning), ("bad", Role::Bad)];
        let judged = judged.map(|(name, role)| (name, theme.style(role).fg.unwrap()));
        far_apart(theme.name(), &rungs);
        far_apart(theme.name(), &judged);
    }
}

fn far_apart(theme: &str, colours: &[(&str, Color)]) {
    for (place, (name, one)) in colours.iter().enumerate() {
        for (other_name, other) in &colours[place + 1..] {
            for (who, eyes) in [("all", None), ("protanopes", Some(PROTANOPE)), ("deuteranopes", Some(DEUTERANOPE))] {
                let apart = distance(*one, *other, eyes);
                assert!(apart >= 15.0, "{theme}: {name} and {other_name} for {who}: {apart:.1}");
            }
        }
    }
}

/// With however few colours: what is drawn by the same sign beside one another has a colour of its own.
#[test]
fn owners_differ_with_sixteen_colours_too() {
    for theme in theme::names().filter_map(Theme::builtin).filter(|it| it.coloured) {
        for depth in [ColorDepth::Ansi16, ColorDepth::Ansi256, ColorDepth::TrueColor] {
            let theme = theme.clone().at(depth);
            let full = ["wanted", "non_torch", "others", "driver"];
            let colours: Vec<Color> = ROLES
                .iter()
                .filter(|(name, _)| full.contains(name))
                .filter_map(|(_, role)| theme.style(*role).fg)
                .collect();
            for (place, one) in colours.iter().enumerate() {
                assert!(!colours[..place].contains(one), "{} at {depth:?}: {colours:?}", theme.name());
            }
        }
    }
}

/// The figures behind the test are those of the standards.
#[test]
fn the_measures_measure() {
    let (black, white) = (Color::Rgb(0, 0, 0), Color::Rgb(255, 255, 255));
    assert!((contrast(black, white) - 21.0).abs() < 1e-9);
    assert!((contrast(Color::Rgb(0x77, 0x77, 0x77), white) - 4.48).abs() < 0.01);
    assert!((distance(black, white, None) - 100.0).abs() < 0.1);
    let (red, green) = (Color::Rgb(200, 60, 40), Color::Rgb(110, 110, 40));
    assert!(distance(red, green, None) > 60.0 && distance(red, green, Some(DEUTERANOPE)) < 25.0);
}

/// Colour never carries information alone: without it no text is lost, and signs distinguish everything.
#[test]
fn nothing_is_lost_without_colour() {
    let session = usual().session();
    let shown = |theme: &Theme| text(&picture(&session, &Ui::default(), theme, 120, 40));
    let (dusk, mono) = (Theme::builtin("dusk").unwrap(), Theme::builtin("mono").unwrap());
    let (with, without) = (shown(&dusk), shown(&mono));
    assert_eq!(with.chars().count(), without.chars().count());
    let differ: Vec<_> = with.chars().zip(without.chars()).filter(|(with, without)| with != without).collect();
    assert!(
        !differ.is_empty() && differ.iter().all(|it| it.0 == '█'),
        "only the full blocks of other owners have signs of their own"
    );
    assert_eq!(without, shown(&dusk.at(ColorDepth::None)));
    let bar = without.lines().find(|it| it.starts_with('█')).unwrap();
    let signs: std::collections::BTreeSet<char> = bar.chars().collect();
    assert!(signs.len() >= 6, "{bar}");
}

#[test]
fn graphs_are_of_blocks_of_braille_or_of_ascii() {
    let session = usual().session();
    for screen in [Screen::Overview, Screen::Process, Screen::Timeline] {
        let shown = |graph| {
            let theme = Theme::builtin("dusk").unwrap().drawn_in(graph);
            text(&picture(&session, &Ui { screen, ..Ui::default() }, &theme, 120, 40))
        };
        let has = |graph, signs: std::ops::RangeInclusive<char>| shown(graph).contains(|it| signs.contains(&it));
        // Below the middle only: dashes of a fitted line are of braille in any kind.
        let (blocks, braille) = ('▁'..='▇', '⣤'..='⣿');
        assert!(has(Graph::Block, blocks.clone()) && !has(Graph::Block, braille.clone()), "{screen:?}");
        assert!(has(Graph::Braille, braille) && !has(Graph::Braille, blocks), "{screen:?}");
        assert!(shown(Graph::Ascii).is_ascii(), "{screen:?}");
    }
}

#[test]
fn after_the_last_theme_comes_the_users_own_and_then_the_first() {
    let own = Theme::parse("own", "inherits = 'paper'").unwrap().at(ColorDepth::Ansi256).drawn_in(Graph::Braille);
    let mut seen = vec![own.clone()];
    while seen.len() < 19 {
        seen.push(seen[seen.len() - 1].next(&own));
    }
    let names: Vec<&str> = seen.iter().map(Theme::name).collect();
    assert_eq!(
        names[..10],
        ["own", "dusk", "paper", "contrast", "colorblind", "colorblind-light", "neutral", "plain", "mono", "own"]
    );
    assert_eq!((&seen[9], &seen[18]), (&own, &own));
    let is_like = |it: &Theme| it.graph == Graph::Braille && *it == it.clone().at(ColorDepth::Ansi256);
    assert!(seen.iter().all(is_like), "each is for the same terminal");
}

/// A name, a path, what is wrong in them, and what there is.
#[test]
fn users_have_themes_of_their_own() {
    let home = tempfile::tempdir().unwrap();
    let themes = home.path().join("gpuwatch/themes");
    fs::create_dir_all(&themes).unwrap();
    fs::write(themes.join("sea.toml"), "inherits = 'dusk'\n[roles]\ntitle = '#010203 bold'\n").unwrap();
    fs::write(themes.join("deep.toml"), "inherits = 'sea'\n[roles]\ntext = '#040506'\n").unwrap();
    fs::write(themes.join("dusk.toml"), "inherits = 'dusk'\n[palette]\nsky = '#070809'\n").unwrap();
    fs::write(themes.join("torn.toml"), "inherits = 'dusk'\n[roles]\n\nbda = 'red'\n").unwrap();
    fs::write(themes.join("ring.toml"), "inherits = 'gnir'\n").unwrap();
    fs::write(themes.join("gnir.toml"), "inherits = 'ring'\n").unwrap();
    let config = home.path().to_str().unwrap();
    let path = themes.join("deep.toml");
    for (name, sent) in [
        ("sea", &[Ink::Rgb(1, 2, 3)][..]),
        ("deep", &[Ink::Rgb(1, 2, 3), Ink::Rgb(4, 5, 6)]),
        ("dusk", &[Ink::Rgb(7, 8, 9)]),
        (path.to_str().unwrap(), &[Ink::Rgb(4, 5, 6)]),
    ] {
        let arguments = ["--no-nvml", "--color", "truecolor", "--theme", name];
        let mut terminal = Terminal::start(&arguments, &[("XDG_CONFIG_HOME", config), ("COLORTERM", "")]);
        terminal.shows("q quit");
        let inks = terminal.inks();
        assert!(sent.iter().all(|it| inks.contains(it)), "{name}: not all of {sent:?} in {inks:?}");
        terminal.press("q");
        assert_eq!(terminal.ends(PATIENCE), 0);
    }
    for (name, fault) in [
        ("torn", "gpuwatch/themes/torn.toml:4: there is no role \"bda\"; the nearest is \"bad\""),
        (
            "see",
            "see: there is no theme of that name; there are dusk, paper, contrast, colorblind, colorblind-light, neutral, plain, mono, deep, ",
        ),
        ("ring", "themes inherit at most 4 deep"),
        ("./nowhere.toml", "./nowhere.toml: cannot be read: No such file"),
        ("/dev/zero", "/dev/zero: is larger than 64 KiB"),
    ] {
        let output = Command::new(PROGRAM)
            .args(["--no-nvml", "--theme", name])
            .env("XDG_CONFIG_HOME", config)
            .current_dir(home.path())
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && printed.contains(fault), "{name}: {printed}");
    }
}

#[test]
fn as_many_colours_are_sent_as_are_asked_for() {
    let is_named = |it: &Ink| matches!(it, Ink::Idx(0..16));
    let is_indexed = |it: &Ink| matches!(it, Ink::Idx(16..));
    let is_true = |it: &Ink| matches!(it, Ink::Rgb(..));
    for (wanted, seen) in [
        ("never", [false, false, false]),
        ("16", [true, false, false]),
        ("256", [false, true, false]),
        ("truecolor", [false, false, true]),
    ] {
        let mut terminal = Terminal::start(&["--no-nvml", "--color", wanted], &[("NO_COLOR", "")]);
        terminal.shows("q quit");
        let inks = terminal.inks();
        let any = [inks.iter().any(is_named), inks.iter().any(is_indexed), inks.iter().any(is_true)];
        assert_eq!(any, seen, "{wanted}: {inks:?}");
        terminal.press("q");
        terminal.ends(PATIENCE);
    }
}
