//! The terminal's background chooses the theme: terminals that reply at once, late, wrongly and never.

use crate::{
    helpers::{
        story::usual,
        terminal::{PATIENCE, PROGRAM, Terminal, until},
    },
    recordings::replay,
};
use vt100::Color;

const QUESTION: &[u8] = b"\x1b]11;?\x07\x1b[c";
const ATTRIBUTES: &str = "\x1b[?62;22c";
const LIGHT: &str = "\x1b]11;rgb:ffff/ffff/ffff\x07";
const DARK: &str = "\x1b]11;rgb:1f1f/2323/2b2b\x1b\\";

/// The colour that names a theme: of text, or of titles where text has none.
const THEMES: [(&str, Color); 3] = [
    ("dusk", Color::Rgb(0xd8, 0xde, 0xe9)),
    ("paper", Color::Rgb(0x2b, 0x30, 0x3b)),
    ("neutral", Color::Rgb(0x17, 0x7f, 0xa1)),
];

/// Starts gpuwatch in a terminal that never replies.
fn silent(arguments: &[&str], environment: &[(&str, &str)]) -> Terminal {
    let terminal = Terminal::start(arguments, &[&[("GPUWATCH_THEME", "auto")], environment].concat());
    terminal.shows("q quit");
    terminal
}

/// Starts gpuwatch in a terminal whose input it finds when it asks, however busy the machine is: a shell reads the
/// first line only once the rest is there.
fn prompt(arguments: &[&str], input: &str, environment: &[(&str, &str)]) -> Terminal {
    let start = ["-c", "read -r line; exec \"$0\" \"$@\"", PROGRAM];
    let environment = [&[("GPUWATCH_THEME", "auto")], environment].concat();
    let mut terminal = Terminal::start_program("/bin/sh", &[&start, arguments].concat(), &environment);
    terminal.press(&format!("\n{input}"));
    terminal.shows("q quit");
    terminal
}

fn themes(terminal: &Terminal) -> Vec<&'static str> {
    let inks = terminal.inks();
    THEMES.iter().filter(|(_, ink)| inks.contains(ink)).map(|it| it.0).collect()
}

fn is_queried(terminal: &Terminal) -> bool {
    terminal.bytes().windows(QUESTION.len()).any(|it| it == QUESTION)
}

fn quits(mut terminal: Terminal) {
    terminal.press("q");
    assert_eq!(terminal.ends(PATIENCE), 0);
}

#[test]
fn the_reply_of_the_terminal_chooses_the_theme() {
    let home = tempfile::tempdir().unwrap();
    let file = replay::file(home.path(), "run", &replay::lines(&usual().events), 4096, false);
    for arguments in [&["demo"][..], &["--no-nvml"], &["replay", file.to_str().unwrap()]] {
        for (reply, theme) in [(LIGHT, "paper"), (DARK, "dusk"), ("\x1b]11;#fff\x07", "paper")] {
            let terminal = prompt(arguments, &format!("{reply}{ATTRIBUTES}"), &[("COLORFGBG", "default")]);
            assert!(is_queried(&terminal));
            assert_eq!(themes(&terminal), [theme], "{arguments:?} {reply:?}");
            quits(terminal);
        }
    }
}

#[test]
fn keys_that_are_typed_before_the_reply_count() {
    for input in [format!("?{LIGHT}{ATTRIBUTES}"), format!("{LIGHT}?{ATTRIBUTES}"), format!("{LIGHT}{ATTRIBUTES}?")] {
        let terminal = prompt(&["demo"], &input, &[]);
        terminal.shows("this help");
        assert_eq!(themes(&terminal), ["paper"], "{input:?}");
        quits(terminal);
    }
}

#[test]
fn without_a_reply_the_environment_chooses() {
    for (environment, theme) in [
        (&[("COLORFGBG", "0;15")][..], "paper"),
        (&[("COLORFGBG", "15;default;0")], "dusk"),
        (&[("COLORFGBG", "0;default")], "neutral"),
        (&[], "neutral"),
    ] {
        // A terminal that does not know the first question replies to the second one.
        let terminal = prompt(&["demo"], ATTRIBUTES, environment);
        assert_eq!(themes(&terminal), [theme], "{environment:?}");
        quits(terminal);
    }
}

#[test]
fn a_late_reply_is_no_key_and_changes_no_theme() {
    let garbage = format!("\x1b]11;{}\x07", "fq?/".repeat(800));
    for late in [LIGHT, DARK, &garbage, &format!("{ATTRIBUTES}{LIGHT}")] {
        let mut terminal = silent(&["demo"], &[]);
        assert_eq!(themes(&terminal), ["neutral"]);
        terminal.press(&format!("{late}?"));
        terminal.shows("this help");
        assert_eq!(themes(&terminal), ["neutral"], "{late:?}");
        // Escape may also begin a reply.
        terminal.press("\x1b");
        terminal.hides("this help");
        let text = terminal.text();
        assert!(["FROZEN", "no such key", "theme ", "copied"].iter().all(|it| !text.contains(it)), "{late:?}:\n{text}");
        quits(terminal);
    }
}

/// The shell does not take a reply for typed that arrives while gpuwatch ends.
#[test]
fn a_reply_at_the_end_does_not_reach_the_shell() {
    let script = "\"$0\" demo; echo 'the shell is back'; IFS= read -r line; echo \"typed: <$line>\"";
    for late in [LIGHT, &format!("{LIGHT}{ATTRIBUTES}"), ATTRIBUTES] {
        let mut terminal = Terminal::start_program("/bin/sh", &["-c", script, PROGRAM], &[("GPUWATCH_THEME", "auto")]);
        terminal.shows("q quit");
        terminal.press(&format!("q{late}"));
        terminal.shows("the shell is back");
        terminal.press("end\n");
        terminal.shows("typed: <end>");
        assert_eq!(terminal.ends(PATIENCE), 0);
    }
}

#[test]
fn a_wrong_reply_is_ignored() {
    let garbage = format!("\x1b]11;{}\x07", "fq?/".repeat(800));
    for wrong in ["\x1b]11;rgb:zz/zz/zz\x07", "\x1b]11;\x07", "\x1b]11;rgb:ffff/ffff\x1b\\", &garbage] {
        for (colours, theme) in [("", "neutral"), ("0;15", "paper")] {
            let terminal = prompt(&["demo"], &format!("{wrong}{ATTRIBUTES}?"), &[("COLORFGBG", colours)]);
            terminal.shows("this help");
            assert_eq!(themes(&terminal), [theme], "{wrong:?}");
            quits(terminal);
        }
    }
}

/// What terminals reply, as they document it: to the background's question, and to that for their attributes.
const TERMINALS: [(&str, &str, &str); 11] = [
    ("xterm", "\x1b]11;rgb:ffff/ffff/ffff\x07\x1b[?64;1;9;15;18;21;22c", "paper"),
    (
        "Windows Terminal since 1.22, also as WSL's",
        "\x1b]11;rgb:0c0c/0c0c/0c0c\x1b\\\x1b[?61;6;7;14;21;22;23;24;28;32;42c",
        "dusk",
    ),
    ("the same with a light scheme", "\x1b]11;rgb:ffff/ffff/ffff\x1b\\\x1b[?61;6;7;14;21;22;23;24;28;32;42c", "paper"),
    ("Windows Terminal before, which knows only the second", "\x1b[?61;6;7;22;23;24;28;32;42c", "neutral"),
    ("conhost", "\x1b[?1;0c", "neutral"),
    ("mosh, whose server replies to the second and swallows the first", "\x1b[?62c", "neutral"),
    ("GNU screen reached by ssh, without STY", "\x1b[?1;2c", "neutral"),
    ("GNU screen whose terminal replies after it", "\x1b[?1;2c\x1b]11;rgb:ffff/ffff/ffff\x07", "paper"),
    ("tmux that knows its terminal's colour", "\x1b]11;rgb:1c1c/1c1c/1c1c\x07\x1b[?1;2;4c", "dusk"),
    ("tmux that does not", "\x1b[?1;2c", "neutral"),
    ("VTE", "\x1b]11;rgb:3030/0a0a/2424\x1b\\\x1b[?65;1;9c", "dusk"),
];

#[test]
fn terminals_as_they_are_documented_are_understood() {
    for (name, replies, theme) in TERMINALS {
        // A key that is typed behind the replies counts, and no part of a reply is a key.
        let mut terminal =
            prompt(&["demo"], &format!("{replies}?"), &[("TERM", "xterm-256color"), ("WT_SESSION", "0")]);
        terminal.shows("this help");
        assert_eq!(themes(&terminal), [theme], "{name}");
        terminal.press("\x1b");
        terminal.hides("this help");
        let text = terminal.text();
        assert!(["FROZEN", "no such key", "theme ", "copied"].iter().all(|it| !text.contains(it)), "{name}:\n{text}");
        quits(terminal);
    }
}

#[test]
fn on_an_unknown_background_text_has_the_terminals_own_foreground_in_every_theme() {
    let mut terminal = silent(&["demo"], &[]);
    for theme in ["plain", "mono", "dusk", "paper"] {
        terminal.press("T");
        terminal.shows(&format!("theme {theme}"));
        let inks = terminal.inks();
        assert!(inks.contains(&Color::Default) && THEMES[..2].iter().all(|it| !inks.contains(&it.1)), "{theme}");
    }
    quits(terminal);
}

#[test]
fn only_a_terminal_whose_reply_matters_is_queried() {
    for environment in [
        &[("GPUWATCH_THEME", "paper")][..],
        &[("NO_COLOR", "1")],
        &[("TERM", "linux"), ("COLORTERM", "")],
        &[("TERM", "screen"), ("STY", "1.pts-0.node")],
    ] {
        let terminal = silent(&["--no-nvml"], environment);
        assert!(!is_queried(&terminal), "{environment:?}");
        quits(terminal);
    }
    let terminal = silent(&["--no-nvml"], &[]);
    assert!(until(PATIENCE, || is_queried(&terminal)));
    quits(terminal);
}
